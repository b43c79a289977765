"""A policy that draws its actions, with its value function and its running statistics."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mycelia_algorithms.networks.actor_critic import (
    ActorCritic,
    ActorCriticOutput,
    ActorCriticSpec,
    State,
)
from mycelia_algorithms.ops.normalisation import STATISTICS, Moments
from mycelia_algorithms.optim.flat import FlatParameters
from mycelia_algorithms.rollout import Rollout

Tensors = Mapping[str, NDArray[Any]]

CLIP = 10.0
"""Normalised observations and rewards are cut off here, on either side."""


class StochasticPolicy:
    """An actor-critic network that acts and can be differentiated. One thread owns it.

    Observations are shifted and scaled by running moments if `normalise_observation` is set;
    rewards are divided by the spread of the discounted return if `normalise_reward` is. The
    moments come with the weights and are the same for all workers.
    """

    def __init__(
        self,
        spec: ActorCriticSpec,
        *,
        seed: int,
        worker_seed: int,
        gamma: float,
        normalise_observation: bool,
        normalise_reward: bool,
    ) -> None:
        """Draws the weights from `seed` and later the actions from `worker_seed`."""
        self._network = ActorCritic(spec, seed=seed)
        self.parameters = FlatParameters(self._network)
        self._lstm_units = spec.lstm_units
        self._generator = torch.Generator().manual_seed(worker_seed)
        self._returns = RunningReturns(gamma)
        self.observation_moments = (
            Moments.empty(spec.observation_shape) if normalise_observation else None
        )
        self.return_moments = Moments.empty(()) if normalise_reward else None

    def weights(self) -> dict[str, NDArray[Any]]:
        """Copies the parameters, and the moments, by name."""
        tensors = {name: value.numpy() for name, value in self.parameters.snapshot().items()}
        if self.observation_moments:
            tensors |= self.observation_moments.to_tensors("observation")
        if self.return_moments:
            tensors |= self.return_moments.to_tensors("return")
        return tensors

    def load(self, tensors: Tensors) -> None:
        """Takes parameters and moments over.

        Raises:
          ValueError: if a tensor is missing, unknown or of another shape; nothing is changed then.
        """
        self.parameters.load({k: v for k, v in tensors.items() if not k.startswith(STATISTICS)})
        if self.observation_moments:
            self.observation_moments = Moments.from_tensors(tensors, "observation")
        if self.return_moments:
            self.return_moments = Moments.from_tensors(tensors, "return")

    @torch.no_grad()
    def act(
        self, observation: Tensor, first: Tensor, state: State | None
    ) -> tuple[Tensor, State | None]:
        """Draws actions in N states [N, ...]."""
        distribution, state = self._network.act(self.normalise(observation), first, state)
        return distribution.sample(self._generator), state

    @torch.no_grad()
    def mode(
        self, observation: Tensor, first: Tensor, state: State | None
    ) -> tuple[Tensor, State | None]:
        """The most probable actions in N states [N, ...]."""
        distribution, state = self._network.act(self.normalise(observation), first, state)
        return distribution.mode(), state

    @torch.no_grad()
    def value(self, observation: Tensor, state: State | None) -> Tensor:
        """The values [E] of states [E, ...] that follow on from LSTM states [E, H]."""
        goes_on = torch.zeros(1, len(observation), dtype=torch.bool)
        rows = self.normalise(observation).unsqueeze(0)
        value: Tensor = self._network(rows, goes_on, state).value.squeeze(0)
        return value

    def new_state(self, count: int) -> State | None:
        """The LSTM's state at the start of `count` episodes; None without an LSTM."""
        if not self._lstm_units:
            return None
        return torch.zeros(count, self._lstm_units), torch.zeros(count, self._lstm_units)

    def judge(self, observation: Tensor, first: Tensor, state: State | None) -> ActorCriticOutput:
        """What the network says of normalised observations [T, N, ...], with gradient."""
        output: ActorCriticOutput = self._network(observation, first, state)
        return output

    def normalise(self, observation: Tensor) -> Tensor:
        """Normalises observations [..., *shape] by the moments loaded last."""
        moments = self.observation_moments
        if moments is None:
            return observation
        mean = torch.from_numpy(moments.mean.astype(np.float32))
        deviation = torch.from_numpy(moments.deviation.astype(np.float32))
        return ((observation.to(torch.float32) - mean) / deviation).clamp(-CLIP, CLIP)

    def scale(self, reward: Tensor) -> Tensor:
        """Scales rewards by the moments loaded last. Their mean stays where it is."""
        if self.return_moments is None:
            return reward
        return (reward / float(self.return_moments.deviation)).clamp(-CLIP, CLIP)

    def observe(self, rollout: Rollout) -> dict[str, NDArray[Any]]:
        """What a rollout adds to the moments. To be called once for each, in order."""
        increments: dict[str, NDArray[Any]] = {}
        if self.observation_moments:
            seen = rollout.observation[rollout.valid].numpy()
            increments |= Moments.of(seen).to_tensors("observation")
        if self.return_moments:
            increments |= Moments.of(self._returns.follow(rollout)).to_tensors("return")
        return increments

    def differentiate(self, loss: Tensor) -> dict[str, NDArray[Any]]:
        """The gradient of a loss by name; views that the next call writes over."""
        self.parameters.gradient.zero_()
        torch.autograd.backward(loss)
        return {name: g.numpy() for name, g in self.parameters.split(self.parameters.gradient)}


class RunningReturns:
    """Follows each environment's discounted return, whose spread rewards are scaled by."""

    def __init__(self, gamma: float) -> None:
        """Starts at 0 with the first rollout."""
        self._gamma = gamma
        self._running: NDArray[np.float64] | None = None

    def follow(self, rollout: Rollout) -> NDArray[np.float64]:
        """The running returns of all valid rows in one vector; 0 again after an episode's end."""
        reward, ends, valid = (x.numpy() for x in (rollout.reward, rollout.ends, rollout.valid))
        running = np.zeros(reward.shape[1]) if self._running is None else self._running
        seen = []
        for t in range(len(reward)):
            running = np.where(valid[t], self._gamma * running + reward[t], running)
            seen.append(running[valid[t]])
            running = np.where(ends[t], 0.0, running)
        self._running = running
        return np.concatenate(seen)
