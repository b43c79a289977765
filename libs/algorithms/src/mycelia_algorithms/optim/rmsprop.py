"""RMSProp as A3C has it, over flat parameters."""

import torch
from torch import Tensor


class RmsProp:
    r"""RMSProp without momentum; whoever holds it shares its statistics with all gradients.

    Mnih et al. 2016, eqs. 8 and 9 (https://arxiv.org/abs/1602.01783), g starting at 0:

        g <- decay g + (1 - decay) d^2,   theta <- theta - lr d / sqrt(g + epsilon)

    Epsilon is inside the root: torch adds it outside, which changes the first steps up to nine
    times.
    """

    def __init__(self, parameters: Tensor, *, epsilon: float, decay: float = 0.99) -> None:
        """Will change `parameters` [P] in place."""
        self._parameters = parameters
        self._epsilon = epsilon
        self._decay = decay
        self.step_count = 0
        """How many steps have been taken."""
        self.mean_square = torch.zeros_like(parameters)
        """[P] g."""

    @torch.no_grad()
    def step(self, gradient: Tensor, learning_rate: float) -> None:
        """Moves the parameters one step against `gradient` [P]."""
        self.step_count += 1
        self.mean_square.mul_(self._decay).addcmul_(gradient, gradient, value=1 - self._decay)
        scale = self.mean_square.add(self._epsilon).sqrt_()
        self._parameters.addcdiv_(gradient, scale, value=-learning_rate)

    def state(self) -> dict[str, Tensor]:
        """Its vectors by name, not copied."""
        return {"mean_square": self.mean_square}
