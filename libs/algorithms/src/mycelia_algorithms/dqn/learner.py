"""The update of DQN: from a batch of windows to one optimizer step and new priorities."""

import math
from collections.abc import Iterator, Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mycelia_algorithms.dqn.config import DqnConfig
from mycelia_algorithms.dqn.loss import DqnLoss, dqn_loss
from mycelia_algorithms.networks.factory import build_q_network
from mycelia_algorithms.networks.spec import QNetworkSpec
from mycelia_algorithms.ops.frames import stack_frames
from mycelia_algorithms.ops.returns import n_step_return
from mycelia_algorithms.ops.sampling import normalise_by_batch_max, sampling_weight
from mycelia_algorithms.ops.value import (
    action_value,
    double_q_target,
    mask_illegal,
    q_target,
)
from mycelia_algorithms.optim.adam import Adam
from mycelia_algorithms.optim.clip import clip_by_global_norm
from mycelia_algorithms.optim.flat import FlatParameters
from mycelia_algorithms.update import OptimizerSpec, ReplayBatch, UpdateResult, UpdateState


class DqnUpdate:
    """Double, Dueling, n-step DQN with sampling weights. One thread owns it.

    The target network is a copy of the online one, made every `target_update_period` optimizer
    steps. An update whose loss or gradient is not finite changes nothing and is counted.
    """

    def __init__(
        self,
        config: DqnConfig,
        *,
        network: QNetworkSpec,
        optimizer: OptimizerSpec,
        seed: int,
        device: str = "cpu",
    ) -> None:
        """Builds both networks on `device`, with equal weights drawn from `seed`."""
        self._config = config
        self._optimizer_spec = optimizer
        self._device = torch.device(device)
        self._online = build_q_network(network, seed=seed).to(self._device)
        self._target = build_q_network(network, seed=seed).to(self._device).requires_grad_(False)
        self._parameters = FlatParameters(self._online)
        self._target_parameters = FlatParameters(self._target)
        self._optimizer = Adam(self._parameters.values, epsilon=optimizer.adam_epsilon)
        self.skipped_updates = 0
        """How many updates were skipped because loss or gradient was not finite."""

    @property
    def learner_step(self) -> int:
        """How many optimizer steps have been taken."""
        return self._optimizer.step_count

    def update(self, batch: ReplayBatch) -> UpdateResult:
        """Takes one optimizer step on B windows of `observation`, `action`, `reward`, `terminated`.

        The priorities are |td_error| + `priority_epsilon` of the weights before the step.
        """
        batch = batch.to(self._device)
        start = batch.context_rows
        each = torch.arange(batch.columns["action"].shape[1], device=self._device)
        seen = stack_frames(batch.columns["observation"], start, torch.full_like(each, start), each)
        q = action_value(self._online(seen), batch.columns["action"][start])
        result = self._loss(q, batch)
        loss = result.loss.detach()
        self._parameters.gradient.zero_()
        torch.autograd.backward(result.loss)
        max_norm = self._optimizer_spec.max_grad_norm
        gradient_norm = clip_by_global_norm(self._parameters.gradient, max_norm)
        if math.isfinite(loss + gradient_norm):
            self._step()
            priorities = self._priorities(result.td_error)
        else:
            self.skipped_updates += 1
            priorities = None
        metrics = {
            "loss": loss,
            "q_mean": q.detach().mean(),
            "gradient_norm": gradient_norm,
        }
        return UpdateResult(priorities=priorities, metrics=metrics)

    def weights(self) -> dict[str, Tensor]:
        """Copies the online network's weights, by the names of `QMlp`."""
        return self._parameters.snapshot()

    def state(self) -> UpdateState:
        """Copies both networks, the optimizer's moments and the counters."""
        tensors = {name: view.clone() for name, view in self._named_views()}
        scalars = {"learner_step": self.learner_step, "skipped_updates": self.skipped_updates}
        return UpdateState(tensors=tensors, scalars=scalars)

    def load_state(self, state: UpdateState) -> None:
        """Goes on from `state` as if nothing had happened.

        Raises:
          ValueError: if a tensor is missing, unknown or of another shape; nothing is changed then.
        """
        views = dict(self._named_views())
        _check_fit(state.tensors, views)
        for name, view in views.items():
            view.copy_(state.tensors[name])
        self._optimizer.step_count = int(state.scalars["learner_step"])
        self.skipped_updates = int(state.scalars["skipped_updates"])

    def _loss(self, q: Tensor, batch: ReplayBatch) -> DqnLoss:
        weight = sampling_weight(
            batch.probabilities, batch.item_count, self._config.importance_exponent
        )
        return dqn_loss(
            q,
            self._compute_target(batch),
            normalise_by_batch_max(weight).to(torch.float32),
            huber_delta=self._config.huber_delta,
        )

    @torch.no_grad()
    def _compute_target(self, batch: ReplayBatch) -> Tensor:
        return_, discount, bootstrap_row = n_step_return(
            batch.columns["reward"][batch.context_rows :].to(torch.float32),
            batch.columns["terminated"][batch.context_rows :],
            batch.row_counts,
            self._config.gamma,
        )
        each = torch.arange(bootstrap_row.shape[0], device=bootstrap_row.device)
        row = bootstrap_row + batch.context_rows
        bootstrap_observation = stack_frames(
            batch.columns["observation"], batch.context_rows, row, each
        )
        mask = batch.columns.get("action_mask")
        legal = None if mask is None else mask[row, each]
        target_q = mask_illegal(self._target(bootstrap_observation), legal)
        if self._config.double:
            online_q = mask_illegal(self._online(bootstrap_observation), legal)
            return double_q_target(return_, discount, online_q, target_q)
        return q_target(return_, discount, target_q)

    def _step(self) -> None:
        learning_rate = self._optimizer_spec.learning_rate.at(self.learner_step)
        self._optimizer.step(self._parameters.gradient, learning_rate)
        if self.learner_step % self._config.target_update_period == 0:
            self._target_parameters.values.copy_(self._parameters.values)

    def _priorities(self, td_error: Tensor) -> NDArray[np.float64]:
        priorities: NDArray[np.float64] = td_error.abs().double().numpy(force=True)
        priorities += self._config.priority_epsilon
        return priorities

    def _named_views(self) -> Iterator[tuple[str, Tensor]]:
        for prefix, flat in (
            ("network", self._parameters.values),
            ("target", self._target_parameters.values),
            ("optimizer/first_moment", self._optimizer.first_moment),
            ("optimizer/second_moment", self._optimizer.second_moment),
        ):
            for name, view in self._parameters.split(flat):
                yield f"{prefix}/{name}", view


def _check_fit(tensors: Mapping[str, Tensor], views: Mapping[str, Tensor]) -> None:
    for name in sorted(tensors.keys() ^ views.keys()):
        problem = "is missing" if name in views else "is unknown to this network"
        raise ValueError(f"tensor {name!r} {problem}")
    for name, view in views.items():
        if tensors[name].shape != view.shape:
            raise ValueError(
                f"tensor {name!r} has shape {list(tensors[name].shape)}, "
                f"expected {list(view.shape)}"
            )
