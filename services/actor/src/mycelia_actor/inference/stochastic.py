"""An actor-critic with the LSTM states of all slots."""

from math import prod

import numpy as np
import torch
from numpy.typing import NDArray

from mycelia_actor.environments.spaces import Columns
from mycelia_actor.policies.action_values import UnplayableError
from mycelia_actor.policies.features import Features
from mycelia_actor.policies.policy import Slots
from mycelia_algorithms.networks.actor_critic import ActorCriticOutput, ActorCriticSpec, State
from mycelia_algorithms.networks.distributions import Categorical
from mycelia_algorithms.stochastic_policy import StochasticPolicy
from mycelia_core.config import RunConfig
from mycelia_core.specs import ACTION, FIRST, OBSERVATION, Signature
from mycelia_core.weights import Weights

_COUNT = "statistics/observation/count"


class StochasticNetwork:
    """What the workers' own network says of actions, and of values. A `SlotNetwork`.

    The distribution's parameters come out, and the actor draws: so that the same seeds
    lead to the same actions wherever the network is.
    """

    def __init__(self, signature: Signature, config: RunConfig, count: int, device: str) -> None:
        """Prepares for N slots.

        Raises:
          UnplayableError: the action is neither one choice nor one box of numbers, or
            the device is not a CPU.
        """
        if device != "cpu":
            raise UnplayableError(f"actor-critics are evaluated on a CPU only, got {device}")
        torch.set_num_threads(config.inference.torch_threads)
        specs = signature.starting_with(OBSERVATION)
        self._features = None if len(specs) == 1 else Features(specs)
        self._name = specs[0].name
        shape = (self._features.size,) if self._features else specs[0].shape
        self._spec = _network_spec(signature, config, shape)
        self._policy: StochasticPolicy | None = None
        self._count = count
        self._state: State | None = None

    def use(self, weights: Weights) -> None:
        """Evaluates with these weights from the next call on; raises `UnplayableError`."""
        if self._policy is None:
            self._policy = StochasticPolicy(
                self._spec,
                seed=0,
                worker_seed=0,
                gamma=1.0,
                normalise_observation=_COUNT in weights.tensors,
                normalise_reward=False,
            )
            self._state = self._policy.new_state(self._count)
        try:
            self._policy.load(weights.tensors)
        except ValueError as error:
            raise UnplayableError(f"weights of version {weights.version}: {error}") from error

    def see(self, observation: Columns, slots: Slots) -> Columns:
        """Returns the distribution and `value` of what slots show now."""
        if self._policy is None:
            return {}
        output = self._judge(self._policy, observation, observation[FIRST], slots)
        if self._state is not None and output.state is not None:
            for kept, after in zip(self._state, output.state, strict=True):
                kept[slots] = after
        return _columns(output)

    def look_ahead(self, observation: Columns, slots: Slots) -> Columns:
        """Returns the same of what comes after what slots showed last."""
        if self._policy is None:
            return {}
        goes_on = np.zeros(len(slots), np.bool_)
        return _columns(self._judge(self._policy, observation, goes_on, slots))

    @torch.no_grad()
    def _judge(
        self, policy: StochasticPolicy, observation: Columns, first: NDArray[np.bool_], slots: Slots
    ) -> ActorCriticOutput:
        seen = self._features(observation) if self._features else observation[self._name]
        state = None
        if self._state is not None:
            state = (self._state[0][slots], self._state[1][slots])
        # Copied: torch warns of arrays that are not to be written to.
        rows = policy.normalise(torch.from_numpy(np.array(seen))).unsqueeze(0)
        return policy.judge(rows, torch.from_numpy(np.array(first)).unsqueeze(0), state)


def _network_spec(
    signature: Signature, config: RunConfig, shape: tuple[int, ...]
) -> ActorCriticSpec:
    action, *others = signature.starting_with(ACTION)
    if others:
        raise UnplayableError(f"policies draw one action, got {len(others) + 1} columns of them")
    network = config.network
    return ActorCriticSpec(
        observation_shape=shape,
        action_count=action.category_count,
        action_size=0 if action.category_count else prod(action.shape),
        hidden_sizes=tuple(network.hidden_sizes),
        activation=network.activation,
        shared_trunk=network.shared_trunk,
        convolutions=network.convolutions,
        convolution_dtype=network.convolution_dtype,
        lstm_units=network.lstm_units,
    )


def _columns(output: ActorCriticOutput) -> Columns:
    value = {"value": output.value[0].numpy()}
    policy = output.policy
    if isinstance(policy, Categorical):
        return value | {"logits": policy.logits[0].numpy()}
    mean = policy.mean[0]  # type: ignore[attr-defined]
    log_std = policy.log_std.expand_as(mean)  # type: ignore[attr-defined]
    return value | {"mean": mean.numpy(), "log_std": log_std.numpy()}
