"""Checkpoints are whole or not there."""

import os

import numpy as np
import pytest

from mycelia_param_server import checkpoint
from mycelia_param_server.checkpoint import Checkpoint


def saved(version, run_id="run"):
    tensors = {
        "weights/w": np.arange(6, dtype=np.float32).reshape(2, 3) + version,
        "weights/scalar": np.asarray(version, np.float64),
        "optimizer/mean_square": np.zeros(6, np.float32),
    }
    return Checkpoint(tensors, {"run_id": run_id, "version": version})


def test_what_was_written_is_read(tmp_path):
    checkpoint.write(tmp_path, saved(3))

    read = checkpoint.read_newest(tmp_path, "run")

    assert read.state["version"] == 3
    assert set(read.under("weights/")) == {"w", "scalar"}
    for name, tensor in saved(3).tensors.items():
        np.testing.assert_array_equal(read.tensors[name], tensor)
        assert read.tensors[name].dtype == tensor.dtype


def test_the_last_two_are_kept(tmp_path):
    for version in (1, 2, 3, 10):
        checkpoint.write(tmp_path, saved(version))

    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "version-000000003",
        "version-000000010",
    ]


@pytest.mark.parametrize("file", ["weights.safetensors", "state.json"])
def test_at_every_cut_of_a_file_the_one_before_is_read(tmp_path, file, caplog):
    checkpoint.write(tmp_path, saved(1))
    path = checkpoint.write(tmp_path, saved(2)) / file
    whole = path.read_bytes()

    for length in (0, 1, len(whole) // 2, len(whole) - 2):
        path.write_bytes(whole[:length])
        assert checkpoint.read_newest(tmp_path, "run").state["version"] == 1
    assert "passing over a broken checkpoint" in caplog.text


def test_one_that_was_cut_off_while_it_was_written_is_not_seen(tmp_path, monkeypatch):
    checkpoint.write(tmp_path, saved(1))

    def die(_descriptor):
        raise OSError("killed")

    monkeypatch.setattr(os, "fsync", die)
    with pytest.raises(OSError, match="killed"):
        checkpoint.write(tmp_path, saved(2))
    monkeypatch.undo()

    assert checkpoint.read_newest(tmp_path, "run").state["version"] == 1
    checkpoint.write(tmp_path, saved(2))
    assert checkpoint.read_newest(tmp_path, "run").state["version"] == 2


def test_another_runs_weights_are_not_taken_for_this_ones(tmp_path):
    checkpoint.write(tmp_path, saved(5, run_id="old"))
    checkpoint.write(tmp_path, saved(1))

    assert checkpoint.read_newest(tmp_path, "run").state["version"] == 1
    checkpoint.drop_others(tmp_path, "run")
    assert [path.name for path in tmp_path.iterdir()] == ["version-000000001"]


def test_the_registrys_file_is_replaced_as_a_whole(tmp_path):
    assert checkpoint.read_registry(tmp_path) is None
    for name in ("first", "second"):
        checkpoint.write_registry(tmp_path, {"run": {"name": name}})

    assert checkpoint.read_registry(tmp_path)["run"] == {"name": "second"}
    assert [path.name for path in tmp_path.iterdir()] == ["registry.json"]
