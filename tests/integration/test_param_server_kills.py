"""A parameter server that is killed again and again while it writes checkpoints."""

import json
import random
import re
import subprocess
import sys
import time

import pytest

from mycelia_core.clients.gradients import GradientClient
from mycelia_core.clients.run import RunClient
from mycelia_core.rpc.errors import StatusError

KILLS = 15
CAUGHT_WRITING = 3
"""The kills go on until so many came in the middle of a checkpoint."""

CONFIG = {
    "name": "kills",
    "topology": "async-gradients",
    "env": {"id": "CartPole-v1"},
    "actor": {"count": 2, "envs_per_actor": 4},
    "gradients": {"optimizer": "adam", "learning_rate": 1e-4, "epsilon": 1e-5},
    "algorithm": {"name": "a3c", "rollout_steps": 5},
    # Half a million weights, so that much of the time something is being written.
    "network": {"hidden_sizes": [512, 512], "shared_trunk": False},
    "limits": {"max_env_steps": 1_000_000_000},
}


class Service:
    """A service as a process of its own."""

    def __init__(self, module, *arguments):
        words = [sys.executable, "-m", module, "--log-level", "info", *arguments]
        self.process = subprocess.Popen(
            words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def address(self):
        return self.process.stdout.readline().strip().removeprefix("ready address=")

    def kill(self):
        """Kills it and returns what it has logged."""
        self.process.kill()
        return self.process.communicate(timeout=10)[1]


class Folder:
    """The server's checkpoints, as a dead server has left them."""

    def __init__(self, path):
        self.path = path

    def newest(self):
        """Returns the newest version that was renamed to its final name: it is acknowledged."""
        names = (re.fullmatch(r"version-(\d+)", p.name) for p in self.path.glob("version-*"))
        return max((int(name[1]) for name in names if name), default=0)

    def was_writing(self):
        return any(self.path.glob(".version-*.part"))

    def clear_unfinished(self):
        """Renames what was being written, so that the next kill is told from this one."""
        for index, path in enumerate(self.path.glob(".version-*.part")):
            path.rename(self.path / f"torn-{time.monotonic_ns()}-{index}")


def look(client):
    """Returns the server's figures; None while it is away."""
    try:
        return client.info(timeout=1.0)
    except (StatusError, TimeoutError):
        return None


def wait_for_version(client, version, seconds=60.0):
    deadline = time.monotonic() + seconds
    while not (info := look(client)) or info.version < version:
        assert time.monotonic() < deadline, f"no version {version}, but {info}"
        time.sleep(0.05)
    return info


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_server_killed_while_it_saves_comes_back_whole_and_workers_go_on(tmp_path):
    folder, chance = Folder(tmp_path / "checkpoints"), random.Random(1)
    saves = ("--checkpoint-dir", str(folder.path), "--checkpoint-period-seconds", "0.05")
    server = Service("mycelia_param_server", *saves)
    address = server.address()
    with RunClient(address) as registry:
        run = registry.create_run("kills", json.dumps(CONFIG))
    workers = [Service("mycelia_actor", "--join", address) for _ in range(2)]
    kills = caught = acknowledged = 0
    try:
        with GradientClient(address, run.run_id) as client:
            wait_for_version(client, 20)
            while kills < KILLS or caught < CAUGHT_WRITING:
                assert kills < 5 * KILLS, f"{caught} of {kills} kills came while it wrote"
                time.sleep(chance.uniform(0.0, 0.5))
                logged = server.kill()
                if kills:
                    assert f"run {run.run_id} is back, with version {acknowledged}\n" in logged
                assert "broken" not in logged
                acknowledged = folder.newest()
                assert acknowledged >= 1
                kills, caught = kills + 1, caught + folder.was_writing()
                folder.clear_unfinished()
                server = Service("mycelia_param_server", "--bind", address, *saves)
                assert server.address() == address
                info = look(client) or wait_for_version(client, 1)

                assert info.version >= acknowledged, f"after kill {kills}"
                # Weights, optimizer and version are of the same moment.
                assert info.update_count == info.version - 1
                # New updates, and a new checkpoint, by nobody's doing but the workers'.
                wait_for_version(client, info.version + 20)
                assert [worker.process.poll() for worker in workers] == [None, None]
    finally:
        server.kill()
        logs = [worker.kill() for worker in workers]
    assert not any("Traceback" in log for log in logs)
