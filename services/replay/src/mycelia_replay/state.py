"""What a part of a table holds, as named arrays and scalars: what checkpoints are made of."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from mycelia_replay.arrays import AnyArray


class UnfitStateError(ValueError):
    """A state does not belong to a part of this size or kind; the text says why."""


@dataclass(frozen=True, slots=True)
class State:
    """A copy of what a part holds. Nobody changes it once it is made."""

    arrays: Mapping[str, AnyArray] = field(default_factory=dict)
    """By name; `part/name` for those of a part's part."""

    scalars: Mapping[str, Any] = field(default_factory=dict)
    """What JSON can hold, by name."""

    @classmethod
    def of(cls, arrays: Mapping[str, AnyArray] | None = None, **scalars: Any) -> Self:
        """Copies the arrays of a part."""
        return cls({name: array.copy() for name, array in (arrays or {}).items()}, scalars)

    def joined(self, **parts: "State") -> "State":
        """Returns this state with those of a part's own parts added."""
        arrays, scalars = dict(self.arrays), dict(self.scalars)
        for name, part in parts.items():
            arrays |= {f"{name}/{key}": value for key, value in part.arrays.items()}
            scalars |= {f"{name}/{key}": value for key, value in part.scalars.items()}
        return State(arrays, scalars)

    def part(self, name: str) -> "State":
        """Returns the state of a part's part, as `joined` took it."""
        start = f"{name}/"
        return State(
            {k.removeprefix(start): v for k, v in self.arrays.items() if k.startswith(start)},
            {k.removeprefix(start): v for k, v in self.scalars.items() if k.startswith(start)},
        )

    def array(self, name: str) -> AnyArray:
        """Returns an array.

        Raises:
          UnfitStateError: there is none of that name.
        """
        if name not in self.arrays:
            raise UnfitStateError(f"array {name!r} is missing; there are {sorted(self.arrays)}")
        return self.arrays[name]

    def scalar(self, name: str) -> Any:
        """Returns a scalar.

        Raises:
          UnfitStateError: there is none of that name.
        """
        if name not in self.scalars:
            raise UnfitStateError(f"scalar {name!r} is missing; there are {sorted(self.scalars)}")
        return self.scalars[name]

    def copy_into(self, **targets: AnyArray) -> None:
        """Overwrites arrays with those of the same names.

        Raises:
          UnfitStateError: one is missing, or differs in dtype or shape.
        """
        for name, target in targets.items():
            array = self.array(name)
            if (array.dtype, array.shape) != (target.dtype, target.shape):
                raise UnfitStateError(
                    f"array {name!r}: got {array.dtype} {list(array.shape)}, "
                    f"expected {target.dtype} {list(target.shape)}"
                )
            target[...] = array
