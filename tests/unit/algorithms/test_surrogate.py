"""The surrogate objectives against numbers worked out by hand."""

import math

import pytest
import torch

from mycelia_algorithms.ops.surrogate import (
    adapt_coefficient,
    approximate_kl,
    clipped_surrogate,
    clipped_value_loss,
    penalised_surrogate,
)


@pytest.mark.parametrize(
    ("ratio", "advantage", "objective", "slope"),
    [(1.3, 1, 1.2, 0), (1.3, -1, -1.3, -1), (0.7, 1, 0.7, 1), (0.7, -1, -0.8, 0), (1.1, 2, 2.2, 2)],
)
def test_the_gradient_stops_only_where_a_further_move_would_pay(ratio, advantage, objective, slope):
    log_prob = torch.tensor([math.log(ratio)], dtype=torch.float64, requires_grad=True)
    weight = torch.tensor([float(advantage)], dtype=torch.float64)

    loss = clipped_surrogate(log_prob, torch.zeros(1, dtype=torch.float64), weight, clip_range=0.2)
    loss.sum().backward()

    assert -loss.item() == pytest.approx(objective)
    # d loss / d log r = r d loss / d r
    assert -log_prob.grad.item() == pytest.approx(slope * ratio)


def test_the_divergence_estimate_agrees_with_numbers_worked_out_by_hand():
    log_ratio = torch.tensor([0.1, -0.2, 0.05, 0.4], dtype=torch.float64)

    mean = approximate_kl(log_ratio, torch.zeros(4, dtype=torch.float64)).mean()

    assert mean.item() == pytest.approx(0.029249366292730995, rel=1e-12)


def test_values_are_clipped_where_that_makes_the_error_larger():
    old, value, return_ = (
        torch.tensor(x, dtype=torch.float64)
        for x in ([1.0, 0.0, 2.0], [1.5, 0.1, 1.0], [2.0, 0.0, 0.5])
    )

    clipped = clipped_value_loss(value, old, return_, 0.2).mean()

    assert clipped.item() == pytest.approx(0.39, rel=1e-12)


def test_the_penalty_adds_the_divergence_and_a_hinge_beyond_twice_the_target():
    divergence = torch.tensor([0.1, 0.3])
    zero = torch.zeros(2)

    loss = penalised_surrogate(
        zero, zero, zero, divergence, coefficient=2.0, hinge_target=0.05, hinge_coefficient=10.0
    )

    # The mean 0.2 is 0.1 beyond 2 * 0.05.
    assert loss.tolist() == pytest.approx([0.2 + 0.1, 0.6 + 0.1])


@pytest.mark.parametrize(("divergence", "expected"), [(0.021, 1.5), (0.004, 1 / 1.5), (0.01, 1.0)])
def test_the_coefficient_follows_the_divergence(divergence, expected):
    assert adapt_coefficient(1.0, divergence, 0.01) == pytest.approx(expected)


def test_shapes_that_would_broadcast_are_refused():
    with pytest.raises(ValueError, match="shapes differ"):
        clipped_surrogate(torch.zeros(2, 1), torch.zeros(2), torch.zeros(2), clip_range=0.2)
