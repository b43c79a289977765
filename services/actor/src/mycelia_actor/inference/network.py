"""What the inference service evaluates: a network that remembers every slot."""

from typing import Protocol

from mycelia_actor.environments.spaces import Columns
from mycelia_actor.policies.action_values import ActionValues, make_action_values
from mycelia_actor.policies.policy import Slots
from mycelia_core.clients.inference import Q_VALUES
from mycelia_core.config import RunConfig
from mycelia_core.specs import Signature
from mycelia_core.weights import Weights


class SlotNetwork(Protocol):
    """Evaluates a network on what slots show, with its memory of each. One thread owns it."""

    def use(self, weights: Weights) -> None:
        """Evaluates with these weights from the next call on.

        Raises:
          UnplayableError: they are for other observations or actions.
        """

    def see(self, observation: Columns, slots: Slots) -> Columns:
        """Returns the outputs `[n, ...]` of what slots show now, and remembers it.

        Args:
          observation: `[n, ...]`, and the column `first` `[n]` beside the observation's own.
          slots: [n] all different.

        Returns:
          nothing without weights.
        """

    def look_ahead(self, observation: Columns, slots: Slots) -> Columns:
        """Returns the outputs of what comes after what slots showed last; remembers nothing."""


class QNetwork:
    """The action values of the actors' own policies. A `SlotNetwork`."""

    def __init__(self, values: ActionValues) -> None:
        """Takes ownership of what values actions."""
        self._values = values

    def use(self, weights: Weights) -> None:
        """Evaluates with these weights from the next call on; raises `UnplayableError`."""
        self._values.use(weights)

    def see(self, observation: Columns, slots: Slots) -> Columns:
        """Returns `q_values` of what slots show now."""
        values = self._values.see(observation, slots)
        return {} if values is None else {Q_VALUES: values}

    def look_ahead(self, observation: Columns, slots: Slots) -> Columns:
        """Returns `q_values` of what comes after what slots showed last."""
        values = self._values.look_ahead(observation, slots)
        return {} if values is None else {Q_VALUES: values}


def make_network(signature: Signature, config: RunConfig, device: str) -> SlotNetwork:
    """Returns the run's network on a device, with memory for `inference.max_slots` slots.

    Raises:
      UnplayableError: the network or the action space does not fit, or torch is missing.
    """
    settings = config.inference
    if config.topology != "replay":
        # Networks that draw actions need torch, whatever they see.
        from mycelia_actor.inference.stochastic import StochasticNetwork

        return StochasticNetwork(signature, config, settings.max_slots, device)
    threads = {"torch_threads": settings.torch_threads}
    config = config.model_copy(update={"actor": config.actor.model_copy(update=threads)})
    return QNetwork(make_action_values(signature, config, settings.max_slots, device))
