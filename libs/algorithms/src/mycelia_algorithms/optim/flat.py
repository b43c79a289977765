"""A module's parameters in one piece of memory."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn


class FlatParameters:
    """Lays a module's parameters, and their gradients, end to end in one vector each.

    The module works as before: its parameters become views. What goes over all of them (norm,
    optimizer step, copy to a target network, snapshot) is then one operation instead of one per
    parameter, which for small networks is most of the time. Not thread-safe.
    """

    def __init__(self, module: nn.Module) -> None:
        """Moves the parameters of `module`, all of one dtype, on one device.

        Raises:
          ValueError: if the dtypes or devices differ.
        """
        parameters = dict(module.named_parameters())
        kinds = {(parameter.dtype, parameter.device) for parameter in parameters.values()}
        if len(kinds) != 1:
            raise ValueError(
                f"need parameters of one dtype and device, got {sorted(map(str, kinds))}"
            )
        self._shapes = {name: parameter.shape for name, parameter in parameters.items()}
        self.values = torch.cat([p.detach().reshape(-1) for p in parameters.values()])
        """[P] all parameters."""
        for parameter, (_, value) in zip(parameters.values(), self.split(self.values), strict=True):
            parameter.data = value
        trainable = [p for p in parameters.values() if p.requires_grad]
        self.gradient = torch.zeros_like(self.values) if trainable else self.values.new_empty(0)
        """[P] their gradients; `backward` adds to it. Empty if the module is frozen."""
        if trainable:
            for parameter, (_, gradient) in zip(
                parameters.values(), self.split(self.gradient), strict=True
            ):
                parameter.grad = gradient

    def split(self, flat: Tensor) -> Iterator[tuple[str, Tensor]]:
        """Cuts a vector [P] into named views of the parameters' shapes."""
        start = 0
        for name, shape in self._shapes.items():
            end = start + shape.numel()
            yield name, flat[start:end].view(shape)
            start = end

    def snapshot(self) -> dict[str, Tensor]:
        """Copies the parameters: later steps do not change what was returned."""
        return dict(self.split(self.values.clone()))

    @torch.no_grad()
    def load(self, tensors: Mapping[str, NDArray[Any]]) -> None:
        """Takes over parameters by name.

        Raises:
          ValueError: if one is missing, unknown or of another shape; nothing is changed then.
        """
        if tensors.keys() != self._shapes.keys():
            raise ValueError(
                f"parameters missing: {sorted(self._shapes.keys() - tensors.keys())}, "
                f"unknown: {sorted(tensors.keys() - self._shapes.keys())}"
            )
        for name, shape in self._shapes.items():
            if tensors[name].shape != tuple(shape):
                raise ValueError(f"{name}: need {tuple(shape)}, got {tensors[name].shape}")
        for name, view in self.split(self.values):
            view.copy_(torch.as_tensor(np.array(tensors[name])))
