"""DQN on a chain whose action values are known exactly."""

import numpy as np
import pytest
import torch

from mycelia_algorithms.dqn.config import DqnConfig
from mycelia_algorithms.dqn.learner import DqnUpdate
from mycelia_algorithms.networks.spec import QNetworkSpec
from mycelia_algorithms.optim.schedules import LearningRate
from mycelia_algorithms.update import OptimizerSpec, ReplayBatch

STATES, GAMMA = 5, 0.9
Q_STAR = [[0.2, 0.6561], [0.59049, 0.729], [0.6561, 0.81], [0.729, 0.9], [0.81, 1.0]]


def step(state, action):
    """Left of 0 pays .2, right of 4 pays 1; both end the episode."""
    if action == 0:
        return (state, 0.2, True) if state == 0 else (state - 1, 0.0, False)
    return (state, 1.0, True) if state == STATES - 1 else (state + 1, 0.0, False)


def windows(time_limit, n_step, rng, episodes):
    """Windows of random episodes from every start, as a replay table would cut them."""
    found = []
    for episode in range(episodes):
        state, rows, ended = episode % STATES, [], False
        while not ended and len(rows) < time_limit:
            action = int(rng.integers(2))
            after, reward, ended = step(state, action)
            rows.append((state, action, reward, False))
            state = after
        rows.append((state, 0, float("nan"), ended))
        for start in range(len(rows) - 1):
            end = min(start + n_step, len(rows) - 1)
            index = [min(row, end) for row in range(start, start + n_step + 1)]
            found.append(([rows[i] for i in index], end - start + 1))
    return found


def as_batch(found):
    rows = [list(zip(*window, strict=True)) for window, _ in found]
    state, action, reward, ended = (torch.tensor([r[k] for r in rows]).T for k in range(4))
    return ReplayBatch(
        columns={
            "observation": torch.eye(STATES)[state],
            "action": action,
            "reward": reward,
            "terminated": ended,
        },
        row_counts=torch.tensor([count for _, count in found]),
        probabilities=torch.full((len(found),), 1 / len(found), dtype=torch.float64),
        item_count=len(found),
    )


@pytest.mark.parametrize("time_limit", [100, 3], ids=["whole episodes", "3-step time limit"])
@pytest.mark.parametrize("double", [True, False])
@pytest.mark.parametrize("dueling", [True, False])
def test_one_step_dqn_finds_the_optimal_values_and_a_time_limit_does_not_change_them(
    time_limit, double, dueling
):
    update = DqnUpdate(
        DqnConfig(gamma=GAMMA, n_step=1, double=double, dueling=dueling, target_update_period=25),
        network=QNetworkSpec(
            observation_shape=(STATES,), action_count=2, hidden_sizes=(32,), dueling=dueling
        ),
        optimizer=OptimizerSpec(
            learning_rate=LearningRate(base=5e-3, decay_until_step=1500), max_grad_norm=100.0
        ),
        seed=1,
    )
    batch = as_batch(windows(time_limit, 1, np.random.default_rng(1), episodes=25))

    for _ in range(1500):
        update.update(batch)

    q = update._online(torch.eye(STATES)).detach().numpy()
    np.testing.assert_allclose(q, Q_STAR, atol=0.01)
