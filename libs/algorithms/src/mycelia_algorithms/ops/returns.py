"""n-step returns of sampled windows."""

import torch
from torch import Tensor


def n_step_return(
    reward: Tensor, terminated: Tensor, row_counts: Tensor, gamma: float
) -> tuple[Tensor, Tensor, Tensor]:
    r"""Sums the rewards of each window and says how its bootstrap value is discounted.

    Sutton and Barto 2018, eq. 7.1 (http://incompleteideas.net/book/the-book-2nd.html), with a
    window that the end of its episode may have cut to m < n rewards:

        R = sum_{k<m} gamma^k r_{t+k},   Gamma = gamma^m (1 - terminated_{t+m}),
        target = R + Gamma v(s_{t+m}),   m = row_counts - 1

    A window of n + 1 rows, and one that an episode's end has cut to m + 1:

        row          0      1      2    ...    m      m+1 ...
        observation  s_t    s_t+1  s_t+2       s_t+m  (row m again)
        reward       r_t    r_t+1  r_t+2       means nothing
        terminated   0      0      0           1 if the episode ended there, 0 if it was cut

    Args:
      reward: [W, B] float; rewards from row m on are not read.
      terminated: [W, B] bool.
      row_counts: [B] integer, how many rows of each window are real, in [2, W].
      gamma: the discount of one step.

    Returns:
      R [B], Gamma [B], both of `reward`'s dtype, and m [B] int64, the row of the bootstrap state.

    Raises:
      ValueError: if the shapes do not fit.
    """
    if reward.ndim != 2 or terminated.shape != reward.shape or row_counts.shape != reward.shape[1:]:
        raise ValueError(
            f"need reward [W, B], terminated [W, B] and row_counts [B], got {tuple(reward.shape)}, "
            f"{tuple(terminated.shape)} and {tuple(row_counts.shape)}"
        )
    bootstrap_row = row_counts.to(torch.int64) - 1
    row = torch.arange(reward.shape[0], device=reward.device).unsqueeze(1)
    power = torch.pow(torch.tensor(gamma, dtype=reward.dtype, device=reward.device), row)
    # `where`, since what lies in unread rewards may be anything, NaN included, and 0 * NaN is NaN.
    return_ = torch.where(row < bootstrap_row, power * reward, 0).sum(dim=0)
    at_end = bootstrap_row.unsqueeze(0)
    ended = terminated.gather(0, at_end).squeeze(0)
    discount = power.squeeze(1)[bootstrap_row].masked_fill(ended, 0.0)
    return return_, discount, bootstrap_row
