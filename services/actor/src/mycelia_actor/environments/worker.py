"""A worker process: steps environments for an actor, over a socket and shared memory.

    python -m mycelia_actor.environments.worker SOCKET MEMORY STACKS

The three are descriptors that it inherits. The actor's first line is JSON; the
worker answers with the fields of the memory, and with them both sides check that
they see the same spaces. From then on each side sends one letter at a time:
`R` resets, `S` steps, `D` says done; `E` and a line of text end the worker.
"""

import faulthandler
import json
import logging
import os
import signal
import socket
import sys
from dataclasses import asdict, dataclass
from typing import Any

from mycelia_actor.environments.action_mask import ActionMaskError
from mycelia_actor.environments.in_process import InProcessEnvironments
from mycelia_actor.environments.make import MakeEnvironmentError, make_environment
from mycelia_actor.environments.shared_arrays import StepMemory, step_fields
from mycelia_actor.environments.supervisor import EnvironmentFailedError, Supervisor
from mycelia_core.config import EnvConfig
from mycelia_core.logs import configure_logging

STACK_SIGNAL = signal.SIGUSR1
"""Makes a worker write the stacks of its threads, wherever it hangs."""

RESET, STEP, DONE, ERROR = b"R", b"S", b"D", b"E"


@dataclass(frozen=True, slots=True)
class Task:
    """What a worker is to do; travels as JSON."""

    config: dict[str, Any]
    """The `EnvConfig`."""

    first_slot: int
    count: int
    log_level: str

    def encode(self) -> bytes:
        """Returns one line."""
        return json.dumps(asdict(self)).encode() + b"\n"


def main(arguments: list[str]) -> int:
    """Steps until the actor is gone."""
    channel, memory, stacks = (int(word) for word in arguments)
    faulthandler.enable(file=stacks)
    faulthandler.register(STACK_SIGNAL, file=stacks, all_threads=True)
    # The actor stops its workers; Ctrl-C in a terminal reaches the whole group.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with socket.socket(fileno=channel) as connection:
        task = Task(**json.loads(_read_line(connection)))
        configure_logging("environments", task.log_level)
        try:
            _serve(connection, memory, task)
        except (MakeEnvironmentError, EnvironmentFailedError, ActionMaskError) as error:
            text = f"{type(error).__name__}: {error}".replace("\n", " ")
            connection.sendall(ERROR + text.encode() + b"\n")
            return 1
        except (BrokenPipeError, ConnectionResetError):
            logging.getLogger(__name__).debug("the actor is gone")
    return 0


def _serve(connection: socket.socket, descriptor: int, task: Task) -> None:
    config = EnvConfig.model_validate(task.config)
    environments = InProcessEnvironments(
        [make_environment(config) for _ in range(task.count)],
        Supervisor(config, make_environment, task.count, task.first_slot),
    )
    fields = step_fields(environments.observation, environments.action, task.count)
    connection.sendall(json.dumps(fields).encode() + b"\n")
    # The actor makes the memory as large as it must be before its first letter.
    memory = None
    while command := connection.recv(1):
        memory = memory or StepMemory(descriptor, fields, task.count)
        environments.watched = memory.current_slot
        if command == RESET:
            memory.write_observation(environments.reset(memory.seeds.tolist()))
        else:
            memory.write_result(environments.step(memory.read_action()))
        connection.sendall(DONE)
    environments.close()


def _read_line(connection: socket.socket) -> bytes:
    line = bytearray()
    while not line.endswith(b"\n"):
        part = connection.recv(1)
        if not part:
            raise SystemExit(0)
        line += part
    return bytes(line)


if __name__ == "__main__":
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    sys.exit(main(sys.argv[1:]))
