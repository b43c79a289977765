"""Custom actors, each alone with a real stack: it feeds a run until the run is solved."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples" / "custom_actors"

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def solve(mycelia, *actor, environ=None):
    """Starts a stack without actors, and this one; returns how the run ended."""
    command = mycelia("train", "apex-cartpole", "actor.count=0", "--json")
    address = command.wait_for(r"services join at (\S+);").group(1)
    custom = subprocess.Popen([*map(str, actor), address], env=os.environ | (environ or {}))
    try:
        assert command.end(200) == 0, command.text
        assert custom.wait(20) == 0
    finally:
        custom.kill()
        custom.wait()
    return json.loads(command.lines[-1])


def assert_solved(result):
    assert result["solved"], result
    assert result["eval_return_mean"] >= 475


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*/*.py")) + sorted(EXAMPLES.glob("*/*.js")))
def test_a_custom_actor_stays_short(path):
    assert len(path.read_text(encoding="utf-8").splitlines()) < 150


def test_an_actor_on_mycelia_core_feeds_a_run_until_it_is_solved(mycelia):
    assert_solved(solve(mycelia, sys.executable, EXAMPLES / "python_core" / "actor.py"))


def test_an_actor_on_generated_stubs_alone_feeds_a_run_until_it_is_solved(mycelia, tmp_path):
    folder = tmp_path / "examples" / "custom_actors" / "python_stubs"
    shutil.copytree(EXAMPLES / "python_stubs", folder, ignore=shutil.ignore_patterns("generated"))
    (tmp_path / "protos").symlink_to(ROOT / "protos")
    subprocess.run([folder / "generate.sh", sys.executable], check=True)
    # Nothing of ours may come from where it is installed.
    refuse = "import sys; sys.modules['mycelia_core'] = None; import runpy; "
    run = (
        f"sys.argv[0] = {str(folder / 'actor.py')!r}; runpy.run_path(sys.argv[0], None, '__main__')"
    )
    program = f"{refuse}sys.path.insert(0, {str(folder)!r}); {run}"

    assert_solved(solve(mycelia, sys.executable, "-c", program))


def test_an_actor_in_javascript_feeds_a_run_until_it_is_solved(mycelia, tmp_path):
    if not shutil.which("npm"):
        pytest.skip("the JavaScript actor needs node and npm, and there is no npm")
    folder = tmp_path / "examples" / "custom_actors" / "node"
    shutil.copytree(EXAMPLES / "node", folder, ignore=shutil.ignore_patterns("node_modules"))
    (tmp_path / "protos").symlink_to(ROOT / "protos")
    subprocess.run(
        ["npm", "install", "--no-audit", "--no-fund", "--silent"], cwd=folder, check=True
    )

    assert_solved(solve(mycelia, "node", folder / "actor.js"))
