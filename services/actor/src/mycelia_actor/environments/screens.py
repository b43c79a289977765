"""Native vector Atari: small grey screens, and lives that end what is bootstrapped over."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from mycelia_actor.environments.autoreset import NextStepEnvironments, Vector, take_rows
from mycelia_actor.environments.spaces import Columns, observation_columns
from mycelia_actor.environments.vector import Observation, StepResult


class Screens(NextStepEnvironments):
    """N games whose screens come as stacks of one. A `VectorEnvironment`.

    A lost life ends a fragment of rows like a terminated episode, but the game
    goes on from the same screen and its return is counted on.
    """

    def __init__(
        self,
        vector: Vector,
        *,
        life_loss: bool,
        remake: Callable[[Sequence[int]], Vector] | None = None,
    ) -> None:
        """Takes ownership of the games.

        Args:
          vector: in mode NEXT_STEP, observations `[N, 1, H, W]`, `lives` in its infos.
          life_loss: whether a lost life ends a fragment.
          remake: makes the games anew, for those whose seeds are given then.
        """
        super().__init__(vector)
        box = vector.single_observation_space
        assert isinstance(box, spaces.Box) and box.shape is not None
        self.observation = observation_columns(spaces.Box(0, 255, box.shape[1:], np.uint8))
        self._life_loss = life_loss
        self._remake = remake
        self._lives = np.zeros(self.count, np.int64)

    def reset(self, seeds: Sequence[int]) -> Observation:
        """Starts new games; N seeds, of which EnvPool takes the first for all."""
        self._lives[:] = 0
        if self._remake is not None:
            self._vector.close()
            self._vector = self._remake(seeds)
        return super().reset(seeds)

    def step(self, action: Columns) -> StepResult:
        """Takes one step in every game that is ready, and resets the others."""
        stepped = self._ready
        columns, reward, terminated, truncated, infos = self._step(action)
        reward *= stepped
        terminated &= stepped
        truncated &= stepped
        over = terminated | truncated
        lives = np.asarray(infos["lives"], np.int64)
        fewer = (lives < self._lives) & stepped if self._life_loss else ~self._all
        self._lives = lives.copy()
        self._ready = ~over
        lost = fewer & ~over
        return self._result(
            Observation(columns, first=~stepped | lost, ready=self._ready),
            reward=reward,
            # Nothing is bootstrapped over a lost life, where the game is cut off neither.
            terminated=terminated | fewer,
            truncated=truncated,
            final_observation=lambda ended: take_rows(columns, ended),
            stepped=stepped,
            life_lost=lost,
        )

    def _encode(self, batch: NDArray[np.uint8]) -> Columns:
        return self.observation.encode_batch(batch[:, 0])

    def _reset_vector(self, seeds: Sequence[int]) -> Any:
        if self._remake is not None:
            return self._vector.reset()[0]
        seed: Any = np.asarray(seeds, np.int32)
        return self._vector.reset(seed=seed)[0]
