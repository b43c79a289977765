"""The Adam optimizer, over flat parameters.

The steps are torch's own fused ones, through its functional form: making a `torch.optim.Adam`
imports the compiler (over a second, at the start of every learner), and its bookkeeping is most
of the time of a small network's step.
"""

import torch
from torch import Tensor
from torch.optim.adam import adam


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
        self.first_moment = torch.zeros_like(parameters)
        """[P] m."""
        self.second_moment = torch.zeros_like(parameters)
        """[P] v."""
        self._step_count = 0
        # torch's own count, which on a GPU nobody should have to wait for.
        self._step = torch.zeros((), dtype=torch.float32, device=parameters.device)

    @property
    def step_count(self) -> int:
        """t, how many steps have been taken."""
        return self._step_count

    @step_count.setter
    def step_count(self, value: int) -> None:
        self._step_count = value
        self._step.fill_(value)

    @torch.no_grad()
    def step(self, gradient: Tensor, learning_rate: float) -> None:
        """Moves the parameters one step against `gradient` [P]."""
        self._step_count += 1
        adam(
            [self._parameters],
            [gradient],
            [self.first_moment],
            [self.second_moment],
            [],
            [self._step],
            fused=True,
            amsgrad=False,
            beta1=self._beta1,
            beta2=self._beta2,
            lr=learning_rate,
            weight_decay=0.0,
            eps=self._epsilon,
            maximize=False,
        )

    def state(self) -> dict[str, Tensor]:
        """Its vectors by name, not copied."""
        return {"first_moment": self.first_moment, "second_moment": self.second_moment}
