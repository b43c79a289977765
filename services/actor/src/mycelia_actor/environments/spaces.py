"""Gymnasium spaces as named columns, and values to and from them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import Space, spaces
from numpy.typing import NDArray

from mycelia_actor.environments.action_mask import MaskedDict
from mycelia_core import nested
from mycelia_core.compression import default_codec
from mycelia_core.specs import ACTION, OBSERVATION, POLICY_VERSION, ColumnSpec, Signature

Columns = dict[str, NDArray[Any]]


class UnsupportedSpaceError(ValueError):
    """A space, or a part of one, that has no fixed dtype and shape."""


@dataclass(frozen=True)
class _Leaf:
    """One leaf of a space: its column, and how its values differ from the column's."""

    spec: ColumnSpec
    offset: int
    """What a Discrete space counts from; columns count from 0."""

    dtype: np.dtype[Any]
    """The dtype of the environment's values."""


class SpaceColumns:
    """Maps values of one space to columns and back. Immutable."""

    def __init__(self, space: Space[Any], prefix: str) -> None:
        """Names the columns `prefix`, or `prefix/...` for the leaves of a nested space.

        With an empty prefix they are named by the space's own keys.

        Raises:
          UnsupportedSpaceError: a leaf is not a Box, Discrete, MultiDiscrete or
            MultiBinary, or the name of a part holds a `/`.
        """
        self.space = space
        self._prefix = prefix
        self._structure = _structure_of(space)
        try:
            named = self._flatten(self._structure)
        except ValueError as error:
            raise UnsupportedSpaceError(f"space {space}: {error}") from error
        self._leaves = {name: _leaf(name, leaf) for name, leaf in named.items()}
        # Most spaces are one leaf; their values need no walk through a structure.
        self._only = self._leaves.get(prefix)

    @property
    def specs(self) -> tuple[ColumnSpec, ...]:
        """The columns, in the order of the space."""
        return tuple(leaf.spec for leaf in self._leaves.values())

    def allocate(self, count: int) -> Columns:
        """Returns arrays for `count` values, `[count, ...]` each, not initialised."""
        return {
            name: np.empty((count, *leaf.spec.shape), leaf.spec.dtype)
            for name, leaf in self._leaves.items()
        }

    def zeros(self, count: int) -> Columns:
        """Returns arrays for `count` values, `[count, ...]` each, all 0."""
        return {
            name: np.zeros((count, *leaf.spec.shape), leaf.spec.dtype)
            for name, leaf in self._leaves.items()
        }

    def write(self, columns: Columns, index: int, value: Any) -> None:
        """Copies one value of the space into row `index` of the columns."""
        if self._only is not None:
            columns[self._prefix][index] = value - self._only.offset if self._only.offset else value
            return
        for name, part in self._flatten(value).items():
            leaf = self._leaves[name]
            columns[name][index] = part - leaf.offset if leaf.offset else part

    def encode(self, values: Sequence[Any]) -> Columns:
        """Returns the columns `[len(values), ...]` of a list of values."""
        columns = self.allocate(len(values))
        for index, value in enumerate(values):
            self.write(columns, index, value)
        return columns

    def encode_batch(self, batch: Any) -> Columns:
        """Returns fresh columns `[N, ...]` of a batch of N, in the form of a vector environment."""
        columns = {}
        for name, part in self._flatten(batch).items():
            leaf = self._leaves[name]
            column = np.array(part, dtype=leaf.spec.dtype, order="C")
            if leaf.offset:
                column -= leaf.offset
            columns[name] = column
        return columns

    def decode_batch(self, columns: Mapping[str, NDArray[Any]]) -> Any:
        """Returns columns `[N, ...]` as a batch of N, in the form of a vector environment."""
        parts = {name: self._decode_leaf(name, columns[name]) for name in self._leaves}
        return self._unflatten(parts)

    def decode(self, columns: Mapping[str, NDArray[Any]]) -> list[Any]:
        """Returns columns `[N, ...]` as a list of N values of the space."""
        if self._only is not None:
            return self._decode_values(self._prefix, columns)
        parts = {name: self._decode_values(name, columns) for name in self._leaves}
        count = len(next(iter(parts.values())))
        return [
            self._unflatten({name: part[index] for name, part in parts.items()})
            for index in range(count)
        ]

    def _flatten(self, value: Any) -> dict[str, Any]:
        named = nested.flatten(value, self._prefix)
        # Without a prefix, the space's own keys are the columns' names.
        return named if self._prefix else {name[1:]: part for name, part in named.items()}

    def _unflatten(self, parts: dict[str, Any]) -> Any:
        if not self._prefix:
            parts = {f"/{name}": part for name, part in parts.items()}
        return nested.unflatten(parts, self._structure, self._prefix)

    def _decode_values(self, name: str, columns: Mapping[str, NDArray[Any]]) -> list[Any]:
        values = list(self._decode_leaf(name, columns[name]))
        spec = self._leaves[name].spec
        if spec.shape or spec.category_count:
            return values
        # A Box of shape () holds arrays without axes, not numbers.
        return [np.asarray(value) for value in values]

    def _decode_leaf(self, name: str, column: NDArray[Any]) -> NDArray[Any]:
        leaf = self._leaves[name]
        if leaf.offset:
            column = column + leaf.offset
        return column.astype(leaf.dtype, copy=False)


def signature_of(observation: SpaceColumns, action: SpaceColumns) -> Signature:
    """Returns what rows are made of: observation, action, policy version, the required ones."""
    version = ColumnSpec(POLICY_VERSION, np.dtype(np.int64))
    return Signature.of((*observation.specs, *action.specs, version))


def observation_columns(space: Space[Any]) -> SpaceColumns:
    """Returns the columns `observation` or `observation/...` of an observation space.

    An environment with masks has the column `action_mask` beside them.
    """
    return SpaceColumns(space, "" if isinstance(space, MaskedDict) else OBSERVATION)


def action_columns(space: Space[Any]) -> SpaceColumns:
    """Returns the columns `action` or `action/...` of an action space."""
    return SpaceColumns(space, ACTION)


def _structure_of(space: Space[Any]) -> Any:
    if isinstance(space, spaces.Dict):
        return {key: _structure_of(child) for key, child in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(_structure_of(child) for child in space.spaces)
    return space


def _leaf(name: str, space: Space[Any]) -> _Leaf:
    if isinstance(space, spaces.Discrete):
        spec = ColumnSpec(name, np.dtype(np.int64), (), int(space.n))
        return _Leaf(spec, int(space.start), np.dtype(space.dtype))
    if isinstance(space, spaces.Box | spaces.MultiDiscrete | spaces.MultiBinary):
        dtype = np.dtype(space.dtype)
        shape = tuple(int(length) for length in space.shape)
        spec = ColumnSpec(name, dtype, shape, codec=default_codec(dtype, shape))
        return _Leaf(spec, 0, dtype)
    raise UnsupportedSpaceError(
        f"column {name!r}: {space} has no fixed dtype and shape; "
        "Box, Discrete, MultiDiscrete, MultiBinary, and Dict and Tuple of them can be recorded"
    )
