"""The learner: turns batches of experience into better weights."""
