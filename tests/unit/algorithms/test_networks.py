"""The network of action values."""

import pytest
import torch

from mycelia_algorithms.networks.factory import build_q_network
from mycelia_algorithms.networks.spec import QNetworkSpec


def build(**fields):
    spec = {"observation_shape": (4,), "action_count": 3, "hidden_sizes": (8, 5)} | fields
    return build_q_network(QNetworkSpec(**spec), seed=1)


def shapes(network):
    return {name: tuple(tensor.shape) for name, tensor in network.state_dict().items()}


TRUNK = {
    "trunk.0.weight": (8, 4),
    "trunk.0.bias": (8,),
    "trunk.1.weight": (5, 8),
    "trunk.1.bias": (5,),
}


def test_dueling_weights_have_the_documented_names_and_shapes():
    heads = {
        "value.weight": (1, 5),
        "value.bias": (1,),
        "advantage.weight": (3, 5),
        "advantage.bias": (3,),
    }

    assert shapes(build(dueling=True)) == TRUNK | heads


def test_plain_weights_have_the_documented_names_and_shapes():
    assert shapes(build(dueling=False)) == TRUNK | {"q.weight": (3, 5), "q.bias": (3,)}


def test_the_dueling_heads_add_up_by_hand():
    network = build()
    x = torch.randn(6, 4)
    w = network.state_dict()

    hidden = x
    for layer in (0, 1):
        hidden = (hidden @ w[f"trunk.{layer}.weight"].T + w[f"trunk.{layer}.bias"]).clamp(min=0)
    advantage = hidden @ w["advantage.weight"].T + w["advantage.bias"]
    value = hidden @ w["value.weight"].T + w["value.bias"]

    torch.testing.assert_close(network(x), value + advantage - advantage.mean(1, keepdim=True))


def test_the_same_seed_gives_the_same_weights_whatever_happened_before():
    first = build().state_dict()
    torch.rand(7)
    second = build().state_dict()

    assert all(torch.equal(first[name], second[name]) for name in first)


def test_observations_of_any_shape_and_number_type_are_flattened():
    network = build(observation_shape=(2, 2))

    assert network(torch.ones(6, 2, 2, dtype=torch.int64)).shape == (6, 3)


@pytest.mark.parametrize(
    "fields", [{"action_count": 0}, {"hidden_sizes": ()}, {"hidden_sizes": (0,)}]
)
def test_networks_that_cannot_be_built_are_refused(fields):
    with pytest.raises(ValueError, match=next(iter(fields))):
        build(**fields)
