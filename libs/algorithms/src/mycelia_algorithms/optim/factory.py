"""Builds optimizers by name."""

from typing import Literal, Protocol

from torch import Tensor

from mycelia_algorithms.optim.adam import Adam
from mycelia_algorithms.optim.rmsprop import RmsProp
from mycelia_algorithms.optim.sgd import Sgd


class Optimizer(Protocol):
    """Moves one vector of parameters. One thread owns it."""

    step_count: int

    def step(self, gradient: Tensor, learning_rate: float) -> None:
        """Moves the parameters [P] one step against `gradient` [P]."""

    def state(self) -> dict[str, Tensor]:
        """Its vectors [P] by name, not copied; with `step_count`, all that it remembers."""


def build_optimizer(
    name: Literal["rmsprop", "adam", "sgd"],
    parameters: Tensor,
    *,
    epsilon: float,
    decay: float = 0.99,
    momentum: float = 0.0,
) -> Optimizer:
    """Builds the optimizer `name` over `parameters` [P], which it will change in place.

    Args:
      name: which one.
      parameters: [P] all of them in one vector.
      epsilon: of Adam and RMSProp.
      decay: of RMSProp.
      momentum: of gradient descent.
    """
    if name == "rmsprop":
        return RmsProp(parameters, epsilon=epsilon, decay=decay)
    if name == "adam":
        return Adam(parameters, epsilon=epsilon)
    return Sgd(parameters, momentum=momentum)
