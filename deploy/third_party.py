"""Prints what packages of this repository need from PyPI: third_party.py [--extras "A B"] FOLDER...

An image installs this before it copies any source, so that changed source installs nothing again.
"""

import argparse
import re
import sys
import tomllib
from pathlib import Path

OURS = re.compile(r"mycelia(-|$)")


def main() -> None:
    """Reads each FOLDER/pyproject.toml and prints one requirement a line, sorted."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--extras", default="", help="extras of these packages, by spaces")
    parser.add_argument("folders", nargs="+", type=Path)
    arguments = parser.parse_args()
    found: set[str] = set()
    for folder in arguments.folders:
        found |= requirements(folder, arguments.extras.split())
    sys.stdout.write("\n".join([*sorted(found), ""]))


def requirements(folder: Path, extras: list[str]) -> set[str]:
    """Returns a package's requirements without those that live in this repository."""
    project = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = set(project.get("dependencies", []))
    for extra in extras:
        wanted |= set(project.get("optional-dependencies", {}).get(extra, []))
    return {requirement for requirement in wanted if not OURS.match(requirement)}


if __name__ == "__main__":
    main()
