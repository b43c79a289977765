"""Stable-Baselines3's DQN with its published CartPole settings, timed to a mean return of 475.

The settings are those of RL Baselines3 Zoo for CartPole-v1. Start-up and evaluation are not
counted: the clock runs only while it steps environments and trains.
"""

import argparse
import json
import time

import gymnasium
import torch
from stable_baselines3 import DQN
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.evaluation import evaluate_policy

EVALUATION_PERIOD_STEPS = 1_000
EVALUATION_EPISODES = 20


class StopWhenSolved(BaseCallback):
    """Evaluates greedily every so often, off the clock, and stops at the threshold."""

    def __init__(self, threshold: float, seed: int) -> None:
        super().__init__()
        self.threshold = threshold
        self.evaluation_env = gymnasium.make("CartPole-v1")
        self.evaluation_env.reset(seed=10_000 + seed)
        self.evaluation_seconds = 0.0
        self.best = 0.0
        self.solved = False

    def _on_step(self) -> bool:
        if self.num_timesteps % EVALUATION_PERIOD_STEPS:
            return True
        start = time.perf_counter()
        mean, _ = evaluate_policy(self.model, self.evaluation_env, EVALUATION_EPISODES, warn=False)
        self.evaluation_seconds += time.perf_counter() - start
        self.best = max(self.best, float(mean))
        self.solved = bool(mean >= self.threshold)
        return not self.solved


def main() -> None:
    """Trains once and prints one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threshold", type=float, default=475)
    parser.add_argument("--max-env-steps", type=int, default=100_000)
    parser.add_argument("--threads", type=int, default=2, help="torch threads; 2 is its best here")
    arguments = parser.parse_args()

    torch.set_num_threads(arguments.threads)
    model = DQN(
        "MlpPolicy",
        gymnasium.make("CartPole-v1"),
        learning_rate=2.3e-3,
        batch_size=64,
        buffer_size=100_000,
        learning_starts=1_000,
        gamma=0.99,
        target_update_interval=10,
        train_freq=256,
        gradient_steps=128,
        exploration_fraction=0.16,
        exploration_final_eps=0.04,
        policy_kwargs={"net_arch": [256, 256]},
        seed=arguments.seed,
        device="cpu",
    )
    # The published run is 50,000 steps long; the exploration schedule depends on it.
    callback = StopWhenSolved(arguments.threshold, arguments.seed)
    start = time.perf_counter()
    model.learn(50_000, callback=callback)
    while not callback.solved and model.num_timesteps < arguments.max_env_steps:
        model.learn(10_000, callback=callback, reset_num_timesteps=False)
    seconds = time.perf_counter() - start - callback.evaluation_seconds
    print(
        json.dumps(
            {
                "solved": callback.solved,
                "seconds": seconds,
                "env_steps": model.num_timesteps,
                "best": callback.best,
            }
        )
    )


if __name__ == "__main__":
    main()
