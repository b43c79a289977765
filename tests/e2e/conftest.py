"""A stack on a real engine: built once, each test with a project and a runs folder of its own."""

import json
import os
import shutil
import subprocess
import time
import uuid
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FILES = ("compose.yaml", "compose.override.yaml", "tests/e2e/host-network.yaml")
SERVICES = ("param_server", "replay", "learner", "actor")
KILL_SERVICE = """
import os
for pid in filter(str.isdigit, os.listdir("/proc")):
    if open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[1] == "1":  # a child of init
        os.kill(int(pid), 9)
"""


def compose_command():
    """Returns how Compose is called here, or None if it is not there."""
    for words in (["docker", "compose"], ["docker-compose"]):
        if shutil.which(words[0]):
            found = subprocess.run([*words, "version"], capture_output=True, check=False)
            if found.returncode == 0:
                return words
    return None


def what_is_missing():
    """Returns a sentence about what these tests need and have not got; empty if nothing."""
    if not shutil.which("docker"):
        return "the end-to-end tests need a Docker engine: there is no command `docker`"
    if subprocess.run(["docker", "info"], capture_output=True, check=False).returncode != 0:
        return "the end-to-end tests need a Docker engine: `docker info` gets no answer"
    if compose_command() is None:
        return "the end-to-end tests need Compose: neither `docker compose` nor docker-compose"
    return ""


def pytest_collection_modifyitems(items):
    here = [item for item in items if Path(item.path).is_relative_to(Path(__file__).parent)]
    for item in here:
        item.add_marker(pytest.mark.e2e)
        item.add_marker(pytest.mark.timeout(900))


@pytest.fixture(scope="session")
def engine():
    """Skips where there is no engine."""
    missing = what_is_missing()
    if missing:
        pytest.skip(missing)


@pytest.fixture(scope="session")
def images(engine):
    """Builds all images."""
    run([*compose_command(), *files(), "build"], timeout=900)


def files():
    return [word for path in FILES for word in ("-f", path)]


def run(words, *, timeout=120, check=True, cwd=ROOT, **environ):
    """Runs a command; returns what it printed. Its output is in the failure, too."""
    done = subprocess.run(
        words,
        cwd=cwd,
        env=os.environ | {"MYCELIA_TAG": "latest"} | environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert not check or done.returncode == 0, f"{words}: exit code {done.returncode}\n{done.stdout}"
    return done.stdout


class Stack:
    """One Compose project."""

    def __init__(self, runs, settings="", preset="apex-cartpole"):
        self.project = f"mycelia-e2e-{uuid.uuid4().hex[:8]}"
        self.runs = runs
        # Ports of the host are left to the engine: other stacks may run here.
        self.environ = {
            "COMPOSE_PROJECT_NAME": self.project,
            "MYCELIA_RUNS": str(runs),
            "MYCELIA_PRESET": preset,
            "MYCELIA_SETTINGS": settings,
            "MYCELIA_PORT": "0",
            "MYCELIA_REPLAY_PORT": "0",
        }

    def compose(self, *words, timeout=180, check=True, **environ):
        command = [*compose_command(), *files(), *words]
        return run(command, timeout=timeout, check=check, **(self.environ | environ))

    def up(self, *words, **environ):
        self.compose("up", "-d", "--no-build", *words, **environ)

    def containers(self, service=""):
        """Returns what the engine says of each container, by `docker inspect`."""
        filters = ["--filter", f"label=com.docker.compose.project={self.project}"]
        if service:
            filters += ["--filter", f"label=com.docker.compose.service={service}"]
        ids = run(["docker", "ps", "-aq", *filters]).split()
        return json.loads(run(["docker", "inspect", *ids])) if ids else []

    def running(self, service):
        return [c for c in self.containers(service) if c["State"]["Running"]]

    def kill(self, service):
        """Kills the process of a service's first container by SIGKILL, from inside.

        Not by `docker kill`, after which the engine would not start it again.
        """
        self.inside(service, KILL_SERVICE)

    def inside(self, service, code):
        """Returns what Python code prints in a service's first container."""
        return run(["docker", "exec", self.running(service)[0]["Id"], "python", "-c", code])

    def log(self, service):
        return self.compose("logs", "--no-color", service)

    def wait_log(self, text, service="learner", timeout=180):
        wait_for(lambda: text in self.log(service), text, timeout, self)

    def status(self):
        """Returns `mycelia status --json` of the run, from inside the learner's container."""
        container = self.running("learner")[0]["Id"]
        words = ["python", "-m", "mycelia_cli", "status", "param_server:50051", "--json"]
        return json.loads(run(["docker", "exec", container, *words]).splitlines()[-1])

    def wait_status(self, holds, what, timeout=120):
        def look():
            try:
                return holds(self.status())
            except (AssertionError, IndexError, ValueError):
                return False  # a container is starting

        wait_for(look, what, timeout, self)

    def wait_end(self, timeout=300):
        """Waits until all containers have exited; returns their exit codes by service."""
        wait_for(
            lambda: not any(c["State"]["Running"] for c in self.containers()),
            "the end",
            timeout,
            self,
        )
        return {
            c["Config"]["Labels"]["com.docker.compose.service"]: c["State"]["ExitCode"]
            for c in self.containers()
        }


def wait_for(holds, what, timeout, stack):
    deadline = time.monotonic() + timeout
    while not holds():
        assert time.monotonic() < deadline, (
            f"waited for {what}\n{stack.compose('logs', '--no-color')}"
        )
        time.sleep(0.5)


@pytest.fixture
def make_stack(images, tmp_path_factory):
    """Yields what makes stacks; takes down what is left of them."""
    stacks = []

    def make(*args):
        stacks.append(Stack(tmp_path_factory.mktemp("runs"), *args))
        return stacks[-1]

    yield make
    for stack in stacks:
        stack.compose("down", "--volumes", "--timeout", "20")


@pytest.fixture
def stack(make_stack):
    """A stack whose run is not solved soon."""
    return make_stack(
        "evaluation.solved_return=none limits.max_env_steps=100_000_000 "
        "learner.checkpoint_period_seconds=3 replay.checkpoint_period_seconds=3"
    )
