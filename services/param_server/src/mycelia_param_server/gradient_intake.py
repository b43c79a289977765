"""One push on its way in: checked tensor by tensor, laid into one vector."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from mycelia.experience.v1 import tensor_pb2
from mycelia.params.v1 import params_pb2 as pb
from mycelia_core.codec import BFLOAT16, dtype_from_proto
from mycelia_core.rpc.errors import InvalidArgumentError
from mycelia_core.weights import STATISTICS
from mycelia_param_server.layout import Layout, check_statistics

MAX_METRICS = 256
MAX_WORKER_ID = 256
MAX_SAMPLES = 2**53
"""Up to here a double counts exactly."""

_GRADIENT_DTYPES = (np.dtype(np.float32), BFLOAT16, np.dtype(np.float16))
_STATISTIC_DTYPE = np.dtype(np.float64)


class RefusedPushError(InvalidArgumentError):
    """A push is wrong; the text names the tensor or field."""

    kind: ClassVar[str] = "malformed"
    """What it is counted as."""


class UnknownTensorError(RefusedPushError):
    """A tensor is none of the weights, or comes twice."""

    kind = "unknown_tensor"


class MissingTensorError(RefusedPushError):
    """One of the trained tensors, or bytes of one, are not there."""

    kind = "missing_tensor"


class MisshapenTensorError(RefusedPushError):
    """A tensor has another shape or dtype than the weights."""

    kind = "misshapen_tensor"


class NotFiniteError(RefusedPushError):
    """A tensor has a NaN or an infinity."""

    kind = "not_finite"


class FutureVersionError(RefusedPushError):
    """The push is of a version that this server has not made."""

    kind = "future_version"


def refusal_kind(error: InvalidArgumentError) -> str:
    """Returns what a push that was refused with this error is counted as."""
    return error.kind if isinstance(error, RefusedPushError) else RefusedPushError.kind


PartIds = Mapping[str, str]
"""What a gradient's parts are called, by the address of the shard that keeps each."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Push:
    """One worker's gradient, whole and checked."""

    worker_id: str
    sequence: int
    version: int
    """Of the weights that it was computed at."""

    sample_count: int
    gradient: NDArray[np.float32]
    """[P] the mean over the samples."""

    statistics: Mapping[str, NDArray[np.float64]]
    """Increments, by full name."""

    metrics: Mapping[str, float]

    elsewhere: PartIds = field(default_factory=dict)
    """The parts that shards keep."""


class GradientIntake:
    """Takes in what a worker pushes, and refuses what does not fit the weights.

    Holds no more than the gradient itself. One push owns it.
    """

    def __init__(self, header: pb.PushHeader, layout: Layout) -> None:
        """Prepares for the announced tensors.

        Raises:
          RefusedPushError: a field is out of its range, or a tensor is unknown,
            missing or misshapen.
        """
        _check_fields(header)
        self._header = header
        self._layout = layout
        self._names = [spec.name for spec in header.tensors]
        dtype = _check_tensors(header.tensors, layout)
        self._gradient = np.empty(layout.size, dtype)
        self._statistics = {
            name: np.empty(layout.statistics[name])
            for name in self._names
            if name.startswith(STATISTICS)
        }
        self._bytes = self._views()
        self._received = [0] * len(self._names)

    def add(self, parts: Iterable[tensor_pb2.TensorPart]) -> None:
        """Takes in parts, each tensor's in order.

        Raises:
          RefusedPushError: a part leaves a gap, or goes past its tensor's end.
        """
        for part in parts:
            if not 0 <= part.tensor_index < len(self._names):
                raise RefusedPushError(
                    f"parts: tensor_index {part.tensor_index} is not one of the "
                    f"{len(self._names)} announced"
                )
            self._add(part.tensor_index, part.offset_bytes, part.data)

    def finish(self) -> Push:
        """Returns the push.

        Raises:
          MissingTensorError: bytes are missing.
          NotFiniteError: a number is NaN or infinite.
        """
        for name, view, received in zip(self._names, self._bytes, self._received, strict=True):
            if received != len(view):
                raise MissingTensorError(f"{name}: got {received} bytes, expected {len(view)}")
        gradient = self._gradient.astype(np.float32, copy=False)
        _check_finite(gradient, self._layout)
        for name, values in self._statistics.items():
            _check_statistic(name, values)
        return Push(
            worker_id=self._header.worker_id,
            sequence=self._header.sequence,
            version=self._header.version,
            sample_count=self._header.sample_count,
            gradient=gradient,
            statistics=self._statistics,
            metrics=dict(self._header.metrics),
            elsewhere={shard.address: shard.part_id for shard in self._header.shards},
        )

    def _views(self) -> list[NDArray[np.uint8]]:
        """Returns each announced tensor's place, as bytes."""
        tensors: dict[str, NDArray[Any]] = self._layout.split(self._gradient) | self._statistics
        return [tensors[name].reshape(-1).view(np.uint8) for name in self._names]

    def _add(self, index: int, offset: int, data: bytes) -> None:
        view, received = self._bytes[index], self._received[index]
        end = offset + len(data)
        if offset != received or end > len(view):
            raise RefusedPushError(
                f"{self._names[index]}: got bytes [{offset}, {end}), "
                f"expected them to begin at {received} and to end by {len(view)}"
            )
        view[offset:end] = np.frombuffer(data, np.uint8)
        self._received[index] = end


