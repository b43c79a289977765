"""The settings of DQN."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator


class DqnConfig(BaseModel):
    """Double, Dueling, n-step DQN with prioritized replay."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    name: Literal["dqn"] = "dqn"

    gamma: float = Field(default=0.99, gt=0, le=1)
    """The discount of one environment step."""

    n_step: int = Field(default=3, ge=1)
    """How many rewards a target sums before it bootstraps."""

    frame_stack: int = Field(default=1, ge=1)
    """How many frames the network sees at once; rows hold one, the table gathers those before."""

    double: bool = True
    """Whether the online network chooses the action that the target network judges."""

    dueling: bool = True
    """Whether the network has a head for the value and one for the advantages."""

    importance_exponent: float = Field(default=0.4, ge=0, le=1)
    """Beta of prioritized replay: how far sampling weights make up for the priorities."""

    target_update_period: int = Field(default=500, ge=1)
    """Learner steps between two copies of the online network to the target network."""

    huber_delta: float | None = Field(default=1.0, gt=0)
    """Where the loss turns from quadratic to linear; null for quadratic everywhere."""

    priority_epsilon: float = Field(default=1e-6, ge=0)
    """Added to |td_error|, so that no item's priority is 0 and it can be drawn again."""

    learning_rate_warmup_steps: int = Field(default=0, ge=0)
    """Learner steps over which the learning rate rises to its value."""

    learning_rate_decay_until_step: int = Field(default=0, ge=0)
    """The learner step at which the learning rate has fallen to 0; 0 if it stays."""

    @model_validator(mode="after")
    def _check_schedule(self) -> "DqnConfig":
        until = self.learning_rate_decay_until_step
        if until and until <= self.learning_rate_warmup_steps:
            raise ValueError(
                f"learning_rate_decay_until_step must be 0 or above learning_rate_warmup_steps, "
                f"got {until} and {self.learning_rate_warmup_steps}"
            )
        return self

    def window(self) -> dict[str, int]:
        """The windows that the replay table is to make items of."""
        return {
            "learn_rows": 1,
            "bootstrap_rows": self.n_step,
            "period": 1,
            "context_rows": self.frame_stack - 1,
        }
