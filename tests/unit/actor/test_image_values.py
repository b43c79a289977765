"""The actor sees the same stacks, and says the same, as the learner's network."""

import dataclasses

import numpy as np
import pytest
import torch
from gymnasium import spaces

from mycelia_actor.environments.spaces import action_columns, observation_columns, signature_of
from mycelia_actor.policies.action_values import UnplayableError, make_action_values
from mycelia_actor.policies.epsilon_greedy import EpsilonGreedy
from mycelia_actor.policies.frame_stacks import FrameStacks
from mycelia_actor.policies.network_weights import load_weights
from mycelia_algorithms.networks.factory import build_q_network
from mycelia_algorithms.networks.spec import QNetworkSpec
from mycelia_algorithms.ops.frames import stack_frames
from mycelia_core.config import EnvConfig, NetworkConfig, RunConfig
from mycelia_core.weights import Weights

SHAPE = (36, 36)
CONFIG = RunConfig(
    name="test",
    env=EnvConfig(id="Pong"),
    network=NetworkConfig(hidden_sizes=(8,), convolutions=True),
    algorithm={"name": "dqn", "frame_stack": 3, "dueling": True},
)


def signature(space=None):
    box = space or spaces.Box(0, 255, SHAPE, np.uint8)
    return signature_of(observation_columns(box), action_columns(spaces.Discrete(4)))


def network():
    spec = QNetworkSpec(
        observation_shape=(3, *SHAPE), action_count=4, hidden_sizes=(8,), convolutions=True
    )
    return build_q_network(spec, seed=5)


def weights():
    tensors = {name: tensor.numpy() for name, tensor in network().state_dict().items()}
    for array in tensors.values():
        array.flags.writeable = False
    return Weights(3, 0, tensors)


def test_an_episode_s_first_frame_stands_for_those_before_it():
    # Ends after frames 2, 4, 8: first are 0, 3, 5 and 9.
    stacks = FrameStacks(1, 3, (), np.dtype(np.uint8))
    firsts = [True, False, False, True, False, True, False, False, False, True]

    seen = [
        stacks.push(np.array([t], np.uint8), np.array([first]), np.array([0]))[0].tolist()
        for t, first in enumerate(firsts)
    ]

    assert seen[3] == [3, 3, 3]
    assert seen[5] == [5, 5, 5]
    assert seen[6] == [5, 5, 6]
    assert seen[7] == [5, 6, 7]


def test_a_look_ahead_changes_nothing():
    stacks = FrameStacks(2, 2, (), np.dtype(np.uint8))
    stacks.push(np.array([1, 2], np.uint8), np.array([True, True]), np.arange(2))

    ahead = stacks.peek(np.array([9], np.uint8), np.array([1]))
    after = stacks.push(np.array([3, 4], np.uint8), np.array([False, False]), np.arange(2))

    assert ahead.tolist() == [[2, 9]]
    assert after.tolist() == [[1, 3], [2, 4]]


def test_the_actor_values_what_the_learner_values_to_the_last_digits():
    generator = np.random.default_rng(1)
    frames = generator.integers(0, 256, (6, *SHAPE)).astype(np.uint8)
    values = make_action_values(signature(), CONFIG, 2)
    values.use(weights())
    slots = np.array([1])

    seen = [
        values.see({"observation": frames[t : t + 1], "first": np.array([t == 0])}, slots)[0]
        for t in range(5)
    ]
    ahead = values.look_ahead({"observation": frames[5:6]}, slots)[0]

    # As the table clamps context at the episode's first row:
    rows = torch.from_numpy(np.concatenate((frames[:1], frames[:1], frames)))[:, None]
    for t, value in enumerate([*seen, ahead]):
        stack = stack_frames(rows, 2, torch.tensor([t + 2]), torch.zeros(1, dtype=torch.int64))
        assert value == pytest.approx(network()(stack).detach().numpy()[0], abs=1e-6)


def test_without_weights_actions_are_random_and_frames_are_remembered():
    policy = EpsilonGreedy(
        make_action_values(signature(), CONFIG, 2), np.zeros(2), np.random.default_rng(1)
    )
    frames = np.zeros((2, *SHAPE), np.uint8)

    choice = policy.act({"observation": frames, "first": np.array([True, True])})

    assert choice.q_taken is None
    policy.use(weights())
    assert policy.act({"observation": frames, "first": np.zeros(2, bool)}).policy_version == 3


def test_weights_from_a_file_have_no_version_and_are_played_with():
    values = make_action_values(signature(), CONFIG, 1)
    values.use(dataclasses.replace(weights(), version=0))
    seen = {"observation": np.zeros((1, *SHAPE), np.uint8), "first": np.array([True])}

    assert values.see(seen, np.array([0])).shape == (1, values.action_count)


def test_new_weights_are_copied_nowhere_and_those_of_another_network_are_refused():
    evaluated, newest = network().requires_grad_(False), weights()

    load_weights(evaluated, newest)

    where = {name: tensor.data_ptr() for name, tensor in evaluated.state_dict().items()}
    assert where == {name: array.ctypes.data for name, array in newest.tensors.items()}
    assert not any(parameter.requires_grad for parameter in evaluated.parameters())
    other = {name: array[:1] for name, array in newest.tensors.items()}
    with pytest.raises(UnplayableError, match="version 3 are for another network"):
        load_weights(evaluated, dataclasses.replace(newest, tensors=other))


def test_what_is_no_grey_image_is_refused():
    with pytest.raises(UnplayableError, match=r"needs grey images.*got float32 \[4\]"):
        make_action_values(signature(spaces.Box(-1, 1, (4,), np.float32)), CONFIG, 1)


def test_weights_of_another_network_are_refused():
    values = make_action_values(signature(), CONFIG, 1)

    with pytest.raises(UnplayableError, match="version 4 are for another network"):
        values.use(Weights(4, 0, {"q.weight": np.zeros((2, 2), np.float32)}))
