"""The numpy MLP against torch's."""

from itertools import pairwise

import numpy as np
import pytest
import torch

from mycelia_core.mlp import q_values


def torch_dueling(tensors, observation):
    hidden = torch.from_numpy(observation)
    layer = 0
    while f"trunk.{layer}.weight" in tensors:
        weight, bias = (torch.from_numpy(tensors[f"trunk.{layer}.{p}"]) for p in ("weight", "bias"))
        hidden = torch.relu(torch.nn.functional.linear(hidden, weight, bias))
        layer += 1

    def head(name):
        weight, bias = (torch.from_numpy(tensors[f"{name}.{p}"]) for p in ("weight", "bias"))
        return torch.nn.functional.linear(hidden, weight, bias)

    if "q.weight" in tensors:
        return head("q").numpy()
    advantage = head("advantage")
    return (head("value") + advantage - advantage.mean(1, keepdim=True)).numpy()


def random_tensors(sizes, heads, seed=0):
    rng = np.random.default_rng(seed)
    shapes = {f"trunk.{i}": (b, a) for i, (a, b) in enumerate(pairwise(sizes))}
    shapes |= {name: (units, sizes[-1]) for name, units in heads.items()}
    tensors = {}
    for name, shape in shapes.items():
        tensors[f"{name}.weight"] = rng.normal(0, shape[1] ** -0.5, shape).astype(np.float32)
        tensors[f"{name}.bias"] = rng.normal(0, 0.1, shape[0]).astype(np.float32)
    return tensors


@pytest.mark.parametrize("heads", [{"value": 1, "advantage": 3}, {"q": 3}])
@pytest.mark.parametrize("sizes", [(4, 64), (4, 128, 128), (7, 16, 32, 16)])
@pytest.mark.parametrize("batch", [1, 8, 64])
def test_agrees_with_torch_to_1e_6(heads, sizes, batch):
    tensors = random_tensors(sizes, heads)
    observation = np.random.default_rng(1).normal(size=(batch, sizes[0])).astype(np.float32)

    got = q_values(tensors, observation)

    assert got.dtype == np.float32
    np.testing.assert_allclose(got, torch_dueling(tensors, observation), atol=1e-6)


def test_the_dueling_heads_are_combined_by_the_mean():
    tensors = {
        "value.weight": np.zeros((1, 1), np.float32),
        "value.bias": np.array([1.5], np.float32),
        "advantage.weight": np.zeros((3, 1), np.float32),
        "advantage.bias": np.array([1, -2, 4], np.float32),
    }

    assert q_values(tensors, np.zeros((1, 1), np.float32)).tolist() == [[1.5, -1.5, 4.5]]


def test_the_observation_is_not_changed():
    observation = np.full((2, 4), -1, np.float32)

    q_values(random_tensors((4, 8), {"q": 2}), observation)

    assert (observation == -1).all()
