"""What workers compute: gradients that may be averaged, decisions that all take alike."""

import dataclasses

import numpy as np
import pytest
import torch

from mycelia_algorithms.actor_critic.config import ActorCriticConfig
from mycelia_algorithms.dppo.config import DppoConfig
from mycelia_algorithms.n_step_q.config import NStepQConfig
from mycelia_algorithms.networks.actor_critic import ActorCriticSpec
from mycelia_algorithms.registry import load_gradient_source
from mycelia_algorithms.rollout import Rollout

DISCRETE = ActorCriticSpec(observation_shape=(3,), action_count=2, hidden_sizes=(8,))
CONTINUOUS = ActorCriticSpec(observation_shape=(3,), action_size=2, hidden_sizes=(8,))
RECURRENT = dataclasses.replace(DISCRETE, shared_trunk=True, lstm_units=5)

CASES = {
    "a3c": (ActorCriticConfig(), DISCRETE),
    "a3c-lstm": (ActorCriticConfig(), RECURRENT),
    "a3c-continuous": (ActorCriticConfig(gae_lambda=0.9), CONTINUOUS),
    "dppo": (DppoConfig(minibatches=1, normalise_advantage=False), DISCRETE),
    "n-step-q": (NStepQConfig(), DISCRETE),
}


def make_source(config, spec, worker_seed=0):
    source = load_gradient_source(config.name)(
        config, network=spec, seed=7, worker_seed=worker_seed
    )
    source.load(source.initial_weights(), 1)
    return source


def gradient_of(source, rollout, index=0):
    source.begin(rollout)
    gradient = source.gradient(index)
    return {name: array.copy() for name, array in gradient.tensors.items()}, gradient


def columns(rollout, chosen):
    parts = {
        field.name: getattr(rollout, field.name)[:, chosen]
        for field in dataclasses.fields(Rollout)
        if field.name != "state"
    }
    return Rollout(**parts)


@pytest.mark.parametrize("case", CASES)
def test_the_mean_of_the_workers_gradients_is_that_of_their_joined_rollouts(case, make_rollout):
    config, spec = CASES[case]
    rollout = make_rollout(count=6, action_size=spec.action_size)
    # One worker has fewer steps than the other.
    rollout.valid[2:, 5] = False

    joined, _ = gradient_of(make_source(config, spec), rollout)
    parts = [
        gradient_of(make_source(config, spec, worker), columns(rollout, chosen))
        for worker, chosen in enumerate((slice(0, 2), slice(2, 6)))
    ]

    total = sum(gradient.sample_count for _, gradient in parts)
    assert total == rollout.sample_count
    for name, whole in joined.items():
        mean = sum(t[name] * (g.sample_count / total) for t, g in parts)
        np.testing.assert_allclose(mean, whole, atol=1e-6)


@pytest.mark.parametrize("case", CASES)
def test_a_worker_that_loads_anothers_weights_acts_and_differentiates_as_it(case, make_rollout):
    config, spec = CASES[case]
    rollout = make_rollout(action_size=spec.action_size)
    source = make_source(config, spec)
    other = load_gradient_source(config.name)(config, network=spec, seed=8, worker_seed=0)

    other.load(source.initial_weights(), 1)

    mine, _ = gradient_of(source, rollout)
    others, _ = gradient_of(other, rollout)
    for name, array in mine.items():
        np.testing.assert_array_equal(array, others[name])


def test_rows_that_are_no_step_change_nothing(make_rollout):
    source = make_source(*CASES["a3c"])
    rollout = make_rollout(count=3)
    # Environment 1 ends in row 2 and spends row 3 on its reset.
    rollout.terminated[2, 1] = True
    rollout.valid[3, 1] = False
    before, gradient = gradient_of(source, rollout)

    rollout.reward[3, 1] = 1e6
    rollout.observation[3, 1] = 1e3
    after, _ = gradient_of(source, rollout)

    assert gradient.sample_count == 6 * 3 - 1
    for name, array in before.items():
        np.testing.assert_allclose(array, after[name], rtol=1e-6)


def test_before_the_first_sub_step_the_ratio_is_one(make_rollout):
    source = make_source(DppoConfig(kl_target=0.01, normalise_observation=True), DISCRETE)
    source.begin(make_rollout())

    metrics = source.gradient(0).metrics

    assert abs(metrics["kl"]) < 1e-6
    assert metrics["clip_fraction"] == 0


