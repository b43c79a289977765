"""The command `mycelia metrics`: a run's figures, for Prometheus to scrape."""

import logging
from collections.abc import Iterator
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from mycelia.run.v1 import run_pb2 as pb
from mycelia_cli.errors import EXIT_OK, CommandError
from mycelia_cli.progress import ROLES, score, staleness
from mycelia_cli.stop_request import StopRequest
from mycelia_core.clients.run import RunClient
from mycelia_core.rpc.errors import FailedPreconditionError, StatusError

_CALL_SECONDS = 2.0
_POLL_SECONDS = 0.2

logger = logging.getLogger(__name__)


def serve_metrics(address: str, bind: str) -> int:
    """Serves `http://BIND/metrics` until a signal comes; each scrape asks the registry once.

    Raises:
      CommandError: `bind` is taken or makes no sense.
    """
    host, _, port = bind.rpartition(":")
    stop = StopRequest()
    with RunClient(address) as client:
        try:
            server = ThreadingHTTPServer((host, int(port)), _handler(client))
        except (OSError, ValueError, OverflowError) as error:
            raise CommandError(f"cannot listen on {bind}: {error}") from error
        server.timeout = _POLL_SECONDS
        with server:
            while not stop.stopping.is_set():
                server.handle_request()
    return EXIT_OK


def _handler(client: RunClient) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = "\n".join([*scrape(client), ""]).encode()
            self.send_response(HTTPStatus.OK)
            self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002
            logger.debug(format, *arguments)

    return Handler


def scrape(client: RunClient) -> Iterator[str]:
    """Yields the lines of one answer; `mycelia_up` alone if there is no run to speak of."""
    try:
        answer = client.get_run(timeout=_CALL_SECONDS)
    except (StatusError, TimeoutError) as error:
        yield _sample("up", float(isinstance(error, FailedPreconditionError)))
        return
    yield _sample("up", 1)
    yield from _run_samples(answer)
    for member in answer.members:
        labels = {"role": ROLES.get(member.role, "unknown"), "index": str(member.index)}
        yield _sample("member_alive", member.alive, host=member.host, **labels)
        if member.alive:
            for name, value in sorted(member.counters.items()):
                yield _sample(f"member_{name}", value, **labels)


def _run_samples(answer: pb.GetRunResponse) -> Iterator[str]:
    progress, run = answer.progress, {"run": answer.run.name, "run_id": answer.run.run_id}
    yield _sample("env_steps_total", progress.env_steps, **run)
    yield _sample("episodes_total", progress.episode_count, **run)
    yield _sample("phase", answer.run.phase, **run)
    yield _sample("weight_version", answer.weight_version, **run)
    if progress.recent_episodes:
        total = sum(episode.episode_return for episode in progress.recent_episodes)
        yield _sample("training_return_mean", total / len(progress.recent_episodes), **run)
    if progress.evaluations:
        last = score(progress.evaluations[-1])
        yield _sample("evaluation_return_mean", last.return_mean, **run)
        yield _sample("evaluation_return_std", last.return_std, **run)
    actors = [m for m in answer.members if m.alive and m.role == pb.ROLE_ACTOR]
    yield _sample("actors", len(actors), **run)
    behind = staleness(actors, answer.weight_version)
    if behind:
        yield _sample("staleness_versions_max", max(behind), **run)


def _sample(name: str, value: float, **labels: str) -> str:
    name = "mycelia_" + "".join(c if c.isalnum() and c.isascii() else "_" for c in name)
    pairs = ",".join(f'{key}="{_escape(text)}"' for key, text in labels.items())
    return f"{name}{{{pairs}}} {float(value)!r}".replace("{}", "")


def _escape(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
