"""Keeps a run on several parameter servers going when one of them is lost."""

import asyncio
import logging
import time

from mycelia_core.rpc.errors import StatusError
from mycelia_param_server.members import Role
from mycelia_param_server.registry import Phase, Run
from mycelia_param_server.shard_group import ShardGroup
from mycelia_param_server.trainer import Trainer

logger = logging.getLogger(__name__)

LOOK_SECONDS = 0.5
"""How often it asks the shards whether they are still what they were."""


class ShardRecovery:
    """Saves the whole in memory every period; puts it on the servers that there are after a loss.

    All servers go back together, so that no version is ever of two pasts. One event loop owns it.
    """

    def __init__(
        self, trainer: Trainer, shards: ShardGroup, run: Run, period_seconds: float
    ) -> None:
        """Watches over the shards of a trainer.

        Args:
          trainer: whose weights they are.
          shards: the trainer's.
          run: knows where the run's further servers are.
          period_seconds: how much training a loss may cost.
        """
        self._trainer = trainer
        self._shards = shards
        self._run = run
        self._period_seconds = period_seconds

    async def watch(self) -> None:
        """Looks after the shards until it is cancelled; then closes what leads to them."""
        try:
            while True:
                await asyncio.sleep(LOOK_SECONDS)
                await self._look_once()
        finally:
            await self._shards.close()

    async def _look_once(self) -> None:
        try:
            await self._look()
        except (StatusError, TimeoutError) as error:
            logger.warning("the shards of the weights: %s", error)
        except Exception:
            # One that ends here would leave the run without anybody who looks after it.
            logger.exception("the shards of the weights could not be looked after")

    async def _look(self) -> None:
        if self._run.phase is Phase.FINISHED:
            return  # The shards leave.
        if self._trainer.saved and (self._trainer.is_waiting or not self._shards.is_whole):
            wanted = self._trainer.config.param_server.shards - 1
            if addresses := find_living_shards(self._run, wanted):
                await self._trainer.rebuild(addresses)
        elif self._trainer.master:
            await self._shards.look()
            if time.monotonic() >= self._trainer.save_time + self._period_seconds:
                await self._trainer.save()


def find_living_shards(run: Run, wanted: int) -> list[str]:
    """Returns where so many further servers of a run are; none if there are too few.

    Where one has taken a lost one's place, it has been heard of last.
    """
    living = [
        member
        for member in run.members
        if member.identity.role is Role.PARAM_SHARD and member.alive and member.identity.address
    ]
    living.sort(key=lambda member: member.last_seen_time, reverse=True)
    addresses = list(dict.fromkeys(member.identity.address for member in living))
    return sorted(addresses[:wanted]) if len(addresses) >= wanted else []
