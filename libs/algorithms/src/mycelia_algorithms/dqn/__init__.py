"""Double, Dueling, n-step DQN with prioritized replay: the learner's half of Ape-X."""
