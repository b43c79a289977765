"""Nested dicts and tuples to and from flat, named columns."""

from collections.abc import Mapping
from typing import Any


def flatten(value: Any, prefix: str) -> dict[str, Any]:
    """Flattens nested dicts and tuples to `{name: leaf}`, names joined by `/`.

    `flatten({"camera": a, "arms": (b, c)}, "observation")` has the keys
    `observation/camera`, `observation/arms/0` and `observation/arms/1`; a leaf
    alone has the key `prefix`. Dict keys are taken in their own order.

    Raises:
      ValueError: a key is not text or holds a `/`, so that names could clash.
    """
    if isinstance(value, Mapping):
        children = [(_checked(key), child) for key, child in value.items()]
    elif isinstance(value, tuple):
        children = [(str(index), child) for index, child in enumerate(value)]
    else:
        return {prefix: value}
    columns: dict[str, Any] = {}
    for key, child in children:
        columns.update(flatten(child, f"{prefix}/{key}"))
    return columns


def unflatten(columns: Mapping[str, Any], structure: Any, prefix: str) -> Any:
    """Rebuilds a nested value in the form of `structure` from its columns.

    Args:
      columns: `{name: leaf}`, as `flatten` names them; others are ignored.
      structure: any nested value of the same form; its leaves are not looked at.
      prefix: the prefix given to `flatten`.

    Raises:
      KeyError: a column is missing.
    """
    if isinstance(structure, Mapping):
        return {
            key: unflatten(columns, child, f"{prefix}/{_checked(key)}")
            for key, child in structure.items()
        }
    if isinstance(structure, tuple):
        return tuple(
            unflatten(columns, child, f"{prefix}/{index}") for index, child in enumerate(structure)
        )
    return columns[prefix]


def _checked(key: Any) -> str:
    if not isinstance(key, str) or not key or "/" in key:
        raise ValueError(f"key {key!r}: column names need keys that are text without '/'")
    return key
