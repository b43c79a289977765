"""Every algorithm by name. Adding one is a folder and a line here."""

import difflib
import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, cast

from pydantic import BaseModel

from mycelia_algorithms.actor_critic.config import ActorCriticConfig
from mycelia_algorithms.dppo.config import DppoConfig
from mycelia_algorithms.dqn.config import DqnConfig
from mycelia_algorithms.n_step_q.config import NStepQConfig

if TYPE_CHECKING:
    # Configs are read by services that never import torch.
    from mycelia_algorithms.gradient_source import GradientSource
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

    update: str = ""
    """Its update class, `module:name`, imported when it is asked for; empty if only workers
    compute its gradients."""

    gradient_source: str = ""
    """Its class for workers that push gradients, `module:name`; empty if it has none."""


_ACTOR_CRITIC = "mycelia_algorithms.actor_critic.source:ActorCriticSource"

ALGORITHMS: dict[str, Algorithm] = {
    "a2c": Algorithm(ActorCriticConfig, gradient_source=_ACTOR_CRITIC),
    "a3c": Algorithm(ActorCriticConfig, gradient_source=_ACTOR_CRITIC),
    "dppo": Algorithm(DppoConfig, gradient_source="mycelia_algorithms.dppo.source:DppoSource"),
    "dqn": Algorithm(DqnConfig, "mycelia_algorithms.dqn.learner:DqnUpdate"),
    "n-step-q": Algorithm(
        NStepQConfig, gradient_source="mycelia_algorithms.n_step_q.source:NStepQSource"
    ),
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
    return cast("type[Update]", _load(name, _find(name).update, "a learner"))


def load_gradient_source(name: str) -> "type[GradientSource]":
    """Imports what computes an algorithm's gradients in a worker, and torch with it.

    Raises:
      ValueError: if there is no such algorithm, or it is not for workers.
    """
    return cast("type[GradientSource]", _load(name, _find(name).gradient_source, "workers"))


def _load(name: str, place: str, role: str) -> Any:
    if not place:
        raise ValueError(f"algorithm.name: {name!r} is not computed by {role}")
    module, _, attribute = place.partition(":")
    return getattr(importlib.import_module(module), attribute)


def _find(name: object) -> Algorithm:
    if isinstance(name, str) and name in ALGORITHMS:
        return ALGORITHMS[name]
    nearest = difflib.get_close_matches(str(name), ALGORITHMS, n=1, cutoff=0.0)[0]
    raise ValueError(
        f"algorithm.name: no algorithm {name!r}; did you mean {nearest!r}? "
        f"have {sorted(ALGORITHMS)}"
    )
