"""Action values of vectors, from torch: what a GPU evaluates instead of `MlpValues`."""

import numpy as np
import torch
from numpy.typing import NDArray

from mycelia_actor.environments.spaces import Columns
from mycelia_actor.policies.action_values import count_actions
from mycelia_actor.policies.features import Features
from mycelia_actor.policies.network_weights import load_weights
from mycelia_actor.policies.policy import Slots
from mycelia_algorithms.networks.factory import build_q_network
from mycelia_algorithms.networks.spec import QNetworkSpec
from mycelia_core.config import RunConfig
from mycelia_core.specs import OBSERVATION, Signature
from mycelia_core.weights import Weights


class VectorValues:
    """The values of the learner's own MLP, on a device of torch. An `ActionValues`."""

    def __init__(self, signature: Signature, config: RunConfig, device: str) -> None:
        """Builds the network.

        Raises:
          UnplayableError: the action is not one choice out of n.
        """
        self._features = Features(signature.starting_with(OBSERVATION))
        self.action_count = count_actions(signature)
        self.version = 0
        self._has_weights = False
        self._device = torch.device(device)
        spec = QNetworkSpec(
            observation_shape=(self._features.size,),
            action_count=self.action_count,
            hidden_sizes=config.network.hidden_sizes,
            dueling=bool(config.algorithm.get("dueling", False)),
        )
        self._network = build_q_network(spec, seed=0).requires_grad_(False).to(self._device)

    def use(self, weights: Weights) -> None:
        """Values with these weights from the next call on.

        Raises:
          UnplayableError: they are for another network.
        """
        load_weights(self._network, weights)
        self._has_weights = True
        self.version = weights.version

    def see(self, observation: Columns, slots: Slots) -> NDArray[np.float32] | None:
        """Returns `[n, A]` values of observations `[n, ...]`; None without weights."""
        if not self._has_weights:
            return None
        with torch.inference_mode():
            seen = torch.from_numpy(self._features(observation)).to(self._device)
            values: NDArray[np.float32] = self._network(seen).cpu().numpy()
        return values

    def look_ahead(self, observation: Columns, slots: Slots) -> NDArray[np.float32] | None:
        """Returns `[E, A]` values of observations `[E, ...]`; None without weights."""
        return self.see(observation, slots)
