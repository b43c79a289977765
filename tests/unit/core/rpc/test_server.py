"""The server: health, reflection, errors as statuses, used ports, limits, drain."""

import asyncio

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from mycelia.run.v1 import run_pb2, run_pb2_grpc
from mycelia_core.rpc.channel import open_channel
from mycelia_core.rpc.errors import NotFoundError
from mycelia_core.rpc.options import MAX_MESSAGE_BYTES
from mycelia_core.rpc.server import AddressInUseError, Server

SERVICE = "mycelia.run.v1.RunService"


class Servicer(run_pb2_grpc.RunServiceServicer):
    async def GetRun(self, request, context):
        if request.run_id == "missing":
            raise NotFoundError("run_id: no run 'missing'")
        if request.run_id == "slow":
            await asyncio.sleep(0.3)
        if request.run_id == "bug":
            raise ZeroDivisionError("a secret of the inside")
        return run_pb2.GetRunResponse()


@pytest.fixture
async def server():
    server = Server("127.0.0.1:0")
    server.add(run_pb2_grpc.add_RunServiceServicer_to_server, Servicer(), SERVICE)
    await server.start()
    yield server
    await server.stop(grace_seconds=0)


@pytest.fixture
async def channel(server):
    async with grpc.aio.insecure_channel(server.address) as channel:
        yield channel


@pytest.mark.parametrize(
    ("run_id", "code", "details"),
    [
        ("missing", grpc.StatusCode.NOT_FOUND, "run_id: no run 'missing'"),
        ("bug", grpc.StatusCode.INTERNAL, "internal error, see the server's log"),
    ],
)
async def test_errors_become_statuses_and_bugs_keep_their_secrets(channel, run_id, code, details):
    stub = run_pb2_grpc.RunServiceStub(channel)

    with pytest.raises(grpc.aio.AioRpcError) as error:
        await stub.GetRun(run_pb2.GetRunRequest(run_id=run_id), timeout=5)

    assert error.value.code() is code
    assert details in error.value.details()
    assert "secret" not in error.value.details()


async def test_health_says_serving_for_the_server_and_the_service(channel):
    stub = health_pb2_grpc.HealthStub(channel)

    for name in ("", SERVICE):
        response = await stub.Check(health_pb2.HealthCheckRequest(service=name), timeout=5)
        assert response.status == health_pb2.HealthCheckResponse.SERVING


async def test_reflection_lists_the_service(channel):
    stub = reflection_pb2_grpc.ServerReflectionStub(channel)
    request = reflection_pb2.ServerReflectionRequest(list_services="")

    call = stub.ServerReflectionInfo(iter([request]), timeout=5)
    response = await call.read()

    assert SERVICE in [service.name for service in response.list_services_response.service]


async def test_a_used_port_is_an_error_that_names_it(server):
    with pytest.raises(AddressInUseError, match=server.address):
        await Server(server.address).start()


async def test_a_message_over_the_limit_is_refused_and_the_server_lives_on(server):
    # A foreign client, without limits of its own.
    options = [("grpc.max_send_message_length", -1)]
    async with grpc.aio.insecure_channel(server.address, options=options) as channel:
        stub = run_pb2_grpc.RunServiceStub(channel)
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await stub.GetRun(
                run_pb2.GetRunRequest(run_id="x" * (MAX_MESSAGE_BYTES + 1)), timeout=5
            )
        assert error.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        await stub.GetRun(run_pb2.GetRunRequest(), timeout=5)


async def test_a_call_in_flight_ends_well_while_the_server_drains(server, channel):
    stub = run_pb2_grpc.RunServiceStub(channel)
    call = asyncio.ensure_future(stub.GetRun(run_pb2.GetRunRequest(run_id="slow"), timeout=5))
    await asyncio.sleep(0.1)

    await server.stop(grace_seconds=2)

    assert await call == run_pb2.GetRunResponse()


async def test_the_clients_channel_repeats_an_idempotent_call_until_the_server_is_there(tmp_path):
    address = f"unix:{tmp_path}/late.sock"
    with open_channel(address) as channel:
        stub = run_pb2_grpc.RunServiceStub(channel)
        call = asyncio.to_thread(stub.GetRun, run_pb2.GetRunRequest(), timeout=10)
        pending = asyncio.ensure_future(call)
        await asyncio.sleep(0.2)
        server = Server(address)
        server.add(run_pb2_grpc.add_RunServiceServicer_to_server, Servicer(), SERVICE)
        await server.start()

        assert await pending == run_pb2.GetRunResponse()

        await server.stop(grace_seconds=0)
