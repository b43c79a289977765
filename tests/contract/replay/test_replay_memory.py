"""The memory of a replay server under a long load."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from mycelia_core.clients.replay import ReplayClient
from mycelia_core.specs import Signature

STREAMS = 64
STEPS = 1_000_000 // STREAMS
TABLE = "name=train,capacity_rows=10000,columns=observation:float32:4+action:int64"


@pytest.fixture
def server():
    command = [sys.executable, "-m", "mycelia_replay", "--bind", "127.0.0.1:0", "--table", TABLE]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        address = process.stdout.readline().strip().removeprefix("ready address=")
        yield process, address
        process.terminate()
        assert process.wait(15) == 0


def resident_bytes(pid):
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) * 1024


@pytest.mark.slow
def test_a_million_inserts_at_capacity_10_000_leave_memory_flat_within_5_percent(server):
    process, address = server
    client = ReplayClient(address, run_id="")
    signature = Signature.from_proto(client.info()[0].signature)
    row = {
        column.name: np.zeros((STREAMS, *column.shape), column.dtype)
        for column in signature.columns
    }
    streams = [f"env/{index}" for index in range(STREAMS)]
    warm = 0

    with client.writer("train", streams, signature, chunk_rows=16) as writer:
        for step in range(STEPS):
            row["first"][:] = step == 0
            row["observation"][:] = step
            writer.append(row)
            if step == STEPS // 10:
                writer.flush(timeout=30)
                warm = resident_bytes(process.pid)
        writer.flush(timeout=30)

    table = client.info()[0]
    client.close()
    assert table.inserted_row_count == STEPS * STREAMS
    assert table.row_count == 10_000
    assert resident_bytes(process.pid) == pytest.approx(warm, rel=0.05)
