"""What a network needs to know of an environment's spaces, and tensors from their columns."""

from collections.abc import Callable
from math import prod
from typing import Any

from gymnasium import spaces
from numpy.typing import NDArray

from mycelia_actor.environments.spaces import Columns, SpaceColumns
from mycelia_actor.policies.action_values import UnplayableError
from mycelia_actor.policies.bounds import within_bounds
from mycelia_actor.policies.features import Features
from mycelia_algorithms.networks.actor_critic import ActorCriticSpec
from mycelia_core.config import NetworkConfig
from mycelia_core.specs import ACTION, OBSERVATION

Array = NDArray[Any]


def network_spec(
    network: NetworkConfig, observation: SpaceColumns, action: SpaceColumns
) -> ActorCriticSpec:
    """The network for these spaces.

    Raises:
      UnplayableError: the actions are neither one choice nor one box of numbers.
      ValueError: the config asks for a network that cannot be.
    """
    space = action.space
    if not isinstance(space, spaces.Discrete | spaces.Box):
        raise UnplayableError(f"policies draw from Discrete or Box action spaces, got {space}")
    return ActorCriticSpec(
        observation_shape=_observation_shape(observation),
        action_count=int(space.n) if isinstance(space, spaces.Discrete) else 0,
        action_size=prod(space.shape) if isinstance(space, spaces.Box) else 0,
        hidden_sizes=tuple(network.hidden_sizes),
        activation=network.activation,
        shared_trunk=network.shared_trunk,
        convolutions=network.convolutions,
        convolution_dtype=network.convolution_dtype,
        lstm_units=network.lstm_units,
    )


def observation_reader(observation: SpaceColumns) -> Callable[[Columns], Array]:
    """Returns what makes one array [N, ...] of observation columns: flat if there are several."""
    if _is_single(observation):
        return lambda columns: columns[OBSERVATION]
    return Features(observation.specs)


def action_writer(action: SpaceColumns) -> Callable[[Array], Columns]:
    """Returns what makes action columns of a policy's actions [N] or [N, D], within bounds."""
    if isinstance(action.space, spaces.Box):
        return lambda chosen: within_bounds(action, chosen)
    return lambda chosen: {ACTION: chosen}


def _observation_shape(observation: SpaceColumns) -> tuple[int, ...]:
    if _is_single(observation):
        return observation.specs[0].shape
    return (Features(observation.specs).size,)


def _is_single(observation: SpaceColumns) -> bool:
    return [spec.name for spec in observation.specs] == [OBSERVATION]
