"""The presets of Pong begin, learn a little and end; what they leave is played and recorded."""

import json

import pytest

pytest.importorskip("ale_py")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

SMALL = (
    "limits.max_env_steps=1500",
    # Games of a hundred steps.
    "env.atari.max_episode_frames=400",
    "evaluation.episodes=1",
    "actor.count=2",
)
REPLAY = (
    "actor.envs_per_actor=4",
    "actor.chunk_rows=4",
    "replay.capacity_rows=5000",
    "replay.min_items_to_sample=200",
    "learner.batch_size=32",
    # Few updates keep up with the actors, which wait for them soon.
    "replay.samples_per_insert=2",
    "replay.error_buffer=256",
)


@pytest.mark.parametrize(
    ("preset", "settings"), [("dqn-pong", REPLAY), ("apex-pong", REPLAY), ("a3c-pong", ())]
)
def test_a_preset_of_pong_trains_and_leaves_what_can_be_played(mycelia, preset, settings):
    train = mycelia("train", preset, *SMALL, *settings, "--json")

    assert train.end(90) == 0, train.text
    result = json.loads(train.lines[-1])
    assert result["env_steps"] >= 1500
    assert result["learner_steps"] > 5
    assert list((train.folder / result["run_dir"] / "checkpoint").iterdir())

    judge = mycelia("eval", result["run_dir"], "--episodes", "1", "--video", "--json")

    assert judge.end(60) == 0, judge.text
    scores = json.loads(judge.lines[-1])
    assert -21 <= scores["eval_return_mean"] <= 21
    assert (judge.folder / scores["video"]).stat().st_size > 1000
