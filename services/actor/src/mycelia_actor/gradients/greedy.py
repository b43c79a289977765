"""Greedy play with actor-critic networks that need torch: convolutions, an LSTM."""

import torch

from mycelia_actor.environments.spaces import Columns, SpaceColumns
from mycelia_actor.gradients.spaces import action_writer, network_spec, observation_reader
from mycelia_actor.policies.action_values import UnplayableError
from mycelia_actor.policies.policy import Slots
from mycelia_algorithms.stochastic_policy import StochasticPolicy
from mycelia_core.config import RunConfig
from mycelia_core.specs import FIRST
from mycelia_core.weights import Weights


class GreedyNetwork:
    """Plays the mode of a network's policy, remembering each environment's LSTM state."""

    def __init__(
        self, observation: SpaceColumns, action: SpaceColumns, config: RunConfig, weights: Weights
    ) -> None:
        """Plays with these weights.

        Raises:
          UnplayableError: they are for other observations or actions.
        """
        self._read = observation_reader(observation)
        self._write = action_writer(action)
        self._policy = StochasticPolicy(
            network_spec(config.network, observation, action),
            seed=0,
            worker_seed=0,
            gamma=1.0,
            normalise_observation="statistics/observation/count" in weights.tensors,
            normalise_reward=False,
        )
        try:
            self._policy.load(weights.tensors)
        except ValueError as error:
            raise UnplayableError(f"weights of version {weights.version}: {error}") from error
        self._state = self._policy.new_state(0)

    def __call__(self, observation: Columns, slots: Slots) -> Columns:
        """Chooses actions on observations `[n, ...]` and `first` `[n]` of environments `slots`."""
        seen = torch.from_numpy(self._read(observation))
        first = torch.from_numpy(observation[FIRST])
        state = self._state_of(slots)
        mode, after = self._policy.mode(seen, first, state)
        if after is not None and self._state is not None:
            for kept, new in zip(self._state, after, strict=True):
                kept[slots] = new
        return self._write(mode.numpy())

    def _state_of(self, slots: Slots) -> tuple[torch.Tensor, torch.Tensor] | None:
        if self._state is None:
            return None
        count = int(slots.max()) + 1
        if count > len(self._state[0]):
            self._state = self._policy.new_state(count)
            assert self._state is not None
        return self._state[0][slots], self._state[1][slots]
