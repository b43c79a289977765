"""How an actor or evaluator finds its run."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from mycelia.run.v1 import run_pb2
from mycelia_core.clients.run import Membership, RunClient
from mycelia_core.rpc.errors import StatusError
from mycelia_core.specs import Signature

WAIT_SECONDS = 120.0
"""How long to wait for the run, or for another service of it."""


class MembershipLostError(Exception):
    """The run registry was away for too long, or no longer knows the run."""


@contextmanager
def joined(
    client: RunClient,
    role: run_pb2.Role.ValueType,
    stop: threading.Event,
    signature: Signature | None = None,
) -> Iterator[Membership]:
    """Is a member of the run inside; sets `stop` when the run finishes, and leaves at the end.

    Raises:
      MembershipLostError: the membership ended before the run did.
      StatusError: the server refused the member, its signature for example.
      TimeoutError: the server did not answer in time.
      StoppedError: `stop` was set.
    """
    with client.join(role, signature=signature, wait_seconds=WAIT_SECONDS, stop=stop) as member:
        _set_after(member.finished, stop)
        yield member
        if member.lost:
            raise MembershipLostError(f"lost the membership of run {member.run_id}")


def has_finished(address: str) -> bool:
    """Whether the server at `address` says, right now, that its run has finished."""
    try:
        with RunClient(address) as client:
            return client.get_run(timeout=0.5).run.phase == run_pb2.PHASE_FINISHED
    except (StatusError, TimeoutError):
        return False


def _set_after(event: threading.Event, stop: threading.Event) -> None:
    def follow() -> None:
        event.wait()
        stop.set()

    threading.Thread(target=follow, name="stop-at-finish", daemon=True).start()
