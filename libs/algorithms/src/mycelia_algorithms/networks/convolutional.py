"""The convolutional network of action values that DQN plays Atari with."""

import torch
from torch import Tensor, nn

from mycelia_algorithms.networks.mlp import initialise
from mycelia_algorithms.networks.spec import QNetworkSpec
from mycelia_algorithms.ops.value import dueling

_LAYERS = ((32, 8, 4), (64, 4, 2), (64, 3, 1))
"""Channels, kernel and stride of each layer."""


class QConvolutions(nn.Module):
    """Three convolutions, hidden layers, and one head of action values or, dueling, two.

    Mnih et al. 2015, methods (https://doi.org/10.1038/nature14236). Its weights are named
    `conv.{i}.weight` [out, in, k, k], `conv.{i}.bias` [out], and then as those of `QMlp`.
    """

    def __init__(self, spec: QNetworkSpec, generator: torch.Generator) -> None:
        """Draws the weights from `generator`."""
        super().__init__()
        self._dueling = spec.dueling
        channels = spec.observation_shape[0]
        self.conv = nn.ModuleList()
        for out, kernel, stride in _LAYERS:
            self.conv.append(nn.Conv2d(channels, out, kernel, stride))
            channels = out
        size = self._convolve(torch.zeros(1, *spec.observation_shape)).shape[1]
        self.trunk = nn.ModuleList()
        for width in spec.hidden_sizes:
            self.trunk.append(nn.Linear(size, width))
            size = width
        if spec.dueling:
            self.value = nn.Linear(size, 1)
            self.advantage = nn.Linear(size, spec.action_count)
        else:
            self.q = nn.Linear(size, spec.action_count)
        self.apply(lambda module: initialise(module, generator))

    def forward(self, observation: Tensor) -> Tensor:
        """Values every action: [N, C, H, W], pixels from 0 to 255 -> [N, A] float32."""
        hidden = self._convolve(observation.to(torch.float32) / 255)
        for layer in self.trunk:
            hidden = torch.relu(layer(hidden))
        if self._dueling:
            return dueling(self.value(hidden), self.advantage(hidden))
        q: Tensor = self.q(hidden)
        return q

    def _convolve(self, pixels: Tensor) -> Tensor:
        for layer in self.conv:
            pixels = torch.relu(layer(pixels))
        return pixels.flatten(start_dim=1)
