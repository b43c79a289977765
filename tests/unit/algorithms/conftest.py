"""What the tests of gradient sources share: rollouts of made-up steps."""

import pytest
import torch

from mycelia_algorithms.rollout import Rollout

# Two threads slow small networks down.
torch.set_num_threads(1)


def make_rollout(*, steps=6, count=4, observed=3, action_size=0, state=None, seed=0):
    """A rollout of random numbers in which some episodes end and some are cut."""
    generator = torch.Generator().manual_seed(seed)
    shape = (steps, count)

    def uniform(*more):
        return torch.rand(*shape, *more, generator=generator)

    terminated = uniform() < 0.15
    truncated = ~terminated & (uniform() < 0.15)
    first = torch.zeros(shape, dtype=torch.bool)
    first[1:] = (terminated | truncated)[:-1]
    return Rollout(
        observation=2 * uniform(observed) - 1,
        first=first,
        valid=torch.ones(shape, dtype=torch.bool),
        action=2 * uniform(action_size) - 1 if action_size else (uniform() < 0.5).to(torch.int64),
        reward=uniform(),
        terminated=terminated,
        truncated=truncated,
        bootstrap_value=uniform(),
        state=state,
    )


@pytest.fixture(name="make_rollout")
def make_rollout_fixture():
    return make_rollout
