"""Which tensors lie on which of several parameter servers."""

from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

from mycelia_core.weights import STATISTICS


def balance(tensors: Mapping[str, NDArray[Any]], count: int) -> list[dict[str, NDArray[Any]]]:
    """Splits tensors into `count` groups of about as many bytes each.

    The largest first, each to the group that is the lightest so far: no group is heavier than
    4/3 of what is best (Graham 1969). The same tensors are always split in the same way. Running
    statistics, which are small, stay together in the first group, which also has the largest
    tensor: it is empty only if all are.
    """
    groups: list[dict[str, NDArray[Any]]] = [{} for _ in range(count)]
    sizes = [0] * count

    def rank(name: str) -> tuple[bool, int, str]:
        return name.startswith(STATISTICS), -tensors[name].nbytes, name

    for name in sorted(tensors, key=rank):
        lightest = 0 if name.startswith(STATISTICS) else sizes.index(min(sizes))
        groups[lightest][name] = tensors[name]
        sizes[lightest] += tensors[name].nbytes
    return groups
