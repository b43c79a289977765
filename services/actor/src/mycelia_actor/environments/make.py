"""Environments from the config: a registered Gymnasium id, or `package.module:Class`."""

import importlib
from types import ModuleType
from typing import Any

import gymnasium

from mycelia_actor.environments.action_mask import ActionMask
from mycelia_core.config import EnvConfig

Environment = gymnasium.Env[Any, Any]

_ATARI_MODULE = "ale_py"


class MakeEnvironmentError(RuntimeError):
    """The environment could not be made; the text says what was tried."""


def make_environment(config: EnvConfig, render_mode: str | None = None) -> Environment:
    """Makes one environment, with its preprocessing, wrappers and mask.

    Raises:
      MakeEnvironmentError: the id is not known, its module cannot be imported,
        or making it failed.
      ActionMaskError: its masks are not where the config says.
    """
    import_modules(config)
    kwargs = dict(config.kwargs) | ({"render_mode": render_mode} if render_mode else {})
    environment = _make_inner(config, kwargs)
    if config.preprocessing == "atari":
        environment = _preprocess_atari(environment, config)
    for path in config.wrappers:
        environment = _wrap(environment, path, config)
    if config.action_mask:
        environment = ActionMask(environment, config.action_mask)
    return environment


def import_modules(config: EnvConfig) -> None:
    """Imports the module that registers the id, if it is not Gymnasium's own.

    Raises:
      MakeEnvironmentError: the import failed.
    """
    if config.import_module:
        _import_module(config.import_module, config.id, "env.import: ")
    if config.preprocessing == "atari" or config.id.startswith("ALE/"):
        _import_module(_ATARI_MODULE, config.id, "Atari needs mycelia-actor[atari]: ")


def _make_inner(config: EnvConfig, kwargs: dict[str, Any]) -> Environment:
    if config.preprocessing == "atari":
        atari = config.atari
        kwargs = {
            "frameskip": 1,
            "repeat_action_probability": atari.repeat_action_probability,
            "full_action_space": atari.full_action_space,
            "max_num_frames_per_episode": atari.max_episode_frames,
        } | kwargs
    module_name, _, name = config.id.rpartition(":")
    if not module_name:
        return _make_registered(config.id, config, kwargs)
    module = _import_module(module_name, config.id)
    factory = getattr(module, name, None)
    if factory is None:
        tried = f"no attribute {name!r} in {module_name!r}, "
        return _make_registered(name, config, kwargs, tried)
    return _call(factory, config, kwargs)


def _import_module(name: str, environment_id: str, why: str = "") -> ModuleType:
    try:
        return importlib.import_module(name)
    # An import runs the module's own code, which may raise whatever it likes.
    except Exception as error:
        raise MakeEnvironmentError(
            f"env.id={environment_id!r}: {why}importing {name!r} failed: "
            f"{type(error).__name__}: {error}"
        ) from error


def _make_registered(
    name: str, config: EnvConfig, kwargs: dict[str, Any], tried: str = ""
) -> Environment:
    try:
        # The checker's wrapper would cost a third of CartPole's speed.
        return gymnasium.make(name, disable_env_checker=True, **kwargs)
    except Exception as error:
        raise MakeEnvironmentError(
            f"env.id={config.id!r}: {tried}gymnasium.make({name!r}) with {kwargs or 'no'} "
            f"arguments failed: {type(error).__name__}: {error}"
        ) from error


def _call(factory: Any, config: EnvConfig, kwargs: dict[str, Any]) -> Environment:
    try:
        environment = factory(**kwargs)
    except Exception as error:
        raise MakeEnvironmentError(
            f"env.id={config.id!r}: calling it with {kwargs or 'no'} arguments failed: "
            f"{type(error).__name__}: {error}"
        ) from error
    if not isinstance(environment, gymnasium.Env):
        raise MakeEnvironmentError(
            f"env.id={config.id!r} makes a {type(environment).__name__}, not a gymnasium.Env"
        )
    return environment


def _preprocess_atari(environment: Environment, config: EnvConfig) -> Environment:
    # Only who plays Atari needs what it imports.
    from mycelia_actor.environments.atari import AtariFrames

    if not hasattr(environment.unwrapped, "ale"):
        raise MakeEnvironmentError(
            f"env.preprocessing='atari': env.id={config.id!r} is no environment of ale_py"
        )
    return AtariFrames(environment, config.atari)


def _wrap(environment: Environment, path: str, config: EnvConfig) -> Environment:
    module_name, _, name = path.rpartition(":")
    module = _import_module(module_name, config.id, f"env.wrappers={path!r}: ")
    wrapper = getattr(module, name, None)
    if wrapper is None:
        raise MakeEnvironmentError(f"env.wrappers={path!r}: no {name!r} in {module_name!r}")
    try:
        wrapped: Environment = wrapper(environment)
    except Exception as error:
        raise MakeEnvironmentError(
            f"env.wrappers={path!r}: wrapping {environment} failed: {type(error).__name__}: {error}"
        ) from error
    return wrapped
