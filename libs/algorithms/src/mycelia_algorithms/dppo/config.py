"""The settings of DPPO."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class DppoConfig(BaseModel):
    """Distributed proximal policy optimisation, clipped or with an adaptive KL penalty."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Literal["dppo"] = "dppo"

    gamma: float = Field(default=0.99, gt=0, le=1)
    """The discount of one environment step."""

    gae_lambda: float = Field(default=0.95, ge=0, le=1)
    """How much advantages of many steps weigh."""

    rollout_steps: int = Field(default=128, ge=1)
    """Environment steps of each environment in one iteration."""

    policy_epochs: int = Field(default=4, ge=0)
    """Passes of the policy's loss over a worker's rollout in one iteration."""

    value_epochs: int = Field(default=4, ge=0)
    """Passes of the value's loss over it. Where they differ, the longer goes on alone."""

    minibatches: int = Field(default=4, ge=1)
    """Sub-steps in one pass; each is a synchronous round."""

    objective: Literal["clip", "adaptive-kl"] = "clip"
    """What keeps the policy near the one that acted."""

    clip_range: float = Field(default=0.2, gt=0)
    """Clip: how far the probability ratio may move from 1."""

    kl_target: float = Field(default=0.0, ge=0)
    """The divergence wanted of an iteration, in nats: at 4 times this, all workers end it. Needed
    by `adaptive-kl`; 0 for no end."""

    kl_coefficient: float = Field(default=1.0, gt=0)
    """Adaptive KL: the penalty's weight in the first iteration."""

    kl_hinge_coefficient: float = Field(default=50.0, ge=0)
    """Adaptive KL: the weight of the squared excess over twice the target."""

    value_clip_range: float = Field(default=0.0, ge=0)
    """How far a value may move from what it was, in scaled rewards; 0 for any distance."""

    value_coefficient: float = Field(default=0.5, ge=0)
    """The weight of the value loss, which is half the squared error."""

    entropy_coefficient: float = Field(default=0.0, ge=0)
    """The weight of the entropy that is kept up."""

    normalise_advantage: bool = True
    """Whether advantages are shifted and scaled, over each worker's rollout."""

    normalise_observation: bool = False
    """Whether observations are shifted and scaled by running moments, shared by all workers."""

    normalise_reward: bool = False
    """Whether rewards are divided by the running spread of the discounted return."""

    def model_post_init(self, context: object) -> None:
        """Refuses a penalty without a target.

        Raises:
          ValueError: `adaptive-kl` needs `kl_target`.
        """
        if self.objective == "adaptive-kl" and not self.kl_target:
            raise ValueError("objective adaptive-kl needs kl_target above 0")

    def window(self) -> dict[str, int]:
        """What a replay table would be told; there is none in the gradient topologies."""
        return {"learn_rows": 1, "bootstrap_rows": 1, "period": 1, "context_rows": 0}
