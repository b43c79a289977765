"""From a preset, the environment and the command line to the config of a run."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from mycelia_algorithms import registry
from mycelia_core.config import RunConfig, WindowConfig
from pydantic import ValidationError

from mycelia_cli.errors import InputError, did_you_mean
from mycelia_cli.layers import (
    COMMAND_LINE,
    Layers,
    key_of_variable,
    parse_environment,
    parse_overrides,
)
from mycelia_cli.presets import Preset, load_preset
from mycelia_cli.schema import dotted_keys, refuse, unknown_key

_FREE_SECTIONS = ("env.kwargs",)
"""Sections whose keys the schema does not know: the environment does."""


@dataclass(frozen=True, slots=True)
class Resolved:
    """A run's config, complete and valid, and where its values came from."""

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
    algorithm = _algorithm(layers)
    known = _known_keys(algorithm)
    _refuse_unknown_variables(layers, known)
    settings = layers.settings | {"algorithm": algorithm.model_dump(mode="json")}
    try:
        config = RunConfig.model_validate(settings)
        return Resolved(_with_window(config), layers)
    except ValidationError as error:
        raise refuse(error, layers, known) from error


def _lay_all(preset: Preset, overrides: Iterable[str], environ: Mapping[str, str]) -> Layers:
    layers = Layers()
    layers.lay({"name": preset.name}, "default")
    layers.lay(preset.settings, str(preset.path))
    for variable, value in parse_environment(environ).items():
        layers.lay({key_of_variable(variable): value}, variable)
    layers.lay(parse_overrides(overrides), COMMAND_LINE)
    return layers


def _algorithm(layers: Layers) -> Any:
    section = layers.settings.get("algorithm")
    names = list(registry.ALGORITHMS)
    if not isinstance(section, dict) or "name" not in section:
        raise InputError(f'"algorithm.name" is not set: expected one of {", ".join(names)}')
    name = section["name"]
    if name not in names:
        hint = did_you_mean(str(name), names) or f"; expected one of {', '.join(names)}"
        raise InputError(f'bad value algorithm.name="{name}" ({layers.origin("algorithm.name")}){hint}')
    model = registry.ALGORITHMS[name].config
    try:
        return model.model_validate(section)
    except ValidationError as error:
        known = _known_keys_of(model)
        raise refuse(error, layers, known, "algorithm.") from error
