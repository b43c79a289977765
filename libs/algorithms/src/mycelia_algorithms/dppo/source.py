"""The gradients of DPPO: several sub-steps from each rollout."""

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from mycelia_algorithms.dppo.config import DppoConfig
from mycelia_algorithms.dppo.loss import DppoLoss, Minibatch, dppo_loss
from mycelia_algorithms.dppo.minibatches import Judged, shuffled
from mycelia_algorithms.gradient_source import Gradient, Tensors
from mycelia_algorithms.networks.actor_critic import ActorCriticSpec, State
from mycelia_algorithms.networks.distributions import Categorical, DiagonalGaussian, Distribution
from mycelia_algorithms.ops.advantage import generalised_advantage
from mycelia_algorithms.ops.policy_gradient import normalise
from mycelia_algorithms.ops.surrogate import adapt_coefficient
from mycelia_algorithms.rollout import Rollout
from mycelia_algorithms.stochastic_policy import StochasticPolicy

STOP_AT = 4.0
"""An iteration ends early when the mean divergence is above this many times the target."""


class DppoSource:
    """A `GradientSource`: acts, and differentiates DPPO's losses. One thread owns it.

    All workers take the same decisions, for they take them on the means over all workers that come
    back with each round: whether to end the iteration, and how the KL penalty changes.
    """

    def __init__(
        self, config: DppoConfig, *, network: ActorCriticSpec, seed: int, worker_seed: int
    ) -> None:
        """Builds the network, its weights drawn from `seed`, which all workers share."""
        self._config = config
        self.rollout_steps = config.rollout_steps
        self.kl_coefficient = config.kl_coefficient
        """The weight of the adaptive penalty now."""
        self._generator = torch.Generator().manual_seed(worker_seed)
        self._policy = StochasticPolicy(
            network,
            seed=seed,
            worker_seed=worker_seed,
            gamma=config.gamma,
            normalise_observation=config.normalise_observation,
            normalise_reward=config.normalise_reward,
        )
        self._judged: Judged | None = None
        self._statistics: dict[str, NDArray[Any]] = {}
        self._minibatches: Iterator[tuple[Minibatch, State | None]] = iter(())
        self._index = 0

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
        """Takes a rollout in, with the weights that acted in it still loaded."""
        self._judged = self._judge(rollout)
        self._statistics = self._policy.observe(rollout)
        config = self._config
        return max(config.policy_epochs, config.value_epochs) * config.minibatches

    def gradient(self, index: int) -> Gradient:
        """Computes the gradient of sub-step `index` at the weights loaded last."""
        self._index = index
        batch, state = self._next_minibatch(index)
        output = self._policy.judge(batch.observation, batch.first, state)
        epoch = index // self._config.minibatches
        loss = dppo_loss(
            output.policy,
            output.value,
            batch,
            self._config,
            trains_policy=epoch < self._config.policy_epochs,
            trains_value=epoch < self._config.value_epochs,
            kl_coefficient=self.kl_coefficient,
        )
        # What this rollout adds to the moments goes along once, with the first sub-step.
        statistics, self._statistics = self._statistics, {}
        return Gradient(
            tensors=self._policy.differentiate(loss.loss),
            sample_count=batch.sample_count,
            metrics=_metrics(loss) | {"kl_coefficient": self.kl_coefficient},
            statistics=statistics,
        )

    def goes_on(self, metrics: Mapping[str, float]) -> bool:
        """Whether to go on with this rollout, after all workers' mean metrics of a sub-step.

        Heess et al. 2017, appendix A: an iteration ends when the divergence is over 4 times the
        target.
        """
        kl, target = metrics.get("kl", 0.0), self._config.kl_target
        if not target:
            return True
        goes_on = kl <= STOP_AT * target
        is_last = self._index + 1 == self._config.policy_epochs * self._config.minibatches
        if is_last or not goes_on:
            self.kl_coefficient = adapt_coefficient(self.kl_coefficient, kl, target)
        return goes_on

    @torch.no_grad()
    def _judge(self, rollout: Rollout) -> Judged:
        # Normalised once: the moments that come back with each sub-step change, and with them
        # the policy would seem to have moved.
        observation = self._policy.normalise(rollout.observation)
        state = rollout.state or self._policy.new_state(observation.shape[1])
        output = self._policy.judge(observation, rollout.first, state)
        advantage = generalised_advantage(
            self._policy.scale(rollout.reward),
            output.value,
            rollout.next_value(output.value),
            rollout.terminated,
            rollout.ends,
            gamma=self._config.gamma,
            gae_lambda=self._config.gae_lambda,
        )
        return Judged(
            observation=observation,
            first=rollout.first,
            valid=rollout.valid,
            action=rollout.action,
            behaviour=_copy(output.policy),
            log_prob=output.policy.log_prob(rollout.action),
            value=output.value,
            advantage=self._maybe_normalised(advantage, rollout.valid),
            return_=advantage + output.value,
            state=state,
        )

    def _next_minibatch(self, index: int) -> tuple[Minibatch, State | None]:
        assert self._judged is not None
        if index % self._config.minibatches == 0:
            self._minibatches = shuffled(self._judged, self._config.minibatches, self._generator)
        return next(self._minibatches)

    def _maybe_normalised(self, advantage: Tensor, valid: Tensor) -> Tensor:
        if not self._config.normalise_advantage:
            return advantage
        normalised = advantage.clone()
        normalised[valid] = normalise(advantage[valid])
        return normalised


def _metrics(loss: DppoLoss) -> dict[str, float]:
    return {
        "loss": float(loss.loss.detach()),
        "policy_loss": float(loss.policy_loss.detach()),
        "value_loss": float(loss.value_loss.detach()),
        "entropy": float(loss.entropy.detach()),
        "kl": float(loss.kl.detach()),
        "clip_fraction": float(loss.clip_fraction),
    }


def _copy(policy: Distribution) -> Distribution:
    # The log-deviation is a parameter: it changes with the weights, the policy of then must not.
    if isinstance(policy, DiagonalGaussian):
        return DiagonalGaussian(policy.mean, policy.log_std.detach().clone())
    assert isinstance(policy, Categorical)
    return policy
