"""Stochastic gradient descent with momentum, over flat parameters: torch's own fused steps."""

import torch
from torch import Tensor
from torch.optim.sgd import sgd


class Sgd:
    r"""Gradient descent with a heavy ball.

    Polyak 1964, in torch's form: v <- momentum v + d,   theta <- theta - lr v
    """

    def __init__(self, parameters: Tensor, *, momentum: float = 0.0) -> None:
        """Will change `parameters` [P] in place."""
        self._parameters = parameters
        self._momentum = momentum
        self.step_count = 0
        """How many steps have been taken."""
        self.velocity = torch.zeros_like(parameters)
        """[P] v."""

    @torch.no_grad()
    def step(self, gradient: Tensor, learning_rate: float) -> None:
        """Moves the parameters one step against `gradient` [P]."""
        self.step_count += 1
        sgd(
            [self._parameters],
            [gradient],
            [self.velocity],
            fused=True,
            weight_decay=0.0,
            momentum=self._momentum,
            lr=learning_rate,
            dampening=0.0,
            nesterov=False,
            maximize=False,
        )

    def state(self) -> dict[str, Tensor]:
        """Its vectors by name, not copied."""
        return {"velocity": self.velocity}
