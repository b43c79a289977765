"""The config's schema as people meet it: its dotted keys, and what is wrong with a value."""

import json
import re
import typing
from collections.abc import Iterable, Iterator
from typing import Any

from pydantic import BaseModel, ValidationError

from mycelia_cli.errors import InputError, did_you_mean, one_line
from mycelia_cli.layers import Layers


def dotted_keys(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    """Yields the dotted name of every key of a config model, sections entered."""
    for name, field in model.model_fields.items():
        section = _section(field.annotation)
        if section is None:
            yield f"{prefix}{name}"
        else:
            yield from dotted_keys(section, f"{prefix}{name}.")


def refuse(
    error: ValidationError, layers: Layers, known_keys: Iterable[str], prefix: str = ""
) -> InputError:
    """Returns the one line that tells what is wrong first of all.

    Args:
      error: what the schema found.
      layers: what was given, for naming where it came from.
      known_keys: every valid dotted key, for the nearest one.
      prefix: the dotted section, with its last dot, that was validated.
    """
    problems = error.errors(include_url=False)
    # An unknown key is often the cause of a missing one.
    problem = min(problems, key=lambda problem: problem["type"] != "extra_forbidden")
    key = (prefix + ".".join(map(str, problem["loc"]))).rstrip(".")
    if problem["type"] == "extra_forbidden":
        key = layers.written_key(key)
        return _unknown_key(key, layers.origin(key), known_keys)
    if problem["type"] == "missing":
        return InputError(f'"{key}" is not set, and has no default')
    expected = one_line(problem["msg"].removeprefix("Value error, "))
    expected = expected.replace("Input should be ", "expected ", 1)
    expected = re.sub("^expected (greater|less) ", r"expected a number \1 ", expected)
    if problem["type"] in ("model_type", "dict_type"):
        expected = "expected a section of keys"
    if problem["type"] == "value_error":
        return InputError(f"{key}: {expected}" if key else expected)
    value = json.dumps(problem["input"], default=str)
    return InputError(f"bad value {key}={value} ({layers.origin(key)}): {expected}")


def _unknown_key(key: str, origin: str, known_keys: Iterable[str]) -> InputError:
    known = list(known_keys)
    last = key.rpartition(".")[2]
    in_other_section = [name for name in known if name.rpartition(".")[2] == last]
    hint = did_you_mean(key, in_other_section or known) or "; mycelia config PRESET shows them all"
    return InputError(f'unknown key "{key}" ({origin}){hint}')


def _section(annotation: Any) -> type[BaseModel] | None:
    for candidate in (annotation, *typing.get_args(annotation)):
        if isinstance(candidate, type) and issubclass(candidate, BaseModel):
            return candidate
    return None
