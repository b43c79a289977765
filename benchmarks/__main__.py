"""All benchmarks, one after the other: `python -m benchmarks [NAME ...]`, or `make bench`."""

import json
import subprocess
import sys

ALL: dict[str, list[str]] = {
    "replay": ["--json", "--peer", "reverb"],
    "startup": ["--json"],
    "params": ["--json"],
    "scaling": ["--json"],
    "inference": ["--json"],
    "cartpole": ["--json", "--peer", "sb3"],
}


def main() -> None:
    """Runs the named benchmarks, or all, and prints one JSON object of their results."""
    names = sys.argv[1:] or list(ALL)
    unknown = [name for name in names if name not in ALL]
    if unknown:
        raise SystemExit(f"no benchmark {unknown[0]!r}; there are {', '.join(ALL)}")
    results = {}
    for name in names:
        print(f"{name} ...", file=sys.stderr, flush=True)
        command = [sys.executable, "-m", f"benchmarks.{name}", *ALL[name]]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        results[name] = json.loads(done.stdout.splitlines()[-1])
        print(f"{name}: {json.dumps(results[name])}", file=sys.stderr, flush=True)
    print(json.dumps(results))


if __name__ == "__main__":
    main()
