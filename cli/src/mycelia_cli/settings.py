"""From a preset, the environment and the command line to the config of a run."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pydantic import BaseModel, ValidationError

from mycelia_algorithms import registry
from mycelia_cli.errors import InputError, did_you_mean
from mycelia_cli.layers import (
    COMMAND_LINE,
    Layers,
    key_of_variable,
    parse_environment,
    parse_overrides,
)
from mycelia_cli.presets import Preset, load_preset
from mycelia_cli.schema import dotted_keys, refuse
from mycelia_core.config import RunConfig


@dataclass(frozen=True, slots=True)
class Resolved:
    """A run's config, complete and valid, and the layers that it came from."""

    config: RunConfig
    layers: Layers


def resolve(preset_name: str, overrides: Iterable[str], environ: Mapping[str, str]) -> Resolved:
    """Lays defaults, preset, environment and command line over each other; later wins.

    Args:
      preset_name: a preset, or the path of a TOML file.
      overrides: `section.key=value` words.
      environ: where `MYCELIA__SECTION__KEY` variables are looked for.

    Raises:
      InputError: no such preset, an unknown key or a bad value; one line that
        names it, where it came from and what was expected.
    """
    layers = _lay_all(load_preset(preset_name), overrides, environ)
    model = _algorithm_model(layers)
    known_keys = [*_run_keys(), *dotted_keys(model, "algorithm.")]
    try:
        algorithm = model.model_validate(layers.settings["algorithm"]).model_dump(mode="json")
    except ValidationError as error:
        raise refuse(error, layers, known_keys, "algorithm.") from error
    try:
        config = RunConfig.model_validate(_complete(layers, algorithm))
    except ValidationError as error:
        raise refuse(error, layers, known_keys) from error
    return Resolved(config, layers)


def _lay_all(preset: Preset, overrides: Iterable[str], environ: Mapping[str, str]) -> Layers:
    layers = Layers()
    layers.lay({"name": preset.name}, "default")
    layers.lay(preset.settings, str(preset.path))
    for variable, value in parse_environment(environ).items():
        layers.lay({key_of_variable(variable): value}, variable)
    layers.lay(parse_overrides(overrides), COMMAND_LINE)
    return layers


def _algorithm_model(layers: Layers) -> type[BaseModel]:
    section = layers.settings.get("algorithm")
    name = section.get("name") if isinstance(section, dict) else None
    if isinstance(name, str) and name in registry.ALGORITHMS:
        return registry.ALGORITHMS[name].config
    names = ", ".join(sorted(registry.ALGORITHMS))
    if name is None:
        raise InputError(f'"algorithm.name" is not set: expected one of {names}')
    hint = did_you_mean(str(name), registry.ALGORITHMS)
    where = layers.origin("algorithm.name")
    raise InputError(f'bad value algorithm.name="{name}" ({where}): expected one of {names}{hint}')


def _complete(layers: Layers, algorithm: dict[str, object]) -> dict[str, object]:
    settings = layers.settings | {"algorithm": algorithm}
    replay = settings.setdefault("replay", {})
    # The windows follow from the algorithm; a service that reads the config
    # should not need to know how.
    if isinstance(replay, dict) and replay.get("window") is None:
        window = registry.parse_config(algorithm).window()
        settings["replay"] = replay | {"window": window}
    return settings


def _run_keys() -> list[str]:
    return [key for key in dotted_keys(RunConfig) if key != "algorithm"]
