"""The replay service: requests in, responses out; the tables do the work."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import aclosing, contextmanager
from typing import Any

import grpc

from mycelia.replay.v1 import replay_pb2 as pb
from mycelia.replay.v1 import replay_pb2_grpc
from mycelia_core.rpc import insert_wire
from mycelia_core.rpc.errors import (
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    StatusError,
    UnavailableError,
)
from mycelia_core.specs import Signature
from mycelia_replay.batch_sender import BatchSender
from mycelia_replay.checkpoint.checkpointer import Checkpointer
from mycelia_replay.credit import Credit
from mycelia_replay.gate import Gate
from mycelia_replay.memory import resident_bytes
from mycelia_replay.requests import parse_elsewhere, parse_insert, parse_keys, parse_update
from mycelia_replay.responses import (
    exchanged_counts,
    server_info,
    table_info,
)
from mycelia_replay.table_creation import check_same, create_table
from mycelia_replay.table_settings import parse_settings

SERVICE_NAME = pb.DESCRIPTOR.services_by_name["ReplayService"].full_name

Context = grpc.aio.ServicerContext[Any, Any]


class ReplayServicer(replay_pb2_grpc.ReplayServiceServicer):
    """Serves the tables of one run. One event loop owns them, so none needs a lock.

    The contract of each method is written on the RPC in replay.proto.
    """

    def __init__(self) -> None:
        """Answers `UNAVAILABLE` until `open` is called."""
        self._run_id = ""
        self._gates: dict[str, Gate] = {}
        self._credits: set[Credit] = set()
        self._checkpointer: Checkpointer | None = None
        self._baseline_bytes = resident_bytes()
        self._unavailable = "the server is starting: the run's signature is not known yet"

    def open(
        self, run_id: str, gates: Iterable[Gate], checkpointer: Checkpointer | None = None
    ) -> None:
        """Takes ownership of the run's tables and begins to serve them."""
        self._run_id = run_id
        self._checkpointer = checkpointer
        self._gates = {gate.table.name: gate for gate in gates}
        self._unavailable = ""

    def describe(self) -> tuple[pb.ServerInfo, list[pb.TableInfo]]:
        """Describes the process and all tables there are."""
        server = server_info(self._checkpointer, self._baseline_bytes)
        return server, [table_info(gate) for gate in self._gates.values()]

    def close(self) -> None:
        """Ends all waits with `UNAVAILABLE` and refuses further calls, so that callers move on."""
        self._unavailable = "the server is stopping"
        for gate in self._gates.values():
            gate.close()
        for credit in self._credits:
            credit.fail(UnavailableError(self._unavailable))

    async def Insert(  # type: ignore[override]
        self, request_iterator: AsyncIterator[insert_wire.Insert], context: Context
    ) -> AsyncIterator[pb.InsertResponse]:
        """Appends rows to a table."""
        # Tells a caller whose rows will have to wait that the server is there.
        await context.send_initial_metadata(())
        sequence, run_id, table = -1, "", ""
        async for insert in request_iterator:
            request = insert.head
            run_id, table = request.run_id or run_id, request.table
            with self._refusals_counted(request.table):
                gate = self._find_gate(run_id, request.table)
                if request.sequence <= sequence:
                    raise InvalidArgumentError(
                        f"sequence: got {request.sequence}, expected more than {sequence}"
                    )
                sequence = request.sequence
                inserted = await gate.insert(parse_insert(insert, gate.table.signature))
            yield pb.InsertResponse(
                sequence=sequence,
                stored_row_count=inserted.stored_count,
                duplicate_row_count=inserted.duplicate_count,
                missing_row_count=inserted.missing_count,
            )
        await self._count_if_unreadable(table)

    async def Sample(  # type: ignore[override]
        self, request_iterator: AsyncIterator[pb.SampleRequest], context: Context
    ) -> AsyncIterator[bytes]:
        """Draws batches of items as credit is granted; yields serialized responses."""
        credit = Credit()
        self._credits.add(credit)
        reader = asyncio.create_task(credit.read(request_iterator))
        try:
            first = await credit.first()
            if first is None:
                return
            gate = self._find_gate(first.run_id, first.table)
            if first.batch_size < 1:
                raise InvalidArgumentError(f"batch_size: got {first.batch_size}, expected >= 1")
            gate.check_batch_size(first.batch_size)
            sender = BatchSender(gate, credit, first, context.peer())
            async with aclosing(sender.messages()) as messages:
                async for message in messages:
                    yield message
        finally:
            self._credits.discard(credit)
            reader.cancel()
            credit.close()

    async def UpdatePriorities(
        self, request: pb.UpdatePrioritiesRequest, context: Context
    ) -> pb.UpdatePrioritiesResponse:
        """Sets the priorities of items by key."""
        with self._refusals_counted(request.table):
            gate = self._find_gate(request.run_id, request.table)
            applied, stale = gate.table.update_priorities(*parse_update(request))
        gate.notify()
        return pb.UpdatePrioritiesResponse(applied_count=applied, stale_count=stale)

    async def DeleteItems(
        self, request: pb.DeleteItemsRequest, context: Context
    ) -> pb.DeleteItemsResponse:
        """Removes items by key."""
        with self._refusals_counted(request.table):
            gate = self._find_gate(request.run_id, request.table)
            deleted, stale = gate.table.delete_items(parse_keys(request.item_keys))
        gate.notify()
        return pb.DeleteItemsResponse(deleted_count=deleted, stale_count=stale)

    async def CreateTable(
        self, request: pb.CreateTableRequest, context: Context
    ) -> pb.CreateTableResponse:
        """Makes a table, unless it is there already."""
        self._check_run(request.run_id)
        config = parse_settings(request.settings)
        signature = Signature.from_proto(request.signature)
        there = self._gates.get(config.name)
        if there:
            check_same(there.table, config, signature)
            return pb.CreateTableResponse(created=False)
        table = create_table(config, signature)
        self._gates[config.name] = Gate(table)
        if self._checkpointer:
            self._checkpointer.add(table)
        return pb.CreateTableResponse(created=True)

    async def GetInfo(self, request: pb.GetInfoRequest, context: Context) -> pb.GetInfoResponse:
        """Describes the tables."""
        self._check_run(request.run_id)
        names = request.tables or self._gates
        gates = [self._find_gate(request.run_id, name) for name in names]
        return pb.GetInfoResponse(
            tables=[table_info(gate) for gate in gates],
            server=server_info(self._checkpointer, self._baseline_bytes),
        )

    async def Reset(self, request: pb.ResetRequest, context: Context) -> pb.ResetResponse:
        """Removes every row and item of a table."""
        gate = self._find_gate(request.run_id, request.table)
        removed = gate.table.reset()
        gate.notify()
        return pb.ResetResponse(removed_row_count=removed)

    async def SaveCheckpoint(
        self, request: pb.SaveCheckpointRequest, context: Context
    ) -> pb.SaveCheckpointResponse:
        """Saves all tables as they are now."""
        self._check_run(request.run_id)
        if self._checkpointer is None:
            raise FailedPreconditionError("no checkpoint: started without --checkpoint-dir")
        saved = await self._checkpointer.save()
        return pb.SaveCheckpointResponse(
            path=str(saved.path),
            byte_count=saved.byte_count,
            pause_seconds=saved.pause_seconds,
            write_seconds=saved.write_seconds,
        )

    async def ExchangeCounts(
        self, request: pb.ExchangeCountsRequest, context: Context
    ) -> pb.ExchangeCountsResponse:
        """Tells a table of the other shards, and returns what it has itself."""
        gate = self._find_gate(request.run_id, request.table)
        gate.table.limiter.tell(parse_elsewhere(request))
        gate.notify()
        return exchanged_counts(gate.table)

    def _find_gate(self, run_id: str, table: str) -> Gate:
        self._check_run(run_id)
        gate = self._gates.get(table)
        if gate is None:
            raise NotFoundError(f"table: got {table!r}, expected one of {sorted(self._gates)}")
        return gate

    def _check_run(self, run_id: str) -> None:
        if self._unavailable:
            raise UnavailableError(self._unavailable)
        if run_id != self._run_id:
            raise FailedPreconditionError(
                f"run_id: got {run_id!r}, expected this server's run {self._run_id!r}"
            )

    async def _count_if_unreadable(self, table: str) -> None:
        # A message over the size limit never gets here: gRPC refuses it, shows
        # the end of the requests, and cancels the call at its next await.
        try:
            await asyncio.sleep(0.001)
        except asyncio.CancelledError:
            for gate in self._gates.values():
                if table in ("", gate.table.name):
                    gate.table.counters.refused_requests += 1
            raise

    @contextmanager
    def _refusals_counted(self, table: str) -> Iterator[None]:
        try:
            yield
        except StatusError as error:
            gate = self._gates.get(table)
            if gate and not isinstance(error, UnavailableError):
                gate.table.counters.refused_requests += 1
            raise


def add_to_server(servicer: ReplayServicer, server: grpc.aio.Server) -> None:
    """Adds a servicer, of which some methods make or read their bytes themselves."""
    replay_pb2_grpc.add_ReplayServiceServicer_to_server(servicer, server)
    methods: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
        "Insert": grpc.stream_stream_rpc_method_handler(
            servicer.Insert,
            request_deserializer=insert_wire.read,
            response_serializer=pb.InsertResponse.SerializeToString,
        ),
        "Sample": grpc.stream_stream_rpc_method_handler(
            servicer.Sample, request_deserializer=pb.SampleRequest.FromString
        ),
    }
    server.add_registered_method_handlers(SERVICE_NAME, methods)
