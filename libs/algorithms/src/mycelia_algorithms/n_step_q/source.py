"""The gradients of asynchronous n-step Q-learning: one from each rollout."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mycelia_algorithms.gradient_source import Gradient, Tensors
from mycelia_algorithms.n_step_q.config import NStepQConfig
from mycelia_algorithms.networks.actor_critic import ActorCriticSpec, State
from mycelia_algorithms.networks.factory import build_q_network
from mycelia_algorithms.networks.spec import QNetworkSpec
from mycelia_algorithms.ops.advantage import n_step_returns
from mycelia_algorithms.ops.value import action_value, huber
from mycelia_algorithms.optim.flat import FlatParameters
from mycelia_algorithms.rollout import Rollout


class NStepQSource:
    """A `GradientSource`: acts epsilon-greedily, regresses Q on n-step returns.

    Mnih et al. 2016, algorithm S2 (https://arxiv.org/abs/1602.01783). One thread owns it.
    """

    def __init__(
        self, config: NStepQConfig, *, network: ActorCriticSpec, seed: int, worker_seed: int
    ) -> None:
        """Builds both networks, their weights drawn from `seed`, which all workers share.

        Raises:
          ValueError: if actions are not discrete.
        """
        if not network.action_count:
            raise ValueError("n-step-q needs discrete actions")
        spec = QNetworkSpec(
            observation_shape=network.observation_shape,
            action_count=network.action_count,
            hidden_sizes=network.hidden_sizes,
            dueling=False,
        )
        self._config = config
        self.rollout_steps = config.rollout_steps
        self._online = build_q_network(spec, seed=seed)
        self._target = build_q_network(spec, seed=seed).requires_grad_(False)
        self._parameters = FlatParameters(self._online)
        self._target_parameters = FlatParameters(self._target)
        self._target_period = -1
        self._generator = np.random.default_rng(worker_seed)
        self._final_epsilon = float(
            self._generator.choice(config.final_epsilons, p=config.final_epsilon_probs)
        )
        self.epsilon = 1.0
        """How often it acts at random now."""
        self._action_count = network.action_count
        self._rollout: Rollout | None = None

    def initial_weights(self) -> dict[str, NDArray[Any]]:
        """The seeded weights."""
        return {name: value.numpy() for name, value in self._parameters.snapshot().items()}

    def load(self, tensors: Tensors, version: int) -> None:
        """Acts and differentiates at these weights from now on; raises ValueError if unfit.

        Every `target_update_period` versions they become the target network's, too.
        """
        self._parameters.load(tensors)
        period = version // self._config.target_update_period
        if period != self._target_period:
            self._target_period = period
            self._target_parameters.values.copy_(self._parameters.values)
        decay = self._config.epsilon_decay_versions
        share = min(1.0, version / decay) if decay else 1.0
        self.epsilon = 1.0 + share * (self._final_epsilon - 1.0)

    @torch.no_grad()
    def act(
        self, observation: Tensor, first: Tensor, state: State | None
    ) -> tuple[Tensor, State | None]:
        """Chooses actions in N states [N, ...], at random with probability epsilon."""
        count = len(observation)
        greedy = self._online(observation).argmax(dim=1).numpy()
        random = self._generator.integers(self._action_count, size=count)
        explores = self._generator.random(count) < self.epsilon
        return torch.from_numpy(np.where(explores, random, greedy)), None

    @torch.no_grad()
    def value(self, observation: Tensor, state: State | None) -> Tensor:
        """What the target network thinks the best action of states [E, ...] is worth, [E]."""
        target = self._target(observation)
        if not self._config.double:
            best: Tensor = target.amax(dim=1)
            return best
        return action_value(target, self._online(observation).argmax(dim=1))

    def begin(self, rollout: Rollout) -> int:
        """Takes a rollout in: one gradient comes of it."""
        self._rollout = rollout
        return 1

    def gradient(self, index: int) -> Gradient:
        """Computes the gradient of the rollout at the weights that acted in it."""
        rollout = self._rollout
        assert rollout is not None
        returns = n_step_returns(
            rollout.reward,
            rollout.bootstrap_value,
            rollout.terminated,
            rollout.ends,
            self._config.gamma,
        )
        valid, count = rollout.valid, rollout.sample_count
        q = action_value(self._online(rollout.observation[valid]), rollout.action[valid])
        loss = huber(returns[valid] - q, self._config.huber_delta).sum() / max(1, count)
        self._parameters.gradient.zero_()
        torch.autograd.backward(loss)
        gradient = self._parameters.split(self._parameters.gradient)
        return Gradient(
            tensors={name: part.numpy() for name, part in gradient},
            sample_count=count,
            metrics={
                "loss": float(loss.detach()),
                "q_mean": float(q.detach().mean()),
                "epsilon": self.epsilon,
            },
        )

    def goes_on(self, metrics: Mapping[str, float]) -> bool:
        """There is nothing to go on with after the one gradient."""
        return False
