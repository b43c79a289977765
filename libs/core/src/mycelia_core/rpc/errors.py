"""Domain errors that carry a gRPC status, and the one interceptor that sends them.

StatusError
├── InvalidArgumentError     wrong whatever the state: shape, dtype, range
├── NotFoundError            no such table, member or version
├── AlreadyExistsError       there is one already
├── FailedPreconditionError  right in itself, but not here or not now
├── AbortedError             a compare-and-set lost
├── ResourceExhaustedError   over a size limit
└── UnavailableError         starting or draining: try again
"""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, ClassVar

import grpc

logger = logging.getLogger(__name__)


class StatusError(Exception):
    """An error to tell the caller, with the status it is told with."""

    code: ClassVar[grpc.StatusCode] = grpc.StatusCode.UNKNOWN


class InvalidArgumentError(StatusError, ValueError):
    """The request is wrong whatever the state of the server."""

    code = grpc.StatusCode.INVALID_ARGUMENT


class NotFoundError(StatusError):
    """The request names something that is not there."""

    code = grpc.StatusCode.NOT_FOUND


class AlreadyExistsError(StatusError):
    """The request would make something that is there already."""

    code = grpc.StatusCode.ALREADY_EXISTS


class FailedPreconditionError(StatusError):
    """The request does not fit the state of the server; a retry will not help."""

    code = grpc.StatusCode.FAILED_PRECONDITION


class AbortedError(StatusError):
    """A compare-and-set lost; the caller reads again, then decides."""

    code = grpc.StatusCode.ABORTED


class ResourceExhaustedError(StatusError):
    """The request is over a size limit."""

    code = grpc.StatusCode.RESOURCE_EXHAUSTED


class UnavailableError(StatusError):
    """The server is starting or draining; the caller tries again."""

    code = grpc.StatusCode.UNAVAILABLE


# Whichever of the four kinds of method it is, only gRPC knows.
Handler = Any
Context = grpc.aio.ServicerContext[Any, Any]


class ErrorInterceptor(grpc.aio.ServerInterceptor):
    """Turns a `StatusError` of a servicer into its status.

    Any other exception is our bug: it is logged with its stack, and the caller
    gets `INTERNAL` without details of the inside.
    """

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler:
        """Wraps the method's handler."""
        handler = await continuation(handler_call_details)
        method = handler_call_details.method
        if handler is None:
            return handler
        if handler.response_streaming:
            return _streaming(handler, method)
        return _unary(handler, method)


def _unary(handler: Handler, method: str) -> Handler:
    inner = handler.stream_unary if handler.request_streaming else handler.unary_unary

    async def call(request: Any, context: Context) -> Any:
        try:
            return await inner(request, context)
        except Exception as error:  # noqa: BLE001 - whatever it is, the caller gets a status
            await _abort(error, context, method)

    make = (
        grpc.stream_unary_rpc_method_handler
        if handler.request_streaming
        else grpc.unary_unary_rpc_method_handler
    )
    return make(call, handler.request_deserializer, handler.response_serializer)


def _streaming(handler: Handler, method: str) -> Handler:
    inner = handler.stream_stream if handler.request_streaming else handler.unary_stream

    async def call(request: Any, context: Context) -> AsyncIterator[Any]:
        try:
            async for response in inner(request, context):
                yield response
        except Exception as error:  # noqa: BLE001 - whatever it is, the caller gets a status
            await _abort(error, context, method)

    make = (
        grpc.stream_stream_rpc_method_handler
        if handler.request_streaming
        else grpc.unary_stream_rpc_method_handler
    )
    return make(call, handler.request_deserializer, handler.response_serializer)


async def _abort(error: Exception, context: Context, method: str) -> None:
    if isinstance(error, grpc.aio.AbortError):
        raise error
    if isinstance(error, StatusError):
        await context.abort(error.code, str(error))
    logger.error("%s failed", method, exc_info=error)
    await context.abort(grpc.StatusCode.INTERNAL, f"{method}: internal error, see the server's log")
