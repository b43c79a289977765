"""An evaluator's life: play greedy episodes with the newest weights until the run ends."""

import logging
import statistics
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack

from mycelia.run.v1 import run_pb2
from mycelia_actor.evaluation import FIRST_SEED, Evaluation, make_evaluation, make_greedy
from mycelia_actor.joining import WAIT_SECONDS, joined
from mycelia_core.clients.params import ParamClient, WeightWatcher
from mycelia_core.clients.run import Membership, RunClient
from mycelia_core.config import RunConfig
from mycelia_core.rpc.errors import StatusError
from mycelia_core.weights import Weights

logger = logging.getLogger(__name__)

_POLL_SECONDS = 0.05


def run_evaluator(address: str, stop: threading.Event) -> None:
    """Evaluates the run at `address` until it finishes or `stop` is set.

    Raises: what `run_actor` raises.
    """
    with RunClient(address) as client:
        run = client.wait_for_run(WAIT_SECONDS, stop)
        config = RunConfig.model_validate_json(run.config_json)
        evaluation = make_evaluation(config, config.evaluation.episodes)
        try:
            with joined(client, run_pb2.ROLE_EVALUATOR, stop) as membership:
                _evaluate(client, membership, evaluation, stop)
        finally:
            evaluation.close()


def _evaluate(
    client: RunClient, membership: Membership, evaluation: Evaluation, stop: threading.Event
) -> None:
    with ExitStack() as stack:
        params = stack.enter_context(ParamClient(client.address, membership.run_id))
        evaluator = Evaluator(client, membership, evaluation)
        newest = _weight_source(params, membership.config, evaluator, stack)
        while not stop.is_set():
            weights = newest()
            if weights is not None and evaluator.is_due(weights):
                evaluator.evaluate(weights, stop)
            stop.wait(_POLL_SECONDS)


def _weight_source(
    params: ParamClient, config: RunConfig, evaluator: "Evaluator", stack: ExitStack
) -> Callable[[], Weights | None]:
    if config.topology == "replay":
        watcher = WeightWatcher(params)
        stack.callback(watcher.stop)
        return lambda: watcher.latest

    def fetch() -> Weights | None:
        # There are hundreds of versions a second; only those that are played are wanted. And
        # the server keeps what it was asked for, so that the learner can save the best.
        try:
            return params.get(evaluator.version) if evaluator.is_time else None
        except (StatusError, TimeoutError) as error:
            logger.debug("no weights: %s", error)
            return None

    return fetch


class Evaluator:
    """Judges versions of the weights and reports what they are worth."""

    def __init__(self, client: RunClient, membership: Membership, evaluation: Evaluation) -> None:
        """Plays in `evaluation`, as the run's config says, and reports through `client`."""
        self._client = client
        self._membership = membership
        self._evaluation = evaluation
        self._config = membership.config.evaluation
        self.version = 0
        """The version that was judged last; 0 for none."""

        self._next_start = 0.0

    @property
    def is_time(self) -> bool:
        """Whether the last evaluation began long enough ago."""
        return time.monotonic() >= self._next_start

    def is_due(self, weights: Weights) -> bool:
        """Whether these weights are new, and it is time."""
        return weights.version > self.version and self.is_time

    def evaluate(self, weights: Weights, stop: threading.Event) -> None:
        """Plays all episodes and reports them; reports nothing if stopped meanwhile.

        Raises:
          UnplayableError: the weights do not fit the environment.
        """
        start = time.monotonic()
        self.version = weights.version
        self._next_start = start + self._config.period_seconds
        env_steps = self._membership.env_steps
        seeds = range(FIRST_SEED, FIRST_SEED + self._config.episodes)
        choose = make_greedy(self._evaluation, self._membership.config, weights)
        returns = self._evaluation.play(choose, seeds, stop)
        if returns is None:
            return
        logger.info(
            "version %d: mean return %.1f over %d episodes, in %.2f s",
            weights.version,
            statistics.fmean(returns),
            len(returns),
            time.monotonic() - start,
        )
        self._membership.set_counters({"policy_version": weights.version})
        self._report(weights, env_steps, returns)

    def _report(self, weights: Weights, env_steps: int, returns: list[float]) -> None:
        try:
            self._client.report_evaluation(
                policy_version=weights.version,
                learner_step=weights.learner_step,
                env_steps=env_steps,
                episode_returns=returns,
            )
        except (StatusError, TimeoutError) as error:
            # The next evaluation comes soon; the heartbeat notices if the registry is gone.
            logger.warning("could not report the evaluation: %s", error)
