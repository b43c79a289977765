"""The actor-critic network: its forms, and its memory."""

import dataclasses

import pytest
import torch

from mycelia_algorithms.networks.actor_critic import ActorCritic, ActorCriticSpec

SPEC = ActorCriticSpec(observation_shape=(3,), action_count=2, hidden_sizes=(8,))
RECURRENT = dataclasses.replace(SPEC, shared_trunk=True, lstm_units=5)


def test_one_pass_over_a_sequence_is_as_good_as_one_step_at_a_time():
    network = ActorCritic(RECURRENT, seed=1)
    generator = torch.Generator().manual_seed(2)
    observation = torch.randn(6, 4, 3, generator=generator)
    first = torch.rand(6, 4, generator=generator) < 0.3

    together = network(observation, first)
    state, logits = None, []
    for t in range(6):
        policy, state = network.act(observation[t], first[t], state)
        logits.append(policy.logits)

    torch.testing.assert_close(together.policy.logits, torch.stack(logits))
    torch.testing.assert_close(together.state, state)


def test_nothing_of_an_episode_is_remembered_in_the_next():
    network = ActorCritic(RECURRENT, seed=1)
    observation = torch.randn(4, 1, 3, generator=torch.Generator().manual_seed(3))
    first = torch.tensor([[False], [False], [True], [False]])
    changed = observation.clone()
    changed[:2] += 1

    before, after = network(observation, first), network(changed, first)

    assert torch.equal(before.value[2:], after.value[2:])
    assert not torch.equal(before.value[1], after.value[1])


def test_acting_leaves_out_the_value_and_says_the_same():
    network = ActorCritic(SPEC, seed=1)
    observation = torch.randn(4, 3, generator=torch.Generator().manual_seed(4))

    policy, state = network.act(observation, torch.zeros(4, dtype=torch.bool), None)

    whole = network(observation.unsqueeze(0)).policy.logits.squeeze(0)
    torch.testing.assert_close(policy.logits, whole)
    assert state is None


def test_pixels_go_through_the_convolutions():
    spec = ActorCriticSpec(
        observation_shape=(42, 42),
        action_count=6,
        hidden_sizes=(),
        convolutions=True,
        shared_trunk=True,
        lstm_units=16,
    )
    network = ActorCritic(spec, seed=1)

    output = network(torch.zeros(2, 3, 42, 42, dtype=torch.uint8), torch.zeros(2, 3).bool())

    assert output.policy.logits.shape == (2, 3, 6)
    assert output.value.shape == (2, 3)


def test_a_fresh_policy_is_nearly_uniform():
    logits = ActorCritic(SPEC, seed=1)(torch.randn(1, 50, 3)).policy.logits

    assert logits.abs().max() < 0.1


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"action_count": 0}, "either action_count or action_size"),
        ({"action_size": 2}, "either action_count or action_size"),
        ({"lstm_units": 4}, "shared_trunk"),
        ({"convolutions": True, "shared_trunk": True}, "42 x 42"),
    ],
)
def test_networks_that_cannot_be_are_refused(changes, text):
    with pytest.raises(ValueError, match=text):
        dataclasses.replace(SPEC, **changes)


def test_convolutions_in_bfloat16_say_and_learn_nearly_the_same():
    exact = ActorCriticSpec(
        observation_shape=(42, 42),
        action_count=6,
        hidden_sizes=(),
        convolutions=True,
        shared_trunk=True,
        lstm_units=16,
    )
    pixels = torch.randint(0, 256, (3, 4, 42, 42), generator=torch.Generator().manual_seed(5))
    gradients, values = [], []
    for spec in (exact, dataclasses.replace(exact, convolution_dtype="bfloat16")):
        network = ActorCritic(spec, seed=1)
        value = network(pixels, torch.zeros(3, 4).bool()).value
        value.square().mean().backward()
        values.append(value.detach())
        gradients.append(torch.cat([p.grad.flatten() for p in network.encoder.parameters()]))

    assert gradients[1].dtype == torch.float32
    torch.testing.assert_close(values[1], values[0], rtol=0.05, atol=0.02)
    assert torch.cosine_similarity(gradients[0], gradients[1], dim=0) > 0.99
