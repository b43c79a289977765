"""Stacks of frames from context rows, networks that see them, and targets that obey masks."""

import pytest
import torch

from mycelia_algorithms.dqn.config import DqnConfig
from mycelia_algorithms.dqn.learner import DqnUpdate
from mycelia_algorithms.networks.factory import build_q_network
from mycelia_algorithms.networks.spec import QNetworkSpec
from mycelia_algorithms.ops.frames import stack_frames
from mycelia_algorithms.ops.value import mask_illegal
from mycelia_algorithms.optim.schedules import LearningRate
from mycelia_algorithms.update import OptimizerSpec, ReplayBatch

PIXELS = QNetworkSpec(
    observation_shape=(3, 36, 36), action_count=4, hidden_sizes=(8,), convolutions=True
)


def make_update(network=PIXELS, **config):
    optimizer = OptimizerSpec(learning_rate=LearningRate(base=1e-3))
    return DqnUpdate(DqnConfig(**config), network=network, optimizer=optimizer, seed=1)


def make_batch(context, rows, items=5, **columns):
    generator = torch.Generator().manual_seed(3)
    shape = (context + rows, items)
    return ReplayBatch(
        columns={
            "observation": torch.randint(0, 256, (*shape, 36, 36), generator=generator).to(
                torch.uint8
            ),
            "action": torch.randint(0, 4, shape, generator=generator),
            "reward": torch.randn(shape, generator=generator),
            "terminated": torch.zeros(shape, dtype=torch.bool),
        }
        | columns,
        row_counts=torch.full((items,), rows),
        probabilities=torch.full((items,), 0.01, dtype=torch.float64),
        item_count=100,
        context_rows=context,
    )


def test_a_stack_is_a_row_and_those_before_it_the_oldest_first():
    observation = torch.arange(6).reshape(6, 1, 1).expand(6, 2, 1).clone()
    observation[:, 1] += 100

    stacks = stack_frames(observation, 2, torch.tensor([2, 4]), torch.arange(2))

    assert stacks.squeeze(-1).tolist() == [[0, 1, 2], [102, 103, 104]]


def test_without_context_a_row_stays_as_it_is():
    observation = torch.arange(8).reshape(4, 2)

    assert stack_frames(observation, 0, torch.tensor([1, 3]), torch.arange(2)).tolist() == [2, 7]


def test_the_update_sees_the_stacks_of_the_first_and_of_the_bootstrap_row():
    update = make_update(frame_stack=3, n_step=2, double=False, huber_delta=None)
    batch = make_batch(context=2, rows=3)
    online = build_q_network(PIXELS, seed=1)
    seen, frames = torch.arange(5), batch.columns["observation"]
    with torch.no_grad():
        q = online(frames[0:3].transpose(0, 1))[seen, batch.columns["action"][2]]
        bootstrap = online(frames[2:5].transpose(0, 1)).amax(dim=1)
        rewards = batch.columns["reward"]
        target = rewards[2] + 0.99 * rewards[3] + 0.99**2 * bootstrap

    result = update.update(batch)

    expected = (target - q).abs().double().numpy() + 1e-6
    assert result.priorities == pytest.approx(expected, rel=1e-4, abs=1e-5)


def test_the_windows_of_stacks_bring_their_context():
    assert DqnConfig(frame_stack=4, n_step=3).window()["context_rows"] == 3


def test_the_convolutions_are_those_of_the_paper():
    spec = QNetworkSpec(
        observation_shape=(4, 84, 84),
        action_count=6,
        hidden_sizes=(512,),
        dueling=False,
        convolutions=True,
    )

    network = build_q_network(spec, seed=1)

    shapes = {name: tuple(tensor.shape) for name, tensor in network.state_dict().items()}
    assert shapes["conv.0.weight"] == (32, 4, 8, 8)
    assert shapes["conv.1.weight"] == (64, 32, 4, 4)
    assert shapes["conv.2.weight"] == (64, 64, 3, 3)
    assert shapes["trunk.0.weight"] == (512, 3136)
    assert shapes["q.weight"] == (6, 512)
    assert sum(tensor.numel() for tensor in network.parameters()) == 1_687_206


def test_pixels_are_scaled_to_one():
    network = build_q_network(PIXELS, seed=1)
    white = torch.full((1, 3, 36, 36), 255, dtype=torch.uint8)

    seen = network._convolve(torch.ones(1, 3, 36, 36))

    assert torch.equal(network._convolve(white.to(torch.float32) / 255), seen)
    assert not torch.equal(network(white), network(torch.zeros_like(white)))


@pytest.mark.parametrize("double", [True, False])
def test_targets_take_the_best_legal_action(double):
    legal = torch.zeros(3, 5, 4, dtype=torch.int8)
    legal[..., 2] = 1
    spec = QNetworkSpec(observation_shape=(36, 36), action_count=4, hidden_sizes=(8,))
    update = make_update(spec, n_step=2, double=double, huber_delta=None)
    batch = make_batch(context=0, rows=3, action_mask=legal)
    network, each = build_q_network(spec, seed=1), torch.arange(5)
    with torch.no_grad():
        rewards, frames = batch.columns["reward"], batch.columns["observation"]
        q = network(frames[0])[each, batch.columns["action"][0]]
        target = rewards[0] + 0.99 * rewards[1] + 0.99**2 * network(frames[2])[:, 2]

    result = update.update(batch)

    expected = (target - q).abs().double().numpy() + 1e-6
    assert result.priorities == pytest.approx(expected, rel=1e-4, abs=1e-3)


def test_a_terminated_state_that_allows_nothing_has_no_value():
    spec = QNetworkSpec(observation_shape=(36, 36), action_count=4, hidden_sizes=(8,))
    update = make_update(spec, n_step=2)
    ended = torch.zeros(3, 5, dtype=torch.bool)
    ended[2] = True
    nothing = torch.zeros(3, 5, 4, dtype=torch.int8)

    result = update.update(make_batch(0, 3, action_mask=nothing, terminated=ended))

    assert result.priorities is not None
    assert update.skipped_updates == 0


def test_a_mask_of_another_shape_is_refused():
    with pytest.raises(ValueError, match=r"q \(2, 3\), legal \(2, 4\)"):
        mask_illegal(torch.zeros(2, 3), torch.ones(2, 4))
