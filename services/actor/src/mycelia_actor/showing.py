"""Greedy episodes for people to look at: recorded as video, or rendered live."""

import contextlib
import importlib
import importlib.util
import itertools
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import gymnasium
from numpy.typing import NDArray
from PIL import Image

from mycelia_actor.environments.make import Environment, MakeEnvironmentError, make_environment
from mycelia_actor.evaluation import FIRST_SEED, Evaluation, make_greedy
from mycelia_core.config import RunConfig
from mycelia_core.weights import Weights

_GIF_FRAMES = 1500
"""A GIF keeps all its frames in memory; longer ones are cut."""

_DEFAULT_FPS = 30

Tensors = Mapping[str, NDArray[Any]]


def record_episode(
    tensors: Tensors, config: RunConfig, folder: Path, name: str
) -> tuple[Path, float]:
    """Plays an episode with the evaluation's first seed and records it.

    As MP4 by Gymnasium's own recorder if moviepy and its ffmpeg are installed, else as GIF.

    Returns:
      the file, and the episode's return.

    Raises:
      MakeEnvironmentError: the environment cannot be made, or not be drawn.
      UnplayableError: the weights do not fit it.
    """
    environment = _make_drawn(config, "rgb_array")
    folder.mkdir(parents=True, exist_ok=True)
    if _can_write_mp4():
        return _record_mp4(environment, tensors, config, folder, name)
    drawn = _Frames(environment)
    with contextlib.closing(drawn):
        episode_return = _play(drawn, tensors, config, FIRST_SEED)
    return drawn.save(folder / f"{name}-episode-0.gif"), episode_return


def _record_mp4(
    environment: Environment, tensors: Tensors, config: RunConfig, folder: Path, name: str
) -> tuple[Path, float]:
    with warnings.catch_warnings():
        # A run's newest video takes the place of the one before; what failed says so itself.
        for message in (".*Overwriting existing videos", ".*zero frames to save"):
            warnings.filterwarnings("ignore", message)
        recorder = gymnasium.wrappers.RecordVideo(
            environment, str(folder), name_prefix=name, disable_logger=True
        )
        with contextlib.closing(recorder):
            episode_return = _play(recorder, tensors, config, FIRST_SEED)
    return folder / f"{name}-episode-0.mp4", episode_return


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
        super().__init__(env)
        self._images: list[Image.Image] = []

    def step(self, action: object) -> object:  # type: ignore[override]
        outcome = self.env.step(action)
        if len(self._images) < _GIF_FRAMES:
            self._images.append(Image.fromarray(self.env.render()))  # type: ignore[arg-type]
        return outcome

    def save(self, path: Path) -> Path:
        first, *others = self._images
        duration = 1000 // int(self.metadata.get("render_fps", _DEFAULT_FPS))
        first.save(path, save_all=True, append_images=others, duration=duration, loop=0)
        return path


def _play(environment: Environment, tensors: Tensors, config: RunConfig, seed: int) -> float:
    evaluation = Evaluation([environment])
    greedy = make_greedy(evaluation, config, Weights(0, 0, tensors))
    with _told_if_it_cannot_be_drawn(config):
        (episode_return,) = evaluation.play(greedy, [seed]) or [0.0]
    return episode_return


def _make_drawn(config: RunConfig, mode: str) -> Environment:
    environment = make_environment(config.env, render_mode=mode)
    if mode not in environment.metadata.get("render_modes", []):
        environment.close()
        raise MakeEnvironmentError(
            f"env.id={config.env.id!r} cannot be drawn: render_mode={mode!r} is not among "
            f"{environment.metadata.get('render_modes', [])}"
        )
    return environment


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
