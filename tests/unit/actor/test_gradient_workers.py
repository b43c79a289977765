"""Workers: what they collect, what they make of answers, how their policies are judged."""

import dataclasses
import threading

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete

from mycelia_actor.environments.in_process import InProcessEnvironments
from mycelia_actor.environments.spaces import action_columns, observation_columns
from mycelia_actor.evaluation import evaluate, make_evaluation, make_greedy
from mycelia_actor.gradients.collector import RolloutCollector
from mycelia_actor.gradients.loop import GradientLoop
from mycelia_actor.gradients.spaces import action_writer, network_spec
from mycelia_actor.policies.action_values import UnplayableError
from mycelia_algorithms.gradient_source import Gradient
from mycelia_algorithms.networks.actor_critic import ActorCriticSpec
from mycelia_algorithms.ops.normalisation import Moments
from mycelia_algorithms.stochastic_policy import StochasticPolicy
from mycelia_core import actor_critic
from mycelia_core.clients.gradients import PushOutcome, PushResult
from mycelia_core.config import EnvConfig, NetworkConfig, RunConfig
from mycelia_core.weights import Weights


class FixedSource:
    """Always does action 1; values an observation at itself. Its state counts steps."""

    rollout_steps = 6

    def __init__(self):
        self.loaded = []

    def load(self, tensors, version):
        self.loaded.append(version)

    def act(self, observation, first, state):
        count = torch.zeros(len(observation), 1) if state is None else state[0]
        count = count * ~first.unsqueeze(1) + 1
        return torch.ones(len(observation), dtype=torch.int64), (count, count)

    def value(self, observation, state):
        return observation[:, 0] + 0.01 * state[0][:, 0]

    def begin(self, rollout):
        return 3

    def gradient(self, index):
        return Gradient(tensors={}, sample_count=1, metrics={})

    def goes_on(self, metrics):
        return metrics.get("kl", 0) < 1


class Silent:
    def add(self, choice, result):
        pass

    def add_gradient(self, gradient):
        pass


@pytest.fixture
def collector(counting_env):
    environments = InProcessEnvironments([counting_env(), counting_env(offset=100)])
    return RolloutCollector(environments, FixedSource(), [1, 2], Silent())


def test_a_rollout_says_where_episodes_begin_and_how_they_end(collector):
    rollout = collector.collect(1)

    # Episodes of 1, 3 and 4 steps; the first terminates, the second is cut, and so on.
    assert rollout.observation[:, 0, 0].tolist() == [0, 1000, 1001, 1002, 2000, 2001]
    assert rollout.first[:, 0].tolist() == [True, True, False, False, True, False]
    assert rollout.terminated[:, 0].tolist() == [True] + [False] * 5
    assert rollout.truncated[:, 0].tolist() == [False, False, False, True, False, False]
    assert rollout.reward[:, 0].tolist() == [1, 1, 2, 3, 1, 2]
    assert rollout.observation[:, 1, 0].tolist() == [100, 1100, 1101, 1102, 2100, 2101]


def test_a_cut_episode_is_worth_what_its_final_observation_is(collector):
    rollout = collector.collect(1)

    # After three steps of the episode: the state that goes on, not a new episode's.
    assert rollout.bootstrap_value[3].tolist() == pytest.approx([1003.03, 1103.03])


def test_the_last_row_is_followed_by_what_came_next(collector):
    rollout = collector.collect(1)
    following = collector.collect(1)

    assert rollout.bootstrap_value[-1].tolist() == pytest.approx([2002.02, 2102.02])
    assert following.observation[0, :, 0].tolist() == [2002, 2102]
    assert following.state[0][:, 0].tolist() == [2, 2]


def test_the_successor_of_a_row_is_never_the_next_episodes_first(collector):
    rollout = collector.collect(1)

    following = rollout.next_value(rollout.observation[:, :, 0])

    assert following[1:, 0].tolist() == pytest.approx([1001, 1002, 1003.03, 2001, 2002.02])


