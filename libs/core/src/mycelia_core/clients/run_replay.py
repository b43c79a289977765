"""Finds the replay servers of a run, however many there are, and again when they have moved."""

import threading
from collections.abc import Iterable

from mycelia.run.v1 import run_pb2 as pb
from mycelia_core.clients.replay import ReplayClient
from mycelia_core.clients.run import RunClient
from mycelia_core.clients.sharded_replay import ShardedReplayClient
from mycelia_core.clients.waiting import NotYetError, poll
from mycelia_core.config import ReplayConfig
from mycelia_core.rpc.errors import StatusError, UnavailableError

CALL_SECONDS = 2.0


def open_run_replay(
    client: RunClient,
    run_id: str,
    config: ReplayConfig,
    *,
    timeout: float,
    stop: threading.Event | None = None,
) -> ReplayClient | ShardedReplayClient:
    """Waits until all replay servers of a run are there and returns a client of them.

    Args:
      client: of the run's registry; asked again whenever a connection is lost.
      run_id: the run.
      config: says how many servers there are to be.
      timeout: seconds to wait for them.
      stop: ends the wait when it is set.

    Raises:
      TimeoutError: they did not come in time.
      StoppedError: `stop` was set.
      StatusError: the registry refused.
    """
    count = config.shards

    def locate(shard: int) -> str | None:
        try:
            return _addresses(client, run_id, count)[shard]
        except (StatusError, TimeoutError):
            return None

    def find_all() -> list[str]:
        try:
            found = _addresses(client, run_id, count)
        except (UnavailableError, TimeoutError) as error:
            raise NotYetError(str(error)) from error
        addresses = [address for address in found if address]
        if len(addresses) < count:
            raise NotYetError(f"{len(addresses)} of {count} are there")
        return addresses

    what = "the replay service" if count == 1 else f"{count} replay servers"
    addresses = poll(find_all, waiting_for=what, timeout=timeout, stop=stop)
    clients = [
        ReplayClient(address, run_id, locate=lambda shard=shard: locate(shard))  # type: ignore[misc]
        for shard, address in enumerate(addresses)
    ]
    if count == 1:
        return clients[0]
    return ShardedReplayClient(clients, shard_timeout_seconds=config.shard_timeout_seconds)


def _addresses(client: RunClient, run_id: str, count: int) -> list[str | None]:
    return shard_addresses(client.get_run(run_id, timeout=CALL_SECONDS).members, count)


def shard_addresses(members: Iterable[pb.Member], count: int) -> list[str | None]:
    """Returns where each of `count` shards is, None for those that are not there.

    A shard is a replay member's index. One that was started again under a new
    name while the old one's lease still ran has a higher index, and takes the
    place of one that is gone.
    """
    living = {
        member.index: member.address
        for member in members
        if member.role == pb.ROLE_REPLAY and member.alive and member.address
    }
    spare = iter([living[index] for index in sorted(living) if index >= count])
    return [living[shard] if shard in living else next(spare, None) for shard in range(count)]
