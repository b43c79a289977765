"""What a worker saw in T steps of N environments: what gradients are computed from."""

from dataclasses import dataclass

import torch
from torch import Tensor

from mycelia_algorithms.networks.actor_critic import State


@dataclass(frozen=True, kw_only=True, slots=True)
class Rollout:
    """T steps of N environments, time first, all with the same weights.

    In row t the environment showed `observation`, did `action` and got `reward`. At an episode's
    end row t + 1 begins the next episode, so the successor of row t is not in row t + 1:

        row          t-1    t            t+1
        observation  s      s'           s0 of the next episode
        ends         no     yes          no
        bootstrap_value[t] is V(final observation) if the episode was cut, anything if it terminated
    """

    observation: Tensor
    """[T, N, ...]"""

    first: Tensor
    """[T, N] bool: the first row of an episode."""

    valid: Tensor
    """[T, N] bool: a step was taken; where not, the environment spent it on its reset."""

    action: Tensor
    """[T, N] integer or [T, N, D] float, as the policy chose it: not clipped to bounds."""

    reward: Tensor
    """[T, N] float32."""

    terminated: Tensor
    """[T, N] bool."""

    truncated: Tensor
    """[T, N] bool."""

    bootstrap_value: Tensor
    """[T, N] the value of the true successor, where row t + 1 does not show it: of a cut episode's
    final observation, and in the last row of what came next. Elsewhere anything."""

    state: State | None = None
    """The LSTM's state before the first row; None without one, or at the very start."""

    @property
    def ends(self) -> Tensor:
        """[T, N] bool: the episode ended or was cut there."""
        return self.terminated | self.truncated

    @property
    def sample_count(self) -> int:
        """How many steps were really taken."""
        return int(self.valid.sum())

    def next_value(self, value: Tensor) -> Tensor:
        """The value of each row's true successor, from those of the rows, [T, N] -> [T, N]."""
        following = torch.cat([value[1:], self.bootstrap_value[-1:]])
        return torch.where(self.truncated, self.bootstrap_value, following)
