"""Stacks of frames, gathered from the rows of sampled windows."""

import torch
from torch import Tensor


def stack_frames(observation: Tensor, context_rows: int, row: Tensor, each: Tensor) -> Tensor:
    r"""Returns what the policy saw in one row of each window: that row and its context.

    With two context rows c, a window of four rows and stacks of three frames:

        row          0  1  2  3  4  5
                     c  c  s0 s1 s2 s3
        stack of s2        \_____/

    Args:
      observation: [W, B, ...], context included.
      context_rows: C, how many frames come before each in a stack.
      row: [B] int64 the row, in [C, W).
      each: [B] int64 0, 1, ..., B - 1.

    Returns:
      [B, C + 1, ...] with the oldest frame first; without context [B, ...].
    """
    if context_rows == 0:
        return observation[row, each]
    frames = [observation[row - back, each] for back in range(context_rows, -1, -1)]
    return torch.stack(frames, dim=1)
