"""The commands `mycelia presets` and `mycelia config`."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from rich.console import Console
from rich.table import Table

from mycelia_cli.errors import EXIT_OK
from mycelia_cli.layers import COMMAND_LINE, ENVIRONMENT_PREFIX, Layers
from mycelia_cli.presets import load_preset, preset_names
from mycelia_cli.settings import resolve


def list_presets() -> int:
    """Prints every preset with its one line."""
    table = Table.grid(padding=(0, 2))
    for name in preset_names():
        table.add_row(name, load_preset(name).description)
    Console().print(table, highlight=False, soft_wrap=True)
    return EXIT_OK


def show_config(
    preset: str, overrides: Iterable[str], environ: Mapping[str, str], *, as_json: bool
) -> int:
    """Prints the resolved config.

    Raises:
      InputError: it is not valid.
    """
    resolved = resolve(preset, overrides, environ)
    settings = resolved.config.model_dump(mode="json")
    if as_json:
        print(json.dumps(settings))
    else:
        print("\n".join(toml_lines(settings, resolved.layers)))
    return EXIT_OK


def toml_lines(settings: Mapping[str, Any], layers: Layers, section: str = "") -> Iterable[str]:
    """Yields settings as a TOML preset; comments say what the person set over the preset.

    Args:
      settings: nested; None, which TOML does not know, becomes a comment.
      layers: knows where values came from.
      section: the dotted name of the section that these are in.
    """
    if section:
        yield f"[{section}]"
    prefix = f"{section}." if section else ""
    tables = {key: value for key, value in settings.items() if isinstance(value, Mapping)}
    for key, value in settings.items():
        if key not in tables:
            yield _line(key, value, layers.origin(prefix + key))
    for key, value in tables.items():
        if value:
            yield ""
            yield from toml_lines(value, layers, prefix + _key(key))


def _line(key: str, value: Any, origin: str) -> str:
    if value is None:
        return f"# {key} is not set"
    is_own = origin == COMMAND_LINE or origin.startswith(ENVIRONMENT_PREFIX)
    return f"{_key(key)} = {_value(value)}" + (f"  # {origin}" if is_own else "")


def _key(key: str) -> str:
    is_bare = key.replace("-", "").replace("_", "").isalnum() and key.isascii()
    return key if is_bare else _value(key)


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_key(key)} = {_value(v)}" for key, v in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(_value, value)) + "]"
    if isinstance(value, float):
        return repr(value)
    # A JSON string, number or boolean reads the same in TOML.
    return json.dumps(value, ensure_ascii=False)