class OneStepFails:
    """Environments that pass steps on, but say that slot 1 failed in one of them."""

    def __init__(self, environments, at):
        self.observation, self.action = environments.observation, environments.action
        self.count = environments.count
        self.reset = environments.reset
        self._step, self._left = environments.step, at

    def step(self, action):
        result = self._step(action)
        self._left -= 1
        if self._left == -1:
            return dataclasses.replace(result, failed=np.array([1]))
        return result


def test_an_episode_whose_environment_failed_ends_cut_with_what_it_showed_last(counting_env):
    environments = InProcessEnvironments([counting_env(), counting_env(offset=100)])
    failing = OneStepFails(environments, at=3)

    rollout = RolloutCollector(failing, FixedSource(), [1, 2], Silent()).collect(1)

    # The failed step is none; the one before ends its episode, at what row 3 shows.
    assert rollout.valid[:, 1].tolist() == [True, True, True, False, True, True]
    assert bool(rollout.truncated[2, 1])
    assert rollout.bootstrap_value[2, 1].item() == pytest.approx(1102.02)
    assert rollout.valid[:, 0].all()


def test_clipped_rewards_are_learned_from_as_their_sign(counting_env):
    environments = InProcessEnvironments([counting_env()])
    collector = RolloutCollector(environments, FixedSource(), [1], Silent(), clip_rewards=True)

    assert collector.collect(1).reward[:, 0].tolist() == [1.0] * 6


class Answers:
    """A pusher that gives answers in turn."""

    def __init__(self, answers, stop):
        self._answers = list(answers)
        self._stop = stop
        self.pushed_versions = []

    def push(self, gradient, version, placement):
        self.pushed_versions.append(version)
        answer = self._answers.pop(0)
        if not self._answers:
            self._stop.set()
        return answer

    def fresh_weights(self):
        return Weights(50, 0, {})


def answer(outcome, version, **metrics):
    return PushResult(
        outcome=outcome,
        version=version,
        staleness=0,
        weights=Weights(version, 0, {}),
        metrics=metrics,
    )


@pytest.mark.parametrize(
    ("answers", "versions"),
    [
        # Every sub-step is computed at what the one before has led to.
        ([answer(PushOutcome.APPLIED, v) for v in (2, 3, 4, 5)], [1, 2, 3, 4]),
        # All workers end an iteration on the same number: a new rollout follows.
        ([answer(PushOutcome.APPLIED, 2, kl=5.0), answer(PushOutcome.APPLIED, 3)], [1, 2]),
        # A late one goes on from where the others are.
        ([answer(PushOutcome.LATE, 9), answer(PushOutcome.APPLIED, 10)], [1, 9]),
        # A refused one goes on from fresh weights.
        ([None, answer(PushOutcome.APPLIED, 51)], [1, 50]),
    ],
)
def test_a_worker_goes_on_from_what_it_is_told(collector, answers, versions):
    stop = threading.Event()
    pusher = Answers(answers, stop)

    GradientLoop(FixedSource(), collector, pusher, Silent()).run(Weights(1, 0, {}), stop)

    assert pusher.pushed_versions == versions


def test_only_what_the_environment_gets_is_cut_off_at_the_bounds():
    action = action_columns(Box(-2, 2, (1,), np.float32))

    columns = action_writer(action)(np.array([[3.0], [-0.5]], np.float32))

    assert columns["action"].tolist() == [[2.0], [-0.5]]


def test_a_network_is_made_for_its_spaces():
    observation = observation_columns(Box(-1, 1, (3,), np.float32))

    discrete = network_spec(NetworkConfig(), observation, action_columns(Discrete(4)))
    continuous = network_spec(
        NetworkConfig(), observation, action_columns(Box(-1, 1, (2, 3), np.float32))
    )

    assert (discrete.action_count, discrete.action_size) == (4, 0)
    assert (continuous.action_count, continuous.action_size) == (0, 6)


SPEC = ActorCriticSpec(observation_shape=(4,), action_count=2, hidden_sizes=(16, 16))


