"""Optimizers over flat parameters."""

import pytest
import torch

from mycelia_algorithms.networks.distributions import Categorical
from mycelia_algorithms.ops.policy_gradient import policy_gradient
from mycelia_algorithms.optim.factory import build_optimizer
from mycelia_algorithms.optim.schedules import LearningRate


def test_shared_rmsprop_is_that_of_the_a3c_paper():
    parameter = torch.tensor([1.0], dtype=torch.float64)
    optimizer = build_optimizer("rmsprop", parameter, epsilon=0.01, decay=0.99)
    seen = []

    for gradient in (1.0, -2.0, 0.5):
        optimizer.step(torch.tensor([gradient], dtype=torch.float64), 0.1)
        seen.append(parameter.item())

    expected = [0.2928932188134524, 1.1100710652588894, 0.9091057207942962]
    assert seen == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(("name", "momentum"), [("sgd", 0.0), ("sgd", 0.9), ("adam", 0.0)])
def test_the_others_step_as_torchs_do(name, momentum):
    ours, theirs = torch.ones(5), torch.nn.Parameter(torch.ones(5))
    optimizer = build_optimizer(name, ours, epsilon=1e-5, momentum=momentum)
    reference = (
        torch.optim.SGD([theirs], 0.01, momentum=momentum)
        if name == "sgd"
        else torch.optim.Adam([theirs], 0.01, eps=1e-5)
    )
    generator = torch.Generator().manual_seed(5)

    for _ in range(10):
        gradient = torch.randn(5, generator=generator)
        theirs.grad = gradient.clone()
        optimizer.step(gradient, 0.01)
        reference.step()

    torch.testing.assert_close(ours, theirs.detach())
    assert optimizer.step_count == 10


def test_an_optimizers_state_is_all_that_it_remembers():
    first, second = torch.ones(3), torch.ones(3)
    one, other = (build_optimizer("rmsprop", p, epsilon=0.01) for p in (first, second))
    one.step(torch.tensor([1.0, 2.0, 3.0]), 0.1)

    second.copy_(first)
    for name, vector in other.state().items():
        vector.copy_(one.state()[name])
    for optimizer in (one, other):
        optimizer.step(torch.ones(3), 0.1)

    assert torch.equal(first, second)


def test_a_cosine_falls_from_the_base_to_its_last_part():
    rate = LearningRate(base=2.0, decay_until_step=100, final_fraction=0.1, shape="cosine")

    assert [rate.at(step) for step in (0, 50, 100, 1000)] == pytest.approx([2.0, 1.1, 0.2, 0.2])


def test_the_gradient_of_the_actor_critics_policy_is_that_worked_out_by_hand():
    logits = torch.tensor([[0.5, 0.0, -0.5]], dtype=torch.float64, requires_grad=True)
    policy = Categorical(logits)

    advantage = torch.tensor([2.0], dtype=torch.float64)
    loss = policy_gradient(policy.log_prob(torch.tensor([1])), advantage) - 0.01 * policy.entropy()
    loss.sum().backward()

    expected = [1.0146824186949788, -1.3860999826187164, 0.37141756392373776]
    assert logits.grad.squeeze(0).tolist() == pytest.approx(expected, rel=1e-12)
