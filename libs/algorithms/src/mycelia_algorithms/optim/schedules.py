"""Learning-rate schedules, in learner steps."""

import math
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True, slots=True)
class LearningRate:
    """A learning rate that warms up, then stays, or falls on a line or on half a cosine.

    With base 1, `warmup_steps=4` and `decay_until_step=12`, steps 0 to 12 get
    .25 .5 .75 1 1 .875 .75 .625 .5 .375 .25 .125 0.
    """

    base: float
    """The rate after the warm-up."""

    warmup_steps: int = 0
    """Steps over which the rate rises; the first of them is not a step of rate 0."""

    decay_until_step: int = 0
    """The step at which the rate has fallen as far as it does; 0 if it stays."""

    final_fraction: float = 0.0
    """The part of `base` that it falls to."""

    shape: Literal["linear", "cosine"] = "linear"
    """How it falls. Cosine: Loshchilov and Hutter 2017, eq. 5, https://arxiv.org/abs/1608.03983."""

    def __post_init__(self) -> None:
        """Refuses a decay that would end before it begins."""
        if self.decay_until_step and self.decay_until_step <= self.warmup_steps:
            raise ValueError(
                f"decay_until_step must be 0 or above warmup_steps, got "
                f"{self.decay_until_step} and {self.warmup_steps}"
            )

    def at(self, learner_step: int) -> float:
        """The rate of the step that `learner_step` steps went before."""
        if learner_step < self.warmup_steps:
            return self.base * (learner_step + 1) / self.warmup_steps
        if not self.decay_until_step:
            return self.base
        remaining = self.decay_until_step - learner_step
        share = max(0.0, remaining / (self.decay_until_step - self.warmup_steps))
        if self.shape == "cosine":
            share = (1 - math.cos(math.pi * share)) / 2
        return self.base * (self.final_fraction + (1 - self.final_fraction) * share)
