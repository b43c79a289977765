"""Generates the Python code for `protos/` when the package is built or installed."""

import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

HERE = Path(__file__).resolve().parent
PROTO_ROOT = HERE.parents[1] / "protos"
TARGET = HERE / "src"


class GenerateStubs(BuildHookInterface[Any]):
    """Runs `generate` before every build, editable installs included."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called by hatchling."""
        generate()


def generate() -> None:
    """Writes messages, gRPC stubs and type stubs for every proto file.

    Raises:
      FileNotFoundError: there is no proto file where they should be.
      RuntimeError: protoc refused one; it has said why on stderr.
    """
    # Build requirements, so not importable when the hook is merely collected.
    import grpc_tools
    from grpc_tools import protoc

    sources = sorted(PROTO_ROOT.glob("mycelia/*/v1/*.proto"))
    if not sources:
        raise FileNotFoundError(f"no proto files under {PROTO_ROOT}; build from a full checkout")
    for stale in [*TARGET.rglob("*_pb2*.py"), *TARGET.rglob("*_pb2*.pyi")]:
        stale.unlink()
    TARGET.mkdir(exist_ok=True)
    bin_dir = Path(sys.executable).parent
    arguments = ["protoc", f"-I{PROTO_ROOT}", f"-I{Path(grpc_tools.__file__).parent / '_proto'}"]
    for plugin in ("mypy", "mypy_grpc"):
        executable = bin_dir / f"protoc-gen-{plugin}"
        # In an isolated build the plugins are on PATH instead.
        if executable.exists():
            arguments.append(f"--plugin=protoc-gen-{plugin}={executable}")
    outputs = ("python", "grpc_python", "mypy", "mypy_grpc")
    arguments.extend(f"--{output}_out={TARGET}" for output in outputs)
    if protoc.main([*arguments, *map(str, sources)]) != 0:
        raise RuntimeError("protoc failed; see its message above")
    (TARGET / "mycelia" / "py.typed").touch()


if __name__ == "__main__":
    generate()
