"""The advantage actor-critic's objective."""

from torch import Tensor


def policy_gradient(log_prob: Tensor, advantage: Tensor) -> Tensor:
    r"""The loss whose gradient is the policy gradient, for each sample.

    Mnih et al. 2016, section 4 (https://arxiv.org/abs/1602.01783): L_i = -log pi(a_i|s_i) A_i.

    Args:
      log_prob: [B] log pi(a|s).
      advantage: [B] A; a constant: through it, values would be lowered to please the policy.

    Returns:
      [B] the losses.

    Raises:
      ValueError: if the shapes differ.
    """
    if log_prob.shape != advantage.shape:
        raise ValueError(
            f"shapes differ: log_prob {tuple(log_prob.shape)}, advantage {tuple(advantage.shape)}"
        )
    return -log_prob * advantage.detach()


def normalise(advantage: Tensor) -> Tensor:
    """Shifts and scales advantages [B] to mean 0 and standard deviation 1 (over B, not B - 1)."""
    deviation, mean = advantage.std(unbiased=False), advantage.mean()
    return (advantage - mean) / (deviation + 1e-8)
