"""The memory of servers and readers over many publishes."""

import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from mycelia_core.clients.params import ParamClient
from mycelia_core.clients.run import RunClient

PUBLISHES = 1_000
WARM_UP = 200
PROCESSES = 4
READERS_PER_PROCESS = 8
TENSORS = {f"layer.{n}.weight": (250, 400) for n in range(10)}
"""A million weights."""
VERSION_BYTES = 4_000_000
IN_FLIGHT = 4
"""How many versions more or less a process may be sending or receiving at a time."""

READERS = """
import json, sys, threading, time
import numpy as np
from mycelia_core.clients.params import ParamClient

address, run_id, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
seen, newest = [0] * count, [0] * count

def read(index):
    # One in four takes its time for each version.
    pause = 1.0 if index % 4 == 0 else 0.0
    with ParamClient(address, run_id) as client:
        for weights in client.watch():
            if weights.version <= newest[index]:
                raise SystemExit(f"version {weights.version} after {newest[index]}")
            # Every weight of a version is its number.
            if any(tensor.ravel()[[0, -1]].tolist() != [weights.version] * 2
                   for tensor in weights.tensors.values()):
                raise SystemExit(f"version {weights.version} is not whole")
            seen[index] += 1
            newest[index] = weights.version
            time.sleep(pause)

for index in range(count):
    threading.Thread(target=read, args=(index,), daemon=True).start()
print("ready", flush=True)
last = int(sys.stdin.readline())
deadline = time.monotonic() + 60
while min(newest) < last and time.monotonic() < deadline:
    time.sleep(0.05)
print(json.dumps({"seen": seen, "newest": newest}), flush=True)
"""


@pytest.fixture
def start_readers():
    processes = []

    def start(address, run_id):
        command = [sys.executable, "-c", READERS, address, run_id, str(READERS_PER_PROCESS)]
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        processes.append(process)
        return process

    yield start
    for process in processes:
        process.kill()
        process.communicate()


def resident_bytes(pid):
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) * 1024


def publish_all(params, first, last, pids):
    """Publishes versions [first, last]; returns each process's typical memory meanwhile."""
    samples = {pid: [] for pid in pids}
    for version in range(first, last + 1):
        tensors = {name: np.full(shape, version, np.float32) for name, shape in TENSORS.items()}
        params.publish(tensors, version, expected_version=version - 1)
        for pid in pids:
            samples[pid].append(resident_bytes(pid))
    return {pid: statistics.median(values) for pid, values in samples.items()}


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_thousand_publishes_to_32_readers_leave_every_processes_memory_flat(
    start_param_server_process, start_readers, config_json
):
    server = start_param_server_process("--log-level", "warning")
    with RunClient(server.address) as client:
        run_id = client.create_run("test", config_json).run_id
    readers = [start_readers(server.address, run_id) for _ in range(PROCESSES)]
    for reader in readers:
        assert reader.stdout.readline() == "ready\n"
    pids = [process.pid for process in (server.process, *readers)]

    with ParamClient(server.address, run_id) as params:
        publish_all(params, 1, WARM_UP, pids)
        middle = (WARM_UP + PUBLISHES) // 2
        before = publish_all(params, WARM_UP + 1, middle, pids)
        after = publish_all(params, middle + 1, PUBLISHES, pids)
    end = time.monotonic()
    for reader in readers:
        reader.stdin.write(f"{PUBLISHES}\n")
        reader.stdin.flush()
    answers = [json.loads(reader.stdout.readline()) for reader in readers]

    # A reader that has versions lying unread takes a second for each of them.
    assert time.monotonic() - end < 8
    for pid in pids:
        assert after[pid] <= 1.05 * before[pid] + IN_FLIGHT * VERSION_BYTES
    for answer in answers:
        assert set(answer["newest"]) == {PUBLISHES}, "the slowest reader ends with the newest"
        slow, fast = answer["seen"][::4], answer["seen"][1::4]
        assert 3 < max(slow) < min(fast), "slow readers skip versions"
