"""Environments from the config: a registered Gymnasium id, or `package.module:Class`."""

import importlib
from types import ModuleType
from typing import Any

import gymnasium

from mycelia_core.config import EnvConfig

Environment = gymnasium.Env[Any, Any]


class MakeEnvironmentError(RuntimeError):
    """The environment could not be made; the text says what was tried."""


def make_environment(config: EnvConfig) -> Environment:
    """Makes one environment.

    Raises:
      MakeEnvironmentError: the id is not known, its module cannot be imported,
        or making it failed.
    """
    module_name, _, name = config.id.rpartition(":")
    if not module_name:
        return _make_registered(config.id, config)
    module = _import_module(module_name, config.id)
    factory = getattr(module, name, None)
    if factory is None:
        return _make_registered(name, config, tried=f"no attribute {name!r} in {module_name!r}, ")
    return _call(factory, config)


def _import_module(name: str, environment_id: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    # An import runs the module's own code, which may raise whatever it likes.
    except Exception as error:
        raise MakeEnvironmentError(
            f"env.id={environment_id!r}: importing {name!r} failed: {type(error).__name__}: {error}"
        ) from error


def _make_registered(name: str, config: EnvConfig, tried: str = "") -> Environment:
    try:
        # The checker's wrapper would cost a third of CartPole's speed.
        return gymnasium.make(name, disable_env_checker=True, **config.kwargs)
    except Exception as error:
        raise MakeEnvironmentError(
            f"env.id={config.id!r}: {tried}gymnasium.make({name!r}) with {config.kwargs or 'no'} "
            f"arguments failed: {type(error).__name__}: {error}"
        ) from error


def _call(factory: Any, config: EnvConfig) -> Environment:
    try:
        environment = factory(**config.kwargs)
    except Exception as error:
        raise MakeEnvironmentError(
            f"env.id={config.id!r}: calling it with {config.kwargs or 'no'} arguments failed: "
            f"{type(error).__name__}: {error}"
        ) from error
    if not isinstance(environment, gymnasium.Env):
        raise MakeEnvironmentError(
            f"env.id={config.id!r} makes a {type(environment).__name__}, not a gymnasium.Env"
        )
    return environment
