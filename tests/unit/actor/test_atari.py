"""Atari as the field plays it, one by one and in native vectors."""

import itertools

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from mycelia_actor.environments.backend import MAKERS
from mycelia_actor.environments.make import MakeEnvironmentError, make_environment
from mycelia_actor.environments.screens import Screens
from mycelia_actor.policies.policy import ActionChoice
from mycelia_actor.recorder import Recorder
from mycelia_core.config import AtariConfig, EnvConfig

pytest.importorskip("ale_py", reason="mycelia-actor[atari]")

PONG = EnvConfig(id="PongNoFrameskip-v4", preprocessing="atari")
BREAKOUT = EnvConfig(id="BreakoutNoFrameskip-v4", preprocessing="atari")


def with_atari(config, **changes):
    return config.model_copy(update={"atari": AtariConfig(**changes)})


def play(environments, steps, rows=None):
    """Acts at random; returns the results."""
    generator = np.random.default_rng(1)
    recorder = Recorder(rows, None, environments.action, clip_rewards=True) if rows else None
    observation, results = environments.reset(range(environments.count)), []
    for _ in range(steps):
        choice = ActionChoice({"action": generator.integers(4, size=environments.count)})
        result = environments.step(choice.action)
        if recorder:
            recorder.record(observation, choice, result)
        observation = result.observation
        results.append(result)
    environments.close()
    return results


def test_one_step_is_four_frames_of_the_emulator_shown_small_and_grey():
    environment = make_environment(with_atari(PONG, noop_max=0))
    seen, _ = environment.reset(seed=1)
    ale = environment.unwrapped.ale
    before = ale.getEpisodeFrameNumber()

    after, reward, terminated, truncated, _ = environment.step(0)

    assert ale.getEpisodeFrameNumber() - before == 4
    assert seen.shape == after.shape == (84, 84)
    assert after.dtype == np.uint8
    assert (reward, terminated, truncated) == (0.0, False, False)


def test_the_last_two_screens_are_pooled_and_areas_averaged():
    environment = make_environment(with_atari(BREAKOUT, noop_max=0))
    environment.reset(seed=1)
    screens = environment._screens
    for action in (1, 2, 3, 3):
        shown = environment.step(action)[0]
        pooled = screens.max(axis=0).astype(np.float64)
        # An oracle: every small pixel is the mean over a finer grid that both sizes divide.
        fine = pooled.repeat(84, axis=0).reshape(84, 210, 160).mean(axis=1)
        fine = fine.repeat(84, axis=1).reshape(84, 84, 160).mean(axis=2)
        np.testing.assert_allclose(shown, fine, atol=0.51)


def test_episodes_begin_after_no_ops_that_depend_on_the_seed():
    environment = make_environment(PONG)
    frames = set()
    for seed in range(8):
        environment.reset(seed=seed)
        frames.add(environment.unwrapped.ale.getEpisodeFrameNumber())

    assert len(frames) > 3
    assert all(1 <= frame <= 31 for frame in frames)


def test_the_full_set_of_actions_is_there_when_asked_for():
    assert make_environment(PONG).action_space.n == 6
    assert make_environment(with_atari(PONG, full_action_space=True)).action_space.n == 18


def test_sticky_actions_reach_the_emulator():
    environment = make_environment(with_atari(PONG, repeat_action_probability=0.25))

    assert environment.unwrapped.ale.getFloat("repeat_action_probability") == 0.25


@pytest.mark.parametrize("backend", ["sync", "ale", "envpool"])
def test_a_lost_life_ends_what_is_bootstrapped_over_but_not_the_episode(backend, row_list):
    if backend == "envpool":
        pytest.importorskip("envpool", reason="mycelia-actor[envpool]")
    environments = MAKERS[backend](BREAKOUT, 1)

    results = play(environments, 500, row_list)

    ended = sum(result.ended.size for result in results)
    over = sum(len(result.episode_returns) for result in results)
    lives_lost = ended - over
    assert over >= 1
    assert 4 * over <= lives_lost <= 4 * over + 4
    rows = row_list.streams[0]
    assert sum(bool(row["terminated"]) for row in rows) == ended
    for row, after in itertools.pairwise(rows):
        assert bool(after["first"]) == bool(row["terminated"] or row["truncated"])
    # The game goes on from the screen that the life was lost on.
    first_loss = next(i for i, row in enumerate(rows) if row["terminated"])
    np.testing.assert_array_equal(
        rows[first_loss]["observation"], rows[first_loss + 1]["observation"]
    )
    assert sum(result.step_count for result in results) == len(rows) - ended


@pytest.mark.parametrize("backend", ["sync", "ale"])
def test_without_life_loss_only_the_game_s_end_terminates(backend):
    environments = MAKERS[backend](with_atari(BREAKOUT, life_loss=False), 1)

    results = play(environments, 400)

    assert sum(r.ended.size for r in results) == sum(len(r.episode_returns) for r in results) >= 1


class FakeGames:
    """Two native games: rewards of 5, three lives, one lost in every third step."""

    num_envs = 2

    def __init__(self):
        self.metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}
        from gymnasium import spaces

        self.single_observation_space = spaces.Box(0, 255, (1, 2, 2), np.uint8)
        self.single_action_space = spaces.Discrete(4)
        self._t = 0

    def reset(self, seed=None):
        self._t = 0
        return np.zeros((2, 1, 2, 2), np.uint8), {"lives": np.full(2, 3)}

    def step(self, action):
        self._t = (self._t + 1) % 10  # step 9 ends the game, step 10 only resets
        lives = 3 - self._t // 3
        over = np.full(2, self._t == 9)
        seen = np.full((2, 1, 2, 2), self._t, np.uint8)
        reward = np.full(2, 0.0 if self._t == 0 else -5.0)
        return seen, reward, over, np.zeros(2, bool), {"lives": np.full(2, lives)}

    def close(self):
        pass


def test_rewards_are_learned_from_by_sign_and_reported_raw(row_list):
    results = play(Screens(FakeGames(), life_loss=True), 20, row_list)

    ends = [int(row["observation"][0, 0]) for row in row_list.streams[1] if row["terminated"]]
    assert ends == [3, 6, 9] * 2
    assert [r.episode_returns.tolist() for r in results if r.episode_returns.size] == [
        [-45.0, -45.0]
    ] * 2
    assert [r.episode_lengths.tolist() for r in results if r.episode_lengths.size] == [[9, 9]] * 2
    assert {float(row["reward"]) for row in row_list.streams[0]} == {-1.0, 0.0}


def test_atari_preprocessing_of_another_game_is_refused():
    with pytest.raises(MakeEnvironmentError, match=r"is no environment of ale_py|failed"):
        make_environment(EnvConfig(id="CartPole-v1", preprocessing="atari"))
