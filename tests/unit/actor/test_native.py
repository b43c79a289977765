"""What EnvPool and ale-py's vector Atari record is what a plain environment does."""

import itertools

import gymnasium
import numpy as np
import pytest

from mycelia_actor.environments.backend import MAKERS
from mycelia_actor.environments.in_process import InProcessEnvironments
from mycelia_actor.environments.make import make_environment
from mycelia_actor.policies.policy import ActionChoice
from mycelia_actor.recorder import Recorder
from mycelia_core.config import AtariConfig, EnvConfig


def record(environments, rows, choose, steps):
    """Acts for some steps; returns return and length of each episode, and how many steps it took.

    The policy gets the observation's columns and, `[N]`, who can act.
    """
    recorder = Recorder(rows, None, environments.action)
    observation = environments.reset(range(1, environments.count + 1))
    episodes, env_steps = {slot: [] for slot in range(environments.count)}, 0
    for _ in range(steps):
        choice = ActionChoice({"action": choose(observation.columns, observation.ready)})
        result = environments.step(choice.action)
        recorder.record(observation, choice, result)
        over = result.ended if result.over is None else result.over
        for slot, *episode in zip(
            over.tolist(), result.episode_returns, result.episode_lengths, strict=True
        ):
            episodes[slot].append(tuple(episode))
        env_steps += result.step_count
        observation = result.observation
    environments.close()
    return episodes, env_steps


def ends(row):
    return bool(row["terminated"] or row["truncated"])


def balance_half(columns, ready):
    """Holds the poles of the even environments up, and lets the others' fall to the right."""
    seen = columns["observation"]
    action = (seen[:, 2] + 0.25 * seen[:, 3] > 0).astype(np.int64)
    action[1::2] = 1
    return action


def test_what_envpool_s_cartpole_records_is_what_cartpole_does(row_list):
    pytest.importorskip("envpool", reason="mycelia-actor[envpool]")
    environments = MAKERS["envpool"](EnvConfig(id="CartPole-v1"), 4)

    episodes, env_steps = record(environments, row_list, balance_half, 1100)

    plain = gymnasium.make("CartPole-v1").unwrapped
    plain.reset(seed=1)
    total = 0
    for slot, rows in row_list.streams.items():
        played = replay_cartpole(plain, rows)
        assert episodes[slot] == [(float(length), length) for length, _ in played]
        total += sum(not ends(row) for row in rows)
        if slot % 2:
            assert all(not truncated for _, truncated in played)
            assert len(played) > 80
        else:
            assert played == [(500, True)] * 2
    assert total == env_steps < 4 * 1100


def replay_cartpole(plain, rows):
    """Takes every recorded step again from the state it began in.

    Returns each episode's length and whether it was cut off.
    """
    played, length = [], 0
    for row, after in itertools.pairwise(rows):
        assert bool(after["first"]) == ends(row)
        if ends(row):
            continue
        length += 1
        plain.state, plain.steps_beyond_terminated = row["observation"].astype(np.float64), None
        seen, reward, terminated, _, _ = plain.step(int(row["action"]))
        np.testing.assert_allclose(after["observation"], seen, atol=1e-5)
        assert (reward, terminated) == (row["reward"], bool(after["terminated"]))
        if ends(after):
            played.append((length, bool(after["truncated"])))
            length = 0
    return played


@pytest.mark.parametrize("backend", ["ale", "envpool"])
@pytest.mark.parametrize("max_episode_frames", [108_000, 200])
def test_native_atari_records_what_the_same_actions_do_in_a_single_game(
    backend, max_episode_frames, row_list
):
    pytest.importorskip("ale_py", reason="mycelia-actor[atari]")
    if backend == "envpool":
        pytest.importorskip("envpool", reason="mycelia-actor[envpool]")
    # As many no-ops as EnvPool needs; but for their number, a game follows from its actions.
    noops = 1 if backend == "envpool" else 0
    atari = AtariConfig(noop_max=noops, max_episode_frames=max_episode_frames)
    config = EnvConfig(id="BreakoutNoFrameskip-v4", preprocessing="atari", atari=atari)
    generator = np.random.default_rng(1)

    def at_random(columns, ready):
        return generator.integers(4, size=len(ready))

    episodes, env_steps = record(MAKERS[backend](config, 2), row_list, at_random, 300)

    total = 0
    for slot, rows in row_list.streams.items():
        actions = iter([row["action"] for row in rows if not ends(row)])
        single = type(row_list)()
        count = sum(not ends(row) for row in rows)
        total += count
        expected, _ = record(
            InProcessEnvironments([make_environment(config)]),
            single,
            lambda *_, actions=actions: np.array([next(actions)]),
            count,
        )
        assert episodes[slot] == expected[0]
        assert len(episodes[slot]) >= 1
        assert_same_rows(rows, single.streams[0])
    assert total == env_steps < 2 * 300


def assert_same_rows(rows, others):
    assert len(rows) == len(others)
    for number, (row, other) in enumerate(zip(rows, others, strict=True)):
        for name in ("reward", "action", "first", "terminated", "truncated"):
            assert row[name] == other[name], (number, name)
        # Each shrinks screens in its own way.
        differs = np.abs(row["observation"].astype(int) - other["observation"].astype(int))
        assert differs.mean() < 0.5, number
