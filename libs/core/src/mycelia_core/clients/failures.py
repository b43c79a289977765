"""Turns the errors of gRPC calls into the errors that servers raise."""

from collections.abc import Iterator
from contextlib import contextmanager

import grpc

from mycelia_core.rpc.errors import (
    AbortedError,
    AlreadyExistsError,
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    ResourceExhaustedError,
    StatusError,
    UnavailableError,
)

_ERRORS_BY_CODE: dict[grpc.StatusCode, type[StatusError]] = {
    error.code: error
    for error in (
        AbortedError,
        AlreadyExistsError,
        FailedPreconditionError,
        InvalidArgumentError,
        NotFoundError,
        ResourceExhaustedError,
        UnavailableError,
    )
}


@contextmanager
def translated_errors(call: str) -> Iterator[None]:
    """Raises, for a `grpc.RpcError` inside, the error that the server meant.

    Args:
      call: names the call in the text, for example `JoinRun at 127.0.0.1:7700`.

    Raises:
      TimeoutError: the call's deadline passed.
      StatusError: the subclass for the status; itself for one that has none.
    """
    try:
        yield
    except grpc.RpcError as error:
        raise from_rpc_error(error, call) from error


def from_rpc_error(error: grpc.RpcError, call: str) -> StatusError | TimeoutError:
    """Returns the error that a failed call stands for."""
    has_status = isinstance(error, grpc.Call | grpc.aio.AioRpcError)
    code = error.code() if has_status else grpc.StatusCode.UNKNOWN
    details = (error.details() if has_status else None) or str(error)
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return TimeoutError(f"{call}: no answer before the deadline")
    if code is grpc.StatusCode.CANCELLED:
        # Either we ended the call ourselves, or a server that drains did.
        return UnavailableError(f"{call}: the call was cancelled")
    kind = _ERRORS_BY_CODE.get(code)
    if kind is None:
        return StatusError(f"{call}: {code.name}: {details}")
    return kind(f"{call}: {details}")
