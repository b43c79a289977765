"""Action values of images, from a convolutional network of torch."""

import numpy as np
import torch
from numpy.typing import NDArray

from mycelia_actor.environments.spaces import Columns
from mycelia_actor.policies.action_values import UnplayableError, count_actions
from mycelia_actor.policies.frame_stacks import FrameStacks
from mycelia_actor.policies.network_weights import load_weights
from mycelia_actor.policies.policy import Slots
from mycelia_algorithms.networks.factory import build_q_network
from mycelia_algorithms.networks.spec import QNetworkSpec
from mycelia_core.config import RunConfig
from mycelia_core.specs import FIRST, OBSERVATION, Signature
from mycelia_core.weights import Weights


class ImageValues:
    """The values of the learner's own network. An `ActionValues`; stacks frames itself."""

    def __init__(
        self, signature: Signature, config: RunConfig, count: int, device: str = "cpu"
    ) -> None:
        """Builds the network for N environments, on a device of torch.

        Raises:
          UnplayableError: observations are not one image, or the action is not
            one choice out of n.
        """
        torch.set_num_threads(config.actor.torch_threads)
        self.action_count = count_actions(signature)
        self.version = 0
        self._has_weights = False
        self._device = torch.device(device)
        image = signature.by_name.get(OBSERVATION)
        if image is None or image.dtype != np.uint8 or len(image.shape) != 2:
            raise UnplayableError(
                f"network.convolutions needs grey images, uint8 [H, W], got {image}"
            )
        depth = int(config.algorithm.get("frame_stack", 1))
        self._stacks = FrameStacks(count, depth, image.shape, image.dtype)
        spec = QNetworkSpec(
            observation_shape=(depth, *image.shape),
            action_count=self.action_count,
            hidden_sizes=config.network.hidden_sizes,
            dueling=bool(config.algorithm.get("dueling", False)),
            convolutions=True,
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
        """Returns `[n, A]` values of what environments `slots` show now; None without weights."""
        stacks = self._stacks.push(observation[OBSERVATION], observation[FIRST], slots)
        return self._values(stacks)

    def look_ahead(self, observation: Columns, slots: Slots) -> NDArray[np.float32] | None:
        """Returns `[E, A]` values of what comes after what `slots` showed last."""
        return self._values(self._stacks.peek(observation[OBSERVATION], slots))

    def _values(self, stacks: NDArray[np.uint8]) -> NDArray[np.float32] | None:
        if not self._has_weights:
            return None
        with torch.inference_mode():
            seen = torch.from_numpy(stacks).to(self._device)
            values: NDArray[np.float32] = self._network(seen).cpu().numpy()
        return values
