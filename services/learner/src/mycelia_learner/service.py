"""The learner from joining its run to leaving it."""

import logging
import threading
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from mycelia.run.v1 import run_pb2 as pb
from mycelia_core.clients.params import ParamClient
from mycelia_core.clients.run import Membership, RunClient, RunFinishedError
from mycelia_core.clients.run_replay import open_run_replay
from mycelia_core.rpc.errors import FailedPreconditionError, UnavailableError
from mycelia_learner import checkpoint as checkpoints
from mycelia_learner.records.session import RecordSession
from mycelia_learner.run_folder import choose_run_dir, prepare_run_dir
from mycelia_learner.torch_import import TorchImport

WAIT_SECONDS = 120.0
"""How long to wait for the run, or for another service of it."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class LearnerOptions:
    """What a learner is told when it starts; the rest it learns from the registry."""

    join: str
    """The registry's address."""

    runs_dir: Path = Path("runs")
    """Where the run's folder is made."""

    run_dir: Path | None = None
    """The run's folder itself, if it is not to be chosen."""

    resume: Path | None = None
    """The folder of a run to go on from."""


def serve(options: LearnerOptions, stop: threading.Event) -> None:
    """Joins the run, trains, and leaves it.

    Raises:
      StoppedError: `stop` was set before training began.
      RunFinishedError: the run had finished before.
      StatusError, TimeoutError: another service is missing, refuses, or is gone for good.
      ValueError: config, environment and checkpoint do not go together.
    """
    with ExitStack() as stack:
        client = stack.enter_context(RunClient(options.join))
        run = client.wait_for_run(WAIT_SECONDS, stop)
        run_dir = choose_run_dir(run, given=options.run_dir, runs_dir=options.runs_dir)
        prepare_run_dir(run_dir, run.config_json)
        membership = client.join(pb.ROLE_LEARNER, run_dir=str(run_dir), stop=stop)
        stack.callback(membership.leave)
        saved = _find_checkpoint(options.resume, run_dir)
        work = _train if membership.config.topology == "replay" else _keep_records
        try:
            work(client, membership, run_dir=run_dir, saved=saved, stop=stop)
        except FailedPreconditionError as error:
            if membership.finished.is_set() and not membership.lost:
                raise RunFinishedError(str(error)) from error
            raise


def _train(
    client: RunClient,
    membership: Membership,
    *,
    run_dir: Path,
    saved: Path | None,
    stop: threading.Event,
) -> None:
    torch_import = TorchImport()
    signature = client.wait_for_signature(WAIT_SECONDS, stop)
    run_id, config = membership.run_id, membership.config
    replay = open_run_replay(client, run_id, config.replay, timeout=WAIT_SECONDS, stop=stop)
    torch_import.finish(threads=membership.config.learner.torch_threads)
    # Only now, since it needs torch.
    from mycelia_learner.session import Session

    with (
        replay as replay_client,
        ParamClient(client.address, run_id) as param_client,
    ):
        session = Session(
            run_client=client,
            membership=membership,
            replay_client=replay_client,
            param_client=param_client,
            signature=signature,
            run_dir=run_dir,
            saved=saved,
        )
        session.train(stop)
    if membership.lost:
        raise UnavailableError("the membership of the run is lost; a checkpoint was written")


def _keep_records(
    client: RunClient,
    membership: Membership,
    *,
    run_dir: Path,
    saved: Path | None,
    stop: threading.Event,
) -> None:
    signature = client.wait_for_signature(WAIT_SECONDS, stop)
    with ParamClient(client.address, membership.run_id) as param_client:
        session = RecordSession(
            run_client=client,
            membership=membership,
            param_client=param_client,
            signature=signature,
            run_dir=run_dir,
            saved=saved,
        )
        session.keep(stop)
    if membership.lost:
        raise UnavailableError("the membership of the run is lost; a checkpoint was written")


def _find_checkpoint(resume: Path | None, run_dir: Path) -> Path | None:
    # A learner that comes back to its run's folder goes on from there without being told to.
    found = checkpoints.find_latest(run_dir)
    if found is None and resume is not None:
        found = checkpoints.find_latest(resume)
        if found is None:
            raise FileNotFoundError(f"nothing to resume: no whole checkpoint in {resume}")
    return found
