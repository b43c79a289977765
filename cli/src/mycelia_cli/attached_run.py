"""Following a run whose services stand elsewhere."""

import threading
import time

from mycelia.run.v1 import run_pb2 as pb
from mycelia_cli.ending import Ending, outcome_exit_code
from mycelia_cli.errors import CommandError
from mycelia_cli.follow import Follower, View
from mycelia_cli.stop_request import StopRequest
from mycelia_core.clients.run import RunClient
from mycelia_core.clients.waiting import NotYetError, StoppedError, poll
from mycelia_core.config import RunConfig
from mycelia_core.rpc.errors import FailedPreconditionError, UnavailableError

_REACH_SECONDS = 10.0
"""How long to try to reach the registry."""

_LEAVE_SECONDS = 5.0
"""How long to wait for the members of a run that was stopped to leave it."""


def follow_attached(address: str, config: RunConfig, *, stop: StopRequest, view: View) -> Ending:
    """Follows the run at the address to its end; creates it if there is none.

    A run that it created ends with the command. Any other goes on when the
    person leaves.

    Raises:
      CommandError: the registry cannot be reached, or was lost.
    """
    with RunClient(address) as client:
        try:
            standing = standing_run(client, stop.stopping, _REACH_SECONDS)
        except StoppedError:
            return Ending(progress=None, exit_code=stop.exit_code)
        except TimeoutError as error:
            raise CommandError(f"no run registry at {address}: {error}") from error
        created = standing is None or standing.phase == pb.PHASE_FINISHED
        if standing is None or created:
            run = client.create_run(config.name, config.model_dump_json())
            view.note(f"created run {run.run_id} at {address}; its services are to join there")
        else:
            run = standing
            view.note(f"following run {run.run_id} at {address}, with the config that it has")
        follower = Follower(client, run, view)
        follower.follow(stop.stopping, ended=lambda: False)
        return _end(follower, view, stop, created=created)


def standing_run(client: RunClient, stopping: threading.Event, timeout: float) -> pb.Run | None:
    """Returns the run that the registry holds, finished or not; None if it holds none.

    Raises:
      TimeoutError: the registry cannot be reached.
      StoppedError: `stopping` was set.
    """

    def find() -> pb.Run | None:
        try:
            return client.get_run(timeout=2.0).run
        except FailedPreconditionError:
            return None
        except (UnavailableError, TimeoutError) as error:
            raise NotYetError(str(error)) from error

    return poll(find, waiting_for=client.address, timeout=timeout, stop=stopping)


def _end(follower: Follower, view: View, stop: StopRequest, *, created: bool) -> Ending:
    progress = follower.progress
    if progress is not None and progress.is_finished:
        return Ending(progress=progress, exit_code=outcome_exit_code(progress))
    if created:
        follower.finish(pb.OUTCOME_STOPPED, "on request")
        deadline = time.monotonic() + _LEAVE_SECONDS
        follower.look()
        while follower.pids and time.monotonic() < deadline:
            time.sleep(0.1)
            follower.look()
    else:
        view.note("left the run; it goes on")
    return Ending(progress=follower.progress, exit_code=stop.exit_code)
