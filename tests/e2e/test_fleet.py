"""`mycelia fleet` on a real engine."""

import json
import os
import subprocess
import sys
import time
import uuid

import pytest

from .conftest import run


class Fleet:
    """Commands for one fleet."""

    def __init__(self, runs):
        self.name, self.runs = f"e2e-{uuid.uuid4().hex[:8]}", runs

    def words(self, *words):
        return [sys.executable, "-m", "mycelia_cli", "fleet", *words, "--name", self.name]

    def __call__(self, *words, timeout=200):
        environ = {k: v for k, v in os.environ.items() if not k.startswith("MYCELIA_")}
        done = subprocess.run(
            self.words(*words),
            cwd=self.runs,
            env=environ,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def status(self):
        return json.loads(self("status", "--json"))

    def wait(self, holds, seconds=90):
        deadline = time.monotonic() + seconds
        while not holds(status := self.status()):
            assert time.monotonic() < deadline, f"{status}\n{self('logs')}"
            time.sleep(0.5)

    def left(self):
        """Returns what the engine still has of it."""
        label = ["--filter", f"label=org.mycelia.fleet={self.name}"]
        kinds = ["container", "-a"], ["volume"], ["network"]
        return [run(["docker", kind, "ls", "-q", *more, *label]) for kind, *more in kinds]


@pytest.fixture
def fleet(images, tmp_path):
    fleet = Fleet(tmp_path)
    yield fleet
    fleet("down")


def test_a_fleet_trains_until_solved_and_leaves_nothing_but_the_run(fleet):
    out = fleet("up", "apex-cartpole", timeout=400)

    assert "solved" in out
    assert fleet.left() == ["", "", ""]
    (folder,) = (fleet.runs / "runs").glob("apex-cartpole-*")
    assert (folder / "curve.png").exists()


def test_a_detached_fleet_is_seen_scaled_and_taken_down(fleet):
    fleet("up", "apex-cartpole", "evaluation.solved_return=none", "--actors", "1", "--detach")
    fleet.wait(lambda status: status["phase"] == "training")

    for count in (3, 1):
        fleet("scale", f"actor={count}")
        actors = [c for c in fleet.status()["containers"] if c["service"] == "actor"]
        assert [c["state"] for c in actors] == ["running"] * count

    assert "env steps" in fleet("logs", "learner")
    fleet("down")
    assert fleet.left() == ["", "", ""]


def test_a_fleet_has_the_shards_and_the_inference_that_its_config_asks_for(fleet):
    settings = ["replay.shards=2", "param_server.shards=2", "actor.inference=central"]
    endless = ["evaluation.solved_return=none", "limits.max_env_steps=3000"]

    out = fleet("up", "apex-cartpole", *settings, *endless, "--actors", "1", timeout=400)

    assert "step limit" in out
    assert fleet.left() == ["", "", ""]


def test_what_a_fleet_cannot_do_is_told_in_one_line(fleet):
    fleet("up", "apex-cartpole", "evaluation.solved_return=none", "--detach")

    for words, complaint in (
        (("up", "apex-cartpole"), "is there already"),
        (("scale", "learner=2"), "expected actor=COUNT"),
        (("logs", "nobody"), "nobody"),
        (("up", "apex-cartpol"), "apex-cartpole"),
    ):
        done = subprocess.run(fleet.words(*words), capture_output=True, text=True, check=False)
        assert done.returncode != 0
        assert complaint in done.stderr
        assert len(done.stderr.strip().splitlines()) == 1
