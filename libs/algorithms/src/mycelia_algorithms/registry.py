"""Every algorithm by name. Adding one is a folder and a line here."""

import difflib
import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, cast

from pydantic import BaseModel

from mycelia_algorithms.dqn.config import DqnConfig

if TYPE_CHECKING:
    # Configs are read by services that never import torch.
    from mycelia_algorithms.update import Update


class AlgorithmConfig(Protocol):
    """What every algorithm's config can say about itself."""

    name: str

    def window(self) -> dict[str, int]:
        """The windows it trains on: `learn_rows`, `bootstrap_rows`, `period`, `context_rows`."""


@dataclass(frozen=True, slots=True)
class Algorithm:
    """Where an algorithm's parts are."""

    config: type[BaseModel]
    """Its config class; importing it does not import torch."""

    update: str
    """Its update class, `module:name`, imported when it is asked for."""


ALGORITHMS: dict[str, Algorithm] = {
    "dqn": Algorithm(DqnConfig, "mycelia_algorithms.dqn.learner:DqnUpdate"),
}


def parse_config(fields: Mapping[str, Any]) -> AlgorithmConfig:
    """Checks an algorithm's settings; `fields["name"]` says which algorithm's they are.

    Raises:
      ValueError: if the name is missing or unknown (suggests the nearest), or, as pydantic's
        ValidationError, if a field is unknown or its value bad.
    """
    entry = _find(fields.get("name"))
    return cast("AlgorithmConfig", entry.config.model_validate(dict(fields)))


def load_update(name: str) -> "type[Update]":
    """Imports an algorithm's update class, and torch with it.

    Raises:
      ValueError: if there is no such algorithm.
    """
    module, _, attribute = _find(name).update.partition(":")
    return cast("type[Update]", getattr(importlib.import_module(module), attribute))


def _find(name: object) -> Algorithm:
    if isinstance(name, str) and name in ALGORITHMS:
        return ALGORITHMS[name]
    nearest = difflib.get_close_matches(str(name), ALGORITHMS, n=1, cutoff=0.0)[0]
    raise ValueError(
        f"algorithm.name: no algorithm {name!r}; did you mean {nearest!r}? "
        f"have {sorted(ALGORITHMS)}"
    )
