"""What a fleet is made of: the same services, images and volumes as in compose.yaml."""

from dataclasses import dataclass, field
from pathlib import Path

REGISTRY_PORT = 50051
REPLAY_PORT = 50052
REGISTRY = f"param_server:{REGISTRY_PORT}"
ROOT = Path(__file__).resolve().parents[3]
"""The checkout, which images are built from; some other folder if this is no checkout."""

_QUIET = ("--log-level", "warning")


@dataclass(frozen=True, kw_only=True, slots=True)
class Service:
    """One service of a fleet."""

    name: str
    """Of its containers in the network, so that others reach it by this name."""
    image: str
    command: tuple[str, ...]
    memory: str
    """The most it may use, as Docker writes it."""
    data: str = ""
    """Where its volume is mounted; empty if it keeps nothing."""
    environ: dict[str, str] = field(default_factory=dict)
    health_port: int = 0
    """Where it answers health checks; 0 if it does not listen."""


def plan(preset: str, settings: tuple[str, ...]) -> dict[str, Service]:
    """Returns the services by name, in the order in which they start."""
    join = ("--join", REGISTRY, *_QUIET)
    one_thread = {"OMP_NUM_THREADS": "1"}
    lead = ("--attach", REGISTRY, "--with-learner", "--runs-dir", "/runs")
    services = [
        Service(
            name="param_server",
            image="param_server",
            command=(
                *("--bind", f"0.0.0.0:{REGISTRY_PORT}", "--checkpoint-dir", "/data"),
                *("--exit-after-run", *_QUIET),
            ),
            memory="2g",
            data="/data",
            health_port=REGISTRY_PORT,
        ),
        Service(
            name="replay",
            image="replay",
            command=(
                *("--bind", f"0.0.0.0:{REPLAY_PORT}", "--advertise", f"replay:{REPLAY_PORT}"),
                *("--checkpoint-dir", "/data", *join),
            ),
            memory="4g",
            data="/data",
            health_port=REPLAY_PORT,
        ),
        Service(
            name="learner",
            image="learner",
            command=("train", preset, *settings, *lead),
            memory="8g",
        ),
        Service(name="actor", image="actor", command=join, memory="2g", environ=one_thread),
        Service(
            name="evaluator",
            image="actor",
            command=(*join, "--role", "evaluator"),
            memory="2g",
            environ=one_thread,
        ),
    ]
    return {service.name: service for service in services}


def dockerfile(image: str) -> Path:
    """Returns the Dockerfile of an image, relative to the checkout."""
    return Path("services") / image / "Dockerfile"
