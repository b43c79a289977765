"""The settings of A3C and A2C."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class ActorCriticConfig(BaseModel):
    """Advantage actor-critic: A3C asynchronously, A2C in synchronous rounds."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Literal["a3c", "a2c"] = "a3c"

    gamma: float = Field(default=0.99, gt=0, le=1)
    """The discount of one environment step."""

    gae_lambda: float = Field(default=1.0, ge=0, le=1)
    """1 for n-step returns, as published; below, advantages of fewer steps weigh more."""

    rollout_steps: int = Field(default=20, ge=1)
    """t_max: environment steps of each environment from one gradient to the next."""

    value_coefficient: float = Field(default=0.5, ge=0)
    """The weight of the value loss, which is half the squared error."""

    entropy_coefficient: float = Field(default=0.01, ge=0)
    """The weight of the entropy that is kept up."""

    normalise_advantage: bool = False
    """Whether advantages are shifted and scaled, over each worker's rollout."""

    normalise_observation: bool = False
    """Whether observations are shifted and scaled by running moments, shared by all workers."""

    normalise_reward: bool = False
    """Whether rewards are divided by the running spread of the discounted return."""

    def window(self) -> dict[str, int]:
        """What a replay table would be told; there is none in the gradient topologies."""
        return {"learn_rows": 1, "bootstrap_rows": 1, "period": 1, "context_rows": 0}
