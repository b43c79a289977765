"""What a fleet is made of: the same services, images and volumes as in compose.yaml."""

from dataclasses import dataclass, field
from pathlib import Path

from mycelia_core.config import RunConfig

REGISTRY_PORT = 50051
REPLAY_PORT = 50052
INFERENCE_PORT = 50053
REGISTRY = f"param_server:{REGISTRY_PORT}"
ROOT = Path(__file__).resolve().parents[3]
"""The checkout, which images are built from; some other folder if this is no checkout."""

_QUIET = ("--log-level", "warning")
_JOIN = ("--join", REGISTRY, *_QUIET)
_ONE_THREAD = {"OMP_NUM_THREADS": "1"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Service:
    """One service of a fleet."""

    name: str
    """Of its containers in the network, so that others reach it by this name."""
    image: str
    command: tuple[str, ...]
    entrypoint: tuple[str, ...] = ()
    """In place of the image's own."""
    memory: str
    """The most it may use, as Docker writes it."""
    data: str = ""
    """Where its volume is mounted; empty if it keeps nothing."""
    environ: dict[str, str] = field(default_factory=dict)
    health_port: int = 0
    """Where it answers health checks; 0 if it does not listen."""


def plan(preset: str, settings: tuple[str, ...], config: RunConfig) -> list[Service]:
    """Returns the services in the order in which they start.

    Args:
      preset: of the run.
      settings: laid over it.
      config: what both come to.
    """
    lead = ("--attach", REGISTRY, "--with-learner", "--runs-dir", "/runs")
    services = [_param_server()]
    services += [_param_shard(index) for index in range(1, config.param_server.shards)]
    if config.topology == "replay":
        services += [_replay(index) for index in range(config.replay.shards)]
    services.append(
        Service(
            name="learner",
            image="learner",
            command=("train", preset, *settings, *lead),
            memory="8g",
        )
    )
    if config.actor.inference == "central":
        services.append(_inference())
    return [*services, actor(), _evaluator()]


def actor() -> Service:
    """Returns the one service that there may be several of."""
    return Service(name="actor", image="actor", command=_JOIN, memory="2g", environ=_ONE_THREAD)


def _param_server() -> Service:
    return Service(
        name="param_server",
        image="param_server",
        command=(
            *("--bind", f"0.0.0.0:{REGISTRY_PORT}", "--checkpoint-dir", "/data"),
            *("--exit-after-run", *_QUIET),
        ),
        memory="2g",
        data="/data",
        health_port=REGISTRY_PORT,
    )


def _param_shard(index: int) -> Service:
    name = f"param_shard_{index}"
    return Service(
        name=name,
        image="param_server",
        command=(*_listen(name, REGISTRY_PORT), *_JOIN),
        memory="2g",
        health_port=REGISTRY_PORT,
    )


def _replay(index: int) -> Service:
    name = f"replay_{index}" if index else "replay"
    return Service(
        name=name,
        image="replay",
        command=(*_listen(name, REPLAY_PORT), "--checkpoint-dir", "/data", *_JOIN),
        memory="4g",
        data="/data",
        health_port=REPLAY_PORT,
    )


def _inference() -> Service:
    return Service(
        name="inference",
        image="actor",
        entrypoint=("python", "-m", "mycelia_actor.inference"),
        command=(*_listen("inference", INFERENCE_PORT), *_JOIN),
        memory="2g",
        environ=_ONE_THREAD,
        health_port=INFERENCE_PORT,
    )


def _evaluator() -> Service:
    return Service(
        name="evaluator",
        image="actor",
        command=(*_JOIN, "--role", "evaluator"),
        memory="2g",
        environ=_ONE_THREAD,
    )


def _listen(name: str, port: int) -> tuple[str, ...]:
    return ("--bind", f"0.0.0.0:{port}", "--advertise", f"{name}:{port}")


def dockerfile(image: str) -> Path:
    """Returns the Dockerfile of an image, relative to the checkout."""
    return Path("services") / image / "Dockerfile"
