"""Flat parameters, clipping, Adam and schedules."""

import pytest
import torch
from torch import nn

from mycelia_algorithms.optim.adam import Adam
from mycelia_algorithms.optim.clip import clip_by_global_norm
from mycelia_algorithms.optim.flat import FlatParameters
from mycelia_algorithms.optim.schedules import LearningRate

X = torch.tensor([[1, 0], [2, 1], [0, 1], [3, -1], [1, 1], [-1, 2]], dtype=torch.float64)
Y = torch.tensor([1, 2, 0, 1, -1, 3], dtype=torch.float64)


def linear_model():
    model = nn.Linear(2, 1, bias=False, dtype=torch.float64)
    parameters = FlatParameters(model)
    parameters.values.copy_(torch.tensor([0.5, -0.25]))
    return model, parameters


def mean_square(model, rows):
    return ((model(X[rows]).squeeze(1) - Y[rows]) ** 2).mean()


def test_gradients_of_parts_weighted_by_their_rows_add_up_to_the_whole_batchs():
    model, parameters = linear_model()

    for rows in (slice(0, 1), slice(1, 3), slice(3, 6)):
        (mean_square(model, rows) * (rows.stop - rows.start) / 6).backward()

    assert parameters.gradient.tolist() == pytest.approx([1.5, -3], abs=1e-12)


def test_clipping_after_accumulation_shortens_the_whole_gradient():
    model, parameters = linear_model()
    mean_square(model, slice(0, 6)).backward()

    norm = clip_by_global_norm(parameters.gradient, 0.5)

    assert norm.item() == pytest.approx((1.5**2 + 3**2) ** 0.5)
    assert parameters.gradient.tolist() == pytest.approx(
        [0.22360673108333215, -0.4472134621666643], abs=1e-12
    )


def test_a_short_gradient_is_not_clipped():
    gradient = torch.tensor([3.0, 4.0])

    clip_by_global_norm(gradient, 6.0)

    assert gradient.tolist() == [3.0, 4.0]


def test_adam_takes_the_same_steps_as_torchs():
    torch.manual_seed(0)
    ours, theirs = torch.randn(50, dtype=torch.float64), None
    theirs = nn.Parameter(ours.clone())
    reference = torch.optim.Adam([theirs], lr=1e-2, eps=1.5e-4)
    adam = Adam(ours, epsilon=1.5e-4)

    for _ in range(20):
        theirs.grad = torch.randn(50, dtype=torch.float64)
        adam.step(theirs.grad, 1e-2)
        reference.step()

    torch.testing.assert_close(ours, theirs.detach(), rtol=1e-12, atol=1e-12)


def test_warm_up_then_a_line_to_zero():
    rate = LearningRate(base=1.0, warmup_steps=4, decay_until_step=12)

    assert [rate.at(step) for step in range(14)] == pytest.approx(
        [0.25, 0.5, 0.75, 1, 1, 0.875, 0.75, 0.625, 0.5, 0.375, 0.25, 0.125, 0, 0]
    )


def test_without_a_decay_the_rate_stays():
    assert [LearningRate(base=2.0).at(step) for step in (0, 10**9)] == [2.0, 2.0]


def test_a_decay_that_ends_before_the_warm_up_is_refused():
    with pytest.raises(ValueError, match="decay_until_step"):
        LearningRate(base=1.0, warmup_steps=5, decay_until_step=5)


def test_a_module_computes_the_same_after_its_parameters_are_laid_flat():
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    x = torch.randn(5, 3)
    before = model(x)

    parameters = FlatParameters(model)

    assert torch.equal(model(x), before)
    parameters.values.zero_()
    assert torch.equal(model(x), torch.zeros(5, 2))


def test_a_snapshot_does_not_change_with_the_parameters():
    parameters = FlatParameters(nn.Linear(3, 4))
    snapshot = parameters.snapshot()
    expected = {name: tensor.clone() for name, tensor in snapshot.items()}

    parameters.values.zero_()

    assert all(torch.equal(snapshot[name], expected[name]) for name in ("weight", "bias"))
