"""Greedy episodes with fixed seeds: how good a policy is, apart from training."""

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mycelia_actor.environments.make import Environment, make_environment
from mycelia_actor.environments.spaces import (
    Columns,
    action_columns,
    observation_columns,
    signature_of,
)
from mycelia_actor.policies.action_values import make_action_values
from mycelia_actor.policies.greedy import Greedy
from mycelia_actor.policies.greedy_policy import make_greedy_policy
from mycelia_actor.policies.policy import Slots
from mycelia_core.actor_critic import is_actor_critic
from mycelia_core.config import RunConfig
from mycelia_core.specs import FIRST
from mycelia_core.weights import Weights

FIRST_SEED = 10_000
"""Episode i of an evaluation is played with seed 10000 + i."""

MAX_TOGETHER = 32
"""How many episodes are played side by side."""

ChooseActions = Callable[[Columns, Slots], Columns]
"""Takes observations `[n, ...]`, the column `first` `[n]` beside them, and whose they are `[n]`."""


class Evaluation:
    """Environments of its own to play whole episodes in. One thread owns it."""

    def __init__(self, environments: Sequence[Environment]) -> None:
        """Takes ownership of environments of one kind; as many episodes are played together."""
        self._environments = list(environments)
        self.count = len(self._environments)
        self.observation = observation_columns(self._environments[0].observation_space)
        self.action = action_columns(self._environments[0].action_space)

    def play(
        self,
        choose: ChooseActions,
        seeds: Sequence[int],
        stop: threading.Event | None = None,
    ) -> list[float] | None:
        """Plays one episode for each seed, to its end, and returns their returns.

        Returns:
          the undiscounted returns in the order of the seeds; None if `stop` was
          set meanwhile, for the mean over those that ended early would lie.
        """
        returns: list[float] = []
        together = len(self._environments)
        for start in range(0, len(seeds), together):
            played = self._play_together(choose, seeds[start : start + together], stop)
            if played is None:
                return None
            returns += played
        return returns

    def close(self) -> None:
        """Closes the environments."""
        for environment in self._environments:
            environment.close()

    def _play_together(
        self, choose: ChooseActions, seeds: Sequence[int], stop: threading.Event | None
    ) -> list[float] | None:
        returns = [0.0] * len(seeds)
        playing = list(range(len(seeds)))
        is_first = True
        seen = [self._environments[i].reset(seed=seed)[0] for i, seed in enumerate(seeds)]
        while playing:
            if stop is not None and stop.is_set():
                return None
            # Episodes that have ended leave the batch, so the last ones cost little.
            columns = self.observation.encode(seen) | {FIRST: np.full(len(seen), is_first)}
            actions = self.action.decode(choose(columns, np.array(playing)))
            is_first = False
            still_playing, seen = [], []
            for i, action in zip(playing, actions, strict=True):
                value, reward, terminated, truncated, _ = self._environments[i].step(action)
                returns[i] += float(reward)
                if not (terminated or truncated):
                    still_playing.append(i)
                    seen.append(value)
            playing = still_playing
        return returns


def make_evaluation(config: RunConfig, episodes: int) -> Evaluation:
    """Makes the environments to play `episodes` episodes in.

    Raises:
      MakeEnvironmentError: an environment cannot be made.
      UnsupportedSpaceError: its spaces cannot be had as columns.
    """
    together = min(episodes, MAX_TOGETHER)
    return Evaluation([make_environment(config.env) for _ in range(together)])


def make_greedy(evaluation: Evaluation, config: RunConfig, weights: Weights) -> ChooseActions:
    """Returns what chooses the actions of largest value, or a policy's most probable ones.

    Raises:
      UnplayableError: these weights do not fit the environment.
    """
    if is_actor_critic(weights.tensors):
        return make_greedy_policy(evaluation.observation, evaluation.action, config, weights)
    signature = signature_of(evaluation.observation, evaluation.action)
    return Greedy(make_action_values(signature, config, evaluation.count), weights)


def evaluate(
    tensors: Mapping[str, NDArray[Any]],
    config: RunConfig,
    episodes: int,
    seed: int = FIRST_SEED,
    stop: threading.Event | None = None,
) -> list[float]:
    """Plays greedy episodes with a policy's weights and returns their returns.

    Args:
      tensors: the weights by name.
      config: the run's config.
      episodes: how many, at least 1.
      seed: of the first episode; each of the others has one more.
      stop: ends it early, without returns.

    Raises:
      MakeEnvironmentError: the environment cannot be made.
      UnplayableError: the weights do not fit the environment.
    """
    evaluation = make_evaluation(config, episodes)
    try:
        choose = make_greedy(evaluation, config, Weights(0, 0, tensors))
        return evaluation.play(choose, range(seed, seed + episodes), stop) or []
    finally:
        evaluation.close()