def test_all_minibatches_of_a_pass_together_are_the_whole_rollout(make_rollout):
    config = DppoConfig(minibatches=5, normalise_advantage=False)
    source, rollout = make_source(config, DISCRETE), make_rollout()
    whole, _ = gradient_of(make_source(*CASES["dppo"]), rollout)

    count = source.begin(rollout)
    parts = []
    for index in range(5):
        gradient = source.gradient(index)
        parts.append(({k: v.copy() for k, v in gradient.tensors.items()}, gradient.sample_count))

    assert count == 20
    assert sum(samples for _, samples in parts) == rollout.sample_count
    for name, array in whole.items():
        mean = sum(t[name] * (n / rollout.sample_count) for t, n in parts)
        np.testing.assert_allclose(mean, array, atol=1e-6)


def test_an_iteration_ends_for_all_at_four_times_the_target(make_rollout):
    source = make_source(DppoConfig(kl_target=0.01, objective="adaptive-kl"), DISCRETE)
    source.begin(make_rollout())
    source.gradient(0)

    assert source.goes_on({"kl": 0.039})
    assert source.kl_coefficient == 1.0
    assert not source.goes_on({"kl": 0.041})
    assert source.kl_coefficient == 1.5


def test_a_penalty_without_a_target_is_refused():
    with pytest.raises(ValueError, match="kl_target"):
        DppoConfig(objective="adaptive-kl")


def test_value_epochs_beyond_the_policys_leave_the_policy_alone(make_rollout):
    config = DppoConfig(policy_epochs=1, value_epochs=2, minibatches=1)
    source = make_source(config, DISCRETE)

    count = source.begin(make_rollout())
    source.gradient(0)
    second = source.gradient(1).tensors

    assert count == 2
    assert not any(second[name].any() for name in second if name.startswith("policy"))
    assert second["value.weight"].any()


def test_what_a_rollout_adds_to_the_moments_is_sent_once(make_rollout):
    config = DppoConfig(normalise_observation=True, normalise_reward=True, minibatches=2)
    source, rollout = make_source(config, CONTINUOUS), make_rollout(action_size=2)
    source.begin(rollout)

    first, second = source.gradient(0).statistics, source.gradient(1).statistics

    assert first["statistics/observation/count"] == 24
    seen = rollout.observation.reshape(24, 3).numpy()
    np.testing.assert_allclose(first["statistics/observation/mean"], seen.mean(axis=0), rtol=1e-6)
    assert first["statistics/return/count"] == 24
    assert second == {}


def test_running_returns_start_again_after_an_end_and_carry_over_rollouts(make_rollout):
    config = ActorCriticConfig(gamma=0.9, normalise_reward=True)
    source = make_source(config, DISCRETE)
    rollout = make_rollout(steps=3, count=1)
    for name in ("terminated", "truncated"):
        getattr(rollout, name)[:] = False
    rollout.reward[:, 0] = torch.tensor([1.0, 1.0, -2.0])
    rollout.terminated[1, 0] = True

    _, first = gradient_of(source, rollout)
    _, second = gradient_of(source, rollout)

    # 1, 1.9 and, anew, -2; then 0.9 * -2 + 1 and so on.
    expected = np.array([1, 1.9, -2]).mean()
    assert first.statistics["statistics/return/mean"] == pytest.approx(expected)
    expected = np.array([-0.8, 0.28, -2]).mean()
    assert second.statistics["statistics/return/mean"] == pytest.approx(expected)


def test_weights_of_another_network_are_refused_by_the_tensors_name():
    source = make_source(*CASES["a3c"])
    weights = source.initial_weights()

    with pytest.raises(ValueError, match=r"value\.bias"):
        source.load({k: v for k, v in weights.items() if k != "value.bias"}, 2)
    with pytest.raises(ValueError, match=r"policy\.bias"):
        source.load(weights | {"policy.bias": np.zeros(3, np.float32)}, 2)


def test_exploration_falls_with_the_versions():
    config = NStepQConfig(
        final_epsilons=(0.1,), final_epsilon_probs=(1.0,), epsilon_decay_versions=100
    )
    source = make_source(config, DISCRETE)
    seen = []

    for version in (0, 50, 100, 1000):
        source.load(source.initial_weights(), version)
        seen.append(source.epsilon)

    assert seen == pytest.approx([1.0, 0.55, 0.1, 0.1])


def test_the_target_network_keeps_its_weights_between_two_copies():
    source = make_source(NStepQConfig(target_update_period=10, double=False), DISCRETE)
    observation = torch.ones(1, 3)
    before = source.value(observation, None)
    moved = {name: array + 1 for name, array in source.initial_weights().items()}

    source.load(moved, 9)
    kept = source.value(observation, None)
    source.load(moved, 10)

    assert torch.equal(kept, before)
    assert not torch.equal(source.value(observation, None), before)
