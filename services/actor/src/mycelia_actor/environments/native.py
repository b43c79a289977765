"""Vector environments that step without Python: an id's own, EnvPool's, ale-py's.

Each is taken only if it plays the same game as the single environment: the same
spaces, and no wrappers that it would leave out.
"""

import warnings
from collections.abc import Callable, Sequence
from typing import Any, cast

import gymnasium
from gymnasium import spaces
from gymnasium.vector import AutoresetMode

from mycelia_actor.environments.autoreset import NextStepEnvironments, Vector, adapt
from mycelia_actor.environments.cores import core_count
from mycelia_actor.environments.make import import_modules, make_environment
from mycelia_actor.environments.screens import Screens
from mycelia_actor.environments.vector import Observation, VectorEnvironment
from mycelia_core.config import EnvConfig


def make_native(config: EnvConfig, count: int) -> VectorEnvironment | None:
    """Makes the vector version that is registered with the id; None if there is none."""
    single = make_environment(config)
    spec = single.spec
    single.close()
    # A spec that does not lead back to the config's id is one of a class path.
    if spec is None or spec.vector_entry_point is None or spec.id not in config.id:
        return None
    if spec.additional_wrappers or _is_changed(config) or config.preprocessing != "none":
        return None
    vector = gymnasium.make_vec(
        spec.id, num_envs=count, vectorization_mode="vector_entry_point", **config.kwargs
    )
    # Some vector versions preprocess (Atari's do): that would be another game.
    if not _is_same_game(vector, single) or not isinstance(
        vector.metadata.get("autoreset_mode"), AutoresetMode
    ):
        vector.close()
        return None
    return adapt(vector)


def make_ale(config: EnvConfig, count: int) -> VectorEnvironment | None:
    """Makes ale-py's vector Atari; None if this is not preprocessed Atari, and nothing else."""
    if config.preprocessing != "atari" or _is_changed(config) or config.kwargs:
        return None
    import_modules(config)
    from ale_py.vector_env import AtariVectorEnv

    atari = config.atari
    vector: Any = AtariVectorEnv(
        _game(config),
        count,
        # 64 games on 2 cores: 2,880 steps/s; with threads of its own choice 2,520.
        num_threads=min(count, core_count()),
        max_num_frames_per_episode=atari.max_episode_frames,
        repeat_action_probability=atari.repeat_action_probability,
        full_action_space=atari.full_action_space,
        img_height=atari.screen_size,
        img_width=atari.screen_size,
        stack_num=1,
        frameskip=atari.frame_skip,
        noop_max=atari.noop_max,
        reward_clipping=False,
        use_fire_reset=atari.fire_reset,
    )
    return Screens(vector, life_loss=atari.life_loss)


def make_envpool(config: EnvConfig, count: int) -> VectorEnvironment | None:
    """Makes EnvPool's version; None if EnvPool, or the environment in it, is not there."""
    if _is_changed(config) or config.kwargs:
        return None
    try:
        import envpool
    except ImportError:
        return None
    import_modules(config)
    is_atari = config.preprocessing == "atari"
    name = _envpool_atari_name(config) if is_atari else config.id
    if name not in envpool.list_all_envs():
        return None
    options = _envpool_atari_options(config) if is_atari else {}

    def make(seeds: Sequence[int]) -> Vector:
        with warnings.catch_warnings():
            # It makes its spaces of bounds that Gymnasium finds too precise.
            warnings.simplefilter("ignore")
            vector: Any = envpool.make(
                name, env_type="gymnasium", num_envs=count, seed=int(seeds[0]), **options
            )
            # They are made when they are first asked for, so it is done here.
            assert vector.single_observation_space is not None
            assert vector.observation_space is not None
        return cast("Vector", vector)

    if is_atari:
        return Screens(make([1]), life_loss=config.atari.life_loss, remake=make)
    single = make_environment(config)
    single.close()
    vector = make([1])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if not _is_same_game(vector, single):
            vector.close()
            return None
        return PooledEnvironments(vector, make)


class PooledEnvironments(NextStepEnvironments):
    """EnvPool's environments, whose seeds are given when the pool is made."""

    def __init__(self, vector: Vector, make: Callable[[Sequence[int]], Vector]) -> None:
        """Takes ownership of a pool, and of the right to make it anew."""
        super().__init__(vector)
        self._make = make

    def reset(self, seeds: Sequence[int]) -> Observation:
        """Starts new episodes in a new pool; the first seed is for all."""
        self._vector.close()
        self._vector = self._make(seeds)
        return super().reset(seeds)

    def _reset_vector(self, seeds: Sequence[int]) -> Any:
        return self._vector.reset()[0]


def _is_changed(config: EnvConfig) -> bool:
    return bool(config.wrappers or config.action_mask)


def _is_same_game(vector: Vector, single: gymnasium.Env[Any, Any]) -> bool:
    # Bounds may differ in their last digit; what the rows are made of may not.
    seen, shown = vector.single_observation_space, single.observation_space
    if type(seen) is not type(shown) or vector.single_action_space != single.action_space:
        return False
    if isinstance(seen, spaces.Box):
        return seen.shape == shown.shape and seen.dtype == shown.dtype
    return bool(seen == shown)


def _game(config: EnvConfig) -> str:
    return str(gymnasium.spec(config.id).kwargs["game"])


def _envpool_atari_name(config: EnvConfig) -> str:
    return f"{gymnasium.spec(config.id).name.removesuffix('NoFrameskip')}-v5"


def _envpool_atari_options(config: EnvConfig) -> dict[str, Any]:
    atari = config.atari
    return {
        "stack_num": 1,
        "frame_skip": atari.frame_skip,
        "noop_max": max(1, atari.noop_max),
        "episodic_life": False,
        "reward_clip": False,
        "img_height": atari.screen_size,
        "img_width": atari.screen_size,
        "use_fire_reset": atari.fire_reset,
        "full_action_space": atari.full_action_space,
        "repeat_action_probability": atari.repeat_action_probability,
        "max_episode_steps": atari.max_episode_frames // atari.frame_skip,
    }
