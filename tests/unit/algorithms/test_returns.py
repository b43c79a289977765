"""n-step returns of windows, against worked numbers."""

import pytest
import torch

from mycelia_algorithms.ops.returns import n_step_return

GAMMA = 0.9
N = 3


def windows_of_episode(rewards, *, terminated):
    """Cuts T + 1 rows into one window per action, padded with the last real row."""
    rows = [*rewards, float("nan")]  # the reward of an episode's last row means nothing
    flags = [False] * len(rewards) + [terminated]
    columns = []
    for start in range(len(rewards)):
        end = min(start + N, len(rewards))
        index = [min(row, end) for row in range(start, start + N + 1)]
        columns.append(([rows[i] for i in index], [flags[i] for i in index], end - start + 1))
    reward, ended, counts = zip(*columns, strict=True)
    return (
        torch.tensor(reward, dtype=torch.float64).T,
        torch.tensor(ended).T,
        torch.tensor(counts, dtype=torch.int32),
    )


@pytest.mark.parametrize(
    ("rewards", "terminated", "return_", "discount", "bootstrap_row"),
    [
        (
            [1, 2, 3, 4, 5],
            True,
            [5.23, 7.94, 10.65, 8.5, 5],
            [0.729, 0.729, 0, 0, 0],
            [3, 3, 3, 2, 1],
        ),
        (
            [1, 2, 3, 4, 5],
            False,
            [5.23, 7.94, 10.65, 8.5, 5],
            [0.729] * 3 + [0.81, 0.9],
            [3, 3, 3, 2, 1],
        ),
        ([1, 2, 3], True, [5.23, 4.7, 3], [0, 0, 0], [3, 2, 1]),
    ],
    ids=["terminated at 4", "truncated at 4", "terminated at 2"],
)
def test_windows_at_an_episodes_end_are_shorter_and_bootstrap_only_if_it_was_cut(
    rewards, terminated, return_, discount, bootstrap_row
):
    reward, ended, counts = windows_of_episode(rewards, terminated=terminated)

    got = n_step_return(reward, ended, counts, GAMMA)

    assert got[0].tolist() == pytest.approx(return_, abs=1e-12)
    assert got[1].tolist() == pytest.approx(discount, abs=1e-12)
    assert got[2].tolist() == bootstrap_row


def test_rewards_from_the_bootstrap_row_on_are_not_read():
    reward = torch.tensor([[1.0], [2.0], [float("nan")], [float("inf")]])
    ended = torch.zeros(4, 1, dtype=torch.bool)

    return_, discount, row = n_step_return(reward, ended, torch.tensor([3]), 0.5)

    assert (return_.item(), discount.item(), row.item()) == (2.0, 0.25, 2)


def test_shapes_that_would_broadcast_are_refused():
    with pytest.raises(ValueError, match="row_counts"):
        n_step_return(torch.zeros(4, 2), torch.zeros(4, 2, dtype=torch.bool), torch.ones(1), 0.9)
