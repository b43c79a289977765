"""Initial priorities against a slow oracle, one window at a time."""

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from mycelia_actor.environments.autoreset import adapt
from mycelia_actor.environments.in_process import InProcessEnvironments
from mycelia_actor.environments.spaces import action_columns
from mycelia_actor.n_step_priorities import NStepPriorities
from mycelia_actor.policies.policy import ActionChoice
from mycelia_actor.recorder import Recorder

GAMMA = 0.9


class ValuesByObservation:
    """A policy whose values are a function of what is seen, so that an oracle can tell them."""

    def __init__(self, known_from_step: int = 0) -> None:
        self._step = -1
        self._known_from_step = known_from_step

    def act(self, observation):
        self._step += 1
        action = np.full(len(observation["observation"]), self._step % 5, np.int64)
        if self._step < self._known_from_step:
            return ActionChoice({"action": action})
        seen = observation["observation"][:, 0].astype(np.float64)
        return ActionChoice({"action": action}, q_of(seen, action), q_max_of(seen), 1)

    def use(self, weights):
        pass

    def greedy_value(self, observation, slots=None):
        return q_max_of(observation["observation"][:, 0].astype(np.float64))


def q_max_of(seen):
    return np.sin(seen) + 2.0


def q_of(seen, action):
    return np.sin(seen) + 2.0 - 0.1 * action


def oracle_priority(rows, t, n):
    """|R + Gamma * max Q - Q| of the window that begins at row t, from the recorded rows alone."""
    ret, discount = 0.0, 1.0
    for m in range(1, n + 1):
        ret += discount * float(rows[t + m - 1]["reward"])
        discount *= GAMMA
        after = rows[t + m]
        if after["terminated"]:
            discount = 0.0
        if after["terminated"] or after["truncated"]:
            break
    seen, boot = float(rows[t]["observation"][0]), float(rows[t + m]["observation"][0])
    taken = q_of(seen, int(rows[t]["action"]))
    return abs(ret + discount * q_max_of(boot) - taken)


def is_last(row):
    return bool(row["terminated"] or row["truncated"])


def act(environments, recorder, policy, steps):
    observation = environments.reset(range(environments.count))
    for _ in range(steps):
        choice = policy.act(observation.columns)
        result = environments.step(choice.action)
        recorder.record(observation, choice, result)
        observation = result.observation


@pytest.mark.parametrize("n", [1, 2, 3, 5])
@pytest.mark.parametrize("resets_in_next_step", [False, True])
def test_priorities_agree_with_the_oracle_at_every_kind_of_end(
    n, resets_in_next_step, counting_env, row_list
):
    # The second environment is one episode ahead, so that they do not end together.
    ahead = counting_env(17.0)
    ahead.reset()
    makers = [lambda: counting_env(0.0), lambda: ahead]
    if resets_in_next_step:
        environments = adapt(SyncVectorEnv(makers, autoreset_mode=AutoresetMode.NEXT_STEP))
    else:
        environments = InProcessEnvironments([make() for make in makers])
    policy = ValuesByObservation()
    recorder = Recorder(row_list, policy, environments.action, NStepPriorities(2, n, GAMMA))

    act(environments, recorder, policy, 60)

    for rows in row_list.streams.values():
        compared = 0
        for t, row in enumerate(rows):
            if is_last(row):
                assert np.isnan(row["priority"])
            elif t + n < len(rows):
                assert row["priority"] == pytest.approx(oracle_priority(rows, t, n), rel=1e-9)
                compared += 1
        assert compared > 30


def test_rows_leave_in_the_order_of_their_stream(counting_env, row_list):
    environments = InProcessEnvironments([counting_env()])
    policy = ValuesByObservation()
    recorder = Recorder(row_list, policy, environments.action, NStepPriorities(1, 3, GAMMA))

    act(environments, recorder, policy, 12)
    assert len(row_list.streams[0]) == 9 + 4
    recorder.flush()

    seen = [float(row["observation"][0]) for row in row_list.streams[0]]
    # Episodes of 1, 3, 4, 1 and 3 steps, each with its final observation.
    lengths = (1, 3, 4, 1, 3)
    assert seen == [1000.0 * e + t for e, length in enumerate(lengths) for t in range(length + 1)]
    assert [i for i, row in enumerate(row_list.streams[0]) if is_last(row)] == [1, 5, 10, 12, 16]


def test_windows_whose_values_are_unknown_have_no_priority(counting_env, row_list):
    environments = InProcessEnvironments([counting_env()])
    policy = ValuesByObservation(known_from_step=7)
    recorder = Recorder(row_list, policy, environments.action, NStepPriorities(1, 2, GAMMA))

    act(environments, recorder, policy, 30)

    acted = [row for row in row_list.streams[0] if not is_last(row)]
    assert all(np.isnan(row["priority"]) for row in acted[:7])
    assert not any(np.isnan(row["priority"]) for row in acted[7:])


def test_a_worked_example_that_is_cut_short_by_a_truncation():
    priorities = NStepPriorities(1, 3, GAMMA)
    for reward in (1.0, 2.0):
        priorities.open(np.array([0.5]))
        priorities.add(np.array([reward]))
    priorities.end(np.array([0]), np.array([10.0]))
    priorities.open(np.array([np.nan]))

    # R = 1 + 0.9 * 2, Gamma = 0.9^2; then R = 2, Gamma = 0.9.
    assert priorities.close(np.array([99.0])) == pytest.approx([1 + 1.8 + 8.1 - 0.5])


def test_the_algorithm_s_epsilon_is_added_so_that_no_priority_is_zero():
    priorities = NStepPriorities(1, 1, GAMMA, epsilon=1e-3)
    priorities.open(np.array([1.0]))
    priorities.add(np.array([1.0]))

    assert priorities.close(np.array([0.0])) == pytest.approx([1e-3])


def test_without_priorities_rows_leave_at_once(counting_env, row_list):
    environments = InProcessEnvironments([counting_env()])
    recorder = Recorder(row_list, ValuesByObservation(), action_columns(counting_env.action_space))

    act(environments, recorder, ValuesByObservation(), 4)

    assert len(row_list.streams[0]) == 4 + 2
    assert row_list.streams[0][0]["priority"] is None
