"""The Adam optimizer, over flat parameters.

torch's own does the same steps, but its first use imports the compiler (over a second, at the
start of every learner), and for small networks most of its time is spent on bookkeeping.
"""

import torch
from torch import Tensor


class Adam:
    r"""Adam over one vector of parameters.

    Kingma and Ba 2015, algorithm 1 (https://arxiv.org/abs/1412.6980):

        m <- b1 m + (1 - b1) g        v <- b2 v + (1 - b2) g^2
        theta <- theta - lr (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + epsilon)
    """

    def __init__(
        self, parameters: Tensor, *, epsilon: float, beta1: float = 0.9, beta2: float = 0.999
    ) -> None:
        """Will change `parameters` [P] in place."""
        self._parameters = parameters
        self._epsilon = epsilon
        self._beta1 = beta1
        self._beta2 = beta2
        self.step_count = 0
        """t, how many steps have been taken."""
        self.first_moment = torch.zeros_like(parameters)
        """[P] m."""
        self.second_moment = torch.zeros_like(parameters)
        """[P] v."""

    @torch.no_grad()
    def step(self, gradient: Tensor, learning_rate: float) -> None:
        """Moves the parameters one step against `gradient` [P]."""
        self.step_count += 1
        self.first_moment.lerp_(gradient, 1 - self._beta1)
        self.second_moment.mul_(self._beta2).addcmul_(gradient, gradient, value=1 - self._beta2)
        first_correction = 1 - self._beta1**self.step_count
        second_correction = 1 - self._beta2**self.step_count
        scale = self.second_moment.sqrt().div_(second_correction**0.5).add_(self._epsilon)
        self._parameters.addcdiv_(self.first_moment, scale, value=-learning_rate / first_correction)

    def state(self) -> dict[str, Tensor]:
        """Its vectors by name, not copied."""
        return {"first_moment": self.first_moment, "second_moment": self.second_moment}
