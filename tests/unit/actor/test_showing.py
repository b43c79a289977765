"""Episodes that people look at: as MP4, as GIF where that cannot be written, and in a window."""

import sys

import numpy as np
import pytest
from PIL import Image

from mycelia_actor.environments.make import MakeEnvironmentError
from mycelia_actor.showing import NoVideoError, record_episode, show_episodes
from mycelia_core.config import EnvConfig, RunConfig

CARTPOLE = RunConfig(name="test", env=EnvConfig(id="CartPole-v1"), algorithm={"name": "dqn"})
ALWAYS_LEFT = {"q.weight": np.zeros((2, 4), np.float32), "q.bias": np.zeros(2, np.float32)}
# Nobody is shown a window by a test.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@pytest.fixture(autouse=True)
def no_screen(monkeypatch):
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")


def frames_of_mp4(path):
    imageio_ffmpeg = pytest.importorskip("imageio_ffmpeg")
    return imageio_ffmpeg.count_frames_and_secs(str(path))[0]


def test_an_episode_is_recorded_as_mp4_frame_by_frame(tmp_path):
    path, episode_return = record_episode(ALWAYS_LEFT, CARTPOLE, tmp_path, "eval")

    assert path.suffix == ".mp4"
    # A frame for each step, and one for the reset.
    assert frames_of_mp4(path) == episode_return + 1


def without(missing, monkeypatch):
    if missing == "encoder":
        # An ffmpeg that is there, and ends at once; moviepy 1 and 2 look in different places.
        for module in ("moviepy.config", "moviepy.video.io.ffmpeg_writer"):
            monkeypatch.setattr(f"{module}.FFMPEG_BINARY", "/bin/false", raising=False)
    else:
        monkeypatch.setitem(sys.modules, missing, None)


@pytest.mark.parametrize("missing", ["moviepy", "imageio_ffmpeg", "encoder"])
def test_where_mp4_cannot_be_written_it_is_a_gif(missing, tmp_path, monkeypatch):
    without(missing, monkeypatch)

    path, episode_return = record_episode(ALWAYS_LEFT, CARTPOLE, tmp_path, "eval")

    assert [path] == list(tmp_path.iterdir())
    assert path.suffix == ".gif"
    with Image.open(path) as image:
        assert image.n_frames == episode_return > 5
        image.seek(image.n_frames - 1)
        assert np.asarray(image.convert("RGB")).std() > 0


def test_where_neither_can_be_written_the_missing_packages_are_named(tmp_path, monkeypatch):
    without("moviepy", monkeypatch)
    without("PIL", monkeypatch)

    with pytest.raises(NoVideoError, match=r"mycelia-actor\[video\].*moviepy.*pillow"):
        record_episode(ALWAYS_LEFT, CARTPOLE, tmp_path, "eval")


def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "videos").write_text("a file is in the way")

    with pytest.raises(NoVideoError, match=str(tmp_path / "videos")):
        record_episode(ALWAYS_LEFT, CARTPOLE, tmp_path / "videos", "eval")


def test_without_what_draws_it_the_environment_and_the_missing_package_are_named(
    tmp_path, monkeypatch
):
    monkeypatch.setitem(sys.modules, "pygame", None)

    for show in (
        lambda: record_episode(ALWAYS_LEFT, CARTPOLE, tmp_path, "eval"),
        lambda: list(show_episodes(ALWAYS_LEFT, CARTPOLE, 1)),
    ):
        with pytest.raises(MakeEnvironmentError, match=r"env.id='CartPole-v1' .*pygame"):
            show()


@pytest.mark.skipif(sys.platform != "linux", reason="others have no such variables")
def test_without_a_screen_that_is_said(monkeypatch):
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER"):
        monkeypatch.delenv(name, raising=False)

    with pytest.raises(MakeEnvironmentError, match=r"env.id='CartPole-v1' .*no screen.* DISPLAY"):
        list(show_episodes(ALWAYS_LEFT, CARTPOLE, 1))


def test_a_screen_that_cannot_be_opened_is_said(monkeypatch):
    monkeypatch.setenv("SDL_VIDEODRIVER", "nonsense")

    with pytest.raises(MakeEnvironmentError, match=r"env.id='CartPole-v1' cannot be drawn"):
        list(show_episodes(ALWAYS_LEFT, CARTPOLE, 1))


def test_what_cannot_be_drawn_at_all_is_refused(counting_env, monkeypatch):
    config = RunConfig(
        name="test",
        env=EnvConfig(id="tests.unit.actor.counting_env:CountingEnv"),
        algorithm={"name": "dqn"},
    )
    with pytest.raises(MakeEnvironmentError, match="render_mode"):
        list(show_episodes(ALWAYS_LEFT, config, 1))
