"""Requests off the wire, checked; answers onto it."""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from mycelia.inference.v1 import inference_pb2 as pb
from mycelia_actor.environments.spaces import Columns
from mycelia_actor.inference.batch import Answer, Job
from mycelia_actor.inference.slots import Lease
from mycelia_core.codec import decode, encode
from mycelia_core.rpc.errors import InvalidArgumentError
from mycelia_core.specs import FIRST, ColumnSpec


def parse_request(
    request: pb.InferRequest,
    specs: Sequence[ColumnSpec],
    lease: Lease,
    done: Callable[[Answer | Exception], None],
) -> Job:
    """Makes a job of a request.

    Args:
      request: as it came.
      specs: the observation's columns.
      lease: the stream's slots.
      done: is told the answer.

    Raises:
      InvalidArgumentError: names the field, what came, what was expected.
    """
    rows = _parse_slots(request.slots, len(lease.slots))
    _check_names(request, specs)
    columns: Columns = {}
    for spec in specs:
        name = f"observation[{spec.name!r}]"
        array = decode(request.observation[spec.name], name=name)
        _check(array, spec, len(rows), name)
        columns[spec.name] = array
    if not request.look_ahead:
        columns[FIRST] = decode(request.first, name=FIRST)
        _check(columns[FIRST], ColumnSpec(FIRST, np.dtype(np.bool_)), len(rows), FIRST)
    return Job(lease, rows, columns, request.look_ahead, done)


def make_response(request_id: int, answer: Answer) -> pb.InferResponse:
    """Encodes an answer."""
    response = pb.InferResponse(
        request_id=request_id,
        policy_version=answer.policy_version,
        batch_row_count=answer.batch_row_count,
    )
    response.wait_duration.FromNanoseconds(int(answer.wait_seconds * 1e9))
    response.compute_duration.FromNanoseconds(int(answer.compute_seconds * 1e9))
    for name, column in answer.outputs.items():
        response.outputs[name].CopyFrom(encode(column, name=name))
    return response


def _parse_slots(slots: Sequence[int], count: int) -> NDArray[np.int64]:
    rows = np.array(slots, np.int64)
    if not len(rows):
        raise InvalidArgumentError("slots: got none, expected at least one")
    if rows.min() < 0 or rows.max() >= count:
        raise InvalidArgumentError(
            f"slots: got {rows.min()} to {rows.max()}, expected [0, {count}) by slot_count"
        )
    if len(np.unique(rows)) != len(rows):
        raise InvalidArgumentError(f"slots: got {rows.tolist()}, expected different ones")
    return rows


def _check_names(request: pb.InferRequest, specs: Sequence[ColumnSpec]) -> None:
    got, expected = set(request.observation), {spec.name for spec in specs}
    if got != expected:
        raise InvalidArgumentError(
            f"observation: got columns {sorted(got)}, expected {sorted(expected)}"
        )


def _check(array: NDArray[np.generic], spec: ColumnSpec, count: int, name: str) -> None:
    expected = (count, *spec.shape)
    if array.dtype != spec.dtype or array.shape != expected:
        raise InvalidArgumentError(
            f"{name}: got {array.dtype} {list(array.shape)}, expected {spec.dtype} {list(expected)}"
        )
