"""Published weights into a network of torch."""

from torch import nn
from torch.utils.dlpack import from_dlpack

from mycelia_actor.policies.action_values import UnplayableError
from mycelia_core.weights import Weights


def load_weights(network: nn.Module, weights: Weights) -> None:
    """Has the network evaluate these weights, wherever it is.

    On a CPU nothing is copied: the network reads the arrays themselves, which nobody writes
    to. On another device each tensor is copied there once.

    Raises:
      UnplayableError: they are for another network.
    """
    own = network.state_dict()
    tensors = {
        name: from_dlpack(array).to(own[name]) if name in own else from_dlpack(array)
        for name, array in weights.tensors.items()
    }
    try:
        network.load_state_dict(tensors, assign=True)
    except RuntimeError as error:
        raise UnplayableError(
            f"weights of version {weights.version} are for another network: {error}"
        ) from error
