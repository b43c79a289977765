"""How long a newcomer waits, from `git clone` on: `python -m benchmarks.first_run --json`.

Each row is one way in: `make_train`, `compose_build` (images not built) and `compose` (images
built). Its seconds count from the start of `git clone`: to the end of the clone, to the first
learner update, to the run's end (solved), and to the end of the command. Caches of pip and of the
engine's base image are left as they are.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.startup import complete_lines

ROOT = Path(__file__).resolve().parents[1]
CASES = ("make_train", "compose_build", "compose")
COPIED_FIRST = ("constraints.txt", ".ci/install-torch", "deploy/torch-pins.txt")
"""What every layer that costs time depends on."""

_LOOK_SECONDS = 0.1


def main() -> None:
    """Measures the cases and prints the JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", default=",".join(CASES), help="some of: %(default)s")
    parser.add_argument("--preset", default="apex-cartpole")
    parser.add_argument("--settings", default="", metavar="'KEY=VALUE ...'")
    parser.add_argument("--override", type=Path, help="one more file for Compose")
    parser.add_argument("--timeout", type=float, default=1200.0, help="seconds for each case")
    parser.add_argument("--json", action="store_true", help="kept for symmetry; JSON is printed")
    arguments = parser.parse_args()
    cases = arguments.cases.split(",")
    if unknown := set(cases) - set(CASES):
        parser.error(f"--cases: unknown {', '.join(unknown)}; expected some of {', '.join(CASES)}")
    rows = []
    if "make_train" in cases:
        rows.append(make_train(arguments))
    if {"compose_build", "compose"} & set(cases):
        rows += compose(arguments, cases)
    print(json.dumps({"preset": arguments.preset, "rows": rows}))


def make_train(arguments: argparse.Namespace) -> dict[str, Any]:
    """Measures `make train` in a fresh clone."""
    words = ["make", "train", f"PRESET={arguments.preset}", f"ARGS={arguments.settings}"]
    with fresh_clone() as (clone, start, clone_seconds):
        times = follow(words, clone, {}, start, arguments.timeout)
    return {"case": "make_train", "clone_seconds": clone_seconds, **times}


def compose(arguments: argparse.Namespace, cases: list[str]) -> list[dict[str, Any]]:
    """Measures Compose in a fresh clone, first with images to build and then with what it built.

    The clone's images have a tag of their own, and are removed in the end.
    """
    rows = []
    command = compose_command()
    tag = f"first-run-{uuid.uuid4().hex[:8]}"
    environ = {
        "COMPOSE_PROJECT_NAME": tag,
        "MYCELIA_TAG": tag,
        "MYCELIA_PRESET": arguments.preset,
        "MYCELIA_SETTINGS": arguments.settings,
        # Other stacks may run here.
        "MYCELIA_PORT": "0",
        "MYCELIA_REPLAY_PORT": "0",
    }
    with fresh_clone() as (clone, begun, clone_seconds):
        start = begun
        forget_layers(clone)
        if arguments.override:
            files = ["compose.yaml", "compose.override.yaml", str(arguments.override.resolve())]
            command += [word for name in files for word in ("-f", name)]
        try:
            for case in ("compose_build", "compose"):
                times = follow([*command, "up"], clone, environ, start, arguments.timeout)
                if case in cases:
                    rows.append({"case": case, "clone_seconds": clone_seconds, **times})
                down(command, clone, environ)
                shutil.rmtree(clone / "runs", ignore_errors=True)
                start = time.perf_counter() - clone_seconds
        finally:
            down(command, clone, environ, "--rmi", "all")
    return rows


@contextmanager
def fresh_clone() -> Iterator[tuple[Path, float, float]]:
    """Yields a clone of this checkout's last commit, when it was begun, and the seconds it took."""
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        clone = Path(folder) / "mycelia"
        subprocess.run(["git", "clone", "--quiet", f"file://{ROOT}", str(clone)], check=True)
        yield clone, start, time.perf_counter() - start


def forget_layers(clone: Path) -> None:
    """Changes what images copy first, so that no layer of an earlier build is taken."""
    for name in COPIED_FIRST:
        with (clone / name).open("a") as file:
            file.write(f"# {uuid.uuid4()}\n")


def follow(
    words: list[str], clone: Path, environ: Mapping[str, str], start: float, timeout: float
) -> dict[str, Any]:
    """Runs a command that trains; returns the seconds from `start` to what a person waits for.

    Raises:
      SystemExit: the command failed, or took too long.
    """
    log = clone.parent / "log.txt"
    first_update = None
    with log.open("w") as output:
        process = subprocess.Popen(
            words, cwd=clone, env=os.environ | environ, stdout=output, stderr=subprocess.STDOUT
        )
        try:
            while process.poll() is None:
                if first_update is None and has_updates(clone):
                    first_update = time.perf_counter() - start
                if time.perf_counter() - start > timeout:
                    raise SystemExit(f"{words}: no end within {timeout:.0f} s\n{tail(log)}")
                time.sleep(_LOOK_SECONDS)
        finally:
            stop(process)
    total = time.perf_counter() - start
    if process.returncode:
        raise SystemExit(f"{words}: exit code {process.returncode}\n{tail(log)}")
    return {
        "first_update_seconds": first_update or total,
        "solved_seconds": total - seconds_since_end(clone),
        "total_seconds": total,
        "solved": "solved" in log.read_text(),
    }


def has_updates(clone: Path) -> bool:
    """Tells whether a run in the clone has done a learner step."""
    return any(
        json.loads(line).get("learner_steps")
        for metrics in clone.glob("runs/*/metrics.jsonl")
        for line in complete_lines(metrics)
    )


def seconds_since_end(clone: Path) -> float:
    """Returns how long ago the last figures were written, which is when the run ended."""
    written = [path.stat().st_mtime for path in clone.glob("runs/*/metrics.jsonl")]
    return max(0.0, time.time() - max(written)) if written else 0.0


def compose_command() -> list[str]:
    """Returns how Compose is called here.

    Raises:
      SystemExit: it is not there.
    """
    for words in (["docker", "compose"], ["docker-compose"]):
        if shutil.which(words[0]):
            found = subprocess.run([*words, "version"], capture_output=True, check=False)
            if found.returncode == 0:
                return words
    raise SystemExit("the cases of Compose need `docker compose` or docker-compose")


def down(command: list[str], clone: Path, environ: Mapping[str, str], *words: str) -> None:
    """Removes containers, networks and volumes of the clone's stack."""
    subprocess.run(
        [*command, "down", "--volumes", *words],
        cwd=clone,
        env=os.environ | environ,
        capture_output=True,
        timeout=180,
        check=False,
    )


def stop(process: subprocess.Popen[bytes]) -> None:
    """Ends a command that has not ended by itself."""
    if process.poll() is None:
        process.terminate()
        process.wait(timeout=60)


def tail(log: Path) -> str:
    """Returns the last lines of a log."""
    return "\n".join(log.read_text().splitlines()[-20:])


if __name__ == "__main__":
    sys.exit(main())
