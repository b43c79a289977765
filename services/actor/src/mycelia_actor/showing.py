"""Greedy episodes for people to look at: recorded as video, or rendered live."""

import contextlib
import importlib
import importlib.util
import itertools
import logging
import os
import sys
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import gymnasium
from numpy.typing import NDArray

from mycelia_actor.environments.make import Environment, MakeEnvironmentError, make_environment
from mycelia_actor.evaluation import FIRST_SEED, Evaluation, make_greedy
from mycelia_core.config import RunConfig
from mycelia_core.weights import Weights

logger = logging.getLogger(__name__)

_GIF_FRAMES = 1500
"""A GIF keeps all its frames in memory; longer ones are cut."""

_DEFAULT_FPS = 30

_SCREENS = ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER")
"""Variables of which one is set where windows can be opened on Linux."""

Tensors = Mapping[str, NDArray[Any]]


class NoVideoError(RuntimeError):
    """A video cannot be written; the text says what is missing."""


def record_episode(
    tensors: Tensors, config: RunConfig, folder: Path, name: str
) -> tuple[Path, float]:
    """Plays an episode with the evaluation's first seed and records it.

    As MP4 by Gymnasium's own recorder if moviepy and an ffmpeg that can are installed, else as GIF.

    Returns:
      the file, and the episode's return.

    Raises:
      MakeEnvironmentError: the environment cannot be made, or not be drawn.
      NoVideoError: neither MP4 nor GIF can be written, or not into this folder.
      UnplayableError: the weights do not fit it.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        mp4 = folder / f"{name}-episode-0.mp4"
        if _can_write_mp4() and (played := _record_mp4(tensors, config, mp4, name)) is not None:
            return mp4, played
        gif = mp4.with_suffix(".gif")
        return gif, _record_gif(tensors, config, gif)
    except OSError as error:
        raise NoVideoError(f"no video in {folder}: {error}") from error


def _record_mp4(tensors: Tensors, config: RunConfig, path: Path, name: str) -> float | None:
    """Returns the episode's return; None if ffmpeg could not write it."""
    environment = _make_drawn(config, "rgb_array")
    with warnings.catch_warnings():
        # A run's newest video takes the place of the one before; what failed says so itself.
        for message in (".*Overwriting existing videos", ".*zero frames to save"):
            warnings.filterwarnings("ignore", message)
        recorder = gymnasium.wrappers.RecordVideo(
            environment, str(path.parent), name_prefix=name, disable_logger=True
        )
        try:
            with contextlib.closing(recorder):
                return _play(recorder, tensors, config, FIRST_SEED)
        except OSError as error:
            # ffmpeg may lack the encoder, for example. The recorder would complain once more.
            recorder.recorded_frames.clear()
            path.unlink(missing_ok=True)
            logger.warning("no MP4, so a GIF: %s", str(error).split("\n", 1)[0])
            return None


def _record_gif(tensors: Tensors, config: RunConfig, path: Path) -> float:
    if importlib.util.find_spec("PIL") is None:
        raise NoVideoError(
            "a video needs mycelia-actor[video]: moviepy and its ffmpeg for MP4, or pillow for GIF"
        )
    frames = _Frames(_make_drawn(config, "rgb_array"))
    with contextlib.closing(frames):
        episode_return = _play(frames, tensors, config, FIRST_SEED)
    frames.save(path)
    return episode_return


def show_episodes(tensors: Tensors, config: RunConfig, episodes: int | None) -> Iterator[float]:
    """Plays episodes in a window, and yields their returns; for ever if `episodes` is None.

    Raises: what `record_episode` raises.
    """
    environment = _make_drawn(config, "human")
    with contextlib.closing(environment):
        numbers = itertools.count() if episodes is None else range(episodes)
        for number in numbers:
            yield _play(environment, tensors, config, FIRST_SEED + number)


class _Frames(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Keeps what every step looks like."""

    def __init__(self, env: Environment) -> None:
        # Only who makes a GIF needs pillow.
        from PIL import Image

        super().__init__(env)
        self._to_image = Image.fromarray
        self._images: list[Image.Image] = []

    def step(self, action: object) -> object:  # type: ignore[override]
        outcome = self.env.step(action)
        if len(self._images) < _GIF_FRAMES:
            # In a palette's 256 colours, as the file has it: a third of the memory.
            self._images.append(self._to_image(self.env.render()).quantize())  # type: ignore[arg-type]
        return outcome

    def save(self, path: Path) -> None:
        first, *others = self._images
        duration = 1000 // int(self.metadata.get("render_fps", _DEFAULT_FPS))
        first.save(path, save_all=True, append_images=others, duration=duration, loop=0)


def _play(environment: Environment, tensors: Tensors, config: RunConfig, seed: int) -> float:
    evaluation = Evaluation([environment])
    greedy = make_greedy(evaluation, config, Weights(0, 0, tensors))
    with _told_if_it_cannot_be_drawn(config):
        (episode_return,) = evaluation.play(greedy, [seed]) or [0.0]
    return episode_return


def _make_drawn(config: RunConfig, mode: str) -> Environment:
    # SDL would take SIGTERM for itself, and the command would not end.
    os.environ.setdefault("SDL_NO_SIGNAL_HANDLERS", "1")
    if mode == "human":
        _check_screen(config)
    environment = make_environment(config.env, render_mode=mode)
    if mode not in environment.metadata.get("render_modes", []):
        environment.close()
        raise MakeEnvironmentError(
            f"env.id={config.env.id!r} cannot be drawn: render_mode={mode!r} is not among "
            f"{environment.metadata.get('render_modes', [])}"
        )
    return environment


def _check_screen(config: RunConfig) -> None:
    # Without a screen, SDL draws where nobody sees it and MuJoCo's window aborts the process.
    if sys.platform == "linux" and not any(os.environ.get(name) for name in _SCREENS):
        raise MakeEnvironmentError(
            f"env.id={config.env.id!r} cannot be shown: there is no screen, none of "
            f"{', '.join(_SCREENS)} is set"
        )


def _can_write_mp4() -> bool:
    if importlib.util.find_spec("moviepy") is None:
        return False
    try:
        # What moviepy writes with; it may have been installed without the program itself.
        importlib.import_module("imageio_ffmpeg").get_ffmpeg_exe()
    except (ImportError, RuntimeError):
        return False
    return True


@contextlib.contextmanager
def _told_if_it_cannot_be_drawn(config: RunConfig) -> Iterator[None]:
    try:
        yield
    except (gymnasium.error.DependencyNotInstalled, RuntimeError) as error:
        # pygame's errors, such as that of a missing screen, are RuntimeErrors.
        if isinstance(error, RuntimeError) and type(error).__module__ != "pygame":
            raise
        raise MakeEnvironmentError(f"env.id={config.env.id!r} cannot be drawn: {error}") from error
