"""Corrections for prioritized sampling."""

from torch import Tensor


def sampling_weight(probability: Tensor, item_count: int, exponent: float) -> Tensor:
    r"""The weight that makes up for an item having been drawn more often than others.

    Schaul et al. 2016, section 3.4 (https://arxiv.org/abs/1511.05952):

        w_i = (N P(i))^-beta

    Args:
      probability: [B] float64 P(i), the probability with which each item was really drawn.
      item_count: N, how many items the table held (not how many it can hold).
      exponent: beta; 0 corrects nothing, 1 everything.

    Returns:
      [B] w, of `probability`'s dtype.

    Raises:
      ValueError: if `probability` is not a vector.
    """
    if probability.ndim != 1:
        raise ValueError(f"need probability [B], got {tuple(probability.shape)}")
    return (probability * item_count) ** -exponent


def normalise_by_batch_max(weight: Tensor) -> Tensor:
    """Scales the weights so that the largest of the batch is 1: w_i / max_j w_j, [B] -> [B].

    The paper says "we always normalize weights by 1 / max_i w_i" and leaves open over what. Here
    it is the batch: with the maximum over the table, a single item of tiny priority would shrink
    every step by its own weight, 23 times in the worked example of the tests.
    """
    return weight / weight.amax()
