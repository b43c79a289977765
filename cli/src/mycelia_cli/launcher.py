"""The services of one run as local processes: started together, stopped without a trace."""

import atexit
import threading
import time
from collections.abc import Collection, Iterable, Mapping

from mycelia_cli.child import Child
from mycelia_cli.run_folder import RunFolder
from mycelia_core.config import RunConfig

_READY_SECONDS = 60.0
_TERM_SECONDS = 1.5
"""How long a process may take after SIGTERM, before it is killed."""

_SERVER_TERM_SECONDS = 5.0
"""The same for the parameter server, which may have a last checkpoint to write."""

_THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


class Launcher:
    """Starts, watches and stops the processes of one run; owned by one thread."""

    def __init__(
        self, config: RunConfig, folder: RunFolder, *, environ: Mapping[str, str], log_level: str
    ) -> None:
        """Starts nothing yet.

        Args:
          config: says how many actors there are.
          folder: takes the logs.
          environ: the environment that services get, but for thread counts.
          log_level: of every service, for example `info`.
        """
        self._config = config
        self._folder = folder
        self._environ = dict(environ)
        self._log_level = log_level
        self._server: Child | None = None
        self._members: list[Child] = []
        # The last resort: an error in the command itself must not leave
        # processes. A command that is killed is seen by --exit-with-parent.
        atexit.register(self.kill)

    def start_server(
        self, stopping: threading.Event, resume: RunFolder | None = None
    ) -> str | None:
        """Starts the parameter server and waits until it serves.

        Args:
          stopping: ends the wait when it is set.
          resume: a run whose optimizer and weights it goes on from, if gradients come to it.

        Returns:
          Its address; None if `stopping` was set first, or if it exited.

        Raises:
          CommandError: it took too long.
        """
        name, keeps = "param-server-0", self._config.topology != "replay"
        storage = self._storage(name, resume) if keeps else ()
        self._server = self._start(name, "mycelia_param_server", "--bind", "127.0.0.1:0", *storage)
        return self._server.wait_ready(_READY_SECONDS, stopping)

    def start_members(self, address: str, resume: RunFolder | None = None) -> None:
        """Starts all other services at once; they find each other by the address.

        Args:
          address: the parameter server's.
          resume: a run whose checkpoint the learner goes on from, and replay from its rows.
        """
        join = ("--join", address)
        where = ("--run-dir", str(self._folder.path))
        goes_on = ("--resume", str(resume.path)) if resume else ()
        # The learner first: importing torch takes it longest.
        self._add("learner-0", "mycelia_learner", *join, *where, *goes_on)
        for index in range(1, self._config.param_server.shards):
            self._add(f"param-shard-{index}", "mycelia_param_server", *join)
        if self._config.topology == "replay":
            for shard in range(self._config.replay.shards):
                name, keeps = f"replay-{shard}", self._config.replay.keep_rows
                storage = self._storage(name, resume) if keeps else ()
                self._add(name, "mycelia_replay", *join, *storage)
        if self._config.actor.inference == "central":
            self._add("inference-0", "mycelia_actor.inference", *join)
        for index in range(self._config.actor.count):
            self._add(f"actor-{index}", "mycelia_actor", *join)
        self._add("evaluator-0", "mycelia_actor", *join, "--role", "evaluator")

    @property
    def is_serving(self) -> bool:
        """Whether the parameter server, and so the registry, is there."""
        return self._server is not None and self._server.exit_code() is None

    def children(self) -> list[Child]:
        """Returns every process started, the parameter server first."""
        return [self._server, *self._members] if self._server else []

    def exited(self) -> list[Child]:
        """Returns those that have exited without being asked to."""
        return [
            child
            for child in self.children()
            if child.exit_code() is not None and not child.asked_to_stop
        ]

    def wait_members(self, timeout_seconds: float, stopping: threading.Event | None = None) -> bool:
        """Waits until all but the parameter server have exited by themselves."""
        deadline = time.monotonic() + timeout_seconds
        while any(child.exit_code() is None for child in self._members):
            if time.monotonic() > deadline or (stopping and stopping.is_set()):
                return False
            time.sleep(0.02)
        return True

    def ask_to_stop(self, except_pids: Collection[int] = ()) -> None:
        """Asks all members but those by a signal, for they will not hear of the run's end."""
        _terminate(child for child in self._members if child.pid not in except_pids)

    def stop_members(self, leave_seconds: float) -> None:
        """Waits until all but the parameter server have exited, then asks, then kills.

        Args:
          leave_seconds: how long they may take to leave by themselves.
        """
        self.wait_members(leave_seconds)
        _terminate(self._members)
        _wait(self._members, _TERM_SECONDS)
        for child in self._members:
            child.kill()

    def stop(self, leave_seconds: float = 0.0) -> None:
        """Stops everything, the parameter server last: the others take leave from it."""
        self.stop_members(leave_seconds)
        if self._server:
            self._server.terminate()
            _wait([self._server], _SERVER_TERM_SECONDS)
        self.kill()

    def kill(self) -> None:
        """Ends at once what is still there; safe to call again."""
        children, self._server, self._members = self.children(), None, []
        for child in children:
            child.kill()
        atexit.unregister(self.kill)

    def _storage(self, name: str, resume: RunFolder | None) -> tuple[str, ...]:
        """Returns where a service keeps what it knows, and finds what its like knew before."""
        earlier = resume.state / name if resume else None
        restore = ("--restore", str(earlier)) if earlier and earlier.is_dir() else ()
        return ("--checkpoint-dir", str(self._folder.state / name), *restore)

    def _add(self, name: str, module: str, *arguments: str) -> None:
        self._members.append(self._start(name, module, *arguments))

    def _start(self, name: str, module: str, *arguments: str) -> Child:
        threads = self._config.learner.torch_threads if module == "mycelia_learner" else 1
        return Child(
            name,
            module,
            [*arguments, "--exit-with-parent", "--log-level", self._log_level],
            log_path=self._folder.logs / f"{name}.log",
            # More threads than this slow small networks down and fight for cores.
            environ=self._environ | dict.fromkeys(_THREAD_VARIABLES, str(threads)),
        )


def _terminate(children: Iterable[Child]) -> None:
    for child in children:
        child.terminate()


def _wait(children: Iterable[Child], timeout_seconds: float) -> None:
    deadline = time.monotonic() + timeout_seconds
    for child in children:
        child.wait(deadline)
