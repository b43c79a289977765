"""Layers of settings: preset, environment variables, command line; the later one wins."""

import tomllib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from mycelia_cli.errors import InputError

ENVIRONMENT_PREFIX = "MYCELIA__"
COMMAND_LINE = "command line"


class Layers:
    """Settings laid over each other, and where each of them came from."""

    def __init__(self) -> None:
        """Starts empty."""
        self.settings: dict[str, Any] = {}
        """Sections within sections, as the config's schema reads them."""
        self.origins: dict[str, str] = {}
        """Where a dotted key's value came from, for messages."""

    def lay(self, layer: Mapping[str, Any], origin: str) -> None:
        """Lays one layer, nested or with dotted keys, over those before.

        Raises:
          InputError: a key goes through something that is not a section.
        """
        for key, value in _leaves(layer):
            self._set(key, value, origin)

    def _set(self, key: str, value: Any, origin: str) -> None:
        *sections, last = key.split(".")
        place = self.settings
        for depth, section in enumerate(sections, start=1):
            inner = place.setdefault(section, {})
            if not isinstance(inner, dict):
                above = ".".join(sections[:depth])
                raise InputError(f'unknown key "{key}" ({origin}): "{above}" is not a section')
            place = inner
        place[last] = value
        self.origins[key] = origin

    def written_key(self, key: str) -> str:
        """Returns the dotted key as somebody wrote it: a longer one if `key` is a section."""
        return next((name for name in self.origins if f"{name}.".startswith(f"{key}.")), key)

    def origin(self, key: str) -> str:
        """Returns where the value of a dotted key, or of the section around it, came from."""
        while key not in self.origins and "." in key:
            key = key.rpartition(".")[0]
        return self.origins.get(key, "default")


def parse_overrides(words: Iterable[str]) -> dict[str, Any]:
    """Reads `section.key=value` words; values are TOML, bare words are strings.

    Raises:
      InputError: a word is not of that form.
    """
    overrides = {}
    for word in words:
        key, equals, text = word.partition("=")
        if not equals or not all(key.split(".")):
            raise InputError(f'cannot read "{word}": expected key=value')
        overrides[key] = parse_value(text)
    return overrides


def parse_environment(environ: Mapping[str, str]) -> dict[str, Any]:
    """Reads `MYCELIA__SECTION__KEY` variables, by variable name, not by key yet."""
    return {
        name: parse_value(text)
        for name, text in sorted(environ.items())
        if name.startswith(ENVIRONMENT_PREFIX)
    }


def key_of_variable(name: str) -> str:
    """Returns the dotted key that an environment variable sets."""
    return name.removeprefix(ENVIRONMENT_PREFIX).lower().replace("__", ".")


def parse_value(text: str) -> Any:
    """Reads a value as TOML would; `none` unsets, and what is not TOML is a string."""
    if text == "none":
        return None
    try:
        document = tomllib.loads(f"value = {text}")
    except tomllib.TOMLDecodeError:
        return text
    value = document.get("value")
    # Dates have no place in the config: a name such as 2026-12-01 is a word.
    is_plain = len(document) == 1 and isinstance(value, str | bool | int | float | list | dict)
    return value if is_plain else text


def _leaves(layer: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in layer.items():
        if isinstance(value, Mapping) and value:
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
