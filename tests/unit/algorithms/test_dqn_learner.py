"""The update of DQN."""

import numpy as np
import pytest
import torch

from mycelia_algorithms.dqn.config import DqnConfig
from mycelia_algorithms.dqn.learner import DqnUpdate
from mycelia_algorithms.networks.spec import QNetworkSpec
from mycelia_algorithms.optim.schedules import LearningRate
from mycelia_algorithms.update import OptimizerSpec, ReplayBatch, UpdateState

SPEC = QNetworkSpec(observation_shape=(4,), action_count=2, hidden_sizes=(16, 16))


def make_update(*, learning_rate=1e-3, max_grad_norm=10.0, seed=1, network=SPEC, **config):
    optimizer = OptimizerSpec(
        learning_rate=LearningRate(base=learning_rate), max_grad_norm=max_grad_norm
    )
    return DqnUpdate(DqnConfig(**config), network=network, optimizer=optimizer, seed=seed)


def make_batch(seed=0, *, rows=4, items=8, **columns):
    rng = torch.Generator().manual_seed(seed)
    return ReplayBatch(
        columns={
            "observation": torch.randn(rows, items, 4, generator=rng),
            "action": torch.randint(0, 2, (rows, items), generator=rng),
            "reward": torch.randn(rows, items, generator=rng),
            "terminated": torch.rand(rows, items, generator=rng) < 0.1,
        }
        | columns,
        row_counts=torch.randint(2, rows + 1, (items,), generator=rng),
        probabilities=torch.rand(items, generator=rng, dtype=torch.float64) / items,
        item_count=100,
    )


def tensors_of(update, prefix):
    return {n: t for n, t in update.state().tensors.items() if n.startswith(prefix)}


def same(first, second):
    return first.keys() == second.keys() and all(torch.equal(first[n], second[n]) for n in first)


def test_a_step_changes_the_online_network_and_leaves_the_target_bit_for_bit():
    update = make_update(target_update_period=2)
    online, target = tensors_of(update, "network/"), tensors_of(update, "target/")

    update.update(make_batch())

    assert not same(tensors_of(update, "network/"), online)
    assert same(tensors_of(update, "target/"), target)


def test_the_target_becomes_a_copy_after_its_period():
    update = make_update(target_update_period=2)

    update.update(make_batch(0))
    update.update(make_batch(1))

    online, target = tensors_of(update, "network/"), tensors_of(update, "target/")
    assert [torch.equal(a, b) for a, b in zip(online.values(), target.values(), strict=True)] == [
        True
    ] * len(online)


def test_priorities_are_the_absolute_errors_of_the_weights_before_the_step():
    update = make_update(priority_epsilon=0.25, double=False, gamma=0.9)
    reward = torch.tensor([[1.0, -2.0], [9.0, -3.0], [9.0, 9.0], [9.0, 9.0]])
    batch = ReplayBatch(
        columns=dict(make_batch(items=2).columns)
        | {"reward": reward, "terminated": torch.ones(4, 2, dtype=torch.bool)},
        row_counts=torch.tensor([2, 3]),
        probabilities=torch.tensor([0.5, 0.5], dtype=torch.float64),
        item_count=2,
    )
    weights = update.weights()
    q = q_values(weights, batch.columns["observation"][0])
    taken = q.gather(1, batch.columns["action"][0].unsqueeze(1)).squeeze(1)

    priorities = update.update(batch).priorities

    expected = (torch.tensor([1.0, -2.0 - 0.9 * 3.0]) - taken).abs() + 0.25
    assert priorities.dtype == np.float64
    np.testing.assert_allclose(priorities, expected.numpy(), rtol=1e-5)


def q_values(weights, x):
    for layer in (0, 1):
        x = (x @ weights[f"trunk.{layer}.weight"].T + weights[f"trunk.{layer}.bias"]).clamp(min=0)
    advantage = x @ weights["advantage.weight"].T + weights["advantage.bias"]
    value = x @ weights["value.weight"].T + weights["value.bias"]
    return value + advantage - advantage.mean(1, keepdim=True)


def test_the_bootstrap_state_is_the_last_real_row_not_the_padding():
    batch, padded = make_batch(), make_batch()
    for item, count in enumerate(padded.row_counts.tolist()):
        padded.columns["observation"][count:, item] = 1e9

    np.testing.assert_array_equal(
        make_update().update(batch).priorities, make_update().update(padded).priorities
    )


@pytest.mark.parametrize("poison", [float("nan"), float("inf")])
def test_a_loss_that_is_not_finite_is_skipped_and_counted(poison):
    update = make_update()
    update.update(make_batch(0))
    before = update.state()
    bad = make_batch(1)
    bad.columns["reward"][0, 3] = poison

    result = update.update(bad)

    assert result.priorities is None
    assert (update.learner_step, update.skipped_updates) == (1, 1)
    assert same(dict(update.state().tensors), dict(before.tensors))
    assert np.isfinite(update.update(make_batch(2)).priorities).all()


def test_the_gradient_is_clipped_to_the_norm_asked_for():
    """Adam hides the size of the first step but not the first moment, which is a tenth of it."""
    update = make_update(max_grad_norm=1e-3)

    norm = update.update(make_batch()).metrics["gradient_norm"]

    moment = torch.cat([t.flatten() for t in tensors_of(update, "optimizer/first").values()])
    assert norm > 1e-3
    assert moment.norm().item() == pytest.approx(1e-4, rel=1e-2)


def test_going_on_from_a_state_equals_never_having_stopped_bit_for_bit():
    whole, first = make_update(target_update_period=3), make_update(target_update_period=3)
    for seed in range(4):
        whole.update(make_batch(seed))
        first.update(make_batch(seed))

    second = make_update(target_update_period=3, seed=99)
    second.load_state(first.state())
    for seed in range(4, 10):
        whole.update(make_batch(seed))
        second.update(make_batch(seed))

    assert same(dict(whole.state().tensors), dict(second.state().tensors))
    assert whole.state().scalars == second.state().scalars


def test_a_state_is_a_copy_that_later_steps_do_not_change():
    update = make_update()
    state = update.state()
    expected = {name: tensor.clone() for name, tensor in state.tensors.items()}

    update.update(make_batch())

    assert same(dict(state.tensors), expected)


def test_a_state_of_another_network_is_refused_by_name_and_shape():
    wide = QNetworkSpec(observation_shape=(5,), action_count=2, hidden_sizes=(16, 16))

    with pytest.raises(
        ValueError, match=r"network/trunk\.0\.weight.*\[16, 5\], expected \[16, 4\]"
    ):
        make_update().load_state(make_update(network=wide).state())


def test_a_state_without_a_tensor_is_refused_by_name():
    state = make_update().state()
    tensors = {n: t for n, t in state.tensors.items() if n != "target/value.bias"}

    with pytest.raises(ValueError, match=r"target/value\.bias.* is missing"):
        make_update().load_state(UpdateState(tensors=tensors, scalars=state.scalars))


def test_the_same_seed_and_batches_give_the_same_weights():
    first, second = make_update(), make_update()
    for seed in range(3):
        first.update(make_batch(seed))
        second.update(make_batch(seed))

    assert same(first.weights(), second.weights())
