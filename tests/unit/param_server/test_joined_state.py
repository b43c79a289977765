"""Checkpoints of weights on several servers, split and joined."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mycelia_param_server.checkpoint import OPTIMIZER, WEIGHTS, Checkpoint
from mycelia_param_server.joined_state import join, split


def checkpoint(sizes):
    rng = np.random.default_rng(0)
    tensors = {f"t{n}": rng.normal(size=size).astype(np.float32) for n, size in enumerate(sizes)}
    tensors["statistics/observation/count"] = np.array(3.0)
    tensors["statistics/observation/mean"] = np.ones(2)
    tensors["statistics/observation/m2"] = np.ones(2)
    content = {WEIGHTS + name: tensor for name, tensor in tensors.items()}
    # So that each number of a moment tells which weight it belongs to.
    flat = np.concatenate([tensors[f"t{n}"] for n in range(len(sizes))])
    content[OPTIMIZER + "moment"] = flat * 2
    return Checkpoint(content, {"names": list(tensors)})


@given(st.lists(st.integers(1, 40), min_size=1, max_size=8), st.integers(1, 4))
def test_every_weight_keeps_its_moment_on_whatever_server_it_lies(sizes, count):
    saved = checkpoint(sizes)

    groups = split(saved, count)
    content, names = join(groups)

    for group in groups:
        flat = np.concatenate([tensor.reshape(-1) for tensor in group.trained.values()])
        np.testing.assert_array_equal(group.vectors["moment"], flat * 2)
    assert len(groups) == min(count, len(sizes))
    assert set(names) == set(saved.state["names"])
    for name in names:
        np.testing.assert_array_equal(content[WEIGHTS + name], saved.tensors[WEIGHTS + name])
    [whole] = split(Checkpoint(content, {"names": names}), 1)
    flat = np.concatenate([tensor.reshape(-1) for tensor in whole.trained.values()])
    np.testing.assert_array_equal(whole.vectors["moment"], flat * 2)


def test_a_moment_of_other_weights_is_refused():
    saved = checkpoint([4, 5])
    broken = Checkpoint({**saved.tensors, OPTIMIZER + "moment": np.zeros(8)}, saved.state)

    with pytest.raises(ValueError, match=r"optimizer/moment: got \(8,\), expected \(9,\)"):
        split(broken, 2)
