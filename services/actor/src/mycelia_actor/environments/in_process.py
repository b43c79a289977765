"""Single environments, stepped one after the other in this process."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mycelia_actor.environments.action_mask import ActionMaskError
from mycelia_actor.environments.atari import LIFE_LOST
from mycelia_actor.environments.make import Environment
from mycelia_actor.environments.spaces import Columns, action_columns, observation_columns
from mycelia_actor.environments.supervisor import Supervisor
from mycelia_actor.environments.vector import EpisodeStatistics, Observation, StepResult, join


class InProcessEnvironments:
    """N single environments of one kind. A `VectorEnvironment`.

    It resets an environment in the step that ended its episode, so every one
    is ready at all times, unless it has failed. With a supervisor, an
    environment that raises is made again while the others go on; without, the
    error is the caller's.
    """

    def __init__(
        self, environments: Sequence[Environment], supervisor: Supervisor | None = None
    ) -> None:
        """Takes ownership of the environments."""
        self._environments = list(environments)
        self._supervisor = supervisor
        self.count = len(self._environments)
        self.observation = observation_columns(self._environments[0].observation_space)
        self.action = action_columns(self._environments[0].action_space)
        self._statistics = EpisodeStatistics(self.count)
        self._all_ready = np.ones(self.count, np.bool_)
        self._seen: Columns = {}
        """What was shown last, for those that have nothing new."""
        self.watched = np.full(1, -1, np.int64)
        """[1] which one is being stepped, for whoever watches from outside; -1 for none."""

    def reset(self, seeds: Sequence[int]) -> Observation:
        """Starts new episodes; N seeds, one for each environment."""
        self._statistics = EpisodeStatistics(self.count)
        if self._supervisor:
            self._supervisor.forget(seeds)
        columns = self.observation.zeros(self.count)
        ready = np.ones(self.count, np.bool_)
        for slot, seed in enumerate(seeds):
            ready[slot] = self._reset(columns, slot, seed=seed)
        self._seen = columns
        return Observation(columns, ready.copy(), ready)

    def step(self, action: Columns) -> StepResult:
        """Takes one step in every environment that has not failed."""
        # Fresh arrays each time: whoever keeps an observation need not copy it.
        step = _Step(self.observation.allocate(self.count), self.count)
        down = self._supervisor.down if self._supervisor else ()
        actions = self.action.decode(action)
        for slot, (environment, value) in enumerate(zip(self._environments, actions, strict=True)):
            self.watched[0] = slot
            if slot in down:
                self._restart(step, slot)
                continue
            try:
                outcome = environment.step(value)
            except ActionMaskError:
                raise
            # An environment is other people's code, which may raise whatever it likes.
            except Exception as error:  # noqa: BLE001
                self._fail(step, slot, error)
            else:
                self._take(step, slot, outcome)
        self.watched[0] = -1
        self._seen = step.columns
        return self._result(step)

    def close(self) -> None:
        """Closes the environments."""
        for environment in self._environments:
            environment.close()

    def _take(self, step: "_Step", slot: int, outcome: Any) -> None:
        seen, step.reward[slot], ends, cut, info = outcome
        if self._supervisor and self._supervisor.suspects:
            self._supervisor.report_good_step(slot)
        life_lost = LIFE_LOST in info and info[LIFE_LOST]
        if not (ends or cut or life_lost):
            self.observation.write(step.columns, slot, seen)
            return
        # A lost life ends what is bootstrapped over, not the episode.
        step.terminated[slot], step.truncated[slot] = ends or life_lost, cut
        # Copied before the reset: environments may reuse their buffers.
        step.final_values.append(self.observation.encode([seen]))
        if not (ends or cut):
            step.lives_lost.append(slot)
            self.observation.write(step.columns, slot, seen)
        elif not self._reset(step.columns, slot):
            self._show_again(step, slot)

    def _reset(self, columns: Columns, slot: int, seed: int | None = None) -> bool:
        """Writes an episode's first observation; False if the environment failed."""
        try:
            value, _ = self._environments[slot].reset(seed=seed)
        except ActionMaskError:
            raise
        except Exception as error:
            if self._supervisor is None:
                raise
            self._supervisor.report_failure(slot, error)
            return False
        self.observation.write(columns, slot, value)
        return True

    def _fail(self, step: "_Step", slot: int, error: Exception) -> None:
        if self._supervisor is None:
            raise error
        self._supervisor.report_failure(slot, error)
        step.failed.append(slot)
        self._show_again(step, slot)

    def _restart(self, step: "_Step", slot: int) -> None:
        assert self._supervisor
        environment = self._supervisor.restart(slot, self._environments[slot])
        if environment is not None:
            self._environments[slot] = environment
            if self._reset(step.columns, slot, seed=self._supervisor.seed(slot)):
                self._supervisor.report_restart(slot)
                step.restarted.append(slot)
                return
        self._show_again(step, slot)

    def _show_again(self, step: "_Step", slot: int) -> None:
        step.down.append(slot)
        for name, column in step.columns.items():
            column[slot] = self._seen[name][slot]

    def _result(self, step: "_Step") -> StepResult:
        ended = np.flatnonzero(step.terminated | step.truncated)
        ready, stepped, count = self._all_ready, None, self.count
        first = step.terminated | step.truncated
        if step.down or step.restarted:
            ready, stepped = self._mark(step, first)
            count = int(np.count_nonzero(stepped))
        self._statistics.add(step.reward, 1 if stepped is None else stepped)
        if step.failed:
            self._statistics.finish(np.array(step.failed))
        over = np.setdiff1d(ended, step.lives_lost) if step.lives_lost else ended
        returns, lengths = self._statistics.finish(over)
        return StepResult(
            observation=Observation(step.columns, first, ready),
            reward=step.reward,
            terminated=step.terminated,
            truncated=step.truncated,
            step_count=count,
            ended=ended,
            final_observation=join(step.final_values),
            episode_returns=returns,
            episode_lengths=lengths,
            stepped=stepped,
            failed=np.array(step.failed, np.int64) if step.failed else None,
            over=over if step.lives_lost else None,
        )

    def _mark(
        self, step: "_Step", first: NDArray[np.bool_]
    ) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Returns who is ready now and who stepped, and marks who starts anew in `first`."""
        ready, stepped = self._all_ready.copy(), self._all_ready.copy()
        ready[step.down] = False
        # Who failed in the reset after its episode's end has stepped nevertheless.
        idle = [slot for slot in (*step.down, *step.restarted) if not first[slot]]
        stepped[idle] = False
        first[step.restarted] = True
        return ready, stepped


class _Step:
    """What one step has given so far."""

    def __init__(self, columns: Columns, count: int) -> None:
        self.columns = columns
        self.reward = np.zeros(count, np.float64)
        self.terminated = np.zeros(count, np.bool_)
        self.truncated = np.zeros(count, np.bool_)
        self.final_values: list[Columns] = []
        self.lives_lost: list[int] = []
        self.failed: list[int] = []
        self.down: list[int] = []
        self.restarted: list[int] = []
