"""How long a person waits: `python -m benchmarks.startup --json`.

`first_update_seconds` is from the start of the command to the first learner step,
`stop_seconds` from SIGTERM to the end of the last process.
"""

import argparse
import json
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path


def main() -> None:
    """Starts and stops the preset a few times and prints the JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--preset", default="apex-cartpole")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--json", action="store_true", help="kept for symmetry; JSON is printed")
    arguments = parser.parse_args()
    times = [start_and_stop(arguments.preset) for _ in range(arguments.repeat)]
    first, stop = zip(*times, strict=True)
    print(
        json.dumps(
            {
                "first_update_seconds": statistics.median(first),
                "first_update_seconds_max": max(first),
                "stop_seconds": statistics.median(stop),
                "stop_seconds_max": max(stop),
            }
        )
    )


def start_and_stop(preset: str) -> tuple[float, float]:
    """Returns the seconds to the first learner step, and those from SIGTERM to the end."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "mycelia_cli", "train", preset, "--json"]
        # Never solved, so that it is stopped while it trains.
        process = subprocess.Popen(
            [*command, "evaluation.solved_return=1e9"],
            cwd=folder,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout
        wait_until_training(process, Path(folder))
        asked = time.perf_counter()
        process.send_signal(signal.SIGTERM)
        output = process.stdout.read()
        process.wait(timeout=30)
        stop_seconds = time.perf_counter() - asked
    result = json.loads(output.splitlines()[-1])
    return result["start_seconds"], stop_seconds


def wait_until_training(process: subprocess.Popen[str], folder: Path) -> None:
    """Waits for the first metrics that show a learner step."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        for metrics in folder.glob("runs/*/metrics.jsonl"):
            if any(json.loads(line).get("learner_steps") for line in complete_lines(metrics)):
                return
        if process.poll() is not None:
            raise SystemExit("the run ended before it trained")
        time.sleep(0.1)
    process.kill()
    raise SystemExit("no learner step within 60 s")


def complete_lines(path: Path) -> list[str]:
    """Returns the lines that are written whole."""
    return path.read_text().split("\n")[:-1]


if __name__ == "__main__":
    main()
