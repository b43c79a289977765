"""What the folders and imports of the repository promise."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = sorted(
    path
    for part in ("libs", "services", "cli")
    for path in (ROOT / part).rglob("*.py")
    if "libs/protos/src" not in path.as_posix() and "/build/" not in path.as_posix()
)
RUNS_CODE = {"pickle", "cloudpickle", "dill", "joblib", "marshal", "shelve"}


def imports(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module.split(".")[0]


def calls(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func)


def test_there_are_sources_to_look_at():
    assert len(SOURCES) > 40


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_no_file_that_is_loaded_may_run_code(path):
    assert not RUNS_CODE & set(imports(path))
    assert not {"torch.load", "torch.save", "np.load", "eval", "exec"} & set(calls(path))


def test_no_file_is_called_after_nothing():
    banned = {"utils", "util", "helpers", "helper", "common", "misc", "base", "manager"}

    assert not [path for path in SOURCES if path.stem in banned]


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_every_file_says_what_it_is(path):
    text = path.read_text()

    assert not text or ast.get_docstring(ast.parse(text))


@pytest.mark.parametrize("service", ["mycelia_replay", "mycelia_param_server", "mycelia_actor"])
def test_a_service_without_torch_starts_without_it(service):
    program = f"import sys, {service}.main; sys.exit('torch' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


@pytest.mark.parametrize(
    "service", ["mycelia_replay", "mycelia_param_server", "mycelia_learner", "mycelia_actor"]
)
def test_each_service_explains_itself_alone(service):
    done = subprocess.run(
        [sys.executable, "-m", service, "--help"], capture_output=True, text=True, check=False
    )

    assert done.returncode == 0
    assert "--bind" in done.stdout or "--join" in done.stdout


def test_generated_code_is_not_in_git():
    tracked = subprocess.run(
        ["git", "ls-files", "*_pb2*"], cwd=ROOT, capture_output=True, text=True, check=True
    )

    assert tracked.stdout == ""
