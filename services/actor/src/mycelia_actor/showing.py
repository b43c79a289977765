"""Greedy episodes for people to look at: recorded as video, or rendered live."""

import contextlib
import importlib.util
import itertools
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

    As MP4 by Gymnasium's own recorder if moviepy is installed, else as GIF.

    Returns:
      the file, and the episode's return.

    Raises:
      MakeEnvironmentError: the environment cannot be made, or not be drawn.
      UnplayableError: the weights do not fit it.
    """
    environment = _make_drawn(config, "rgb_array")
    folder.mkdir(parents=True, exist_ok=True)
    if _has_moviepy():
        recorder = gymnasium.wrappers.RecordVideo(
            environment, str(folder), name_prefix=name, disable_logger=True
        )
        with contextlib.closing(recorder):
            episode_return = _play(recorder, tensors, config, FIRST_SEED)
        return folder / f"{name}-episode-0.mp4", episode_return
    drawn = _Frames(environment)
    with contextlib.closing(drawn):
        episode_return = _play(drawn, tensors, config, FIRST_SEED)
    return drawn.save(folder / f"{name}-episode-0.gif"), episode_return


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
    (episode_return,) = evaluation.play(
        make_greedy(evaluation, config, Weights(0, 0, tensors)), [seed]
    ) or [0.0]
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


def _has_moviepy() -> bool:
    return importlib.util.find_spec("moviepy") is not None
