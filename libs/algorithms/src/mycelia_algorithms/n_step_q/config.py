"""The settings of asynchronous n-step Q-learning."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class NStepQConfig(BaseModel):
    """Asynchronous n-step Q-learning, Mnih et al. 2016, algorithm S2."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Literal["n-step-q"] = "n-step-q"

    gamma: float = Field(default=0.99, gt=0, le=1)
    """The discount of one environment step."""

    rollout_steps: int = Field(default=20, ge=1)
    """t_max: environment steps of each environment from one gradient to the next."""

    target_update_period: int = Field(default=200, ge=1)
    """Versions of the weights from one copy to the target network to the next."""

    double: bool = True
    """Whether the online network chooses the action that the target network judges."""

    huber_delta: float = Field(default=1.0, gt=0)
    """Where the loss turns from quadratic to linear."""

    final_epsilons: tuple[float, ...] = (0.1, 0.01, 0.5)
    """How often a worker acts at random in the end: one of these, drawn for each worker."""

    final_epsilon_probs: tuple[float, ...] = (0.4, 0.3, 0.3)
    """How probable each of them is."""

    epsilon_decay_versions: int = Field(default=1000, ge=0)
    """Versions over which epsilon falls from 1 to that."""

    def model_post_init(self, context: object) -> None:
        """Refuses probabilities that do not belong to the epsilons.

        Raises:
          ValueError: their numbers differ, or they do not add up to 1.
        """
        probs = self.final_epsilon_probs
        if len(probs) != len(self.final_epsilons) or abs(sum(probs) - 1) > 1e-6:
            raise ValueError(
                f"final_epsilon_probs needs {len(self.final_epsilons)} numbers that add up to 1, "
                f"got {probs}"
            )

    def window(self) -> dict[str, int]:
        """What a replay table would be told; there is none in the gradient topologies."""
        return {"learn_rows": 1, "bootstrap_rows": 1, "period": 1, "context_rows": 0}
