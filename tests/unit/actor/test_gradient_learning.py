"""Sources that act in a real loop learn, an LSTM to remember too; one process, no services."""

from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

from mycelia_actor.environments.in_process import InProcessEnvironments
from mycelia_actor.gradients.collector import RolloutCollector
from mycelia_actor.gradients.spaces import network_spec
from mycelia_algorithms.actor_critic.config import ActorCriticConfig
from mycelia_algorithms.dppo.config import DppoConfig
from mycelia_algorithms.optim.adam import Adam
from mycelia_algorithms.registry import load_gradient_source
from mycelia_core.config import NetworkConfig

# Two threads slow small networks down.
torch.set_num_threads(1)


class MemoryCue(gymnasium.Env[Any, Any]):
    """Shows a cue in the first step only, and rewards doing as it said in the last."""

    observation_space = spaces.Box(-1, 1, (2,), np.float32)
    action_space = spaces.Discrete(2)
    length = 2

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._cue, self._step = int(self.np_random.integers(2)), 0
        return self._observe(), {}

    def step(self, action):
        ends = self._step == self.length
        reward = (1.0 if action == self._cue else -1.0) if ends else 0.0
        self._step += 1
        return self._observe(), reward, ends, False, {}

    def _observe(self):
        cue = 2 * self._cue - 1 if self._step == 0 else 0
        return np.array([cue, self._step == self.length], np.float32)


class Returns:
    def __init__(self):
        self.returns = []

    def add(self, choice, result):
        self.returns += result.episode_returns.tolist()


def train(config, lstm_units, updates):
    """Trains with Adam, and returns the mean return of the last 50 episodes."""
    environments = InProcessEnvironments([MemoryCue() for _ in range(8)])
    network = NetworkConfig(hidden_sizes=(16,), lstm_units=lstm_units)
    spec = network_spec(network, environments.observation, environments.action)
    source = load_gradient_source(config.name)(config, network=spec, seed=1, worker_seed=1)
    weights = source.initial_weights()
    flat = torch.from_numpy(np.concatenate([array.ravel() for array in weights.values()]))
    optimizer = Adam(flat, epsilon=1e-8)
    returns = Returns()
    collector = RolloutCollector(environments, source, list(range(8)), returns)
    source.load(weights, 0)
    while optimizer.step_count < updates:
        for index in range(source.begin(collector.collect(0))):
            tensors = source.gradient(index).tensors
            optimizer.step(
                torch.from_numpy(np.concatenate([a.ravel() for a in tensors.values()])), 1e-2
            )
            parts = np.split(flat.numpy(), np.cumsum([a.size for a in weights.values()])[:-1])
            shaped = zip(weights.items(), parts, strict=True)
            source.load({name: part.reshape(a.shape) for (name, a), part in shaped}, 1)
    return np.mean(returns.returns[-50:])


CONFIGS = [
    ActorCriticConfig(rollout_steps=12, entropy_coefficient=0.001),
    DppoConfig(rollout_steps=12, minibatches=1),
]


@pytest.mark.parametrize("config", CONFIGS, ids=["a3c", "dppo"])
def test_an_lstm_learns_what_only_memory_can(config):
    assert train(config, lstm_units=16, updates=80) > 0.9


def test_without_memory_it_cannot_be_learned():
    assert abs(train(CONFIGS[0], lstm_units=0, updates=80)) < 0.5
