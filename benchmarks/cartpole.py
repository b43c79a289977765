"""Time to solve CartPole-v1: `python -m benchmarks.cartpole [--peer sb3] --json`.

Ours is the whole system as a person starts it: `mycelia train apex-cartpole`, all services as
processes. The time is from the first row asked for to the evaluation that reached 475, start-up
not counted, evaluation counted. With a peer the runs are interleaved, seed by seed.
"""

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.peers.venv import ROOT, peer_python


def main() -> None:
    """Runs the seeds and prints a line for each and the JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--preset", default="apex-cartpole")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first-seed", type=int, default=1)
    parser.add_argument("--peer", choices=["sb3"])
    parser.add_argument("--json", action="store_true", help="only the JSON object on stdout")
    parser.add_argument("overrides", nargs="*", help="key=value, as for mycelia train")
    arguments = parser.parse_args()

    ours: list[dict[str, Any]] = []
    peer: list[dict[str, Any]] = []
    log = sys.stderr if arguments.json else sys.stdout
    for seed in range(arguments.first_seed, arguments.first_seed + arguments.seeds):
        ours.append(train(arguments.preset, seed, arguments.overrides))
        print(f"seed {seed}: ours {brief(ours[-1])}", file=log, flush=True)
        if arguments.peer:
            peer.append(run_peer(arguments.peer, seed))
            print(f"seed {seed}: {arguments.peer} {brief(peer[-1])}", file=log, flush=True)
    result = {"preset": arguments.preset, "ours": summary(ours)}
    if arguments.peer:
        result[arguments.peer] = summary(peer)
        result["speedup"] = result[arguments.peer]["median"] / result["ours"]["median"]
    print(json.dumps(result))


def train(preset: str, seed: int, overrides: list[str]) -> dict[str, Any]:
    """Trains once from a folder of its own; returns seconds to solve and steps."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "mycelia_cli", "train", preset, f"seed={seed}", "--json"]
        done = subprocess.run(
            [*command, *overrides], cwd=folder, capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            keep = Path(tempfile.mkdtemp(prefix="mycelia-failed-"))
            shutil.copytree(folder, keep, dirs_exist_ok=True)
            raise SystemExit(f"{done.stderr}\nseed {seed} failed; its files are in {keep}")
    result = json.loads(done.stdout.splitlines()[-1])
    seconds = result["seconds_to_solve"] if result["solved"] else result["seconds"]
    return {**result, "seconds": seconds}


def run_peer(peer: str, seed: int) -> dict[str, Any]:
    """Runs a peer's script in its own environment."""
    script = ROOT / "benchmarks/peers" / peer / "dqn_cartpole.py"
    done = subprocess.run(
        [peer_python(peer), script, "--seed", str(seed)],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def brief(result: dict[str, Any]) -> str:
    """Says in one line how a run went."""
    verdict = "solved" if result["solved"] else "NOT SOLVED"
    return f"{verdict} in {result['seconds']:.1f} s, {result['env_steps']} env steps"


def summary(results: list[dict[str, Any]]) -> dict[str, Any]:
    """Sums the seeds up; a run that was not solved counts with all its time."""
    seconds = [result["seconds"] for result in results]
    return {
        "median": statistics.median(seconds),
        "min": min(seconds),
        "max": max(seconds),
        "solved": sum(result["solved"] for result in results),
        "seeds": len(results),
        "env_steps_median": statistics.median(result["env_steps"] for result in results),
        "seconds": seconds,
    }


if __name__ == "__main__":
    main()
