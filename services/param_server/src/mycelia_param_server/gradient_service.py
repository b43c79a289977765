"""Serves the trainer; the contract of each method is written in params.proto."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator

from mycelia.params.v1 import params_pb2 as pb
from mycelia_core.rpc.errors import FailedPreconditionError, InvalidArgumentError
from mycelia_param_server.gradient_intake import (
    GradientIntake,
    Push,
    RefusedPushError,
    refusal_kind,
)
from mycelia_param_server.push_log import Answer
from mycelia_param_server.trainer import Trainer
from mycelia_param_server.weight_store import WeightStore

Requests = AsyncIterator[pb.PushGradientsRequest]

_LAST = pb.PushGradientsResponse(last=True).SerializeToString()


async def take_in(trainer: Trainer, first: pb.PushGradientsRequest, requests: Requests) -> Push:
    """Reads one push from its first request to its last.

    Raises:
      RefusedPushError: it is wrong; it is counted.
      FailedPreconditionError: there are no weights yet.
    """
    try:
        layout = trainer.check_version(first.header.version)
        intake = GradientIntake(first.header, layout)
        intake.add(first.parts)
        request = first
        while not request.last:
            following = await anext(requests, None)
            if following is None or following.HasField("header"):
                raise RefusedPushError("parts: the push ended before its last part")
            request = following
            intake.add(request.parts)
        if trainer.weights.thread.is_inline:
            return intake.finish()
        return await asyncio.to_thread(intake.finish)
    except InvalidArgumentError as error:
        trainer.figures.count(refusal_kind(error))
        raise


async def answer_to(
    answer: Answer, store: WeightStore, *, with_weights: bool
) -> AsyncIterator[bytes]:
    """Yields the responses to a push: what became of it, and the newest weights."""
    newest = store.newest
    result = pb.PushResult(
        outcome=pb.PushOutcome.ValueType(answer.outcome),
        version=newest.version,
        staleness=answer.staleness,
        metrics=answer.metrics,
    )
    # Messages of protobuf are joined by joining their bytes.
    encoded = pb.PushGradientsResponse(result=result).SerializeToString()
    if not with_weights:
        yield encoded + _LAST
        return
    first, *rest = await newest.responses()
    yield encoded + first
    for response in rest:
        yield response


def describe(trainer: Trainer, store: WeightStore) -> pb.GetGradientInfoResponse:
    """Describes what has become of the gradients."""
    figures, shards = trainer.figures, trainer.weights.shards
    # What a shard refuses never gets here.
    refused = (Counter(info.push_counts) for info in (shards.infos if shards else []))
    response = pb.GetGradientInfoResponse(
        version=store.newest.version,
        push_counts=sum(refused, figures.counts),
        staleness_counts=figures.staleness.counts,
        staleness_bounds=map(int, figures.staleness.bounds),
        staleness_sum=int(figures.staleness.sum),
        staleness_max=int(figures.staleness.max),
        scaled_push_count=figures.scaled,
        round_counts=figures.rounds.counts,
        round_bounds=figures.rounds.bounds,
        round_seconds=figures.rounds.sum,
        straggler_count=figures.stragglers,
        worker_count=trainer.rounds.worker_count,
    )
    if trainer.master:
        applier, timing = trainer.master.applier, trainer.master.timing
        response.update_count = applier.update_count
        response.optimizer_seconds = applier.optimizer_seconds
        response.other_seconds = (
            timing.update_seconds + timing.encoding_seconds - applier.optimizer_seconds
        )
        response.learning_rate = applier.learning_rate
        response.gradient_norm = applier.gradient_norm
    return response


def require(trainer: Trainer | None) -> Trainer:
    """Returns the trainer; `FailedPreconditionError` if the run has none."""
    if trainer is None:
        raise FailedPreconditionError(
            "the run's topology has no gradients for this server to apply"
        )
    return trainer
