"""Which backend steps the environments of an actor."""

import logging
import resource
import time
from collections.abc import Callable
from statistics import median

import numpy as np

from mycelia_actor.environments.cores import core_count
from mycelia_actor.environments.in_process import InProcessEnvironments
from mycelia_actor.environments.joined_groups import JoinedGroups
from mycelia_actor.environments.make import MakeEnvironmentError, make_environment
from mycelia_actor.environments.native import make_ale, make_envpool, make_native
from mycelia_actor.environments.spaces import action_columns, observation_columns
from mycelia_actor.environments.supervisor import Supervisor
from mycelia_actor.environments.thread_group import ThreadGroup
from mycelia_actor.environments.vector import VectorEnvironment
from mycelia_actor.environments.worker_group import WorkerGroup
from mycelia_core.config import EnvConfig

logger = logging.getLogger(__name__)

_MEASURE_SECONDS = 0.1
"""How long a trial of a backend takes."""

_FURTHER_TRIALS = 2
"""How often each is tried again where there is more than one; the median counts."""

_MESSAGE_SECONDS = 150e-6
"""About what a step of a worker process costs beyond its environments."""

_MAX_WAITING_WORKERS = 32
"""How many worker processes `auto` starts for environments that wait: each takes memory."""

_NATIVE_FROM_COUNT = 8
"""From how many environments on a native version in numpy is the faster one. CartPole on one
core, steps/s at 1, 4, 8 and 16: native 35,000, 140,000, 290,000, 555,000; one by one 180,000."""

_Maker = Callable[[EnvConfig, int], VectorEnvironment | None]
"""Returns None if the backend does not have this environment."""


def make_environments(config: EnvConfig, count: int, groups: int = 1) -> VectorEnvironment:
    """Makes `count` environments behind the backend of the config.

    Args:
      config: which environment, and which backend.
      count: how many.
      groups: how many groups to step them in; beyond 1, `JoinedGroups`, as
        with worker processes.

    Raises:
      MakeEnvironmentError: an environment cannot be made, or not with this
        backend; the text says what was tried.
    """
    if groups > 1 and config.backend != "process":
        sizes = [len(part) for part in np.array_split(np.arange(count), min(groups, count))]
        starts = np.cumsum([0, *sizes]).tolist()
        parts = [make_environments(config, size) for size in sizes]
        return JoinedGroups([ThreadGroup(*pair) for pair in zip(parts, starts, strict=False)])
    if config.backend == "auto":
        return make_fastest(config, count)[1]
    environments = MAKERS[config.backend](config, count)
    if environments is None:
        raise MakeEnvironmentError(
            f"env.backend={config.backend!r} does not have env.id={config.id!r} with these "
            "arguments, wrappers and preprocessing"
        )
    return environments


def measure(environments: VectorEnvironment, seconds: float) -> float:
    """Returns how many steps per second the environments take with random actions."""
    space = environments.action.space
    space.seed(1)
    environments.reset(range(environments.count))
    action = environments.action.encode([space.sample() for _ in range(environments.count)])
    environments.step(action)
    env_steps, start = 0, time.perf_counter()
    while (now := time.perf_counter()) - start < seconds:
        env_steps += environments.step(action).step_count
    return env_steps / (now - start)


def _make_sync(config: EnvConfig, count: int) -> VectorEnvironment:
    return InProcessEnvironments(
        [make_environment(config) for _ in range(count)],
        Supervisor(config, make_environment, count),
    )


def _make_processes(config: EnvConfig, count: int) -> VectorEnvironment:
    single = make_environment(config)
    spaces = (
        observation_columns(single.observation_space),
        action_columns(single.action_space),
    )
    single.close()
    workers = _workers(config, count)
    parts = np.array_split(np.arange(count), workers)
    return JoinedGroups([WorkerGroup(config, int(part[0]), len(part), spaces) for part in parts])


def make_fastest(config: EnvConfig, count: int) -> tuple[str, VectorEnvironment]:
    """Tries the backends that have the environment, and returns the fastest and its name.

    Environments that wait instead of working, as for a simulator elsewhere, wait in a
    worker process each, however few the cores are.

    Raises:
      MakeEnvironmentError: an environment cannot be made.
    """
    # Two that need no trial: they win wherever they were measured, and trials take seconds.
    if count >= _NATIVE_FROM_COUNT and (native := make_native(config, count)):
        return "native", native
    if (screens := _try("ale", config, count)) is not None:
        return "ale", screens
    made: dict[str, VectorEnvironment] = {}
    rates: dict[str, float] = {}
    for name in ("sync", "envpool", "process"):
        if name == "process" and not _may_pay(count, _workers(config, count), rates["sync"]):
            continue
        environments = _try(name, config, count)
        if environments is None:
            continue
        made[name], before = environments, _Usage()
        rates[name] = measure(environments, _MEASURE_SECONDS)
        if name == "sync" and not config.processes and before.mostly_waited():
            workers = min(count, _MAX_WAITING_WORKERS)
            config = config.model_copy(update={"processes": workers})
    fastest = _find_fastest(made, rates)
    for name, environments in made.items():
        if name != fastest:
            environments.close()
    return fastest, made[fastest]


def _find_fastest(made: dict[str, VectorEnvironment], first_rates: dict[str, float]) -> str:
    """Tries all again by turns: a first trial may have met other work on the cores."""
    rates = {name: [rate] for name, rate in first_rates.items()}
    for _ in range(_FURTHER_TRIALS if len(made) > 1 else 0):
        for name, environments in made.items():
            rates[name].append(measure(environments, _MEASURE_SECONDS))
    typical = {name: median(found) for name, found in rates.items()}
    logger.info(
        "env.backend=auto: steps per second %s",
        ", ".join(f"{name} {rate:,.0f}" for name, rate in typical.items()),
    )
    return max(typical, key=typical.__getitem__)


def _try(name: str, config: EnvConfig, count: int) -> VectorEnvironment | None:
    try:
        return MAKERS[name](config, count)
    except MakeEnvironmentError as error:
        if name == "sync":
            raise
        logger.info("env.backend=auto: %s is passed over: %s", name, error)
        return None


def _workers(config: EnvConfig, count: int) -> int:
    return min(count, config.processes or core_count())


def _may_pay(count: int, workers: int, sync_rate: float) -> bool:
    """Whether worker processes may be faster, before any is started."""
    together = count / sync_rate
    apart = together / workers + _MESSAGE_SECONDS
    # Starting them takes a second or two: not for a gain that may be noise.
    return workers > 1 and 1.1 * apart < together


class _Usage:
    """What this process has had of the processor, to tell later whether it worked or waited."""

    def __init__(self) -> None:
        self._time, self._cpu_time = time.perf_counter(), time.process_time()
        self._switches = resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw

    def mostly_waited(self) -> bool:
        """Whether it has given the processor away itself, and for most of the time since."""
        elapsed = time.perf_counter() - self._time
        used = time.process_time() - self._cpu_time
        switches = resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw - self._switches
        return used < 0.5 * elapsed and switches >= 2


MAKERS: dict[str, _Maker] = {
    "sync": _make_sync,
    "native": make_native,
    "process": _make_processes,
    "envpool": make_envpool,
    "ale": make_ale,
}
