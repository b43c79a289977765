"""The epsilon ladder, and epsilon-greedy over an MLP."""

import numpy as np
import pytest
from gymnasium import spaces

from mycelia_actor.environments.spaces import action_columns, observation_columns, signature_of
from mycelia_actor.policies.action_values import MlpValues, UnplayableError
from mycelia_actor.policies.epsilon import actor_epsilons, ladder
from mycelia_actor.policies.epsilon_greedy import EpsilonGreedy
from mycelia_actor.policies.random_actions import RandomActions
from mycelia_core.config import ActorConfig
from mycelia_core.weights import Weights


@pytest.mark.parametrize(
    ("count", "expected"),
    [
        (4, [0.4, 0.04715560318259695, 0.005559127278786369, 0.00065536]),
        (8, [0.4, 0.16, 0.064, 0.0256, 0.01024, 0.004096, 0.0016384, 0.00065536]),
        (1, [0.4]),
    ],
)
def test_the_ladder_has_the_values_of_ape_x(count, expected):
    assert ladder(0.4, 7.0, count) == pytest.approx(expected, rel=1e-12)


def test_actors_share_one_ladder_and_those_beyond_it_begin_again():
    config = ActorConfig(count=2, envs_per_actor=4)

    parts = [actor_epsilons(config, index) for index in range(3)]

    assert np.concatenate(parts[:2]) == pytest.approx(ladder(0.4, 7.0, 8))
    assert parts[2] == pytest.approx(parts[0])


def cartpole_like(observation=None):
    space = observation or spaces.Box(-1, 1, (4,), np.float32)
    return signature_of(observation_columns(space), action_columns(spaces.Discrete(2)))


def linear_weights(matrix, version=7):
    matrix = np.asarray(matrix, np.float32)
    return Weights(version, 0, {"q.weight": matrix, "q.bias": np.zeros(len(matrix), np.float32)})


def test_without_weights_actions_are_random_and_have_no_values():
    policy = EpsilonGreedy(MlpValues(cartpole_like()), np.zeros(64), np.random.default_rng(1))

    choice = policy.act({"observation": np.zeros((64, 4), np.float32)})

    assert set(choice.action["action"].tolist()) == {0, 1}
    assert choice.q_taken is None
    assert choice.policy_version == 0


def test_each_environment_explores_with_its_own_epsilon():
    epsilon = np.repeat([0.0, 0.5, 1.0], 400)
    policy = EpsilonGreedy(MlpValues(cartpole_like()), epsilon, np.random.default_rng(1))
    policy.use(linear_weights([[0, 0, 0, 0], [1, 1, 1, 1]]))

    choice = policy.act({"observation": np.ones((1200, 4), np.float32)})

    shares = choice.action["action"].reshape(3, 400).mean(axis=1)
    assert shares[0] == 1.0
    assert shares[1:] == pytest.approx([0.75, 0.5], abs=0.08)
    assert choice.policy_version == 7
    assert choice.q_max == pytest.approx(np.full(1200, 4.0))
    assert choice.q_taken == pytest.approx(4.0 * choice.action["action"])


def test_nested_observations_are_put_side_by_side_in_the_signature_s_order():
    space = spaces.Dict({"b": spaces.Discrete(5), "a": spaces.Box(0, 9, (1, 2), np.float64)})
    policy = EpsilonGreedy(MlpValues(cartpole_like(space)), np.zeros(2), np.random.default_rng(1))
    policy.use(linear_weights([[1, 10, 100], [0, 0, 0]]))
    observation = observation_columns(space).encode(
        [{"b": 3, "a": np.array([[1.0, 2.0]])}, {"b": 4, "a": np.array([[0.0, 0.5]])}]
    )

    # gymnasium sorts the keys of a Dict: a's two numbers, then b.
    assert policy.greedy_value(observation) == pytest.approx([321.0, 405.0])


@pytest.mark.parametrize("matrix", [np.zeros((2, 5)), np.zeros((3, 4))])
def test_weights_for_another_environment_are_refused(matrix):
    policy = EpsilonGreedy(MlpValues(cartpole_like()), np.zeros(1), np.random.default_rng(1))

    with pytest.raises(UnplayableError, match="weights of version 7"):
        policy.use(linear_weights(matrix))


def test_action_values_need_a_discrete_action_space():
    box = spaces.Box(-1, 1, (2,), np.float32)
    signature = signature_of(observation_columns(box), action_columns(box))

    with pytest.raises(UnplayableError, match=r"need a Discrete action space, got action float32"):
        MlpValues(signature)


def test_random_actions_come_from_any_space():
    space = spaces.Dict({"turn": spaces.Discrete(3, start=-1), "gas": spaces.Box(0, 1, (2,))})
    columns = action_columns(space)

    choice = RandomActions(columns, 5, seed=1).act({})

    assert all(space.contains(action) for action in columns.decode(choice.action))
