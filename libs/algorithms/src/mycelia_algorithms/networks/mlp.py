"""The multi-layer perceptron of action values."""

import itertools
import math

import torch
from torch import Tensor, nn

from mycelia_algorithms.networks.spec import QNetworkSpec
from mycelia_algorithms.ops.value import dueling


class QMlp(nn.Module):
    """Layers with ReLU, then one head of action values or, dueling, two.

    Its weights are named `trunk.{i}.weight` [out, in], `trunk.{i}.bias` [out], then
    `value.weight` [1, h], `value.bias` [1], `advantage.weight` [A, h], `advantage.bias` [A], or,
    without dueling, `q.weight` [A, h], `q.bias` [A]. Actors without torch rely on these names.
    """

    def __init__(self, spec: QNetworkSpec, generator: torch.Generator) -> None:
        """Draws the weights from `generator`."""
        super().__init__()
        self._dueling = spec.dueling
        sizes = (math.prod(spec.observation_shape), *spec.hidden_sizes)
        self.trunk = nn.ModuleList(
            nn.Linear(fan_in, fan_out) for fan_in, fan_out in itertools.pairwise(sizes)
        )
        if spec.dueling:
            self.value = nn.Linear(sizes[-1], 1)
            self.advantage = nn.Linear(sizes[-1], spec.action_count)
        else:
            self.q = nn.Linear(sizes[-1], spec.action_count)
        self.apply(lambda module: initialise(module, generator))

    def forward(self, observation: Tensor) -> Tensor:
        """Values every action: [N, *observation_shape], any number dtype -> [N, A] float32."""
        hidden = observation.flatten(start_dim=1).to(torch.float32)
        for layer in self.trunk:
            hidden = torch.relu(layer(hidden))
        if self._dueling:
            return dueling(self.value(hidden), self.advantage(hidden))
        q: Tensor = self.q(hidden)
        return q


@torch.no_grad()
def initialise(module: nn.Module, generator: torch.Generator) -> None:
    """Draws a layer's weights and biases, uniform in +-1 / sqrt(fan_in).

    It is torch's default, LeCun et al. 1998 in spirit, from a generator of our own.
    """
    if isinstance(module, nn.Linear | nn.Conv2d):
        bound = 1 / math.sqrt(module.weight[0].numel())
        module.weight.uniform_(-bound, bound, generator=generator)
        if module.bias is not None:
            module.bias.uniform_(-bound, bound, generator=generator)