def _check_fields(header: pb.PushHeader) -> None:
    if not 0 < len(header.worker_id) <= MAX_WORKER_ID:
        raise RefusedPushError(
            f"worker_id: got {len(header.worker_id)} characters, expected 1 to {MAX_WORKER_ID}"
        )
    if header.sequence < 1:
        raise RefusedPushError(f"sequence: got {header.sequence}, expected 1 or more")
    if not 1 <= header.sample_count <= MAX_SAMPLES:
        raise RefusedPushError(f"sample_count: got {header.sample_count}, expected 1 to 2^53")
    if len(header.metrics) > MAX_METRICS:
        raise RefusedPushError(
            f"metrics: got {len(header.metrics)}, expected {MAX_METRICS} at most"
        )
    for name, value in header.metrics.items():
        if not math.isfinite(value):
            raise RefusedPushError(f"metrics: {name} is {value}, expected a finite number")


def _check_tensors(specs: Iterable[tensor_pb2.TensorSpec], layout: Layout) -> np.dtype[Any]:
    """Compares what is announced with the weights, and returns the gradient's dtype."""
    seen: set[str] = set()
    gradient_dtype: np.dtype[Any] | None = None
    for spec in specs:
        if spec.name in seen:
            raise UnknownTensorError(f"{spec.name}: announced twice")
        seen.add(spec.name)
        dtype = dtype_from_proto(spec.dtype, spec.name)
        if spec.name.startswith(STATISTICS):
            _check_shape(spec, layout.statistics.get(spec.name))
            _check_dtype(spec.name, dtype, (_STATISTIC_DTYPE,))
            continue
        slot = layout.trained.get(spec.name)
        _check_shape(spec, slot.shape if slot else None)
        _check_dtype(spec.name, dtype, (gradient_dtype,) if gradient_dtype else _GRADIENT_DTYPES)
        gradient_dtype = dtype
    missing = next((name for name in layout.trained if name not in seen), None)
    if missing or gradient_dtype is None:
        raise MissingTensorError(f"{missing}: missing, every trained tensor needs its gradient")
    check_statistics(name for name in seen if name.startswith(STATISTICS))
    return gradient_dtype


def _check_shape(spec: tensor_pb2.TensorSpec, shape: tuple[int, ...] | None) -> None:
    if shape is None:
        raise UnknownTensorError(f"{spec.name}: the weights have no tensor of this name")
    if tuple(spec.shape) != shape:
        raise MisshapenTensorError(
            f"{spec.name}: got shape {list(spec.shape)}, the weights have {list(shape)}"
        )


def _check_dtype(name: str, got: np.dtype[Any], expected: tuple[np.dtype[Any], ...]) -> None:
    if got not in expected:
        names = " or ".join(str(dtype) for dtype in expected)
        raise MisshapenTensorError(f"{name}: got dtype {got}, expected {names}")


def _check_finite(gradient: NDArray[np.float32], layout: Layout) -> None:
    with np.errstate(over="ignore", invalid="ignore"):
        # One pass without a temporary. It overflows for finite gradients beyond 1e18, too.
        if np.isfinite(np.dot(gradient, gradient)):
            return
    name = layout.find(gradient)
    if name:
        raise NotFiniteError(f"{name}: has a NaN or an infinity")


def _check_statistic(name: str, values: NDArray[np.float64]) -> None:
    if not np.isfinite(values).all():
        raise NotFiniteError(f"{name}: has a NaN or an infinity")
    if not name.endswith("/mean") and (values < 0).any():
        raise RefusedPushError(f"{name}: got a number below 0")
