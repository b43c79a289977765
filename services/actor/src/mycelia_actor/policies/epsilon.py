"""How much each environment of a run explores: Ape-X's ladder of epsilons."""

import numpy as np
from numpy.typing import NDArray

from mycelia_core.config import ActorConfig


def ladder(base: float, exponent: float, count: int) -> NDArray[np.float64]:
    """Returns the exploration of each of N environments, the most exploring one first.

    Horgan et al. 2018, section 4.1 (https://arxiv.org/abs/1803.00933):

        epsilon_i = base^(1 + exponent * i / (N - 1)),   base if N = 1

    Returns:
      [N] float64.
    """
    position = np.arange(count) / max(count - 1, 1)
    return np.power(base, 1.0 + exponent * position)


def actor_epsilons(config: ActorConfig, actor_index: int) -> NDArray[np.float64]:
    """Returns the exploration of one actor's environments, `[envs_per_actor]` float64.

    Environment `actor_index * envs_per_actor + slot` stands at that place of the
    ladder over all the run's environments. Actors beyond `count` begin again at
    the ladder's top.
    """
    total = max(1, config.count) * config.envs_per_actor
    first = actor_index * config.envs_per_actor
    places = (first + np.arange(config.envs_per_actor)) % total
    return ladder(config.epsilon_base, config.epsilon_exponent, total)[places]
