"""Advantages and n-step returns against numbers worked out by hand."""

import pytest
import torch

from mycelia_algorithms.ops.advantage import generalised_advantage, n_step_returns
from mycelia_algorithms.ops.policy_gradient import normalise

REWARD = [1.0, 2.0, 3.0, 4.0, 5.0]
VALUE = [0.5, 1.0, -1.0, 2.0, 0.0]
BOOTSTRAP = 4.0
FINAL_VALUE = 7.0


def column(values, dtype=torch.float64):
    return torch.tensor(values, dtype=dtype).unsqueeze(1)


def flags(at=None, count=5):
    return torch.tensor([index == at for index in range(count)]).unsqueeze(1)


def advantage_of(*, terminated=None, truncated=None, gamma=0.5, gae_lambda=0.5, final=FINAL_VALUE):
    next_value = [*VALUE[1:], BOOTSTRAP]
    if truncated is not None:
        next_value[truncated] = final
    advantage = generalised_advantage(
        column(REWARD),
        column(VALUE),
        column(next_value),
        flags(terminated),
        flags(terminated) | flags(truncated),
        gamma=gamma,
        gae_lambda=gae_lambda,
    )
    return advantage.squeeze(1).tolist()


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        ({}, [1.49609375, 1.984375, 5.9375, 3.75, 7]),
        ({"terminated": 2}, [1.375, 1.5, 4, 3.75, 7]),
        ({"truncated": 2}, [1.59375, 2.375, 7.5, 3.75, 7]),
        ({"gae_lambda": 1.0}, [3.1875, 4.375, 7.75, 5.5, 7]),
        ({"gae_lambda": 0.0}, [1, 0.5, 5, 2, 7]),
        (
            {"truncated": 2, "gamma": 0.99, "gae_lambda": 0.95},
            [11.1674299325, 10.289665, 10.93, 10.42688, 8.96],
        ),
        (
            {"terminated": 2, "gamma": 0.99, "gae_lambda": 0.95},
            [5.037566, 3.772, 4, 10.42688, 8.96],
        ),
    ],
)
def test_advantages_stop_at_ends_and_bootstrap_only_where_the_episode_was_cut(case, expected):
    assert advantage_of(**case) == pytest.approx(expected, rel=1e-12)


def test_a_row_spent_on_a_reset_changes_no_other_row():
    reward = column([1.0, 2.0, 3.0, 0.0, 4.0, 5.0])
    value = column([0.5, 1.0, -1.0, 7.0, 2.0, 0.0])
    next_value = column([1.0, -1.0, 7.0, 2.0, 0.0, 4.0])

    advantage = generalised_advantage(
        reward, value, next_value, flags(count=6), flags(2, 6), gamma=0.5, gae_lambda=0.5
    )

    expected = [1.59375, 2.375, 7.5, 3.75, 7]
    assert advantage.squeeze(1)[[0, 1, 2, 4, 5]].tolist() == pytest.approx(expected)


@pytest.mark.parametrize(
    ("terminated", "truncated", "final", "expected"),
    [
        (1, None, 0.0, [1, 0, 12.62, 11.8, 12]),
        (None, 1, 4.0, [4.24, 3.6, 12.62, 11.8, 12]),
    ],
)
def test_returns_bootstrap_at_the_rollouts_end_and_at_a_cut(terminated, truncated, final, expected):
    next_value = column([0.0, final, 0.0, 0.0, 10.0])

    returns = n_step_returns(
        column([1.0, 0.0, 2.0, 1.0, 3.0]),
        next_value,
        flags(terminated),
        flags(terminated) | flags(truncated),
        0.9,
    )

    assert returns.squeeze(1).tolist() == pytest.approx(expected, rel=1e-12)


def test_with_lambda_one_advantages_are_returns_less_values():
    next_value = column([*VALUE[1:], BOOTSTRAP])
    advantage = torch.tensor(advantage_of(gae_lambda=1.0), dtype=torch.float64)

    returns = n_step_returns(column(REWARD), next_value, flags(), flags(), 0.5)

    assert (advantage + torch.tensor(VALUE)).tolist() == pytest.approx(returns.squeeze(1).tolist())


def test_normalised_advantages_have_the_populations_deviation():
    expected = [
        -1.1883545611005542,
        -0.862599473079569,
        1.2743539043380947,
        -0.2892705181626348,
        1.065870648004664,
    ]
    advantage = torch.tensor([1.59375, 2.375, 7.5, 3.75, 7.0], dtype=torch.float64)

    assert normalise(advantage).tolist() == pytest.approx(expected, rel=1e-7)


def test_shapes_that_would_broadcast_are_refused():
    with pytest.raises(ValueError, match=r"\[T, B\]"):
        n_step_returns(column(REWARD), column(VALUE).squeeze(1), flags(), flags(), 0.9)
    with pytest.raises(ValueError, match="value"):
        generalised_advantage(
            column(REWARD),
            torch.zeros(5, 2),
            column(VALUE),
            flags(),
            flags(),
            gamma=0.9,
            gae_lambda=0.9,
        )
