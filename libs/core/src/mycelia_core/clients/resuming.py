"""Streams that are made again: which failures allow it, and which end them."""

import logging

import grpc

from mycelia_core.clients.failures import from_rpc_error
from mycelia_core.rpc.errors import StatusError, UnavailableError

logger = logging.getLogger(__name__)

CONNECTION_LOST = frozenset({grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED})
"""The statuses after which a call is made again. A server that stops cancels what is open."""


def final_failure(error: Exception, call: str) -> StatusError | TimeoutError | None:
    """Returns what a stream ends with, or None if it is to be made again.

    Args:
      error: what the call raised; a `ValueError` is gRPC's way to say that the
        channel has been closed on our side.
      call: names the call in the text, for example `Sample from 'train' at 127.0.0.1:7701`.
    """
    if isinstance(error, StatusError):
        return error
    if not isinstance(error, grpc.RpcError):
        return UnavailableError(f"{call}: the client has been closed: {error}")
    if isinstance(error, grpc.Call) and error.code() in CONNECTION_LOST:
        logger.info("%s: connection lost, trying again: %s", call, error.details())
        return None
    return from_rpc_error(error, call)
