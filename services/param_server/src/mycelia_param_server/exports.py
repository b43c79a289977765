"""What the parameter server exports to Prometheus of the members of its run."""

from collections.abc import Iterator

from mycelia_core.rpc.errors import FailedPreconditionError
from mycelia_core.rpc.metrics import Reading
from mycelia_param_server.registry import RunRegistry


def member_readings(registry: RunRegistry) -> Iterator[Reading]:
    """Yields what each member has reported last; nothing while there is no run.

    So actors and learners, which serve nothing, are seen here.
    """
    try:
        run = registry.find_any("")
    except FailedPreconditionError:
        return
    yield Reading("run_env_steps", float(run.env_steps))
    for member in list(run.members):
        labels = {"role": member.identity.role.name.lower(), "index": str(member.index)}
        yield Reading("member_alive", float(member.alive), labels)
        for name, value in dict(member.counters).items():
            yield Reading("member_counter", value, labels | {"name": name})
