"""Checkpoints on disk: whole or not at all."""

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from mycelia_learner.checkpoint import (
    BrokenCheckpointError,
    Checkpoint,
    find_best,
    find_latest,
    load_weights,
    read,
    write_best,
    write_step,
)


def make(step, value=0.0):
    tensors = {
        "network/q.weight": np.full((2, 3), value, np.float32),
        "target/q.weight": np.zeros((2, 3), np.float32),
    }
    return Checkpoint(tensors=tensors, state={"learner_step": step, "env_steps": 10 * step})


def test_what_was_written_is_read_back(tmp_path):
    path = write_step(tmp_path, make(3, value=1.5))

    checkpoint = read(path)

    assert find_latest(tmp_path) == path
    assert (checkpoint.state["learner_step"], checkpoint.state["env_steps"]) == (3, 30)
    np.testing.assert_array_equal(checkpoint.tensors["network/q.weight"], np.full((2, 3), 1.5))


def test_the_last_two_are_kept(tmp_path):
    for step in (1, 2, 10):
        write_step(tmp_path, make(step))

    assert sorted(p.name for p in (tmp_path / "checkpoint").iterdir()) == [
        "step-000000002",
        "step-000000010",
    ]


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: (path / "model.safetensors").write_bytes(b"short"),
        lambda path: (path / "model.safetensors").unlink(),
        lambda path: (path / "state.json").write_text('{"format": 1, "learner'),
        lambda path: (path / "state.json").write_text("[]"),
        lambda path: (path / "state.json").write_text('{"format": 99}'),
        lambda path: flip_last_byte(path / "model.safetensors"),
    ],
    ids=["torn model", "no model", "torn state", "no object", "other format", "flipped bit"],
)
def test_a_broken_one_is_passed_over_with_a_warning(tmp_path, caplog, damage):
    whole = write_step(tmp_path, make(1))
    broken = write_step(tmp_path, make(2))
    damage(broken)

    assert find_latest(tmp_path) == whole
    assert "passing over a broken checkpoint" in caplog.text
    with pytest.raises(BrokenCheckpointError, match="step-000000002"):
        read(broken)


def flip_last_byte(path):
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def test_one_that_was_not_finished_is_not_seen_and_the_next_write_succeeds(tmp_path):
    whole = write_step(tmp_path, make(1))
    unfinished = tmp_path / "checkpoint" / ".step-000000002.part"
    unfinished.mkdir()
    (unfinished / "model.safetensors").write_bytes(b"half")

    assert find_latest(tmp_path) == whole
    assert find_latest(tmp_path) != write_step(tmp_path, make(2))
    assert find_latest(tmp_path).name == "step-000000002"
    assert not unfinished.exists()


WRITER = """
import sys, pathlib, numpy as np
from mycelia_learner.checkpoint import Checkpoint, write_step
step = 0
while True:
    step += 1
    tensors = {"network/w": np.full(100_000, step, np.float32)}
    write_step(pathlib.Path(sys.argv[1]), Checkpoint(tensors, {"learner_step": step}))
    print(step, flush=True)
"""


def test_a_writer_killed_at_any_moment_leaves_a_whole_checkpoint(tmp_path):
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    acknowledged = [int(writer.stdout.readline()) for _ in range(5)]
    time.sleep(0.0317)
    os.kill(writer.pid, signal.SIGKILL)
    acknowledged += [int(line) for line in writer.communicate()[0].split()]

    checkpoint = read(find_latest(tmp_path))

    step = checkpoint.state["learner_step"]
    assert step >= acknowledged[-1]
    assert (checkpoint.tensors["network/w"] == step).all()


def test_weights_are_the_best_ones_if_there_are_any_and_only_the_networks(tmp_path):
    write_step(tmp_path, make(9, value=9))
    newest = load_weights(tmp_path)
    write_best(tmp_path, make(4, value=4))
    write_best(tmp_path, make(6, value=6))

    best = load_weights(str(tmp_path))

    assert list(newest) == list(best) == ["q.weight"]
    assert (newest["q.weight"][0, 0], best["q.weight"][0, 0]) == (9, 6)
    assert find_best(tmp_path).name == "best-000000006"


def test_a_run_without_a_checkpoint_says_so(tmp_path):
    assert find_latest(tmp_path) is None
    with pytest.raises(FileNotFoundError, match="no whole checkpoint"):
        load_weights(tmp_path)


def test_loading_weights_does_not_import_torch(tmp_path):
    write_step(tmp_path, make(1))
    program = (
        "import json, sys, mycelia_learner.checkpoint as c;"
        f"c.load_weights({json.dumps(str(tmp_path))}); sys.exit('torch' in sys.modules)"
    )

    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
