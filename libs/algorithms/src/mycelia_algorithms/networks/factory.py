"""Builds networks from specs."""

import torch
from torch import nn

from mycelia_algorithms.networks.convolutional import QConvolutions
from mycelia_algorithms.networks.mlp import QMlp
from mycelia_algorithms.networks.spec import QNetworkSpec


def build_q_network(spec: QNetworkSpec, *, seed: int) -> nn.Module:
    """Builds the network that `spec` describes; the same seed gives the same weights."""
    kind = QConvolutions if spec.convolutions else QMlp
    return kind(spec, torch.Generator().manual_seed(seed))
