"""What a row of experience is made of: column specs and the signature of a table."""

import enum
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from mycelia.experience.v1 import signature_pb2
from mycelia_core.codec import dtype_from_proto, dtype_to_proto, expected_bytes
from mycelia_core.rpc.errors import InvalidArgumentError

OBSERVATION = "observation"
ACTION = "action"
REWARD = "reward"
FIRST = "first"
TERMINATED = "terminated"
TRUNCATED = "truncated"
POLICY_VERSION = "policy_version"


class Codec(enum.Enum):
    """How the rows of a column are compressed; see `Codec` in signature.proto."""

    RAW = signature_pb2.CODEC_RAW
    LZ4 = signature_pb2.CODEC_LZ4
    ZSTD = signature_pb2.CODEC_ZSTD


@dataclass(frozen=True)
class ColumnSpec:
    """One column: a named, typed part of every row."""

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...] = ()
    category_count: int = 0
    """For one of n choices, n; otherwise 0."""
    codec: Codec = Codec.RAW

    @property
    def row_bytes(self) -> int:
        """How many bytes one row has, not compressed."""
        return self.dtype.itemsize * math.prod(self.shape)

    def __str__(self) -> str:
        """Reads `float32 [84, 84]`, or `uint8 [84, 84] lz4`."""
        suffix = "" if self.codec is Codec.RAW else f" {self.codec.name.lower()}"
        return f"{self.dtype} {list(self.shape)}{suffix}"


REQUIRED_COLUMNS = (
    ColumnSpec(REWARD, np.dtype(np.float32)),
    ColumnSpec(FIRST, np.dtype(np.bool_)),
    ColumnSpec(TERMINATED, np.dtype(np.bool_)),
    ColumnSpec(TRUNCATED, np.dtype(np.bool_)),
)


@dataclass(frozen=True)
class Signature:
    """The columns of a table, in order. See `signature.proto` for what they mean."""

    columns: tuple[ColumnSpec, ...]

    item_columns: tuple[ColumnSpec, ...] = ()
    """What is given and kept once per item, such as a recurrent state."""

    def __post_init__(self) -> None:
        """Refuses a signature without the required columns, or with a name twice."""
        names = {column.name for column in (*self.columns, *self.item_columns)}
        if len(names) != len(self.columns) + len(self.item_columns):
            raise InvalidArgumentError("signature: a column name comes twice")
        for column in self.item_columns:
            if column.codec is not Codec.RAW:
                raise InvalidArgumentError(f"signature: item column {column.name!r} is compressed")
        for required in REQUIRED_COLUMNS:
            got = self.by_name.get(required.name)
            if got != required:
                raise InvalidArgumentError(
                    f"signature: column {required.name!r} must be {required}, got {got}"
                )

    @classmethod
    def of(
        cls, columns: Iterable[ColumnSpec], item_columns: Iterable[ColumnSpec] = ()
    ) -> "Signature":
        """Makes a signature of these columns and the four required ones."""
        return cls((*columns, *REQUIRED_COLUMNS), tuple(item_columns))

    @cached_property
    def by_name(self) -> dict[str, ColumnSpec]:
        """The columns by name."""
        return {column.name: column for column in self.columns}

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The columns' names, in order."""
        return tuple(column.name for column in self.columns)

    def __getitem__(self, name: str) -> ColumnSpec:
        """Returns the column of that name; `KeyError` if there is none."""
        return self.by_name[name]

    def starting_with(self, prefix: str) -> tuple[ColumnSpec, ...]:
        """Returns the column `prefix` or the columns `prefix/...`, in order."""
        return tuple(c for c in self.columns if c.name == prefix or c.name.startswith(prefix + "/"))

    def difference(self, other: "Signature") -> str | None:
        """Says in which column `other` differs first, or None if it does not."""
        pairs = (
            ("column", self.columns, other.columns),
            ("item column", self.item_columns, other.item_columns),
        )
        for kind, mine, theirs in pairs:
            here, there = {c.name: c for c in mine}, {c.name: c for c in theirs}
            for name in here | there:
                one, two = here.get(name), there.get(name)
                if one != two:
                    return f"{kind} {name!r}: {one or 'absent'} against {two or 'absent'}"
        return None

    def to_proto(self) -> signature_pb2.Signature:
        """Encodes the signature."""
        return signature_pb2.Signature(
            columns=[column_to_proto(column) for column in self.columns],
            item_columns=[column_to_proto(column) for column in self.item_columns],
        )

    @classmethod
    def from_proto(cls, message: signature_pb2.Signature) -> "Signature":
        """Decodes a signature.

        Raises:
          InvalidArgumentError: a column is malformed, or one is missing or double.
        """
        return cls(
            tuple(column_from_proto(column) for column in message.columns),
            tuple(column_from_proto(column) for column in message.item_columns),
        )


def column_to_proto(column: ColumnSpec) -> signature_pb2.ColumnSpec:
    """Encodes a column spec."""
    return signature_pb2.ColumnSpec(
        name=column.name,
        dtype=dtype_to_proto(column.dtype, column.name),
        shape=column.shape,
        category_count=column.category_count,
        codec=column.codec.value,
    )


def column_from_proto(message: signature_pb2.ColumnSpec) -> ColumnSpec:
    """Decodes a column spec.

    Raises:
      InvalidArgumentError: it is malformed, or its codec is not known.
    """
    if not message.name:
        raise InvalidArgumentError("signature: a column has no name")
    dtype, shape = dtype_from_proto(message.dtype, message.name), tuple(message.shape)
    expected_bytes(dtype, shape, message.name)
    try:
        codec = Codec(message.codec or signature_pb2.CODEC_RAW)
    except ValueError:
        raise InvalidArgumentError(
            f"signature: column {message.name!r} has codec {message.codec}, which is not known"
        ) from None
    return ColumnSpec(message.name, dtype, shape, message.category_count, codec)


class RowValues(Protocol):
    """The rows of one column: an array [rows, ...], or what stands for one."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of the elements."""

    @property
    def ndim(self) -> int:
        """How many axes."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The axes' lengths, the number of rows first."""

    def __len__(self) -> int:
        """How many rows."""


def check_rows(signature: Signature, columns: Mapping[str, RowValues]) -> int:
    """Checks rows `{name: [rows, ...]}` against a signature.

    Returns:
      how many rows there are.

    Raises:
      InvalidArgumentError: a column is unknown or missing, or differs in dtype,
        shape or number of rows. Names the column, what came, what was expected.
    """
    for name in columns:
        if name not in signature.by_name:
            raise InvalidArgumentError(
                f"column {name!r} is unknown; expected {', '.join(signature.names)}"
            )
    rows = -1
    for spec in signature.columns:
        values = columns.get(spec.name)
        if values is None:
            raise InvalidArgumentError(f"column {spec.name!r} is missing; expected {spec}")
        if values.ndim == 0 or values.dtype != spec.dtype or values.shape[1:] != spec.shape:
            expected = ", ".join(["rows", *map(str, spec.shape)])
            raise InvalidArgumentError(
                f"column {spec.name!r}: got {values.dtype} {list(values.shape)}, "
                f"expected {spec.dtype} [{expected}]"
            )
        if rows not in (-1, len(values)):
            raise InvalidArgumentError(
                f"column {spec.name!r}: got {len(values)} rows, the columns before it have {rows}"
            )
        rows = len(values)
    return rows
