"""Published weights into a network of torch."""

from torch import nn
from torch.utils.dlpack import from_dlpack

from mycelia_actor.policies.action_values import UnplayableError
from mycelia_core.weights import Weights


def load_weights(network: nn.Module, weights: Weights) -> None:
    """Copies weights into the network, wherever it is.

    Raises:
      UnplayableError: they are for another network.
    """
    # The tensors are read-only and stay so: `copy_` only reads them.
    tensors = {name: from_dlpack(array) for name, array in weights.tensors.items()}
    try:
        network.load_state_dict(tensors)
    except RuntimeError as error:
        raise UnplayableError(
            f"weights of version {weights.version} are for another network: {error}"
        ) from error
