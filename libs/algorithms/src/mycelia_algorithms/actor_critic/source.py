"""The gradients of A3C and A2C: one from each rollout."""

from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray
from torch import Tensor

from mycelia_algorithms.actor_critic.config import ActorCriticConfig
from mycelia_algorithms.actor_critic.loss import actor_critic_loss
from mycelia_algorithms.gradient_source import Gradient, Tensors
from mycelia_algorithms.networks.actor_critic import ActorCriticSpec, State
from mycelia_algorithms.ops.advantage import generalised_advantage
from mycelia_algorithms.ops.policy_gradient import normalise
from mycelia_algorithms.rollout import Rollout
from mycelia_algorithms.stochastic_policy import StochasticPolicy


class ActorCriticSource:
    """A `GradientSource`: acts, and differentiates the actor-critic's loss. One thread owns it."""

    def __init__(
        self, config: ActorCriticConfig, *, network: ActorCriticSpec, seed: int, worker_seed: int
    ) -> None:
        """Builds the network, its weights drawn from `seed`, which all workers share."""
        self._config = config
        self.rollout_steps = config.rollout_steps
        self._policy = StochasticPolicy(
            network,
            seed=seed,
            worker_seed=worker_seed,
            gamma=config.gamma,
            normalise_observation=config.normalise_observation,
            normalise_reward=config.normalise_reward,
        )
        self._rollout: Rollout | None = None

    def initial_weights(self) -> dict[str, NDArray[Any]]:
        """The seeded weights, and the moments of nothing seen yet."""
        return self._policy.weights()

    def load(self, tensors: Tensors, version: int) -> None:
        """Acts and differentiates at these weights from now on; raises ValueError if unfit."""
        self._policy.load(tensors)

    def act(
        self, observation: Tensor, first: Tensor, state: State | None
    ) -> tuple[Tensor, State | None]:
        """Draws actions in N states [N, ...]."""
        return self._policy.act(observation, first, state)

    def value(self, observation: Tensor, state: State | None) -> Tensor:
        """The values [E] of states [E, ...] that follow on from LSTM states [E, H]."""
        return self._policy.value(observation, state)

    def begin(self, rollout: Rollout) -> int:
        """Takes a rollout in: one gradient comes of it."""
        self._rollout = rollout
        return 1

    def gradient(self, index: int) -> Gradient:
        """Computes the gradient of the rollout at the weights that acted in it."""
        rollout, config, policy = self._rollout, self._config, self._policy
        assert rollout is not None
        output = policy.judge(policy.normalise(rollout.observation), rollout.first, rollout.state)
        advantage = self._advantage(rollout, output.value.detach())
        count = rollout.sample_count
        loss = actor_critic_loss(
            output.policy,
            output.value,
            action=rollout.action,
            advantage=self._maybe_normalised(advantage, rollout.valid),
            return_=advantage + output.value.detach(),
            weight=rollout.valid / max(1, count),
            value_coefficient=config.value_coefficient,
            entropy_coefficient=config.entropy_coefficient,
        )
        return Gradient(
            tensors=policy.differentiate(loss.loss),
            sample_count=count,
            metrics={
                "loss": float(loss.loss.detach()),
                "policy_loss": float(loss.policy_loss.detach()),
                "value_loss": float(loss.value_loss.detach()),
                "entropy": float(loss.entropy.detach()),
            },
            statistics=policy.observe(rollout),
        )

    def goes_on(self, metrics: Mapping[str, float]) -> bool:
        """There is nothing to go on with after the one gradient."""
        return False

    def _advantage(self, rollout: Rollout, value: Tensor) -> Tensor:
        return generalised_advantage(
            self._policy.scale(rollout.reward),
            value,
            rollout.next_value(value),
            rollout.terminated,
            rollout.ends,
            gamma=self._config.gamma,
            gae_lambda=self._config.gae_lambda,
        )

    def _maybe_normalised(self, advantage: Tensor, valid: Tensor) -> Tensor:
        if not self._config.normalise_advantage:
            return advantage
        normalised = advantage.clone()
        normalised[valid] = normalise(advantage[valid])
        return normalised
