"""What servers export to Prometheus, as real processes."""

import socket
import subprocess
import sys
import urllib.request

import numpy as np
import pytest

from mycelia.run.v1 import run_pb2
from mycelia_core.clients.replay import ReplayClient
from mycelia_core.clients.run import RunClient
from mycelia_core.rpc.errors import NotFoundError
from mycelia_core.specs import ColumnSpec, Signature

SIGNATURE = Signature.of([ColumnSpec("observation", np.dtype(np.uint8), (100, 100))])


@pytest.fixture
def start():
    processes = []

    def start_process(module, *arguments):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        processes.append(
            subprocess.Popen(
                [sys.executable, "-m", module, "--metrics-port", str(port), *arguments],
                stdout=subprocess.PIPE,
                text=True,
            )
        )
        line = processes[-1].stdout.readline()
        return line.strip().removeprefix("ready address="), port

    yield start_process
    for process in processes:
        process.kill()
        process.communicate()


def scrape(port):
    """Returns every sample by its name with labels."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
        lines = answer.read().decode().splitlines()
    pairs = (line.rpartition(" ") for line in lines if not line.startswith("#"))
    return {name: float(value) for name, _, value in pairs}


def test_replay_exports_its_tables_and_calls_and_its_bytes_explain_its_memory(start):
    address, port = start(
        "mycelia_replay", "--table", "capacity_rows=40000,columns=observation:uint8:100x100"
    )
    count = 64
    row = {
        "observation": np.ones((count, 100, 100), np.uint8),
        "reward": np.zeros(count, np.float32),
        "terminated": np.zeros(count, np.bool_),
        "truncated": np.zeros(count, np.bool_),
    }
    with ReplayClient(address, "") as client:
        names = [f"actor/{i}" for i in range(count)]
        with client.writer("train", names, SIGNATURE) as writer:
            for step in range(600):
                writer.append(row | {"first": np.full(count, step == 0)})
        with client.sampler("train", 32) as sampler:
            sampler.next(timeout=5)
        with pytest.raises(NotFoundError):
            client.info(["another"])
        client.info()

        exported = scrape(port)

    table = '{table="train"}'
    assert exported[f"mycelia_replay_rows{table}"] == 64 * 600
    assert exported[f"mycelia_replay_sampled_items{table}"] >= 32
    assert exported[f"mycelia_replay_times_sampled_count{table}"] >= 32
    assert exported[f"mycelia_replay_sample_age_seconds_count{table}"] >= 32
    assert exported['mycelia_replay_blocked_seconds{side="insert",table="train"}'] == 0
    method = 'method="mycelia.replay.v1.ReplayService/GetInfo"'
    assert exported[f'mycelia_rpc_calls_total{{{method},status="OK"}}'] >= 1
    assert exported[f'mycelia_rpc_calls_total{{{method},status="NOT_FOUND"}}'] == 1
    assert exported[f"mycelia_rpc_seconds_count{{{method}}}"] >= 2
    memory = exported["mycelia_replay_resident_bytes"] - exported["mycelia_replay_baseline_bytes"]
    assert 0.9 <= exported[f"mycelia_replay_used_bytes{table}"] / memory <= 1.1


def test_the_registry_exports_what_members_report(start, config_json):
    address, port = start("mycelia_param_server")
    with RunClient(address) as client:
        client.create_run("test", config_json)
        with client.join(run_pb2.ROLE_ACTOR, signature=SIGNATURE) as member:
            member.set_counters({"env_steps": 1234.0})
            client.wait_for_signature(5)
            member._beat()

            exported = scrape(port)

    counter = 'mycelia_member_counter{index="0",name="env_steps",role="actor"}'
    assert exported[counter] == 1234
    assert exported['mycelia_member_alive{index="0",role="actor"}'] == 1
    assert exported["mycelia_run_env_steps"] == 1234
