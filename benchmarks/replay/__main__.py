"""Runs the replay benchmark.

    python -m benchmarks.replay [--seconds 2] [--runs 3] [--json] [--peer reverb]

Each side's server and client are separate processes on loopback. The sides take
turns. With `--json` the last line is one object: rates (items or updates per
second, medians), their ratio, memory, latency and scaling.
"""

import argparse
import json
import statistics
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.replay import workload
from benchmarks.replay.ours import OurSide
from benchmarks.replay.peer import PeerSide
from benchmarks.replay.table_only import memory_ratio, scaling
from benchmarks.replay.together import together

NAMES = (
    "insert_small",
    "insert_frames",
    "sample_small",
    "insert_small_single",
    "sample_frames_random",
    "sample_frames_shared_memory",
    "sample_frames_atari",
    "update_small",
    "update_frames",
)
SIZES = [10_000, 100_000, 1_000_000, 4_000_000]
MILLION = 1_000_000


def main() -> None:
    """Runs the benchmark."""
    parser = argparse.ArgumentParser(prog="benchmarks.replay")
    parser.add_argument("--seconds", type=float, default=2.0, help="of each measurement")
    parser.add_argument("--runs", type=int, default=3, help="the median of which is taken")
    parser.add_argument("--peer", choices=["reverb"], help="measure it beside ours")
    parser.add_argument("--only", nargs="*", choices=NAMES, help="these rates and nothing else")
    parser.add_argument("--json", action="store_true", help="print JSON as the last line")
    arguments = parser.parse_args()
    frames = Path(tempfile.gettempdir()) / "mycelia-benchmark-pong.npy"
    workload.atari_frames(frames)
    names = arguments.only or NAMES
    result = rates(names, frames, arguments.peer, arguments.runs, arguments.seconds)
    if not arguments.only:
        result |= costs(frames, arguments.seconds)
    if arguments.json:
        print(json.dumps(result))


def rates(
    names: tuple[str, ...], frames: Path, peer: str | None, runs: int, seconds: float
) -> dict[str, Any]:
    """Returns the medians of both sides, their ratio and their ranges."""
    ours = OurSide(frames)
    sides: dict[str, OurSide | PeerSide] = {"ours": ours}
    if peer:
        sides[peer] = PeerSide(peer, frames)
    found: dict[str, dict[str, list[float]]] = {side: {} for side in sides}
    try:
        for _ in range(runs):
            for name in names:
                for label, side in sides.items():
                    found[label].setdefault(name, []).append(side.measure(name, seconds))
    finally:
        for side in sides.values():
            side.close()
    result: dict[str, Any] = {
        label: {name: round(statistics.median(values)) for name, values in of.items()}
        for label, of in found.items()
    }
    if peer:
        result["ratio"] = {
            name: round(result["ours"][name] / result[peer][name], 2) for name in names
        }
    result["ranges"] = {
        label: {name: [round(min(v)), round(max(v))] for name, v in of.items()}
        for label, of in found.items()
    }
    for name in names:
        line = f"{name:>28}: {result['ours'][name]:>12,} per second"
        print(line + (f", {result['ratio'][name]:g} times {peer}" if peer else ""), flush=True)
    return result


def costs(frames: Path, seconds: float) -> dict[str, Any]:
    """Returns what is not compared: sharing, memory, latency, scaling."""
    found: dict[str, Any] = {}
    side = OurSide(frames, [workload.config("small", MILLION)])
    try:
        found["together"] = {
            name: round(value, 3) for name, value in together(side, seconds).items()
        }
        side.fill("small", MILLION)
        latencies = side.sample_latencies("small", 512, 500)
        found["p99_sample_512_ms"] = round(1e3 * float(np.quantile(latencies, 0.99)), 3)
    finally:
        side.close()
    found["memory_ratio_raw"] = round(memory_ratio("frames", frames), 4)
    found["memory_ratio_pong"] = round(memory_ratio("atari", frames), 4)
    found["scaling"] = {size: round(s, 6) for size, s in scaling(SIZES).items()}
    for name, value in found.items():
        print(f"{name:>28}: {value}", flush=True)
    return found


if __name__ == "__main__":
    main()
