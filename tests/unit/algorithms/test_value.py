"""Targets, losses and the dueling sum, against worked numbers."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from mycelia_algorithms.dqn.loss import dqn_loss
from mycelia_algorithms.ops.value import action_value, double_q_target, dueling, huber, q_target

F64 = torch.float64
RETURN = torch.tensor([1, -0.5, 2, 0], dtype=F64)
DISCOUNT = torch.tensor([0.99, 0.99, 0, 0.99], dtype=F64)
TARGET_Q = torch.tensor([[1, 2, 3], [0.5, -1, 0.25], [9, 9, 9], [4, 5, 1]], dtype=F64)
ONLINE_Q = torch.tensor([[3, 2, 1], [0, 1, 2], [7, 8, 9], [5, 1, 0]], dtype=F64)
Q_TAKEN = torch.tensor([1.5, 0.25, 1, 6], dtype=F64)
WEIGHT = torch.tensor([1, 0.5, 0.25, 0.75], dtype=F64)


def test_q_target_takes_the_target_networks_best_action_and_bootstraps_at_truncation():
    target = q_target(RETURN, DISCOUNT, TARGET_Q)

    assert target.tolist() == pytest.approx([3.97, -0.005, 2, 4.95], abs=1e-12)


def test_double_q_target_lets_the_online_network_choose_and_the_target_network_judge():
    target = double_q_target(RETURN, DISCOUNT, ONLINE_Q, TARGET_Q)

    assert target.tolist() == pytest.approx([1.99, -0.2525, 2, 3.96], abs=1e-12)


def test_loss_weighs_the_huber_loss_and_divides_by_the_batch_size():
    target = double_q_target(RETURN, DISCOUNT, ONLINE_Q, TARGET_Q)

    result = dqn_loss(Q_TAKEN, target, WEIGHT, huber_delta=1.0)

    assert result.loss.item() == pytest.approx(0.365794140625, abs=1e-12)
    assert result.td_error.tolist() == pytest.approx([0.49, -0.5025, 1, -2.04], abs=1e-12)


def test_loss_without_huber_is_half_the_squared_error():
    target = double_q_target(RETURN, DISCOUNT, ONLINE_Q, TARGET_Q)

    result = dqn_loss(Q_TAKEN, target, torch.ones(4, dtype=F64), huber_delta=None)

    assert result.loss.item() == pytest.approx(1.4135515625 / 2, abs=1e-12)


def test_huber_and_its_slope_match_the_worked_numbers():
    q = Q_TAKEN.clone().requires_grad_()
    error = double_q_target(RETURN, DISCOUNT, ONLINE_Q, TARGET_Q) - q

    loss = huber(error, 1.0)
    loss.sum().backward()

    assert loss.tolist() == pytest.approx([0.12005, 0.126253125, 0.5, 1.54], abs=1e-12)
    assert q.grad.tolist() == pytest.approx([-0.49, 0.5025, -1, 1], abs=1e-12)


@given(st.floats(-1e6, 1e6), st.floats(1e-3, 1e3))
def test_huber_is_quadratic_inside_and_linear_outside(error, delta):
    expected = error**2 / 2 if abs(error) <= delta else delta * (abs(error) - delta / 2)

    got = huber(torch.tensor([error], dtype=F64), delta).item()

    assert got == pytest.approx(expected, rel=1e-12, abs=1e-300)


def test_huber_of_no_error_has_slope_zero():
    error = torch.zeros(1, requires_grad=True)

    huber(error, math.inf).sum().backward()

    assert error.grad.item() == 0


def test_dueling_subtracts_the_mean_advantage():
    q = dueling(torch.tensor([[1.5]], dtype=F64), torch.tensor([[1, -2, 4]], dtype=F64))

    assert q.tolist() == [pytest.approx([1.5, -1.5, 4.5], abs=1e-12)]


def test_no_gradient_reaches_the_networks_that_make_the_target():
    online, target = ONLINE_Q.clone().requires_grad_(), TARGET_Q.clone().requires_grad_()

    assert not double_q_target(RETURN, DISCOUNT, online, target).requires_grad
    assert not q_target(RETURN, DISCOUNT, target).requires_grad


@pytest.mark.parametrize(
    "call",
    [
        lambda: q_target(RETURN.unsqueeze(1), DISCOUNT, TARGET_Q),
        lambda: double_q_target(RETURN, DISCOUNT, ONLINE_Q[:, :2], TARGET_Q),
        lambda: dqn_loss(Q_TAKEN.unsqueeze(1), RETURN, WEIGHT, huber_delta=1.0),
        lambda: dueling(torch.zeros(4), torch.zeros(4, 2)),
        lambda: action_value(TARGET_Q, torch.zeros(4, 1)),
    ],
)
def test_shapes_that_would_broadcast_are_refused(call):
    with pytest.raises(ValueError, match=r"got|differ"):
        call()
