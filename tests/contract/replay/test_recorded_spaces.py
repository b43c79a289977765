"""Whatever the spaces: what an environment showed and was told comes back from replay."""

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from mycelia_actor.environments.in_process import InProcessEnvironments
from mycelia_actor.environments.spaces import signature_of
from mycelia_actor.policies.random_actions import RandomActions
from mycelia_actor.recorder import Recorder

STEPS, LENGTH, COUNT = 12, 5, 2

ACTIONS = {
    "discrete with start": spaces.Discrete(5, start=-2),
    "multi-discrete": spaces.MultiDiscrete([3, 2, 5]),
    "multi-discrete grid": spaces.MultiDiscrete([[3, 2], [4, 9]]),
    "multi-binary": spaces.MultiBinary(4),
    "box of shape ()": spaces.Box(-1, 1, (), np.float32),
    "box of shape (1,)": spaces.Box(-1, 1, (1,), np.float64),
    "nested": spaces.Dict(
        {
            "move": spaces.Tuple([spaces.Discrete(3, start=1), spaces.MultiBinary((2, 2))]),
            "aim": spaces.Dict({"angle": spaces.Box(-1, 1, (), np.float64)}),
            "keys": spaces.MultiDiscrete([2, 7]),
        }
    ),
}

OBSERVATIONS = {
    "uint8": spaces.Box(0, 255, (6, 5, 3), np.uint8),
    "float64": spaces.Box(-np.inf, np.inf, (3,), np.float64),
    "int64": spaces.Box(-(2**62), 2**62, (3,), np.int64),
    "box of shape ()": spaces.Box(-1, 1, (), np.float32),
    "uint8 of shape ()": spaces.Box(0, 255, (), np.uint8),
    "box of shape (1,)": spaces.Box(-1, 1, (1,), np.float32),
    "discrete with start": spaces.Discrete(9, start=100),
    "multi-discrete": spaces.MultiDiscrete([3, 2]),
    "multi-binary": spaces.MultiBinary((2, 3)),
    "dict": spaces.Dict(
        {"image": spaces.Box(0, 255, (4, 4), np.uint8), "goal": spaces.Discrete(7, start=2)}
    ),
    "tuple": spaces.Tuple(
        [
            spaces.Tuple([spaces.MultiBinary(3), spaces.Box(-9, 9, (2,), np.int64)]),
            spaces.Dict({"x": spaces.Tuple([spaces.Discrete(4)])}),
        ]
    ),
}

TWO = spaces.Discrete(2)
PAIRS = [
    *(pytest.param(TWO, action, id=f"action {name}") for name, action in ACTIONS.items()),
    *(pytest.param(seen, TWO, id=f"observation {name}") for name, seen in OBSERVATIONS.items()),
    pytest.param(OBSERVATIONS["tuple"], ACTIONS["nested"], id="both nested"),
]


class Logging(gymnasium.Env):
    """Shows samples of its space, and keeps what it showed and was told.

    The reward of a step is the number under which it keeps what it showed before.
    """

    def __init__(self, observation_space, action_space, first_number):
        self.observation_space, self.action_space = observation_space, action_space
        self._first_number = first_number
        self.seen, self.done, self.after = {}, {}, {}

    def reset(self, *, seed=None, options=None):
        if seed is not None:
            self.observation_space.seed(seed)
        self._t, self._shown = 0, self.observation_space.sample()
        return self._shown, {}

    def step(self, action):
        number = self._first_number + len(self.seen)
        self._t += 1
        self.seen[number], self.done[number] = self._shown, action
        self._shown = self.after[number] = self.observation_space.sample()
        return self._shown, float(number), self._t == LENGTH, False, {}


def play(environments, client, signature):
    with client.writer("train", ["a", "b"], signature) as writer:
        policy = RandomActions(environments.action, COUNT, seed=5)
        recorder = Recorder(writer, policy, environments.action)
        observation = environments.reset([1, 2])
        for _ in range(STEPS):
            choice = policy.act(observation.columns)
            result = environments.step(choice.action)
            recorder.record(observation, choice, result)
            observation = result.observation


def assert_same(got, expected):
    if isinstance(expected, dict):
        assert got.keys() == expected.keys()
        for key, value in expected.items():
            assert_same(got[key], value)
    elif isinstance(expected, tuple):
        assert len(got) == len(expected)
        for one, other in zip(got, expected, strict=True):
            assert_same(one, other)
    else:
        assert np.asarray(got).dtype == np.asarray(expected).dtype
        assert np.shape(got) == np.shape(expected)
        np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize(("observation_space", "action_space"), PAIRS)
def test_what_was_seen_and_done_comes_back_equal(
    observation_space, action_space, make_table, start_server, connect
):
    logging = [Logging(observation_space, action_space, 1 + 100 * slot) for slot in range(COUNT)]
    environments = InProcessEnvironments(logging)
    signature = signature_of(environments.observation, environments.action)
    client = connect(start_server(make_table(signature, sampler="fifo", max_times_sampled=1)))

    play(environments, client, signature)

    # The last step of the running episode has no successor yet.
    item_count = COUNT * (STEPS - 1)
    with client.sampler("train", item_count) as sampler:
        columns = sampler.next(timeout=10).columns
    seen, after = (environments.observation.decode({k: v[t] for k, v in columns.items()})
                   for t in (0, 1))  # fmt: skip
    done = environments.action.decode({name: column[0] for name, column in columns.items()})
    numbers = columns["reward"][0].astype(int).tolist()
    assert sorted(numbers) == [1 + 100 * slot + t for slot in range(COUNT) for t in range(11)]
    for item, number in enumerate(numbers):
        source = logging[number // 100]
        assert_same(seen[item], source.seen[number])
        assert_same(after[item], source.after[number])
        assert_same(done[item], source.done[number])
        assert action_space.contains(source.done[number])
