"""What replay holds of an episode whose environment raised, hung or crashed."""

import time
from pathlib import Path

import numpy as np
import pytest

from mycelia_actor.environments.backend import make_environments
from mycelia_actor.environments.spaces import signature_of
from mycelia_actor.policies.action_values import MlpValues
from mycelia_actor.policies.epsilon_greedy import EpsilonGreedy
from mycelia_actor.recorder import Recorder
from mycelia_core.config import EnvConfig
from mycelia_core.seeds import seed_int
from mycelia_core.weights import Weights

RESTARTED_SEED = seed_int(np.random.SeedSequence(1, spawn_key=(1,)))
SEEDS = (0, 1)
EPISODES_AFTER = 3


def play(environments, client, signature, *, drops, sends_at_once):
    """Acts until the failed environment has played some episodes again.

    Returns how many steps each environment took.
    """
    # The first environment explores always, the one that fails never: it takes action 2.
    policy = EpsilonGreedy(MlpValues(signature), np.array([1.0, 0.0]), np.random.default_rng(1))
    bias = np.array([0, 0, 1], np.float32)
    policy.use(Weights(1, 0, {"q.weight": np.zeros((3, 3), np.float32), "q.bias": bias}))
    steps, failures, left = np.zeros(2, int), 0, EPISODES_AFTER
    with client.writer("train", ["me/0", "me/1"], signature, chunk_rows=64) as writer:
        recorder = Recorder(writer, policy, environments.action, drops_failed=drops)
        observation, deadline = environments.reset(SEEDS), time.monotonic() + 40
        while left:
            assert time.monotonic() < deadline
            choice = policy.act(observation.columns)
            result = environments.step(choice.action)
            recorder.record(observation, choice, result)
            if sends_at_once:
                writer.flush()
            steps += observation.ready if result.stepped is None else result.stepped
            failures += 0 if result.failed is None else len(result.failed)
            left -= bool(failures and 1 in result.ended)
            if result.step_count < 2:
                time.sleep(0.005)
            observation = result.observation
    environments.close()
    assert failures == 1
    return steps


def read(client):
    """Returns all transitions in replay: seed, episode, step, action, reward, next step, ends."""
    item_count = client.info()[0].item_count
    with client.sampler("train", item_count) as sampler:
        columns = sampler.next(timeout=10).columns
    seen, after = columns["observation"]
    return sorted(
        (*was, int(action), float(reward), int(then[2]), bool(terminated), bool(truncated))
        for was, then, action, reward, terminated, truncated in zip(
            seen.tolist(), after, columns["action"][0], columns["reward"][0],
            columns["terminated"][1], columns["truncated"][1], strict=True,
        )
    )  # fmt: skip


def episode(seed, number, count, cut=False):
    """Returns what is stored of an episode's first `count` steps."""
    return [
        (seed, number, t, 2, t + 1.0, t + 1, t + 1 == 4, cut and t + 1 == count)
        for t in range(count)
    ]


@pytest.mark.parametrize("sends_at_once", [False, True])
@pytest.mark.parametrize("on_failure", ["truncate", "drop"])
@pytest.mark.parametrize(
    ("backend", "how"),
    [("sync", "raise"), ("process", "raise"), ("process", "hang"), ("process", "crash")],
)
def test_replay_has_exactly_what_is_to_be_kept(
    backend,
    how,
    on_failure,
    sends_at_once,
    make_table,
    start_server,
    connect,
    monkeypatch,
    tmp_path,
):
    here = str(Path(__file__).parent)
    monkeypatch.syspath_prepend(here)
    monkeypatch.setenv("PYTHONPATH", here)
    config = EnvConfig(
        id="failing_env:FailingEnv",
        kwargs={"how": how, "marker": str(tmp_path / "failed")},
        backend=backend,
        processes=2,
        step_timeout_seconds=0.5,
        on_failure=on_failure,
    )
    environments = make_environments(config, 2)
    signature = signature_of(environments.observation, environments.action)
    table = make_table(signature, capacity_rows=50_000, sampler="fifo", max_times_sampled=1)
    client = connect(start_server(table))

    steps = play(
        environments, client, signature, drops=on_failure == "drop", sends_at_once=sends_at_once
    )

    stored = read(client)
    # Of two good steps; what was sent before a drop stays, and ends without the last row.
    kept = 2 if on_failure == "truncate" else int(sends_at_once)
    expected = [
        *episode(1, 0, 4),
        *episode(1, 1, kept, cut=on_failure == "truncate"),
        *(row for number in range(EPISODES_AFTER) for row in episode(RESTARTED_SEED, number, 4)),
    ]
    assert [row for row in stored if row[0]] == sorted(expected)
    others = [row for row in stored if not row[0]]
    assert steps[0] - 1 <= len(others) <= steps[0]
    assert steps[0] > steps[1]
    assert [(number, t) for _, number, t, *_ in others] == [
        divmod(i, 4) for i in range(len(others))
    ]
    assert len({action for *_, action, _, _, _, _ in others}) > 1
