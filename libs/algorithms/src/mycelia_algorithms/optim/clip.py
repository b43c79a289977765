"""Gradient clipping."""

import torch
from torch import Tensor


def clip_by_global_norm(gradient: Tensor, max_norm: float) -> Tensor:
    r"""Shortens a gradient, in place, to at most `max_norm`, and returns its length before.

    Pascanu et al. 2013, algorithm 1 (https://arxiv.org/abs/1211.5063), with torch's guard
    against a division by 0:

        g <- g min(1, max_norm / (|g| + 1e-6))

    It belongs after everything that adds to the gradient (micro-batches, workers): clipping the
    parts is something else.

    Args:
      gradient: [P] all gradients in one vector; changed.
      max_norm: the length that is not exceeded.

    Returns:
      [] the Euclidean length before clipping.
    """
    norm: Tensor = torch.linalg.vector_norm(gradient)
    shorten(gradient, norm, max_norm)
    return norm


def shorten(gradient: Tensor, norm: Tensor, max_norm: float) -> None:
    """Shortens, in place, a gradient of length `norm`, or a part of one, to at most `max_norm`.

    Args:
      gradient: [N] the part of it that is here; changed.
      norm: [] the length of all of it.
      max_norm: the length that is not exceeded.
    """
    gradient.mul_((max_norm / (norm + 1e-6)).clamp(max=1.0))
