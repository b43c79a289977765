"""Building the update, and going on from a checkpoint on disk."""

import numpy as np
import pytest
import torch

from mycelia_algorithms.update import ReplayBatch
from mycelia_core.specs import ColumnSpec, Signature
from mycelia_learner.assembly import (
    UnfitError,
    build_update,
    choose_device,
    describe_spaces,
    restore,
)
from mycelia_learner.checkpoint import Checkpoint, read, write_step

from .conftest import SIGNATURE, make_config


def make_batch(seed):
    rng = torch.Generator().manual_seed(seed)
    return ReplayBatch(
        columns={
            "observation": torch.randn(4, 8, 4, generator=rng),
            "action": torch.randint(0, 2, (4, 8), generator=rng),
            "reward": torch.randn(4, 8, generator=rng),
            "terminated": torch.zeros(4, 8, dtype=torch.bool),
        },
        row_counts=torch.full((8,), 4),
        probabilities=torch.full((8,), 0.1, dtype=torch.float64),
        item_count=10,
    )


def save(update, folder, signature=SIGNATURE):
    state = update.state()
    return write_step(
        folder,
        Checkpoint(
            tensors={name: tensor.numpy() for name, tensor in state.tensors.items()},
            state={
                "learner_step": update.learner_step,
                "spaces": describe_spaces(signature),
                "update": state.scalars,
            },
        ),
    )


def test_going_on_from_disk_equals_never_having_stopped_bit_for_bit(tmp_path):
    whole = build_update(make_config(), SIGNATURE)
    for seed in range(25):
        whole.update(make_batch(seed))
        if seed == 12:
            path = save(whole, tmp_path)

    resumed = build_update(make_config(seed=77), SIGNATURE)
    restore(resumed, read(path), SIGNATURE)
    for seed in range(13, 25):
        resumed.update(make_batch(seed))

    expected, got = whole.state(), resumed.state()
    assert all(torch.equal(expected.tensors[name], got.tensors[name]) for name in expected.tensors)
    assert expected.scalars == got.scalars


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ([ColumnSpec("observation", np.dtype(np.float32), (5,))], r"observation is \(4,\)"),
        ([ColumnSpec("action", np.dtype(np.int64), (), 3)], "action is 2 actions"),
    ],
)
def test_a_checkpoint_for_other_spaces_is_refused_by_name(tmp_path, columns, message):
    path = save(build_update(make_config(), SIGNATURE), tmp_path)
    named = {column.name: column for column in (*SIGNATURE.columns[:2], *columns)}
    other = Signature.of(named.values())

    with pytest.raises(UnfitError, match=message):
        restore(build_update(make_config(), other), read(path), other)


def test_a_checkpoint_of_another_network_is_refused_by_tensor(tmp_path):
    path = save(build_update(make_config(), SIGNATURE), tmp_path)
    wider = build_update(make_config(network={"hidden_sizes": [32]}), SIGNATURE)

    with pytest.raises(UnfitError, match=r"trunk\.0\.weight.*\[16, 4\], expected \[32, 4\]"):
        restore(wider, read(path), SIGNATURE)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ([ColumnSpec("observation/x", np.dtype(np.float32), (4,))], "one column 'observation'"),
        ([ColumnSpec("observation", np.dtype(np.float32), (4,))], "discrete column 'action'"),
    ],
)
def test_rows_that_cannot_be_learnt_from_are_refused(columns, message):
    with pytest.raises(UnfitError, match=message):
        build_update(make_config(), Signature.of(columns))


def test_a_window_that_the_algorithm_cannot_use_is_refused():
    config = make_config(algorithm={"name": "dqn", "n_step": 5})

    with pytest.raises(UnfitError, match=r"replay\.window"):
        build_update(config, SIGNATURE)


def test_the_runs_seed_decides_the_first_weights():
    first, same, other = (
        build_update(make_config(seed=seed), SIGNATURE).weights()["trunk.0.weight"]
        for seed in (1, 1, 2)
    )

    assert torch.equal(first, same)
    assert not torch.equal(first, other)


def test_a_gpu_that_is_asked_for_and_not_there_is_an_error_that_says_what_to_do(monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)

    with pytest.raises(UnfitError, match=r"learner\.device is cuda, but torch sees no CUDA device"):
        choose_device("cuda")


@pytest.mark.parametrize(
    ("wanted", "has_gpu", "device"),
    [("auto", False, "cpu"), ("auto", True, "cuda"), ("cpu", True, "cpu"), ("cuda", True, "cuda")],
)
def test_the_device_is_the_gpu_where_there_is_one_unless_told_otherwise(
    monkeypatch, wanted, has_gpu, device
):
    monkeypatch.setattr("torch.cuda.is_available", lambda: has_gpu)

    assert choose_device(wanted) == device