def make_policy(spec, *, normalise=False):
    return StochasticPolicy(
        spec,
        seed=3,
        worker_seed=0,
        gamma=0.99,
        normalise_observation=normalise,
        normalise_reward=False,
    )


@pytest.mark.parametrize("activation", ["relu", "tanh"])
@pytest.mark.parametrize("shared_trunk", [False, True])
@pytest.mark.parametrize("normalise", [False, True])
def test_numpy_and_torch_agree_on_what_a_policy_does(activation, shared_trunk, normalise):
    spec = dataclasses.replace(SPEC, activation=activation, shared_trunk=shared_trunk)
    policy = make_policy(spec, normalise=normalise)
    weights = policy.weights()
    if normalise:
        weights["statistics/observation/mean"] = np.array([1.0, 0.0, -1.0, 2.0])
        weights["statistics/observation/m2"] = np.array([4.0, 1.0, 9.0, 16.0])
        weights["statistics/observation/count"] = np.array(4.0)
        policy.load(weights)
    observation = np.random.default_rng(1).normal(size=(9, 4)).astype(np.float32)

    ours = actor_critic.policy_output(weights, observation, activation)

    seen = policy.normalise(torch.from_numpy(observation)).unsqueeze(0)
    logits = policy.judge(seen, torch.zeros(1, 9, dtype=torch.bool), None).policy.logits
    np.testing.assert_allclose(ours, logits.detach().numpy()[0], rtol=1e-4, atol=1e-6)


def config_of(**network):
    return RunConfig.model_validate(
        {
            "name": "test",
            "topology": "async-gradients",
            "env": {"id": "CartPole-v1"},
            "algorithm": {"name": "a3c"},
            "network": {"hidden_sizes": [16, 16], "activation": "tanh"} | network,
        }
    )


@pytest.mark.parametrize("lstm_units", [0, 8])
def test_an_actor_critic_is_evaluated_greedily(lstm_units):
    spec = dataclasses.replace(SPEC, shared_trunk=True, lstm_units=lstm_units)
    weights = make_policy(spec).weights()

    returns = evaluate(weights, config_of(shared_trunk=True, lstm_units=lstm_units), 5)

    assert len(returns) == 5
    assert returns == evaluate(weights, config_of(shared_trunk=True, lstm_units=lstm_units), 5)


@pytest.mark.parametrize("lstm_units", [0, 8])
def test_what_is_seen_in_an_evaluation_leaves_the_statistics_as_they_were(lstm_units):
    spec = ActorCriticSpec(
        observation_shape=(3,),
        action_size=1,
        hidden_sizes=(16, 16),
        shared_trunk=True,
        lstm_units=lstm_units,
    )
    # Far from anything that a pendulum shows, so that one that counted along would notice.
    seen_before = np.random.default_rng(1).normal(5.0, 3.0, (4, 3))
    tensors = make_policy(spec, normalise=True).weights() | Moments.of(seen_before).to_tensors(
        "observation"
    )
    config = config_of(shared_trunk=True, lstm_units=lstm_units)
    config = config.model_copy(update={"env": EnvConfig(id="Pendulum-v1")})
    evaluation = make_evaluation(config, 2)
    choose = make_greedy(evaluation, config, Weights(1, 0, tensors))
    probe = {"observation": np.array([[1, 0, 0]], np.float32), "first": np.array([True])}
    before = choose(probe, np.array([0]))["action"].copy()

    first = evaluation.play(choose, [1, 2])

    assert evaluation.play(choose, [1, 2]) == first
    assert (choose(probe, np.array([0]))["action"] == before).all()
    statistics = tensors | {"statistics/observation/mean": np.zeros(3)}
    other = make_greedy(evaluation, config, Weights(1, 0, statistics))
    assert (other(probe, np.array([0]))["action"] != before).all(), "they make no difference"
    evaluation.close()


def test_weights_for_other_actions_are_refused():
    weights = make_policy(dataclasses.replace(SPEC, action_count=3)).weights()

    with pytest.raises(UnplayableError, match="3 actions"):
        evaluate(weights, config_of(shared_trunk=False), 1)
