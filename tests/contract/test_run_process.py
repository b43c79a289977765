"""The parameter server as a process: start, stop, a used port."""

import signal
import subprocess
import sys
import time

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from mycelia.run.v1 import run_pb2 as pb
from mycelia_core.clients.params import ParamClient, WeightWatcher
from mycelia_core.clients.run import RunClient


def test_it_says_where_it_serves_and_does(start_param_server_process):
    server = start_param_server_process()

    assert server.ready_line == f"ready address={server.address}\n"
    with grpc.insecure_channel(server.address) as channel:
        health = health_pb2_grpc.HealthStub(channel)
        for service in ("", "mycelia.run.v1.RunService", "mycelia.params.v1.ParamService"):
            answer = health.Check(health_pb2.HealthCheckRequest(service=service), timeout=5)
            assert answer.status == health_pb2.HealthCheckResponse.SERVING
        ask = reflection_pb2.ServerReflectionRequest(list_services="")
        stub = reflection_pb2_grpc.ServerReflectionStub(channel)
        [answer] = list(stub.ServerReflectionInfo(iter([ask]), timeout=5))
    names = {service.name for service in answer.list_services_response.service}
    assert {"mycelia.run.v1.RunService", "mycelia.params.v1.ParamService"} <= names


def test_sigterm_ends_it_in_2_seconds_with_members_and_watches_open(
    start_param_server_process, config_json
):
    server = start_param_server_process()
    with RunClient(server.address) as runs:
        run = runs.create_run("test", config_json)
        membership = runs.join(pb.ROLE_ACTOR, wait_seconds=5)
        with ParamClient(server.address, run.run_id) as client:
            watchers = [WeightWatcher(client) for _ in range(3)]
            time.sleep(0.3)
            start = time.monotonic()

            server.process.send_signal(signal.SIGTERM)
            server.process.send_signal(signal.SIGTERM)
            code = server.process.wait(10)

            assert code == 0
            assert time.monotonic() - start < 2
            for watcher in watchers:
                watcher.stop()
        membership.leave()


def test_clients_of_a_killed_server_do_not_hang(start_param_server_process, config_json):
    server = start_param_server_process()
    with RunClient(server.address) as runs:
        run = runs.create_run("test", config_json)
        membership = runs.join(pb.ROLE_ACTOR, wait_seconds=5, give_up_seconds=1.0)
        with ParamClient(server.address, run.run_id) as client:
            watcher = WeightWatcher(client)
            time.sleep(0.2)
            server.process.kill()

            assert membership.finished.wait(10)
            assert membership.lost
            start = time.monotonic()
            watcher.stop()
            membership.leave()
            assert time.monotonic() - start < 2


def test_a_used_port_is_an_error_that_names_it(start_param_server_process):
    server = start_param_server_process()
    second = subprocess.run(
        [sys.executable, "-m", "mycelia_param_server", "--bind", server.address],
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )

    assert second.returncode == 1
    [line] = [line for line in second.stderr.splitlines() if line.startswith("param-server:")]
    assert server.address in line
    assert "in use" in line
    assert "Traceback" not in second.stderr
    assert second.stdout == ""


def test_bad_arguments_exit_with_2():
    for arguments in (["--lease-seconds", "0"], ["--colour"], ["--log-level", "loud"]):
        process = subprocess.run(
            [sys.executable, "-m", "mycelia_param_server", *arguments],
            capture_output=True,
            text=True,
            timeout=20,
            check=False,
        )
        assert process.returncode == 2
        assert arguments[0] in process.stderr


def test_it_needs_neither_torch_nor_gymnasium():
    code = (
        "import sys, mycelia_param_server.main, mycelia_core.clients.run; "
        "print([m for m in ('torch', 'gymnasium') if m in sys.modules])"
    )
    process = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=20, check=True
    )

    assert process.stdout.strip() == "[]"
