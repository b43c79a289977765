"""What the weight store takes in, refuses and keeps."""

import asyncio

import numpy as np
import pytest

from mycelia.experience.v1 import tensor_pb2
from mycelia.params.v1 import params_pb2 as pb
from mycelia_core.parts import PART_BYTES, split
from mycelia_core.rpc.errors import (
    AbortedError,
    InvalidArgumentError,
    ResourceExhaustedError,
)
from mycelia_core.weights import Weights, WeightsReader, make_header
from mycelia_param_server.weight_intake import WeightIntake
from mycelia_param_server.weight_store import WeightStore

LIMIT = 64 * 1024 * 1024


def tensors(fill=0.0):
    return {
        "trunk.0.weight": np.full((3, 4), fill, np.float32),
        "empty": np.zeros((0, 4), np.float32),
        "steps": np.asarray(7, np.int64),
    }


def header_of(arrays):
    return make_header(Weights(0, 10, arrays))


def intake_of(arrays, parts=None):
    intake = WeightIntake(header_of(arrays), LIMIT)
    for batch in split(arrays.values()) if parts is None else [parts]:
        intake.add(batch)
    return intake


def parts_of(arrays):
    return [part for batch in split(arrays.values()) for part in batch]


def read(snapshot, response_type=pb.WatchWeightsResponse):
    responses = [response_type.FromString(data) for data in snapshot.encoded]
    reader = WeightsReader(responses[0].header)
    for response in responses:
        reader.add(response.parts)
    assert [response.last for response in responses] == [False] * (len(responses) - 1) + [True]
    return reader.finish()


@pytest.mark.parametrize("response_type", [pb.GetWeightsResponse, pb.WatchWeightsResponse])
def test_what_was_published_is_what_is_read_by_either_call(response_type):
    store = WeightStore()
    store.publish(0, intake_of(tensors(3.0)))

    weights = read(store.newest, response_type)

    assert (weights.version, weights.learner_step) == (1, 10)
    assert list(weights.tensors) == list(tensors())
    for name, array in tensors(3.0).items():
        np.testing.assert_array_equal(weights.tensors[name], array)
        assert weights.tensors[name].shape == array.shape


def test_large_tensors_are_kept_in_message_sized_responses():
    arrays = {"w": np.random.default_rng(1).random(5 * PART_BYTES // 8 + 3)}
    store = WeightStore()

    store.publish(0, intake_of(arrays))

    assert max(len(data) for data in store.newest.encoded) < PART_BYTES + 1000
    np.testing.assert_array_equal(read(store.newest).tensors["w"], arrays["w"])


def test_small_parts_share_a_response():
    arrays = {"w": np.arange(1000, dtype=np.uint8)}
    pieces = [
        tensor_pb2.TensorPart(offset_bytes=at, data=arrays["w"][at : at + 10].tobytes())
        for at in range(0, 1000, 10)
    ]
    store = WeightStore()

    store.publish(0, intake_of(arrays, pieces))

    assert len(store.newest.encoded) == 1
    np.testing.assert_array_equal(read(store.newest).tensors["w"], arrays["w"])


def test_versions_count_up_by_one():
    store = WeightStore()

    versions = [store.publish(n, intake_of(tensors(float(n)))) for n in range(5)]

    assert versions == [1, 2, 3, 4, 5]


def test_a_publish_onto_an_old_version_is_refused_with_both_versions():
    store = WeightStore()
    store.publish(0, intake_of(tensors(1.0)))

    with pytest.raises(AbortedError, match="got 0, the newest is 1"):
        store.publish(0, intake_of(tensors(2.0)))

    np.testing.assert_array_equal(read(store.newest).tensors["trunk.0.weight"], np.ones((3, 4)))


def test_a_publish_onto_a_version_that_is_not_there_yet_is_refused():
    with pytest.raises(AbortedError, match="got 3, the newest is 0"):
        WeightStore().publish(3, intake_of(tensors()))


def test_the_last_publish_sent_again_makes_no_new_version():
    store = WeightStore()
    store.publish(0, intake_of(tensors(1.0)))
    store.publish(1, intake_of(tensors(2.0)))
    newest = store.newest

    assert store.publish(1, intake_of(tensors(2.0))) == 2
    assert store.newest is newest


def test_a_missing_part_is_refused_by_the_tensors_name():
    arrays = tensors()

    with pytest.raises(InvalidArgumentError, match="steps: got 0 bytes, expected 8"):
        intake_of(arrays, parts_of(arrays)[:-1]).finish(1)


def test_a_cut_part_is_refused_by_the_tensors_name():
    arrays = {"w": np.arange(10.0)}
    [part] = parts_of(arrays)
    part.data = part.data[:-8]

    with pytest.raises(InvalidArgumentError, match="w: got 72 bytes, expected 80"):
        intake_of(arrays, [part]).finish(1)


@pytest.mark.parametrize(
    ("index", "offset", "size", "message"),
    [
        (0, 8, 8, "w: got bytes at 8 of tensor_index 0, expected 0 of 0"),
        (1, 0, 8, "w: got bytes at 0 of tensor_index 1, expected 0 of 0"),
        (-1, 0, 8, "w: got bytes at 0 of tensor_index -1"),
        (0, 0, 24, "w: got 24 bytes, expected 16"),
        (0, 0, 0, "is empty"),
    ],
)
def test_a_part_out_of_place_is_refused(index, offset, size, message):
    intake = WeightIntake(header_of({"w": np.zeros(2)}), LIMIT)
    part = tensor_pb2.TensorPart(tensor_index=index, offset_bytes=offset, data=bytes(size))

    with pytest.raises(InvalidArgumentError, match=message):
        intake.add([part])


def test_a_part_too_many_is_refused():
    intake = intake_of({"w": np.zeros(2)})

    with pytest.raises(InvalidArgumentError, match="all 1 tensors are complete"):
        intake.add([tensor_pb2.TensorPart(tensor_index=1, data=b"x")])


def test_a_wrong_checksum_is_refused():
    arrays = tensors(1.0)
    intake = WeightIntake(header_of(tensors(2.0)), LIMIT)
    intake.add(parts_of(arrays))

    with pytest.raises(InvalidArgumentError, match=r"crc32: got .*, the tensors' bytes have"):
        intake.finish(1)


def test_weights_over_the_limit_are_refused_before_any_part_comes():
    header = header_of({"w": np.zeros(100)})

    with pytest.raises(
        ResourceExhaustedError, match=r"800 bytes, over .* --max-weight-bytes of 799"
    ):
        WeightIntake(header, 799)


def spec(name="w", dtype=tensor_pb2.D_TYPE_FLOAT32, shape=(2,)):
    return tensor_pb2.TensorSpec(name=name, dtype=dtype, shape=shape)


@pytest.mark.parametrize(
    ("specs", "error", "message"),
    [
        ([], InvalidArgumentError, "none announced"),
        ([spec(name="")], InvalidArgumentError, "has no name"),
        ([spec(), spec()], InvalidArgumentError, "'w' comes twice"),
        ([spec(dtype=0)], InvalidArgumentError, "w: dtype 0"),
        ([spec(shape=(-1, 4))], InvalidArgumentError, "negative axis"),
        ([spec(shape=(2**62, 2**62))], ResourceExhaustedError, "max-weight-bytes"),
    ],
)
def test_a_malformed_header_is_refused(specs, error, message):
    with pytest.raises(error, match=message):
        WeightIntake(pb.WeightsHeader(tensors=specs), LIMIT)


async def test_a_publish_and_a_new_run_wake_who_waits():
    store = WeightStore()
    for change in (lambda: store.publish(0, intake_of(tensors())), store.clear, store.wake):
        waiting = asyncio.create_task(store.wait_for_change(store.newest))
        await asyncio.sleep(0)
        assert not waiting.done()

        change()

        await asyncio.wait_for(waiting, 1)


async def test_a_change_that_has_come_already_is_not_waited_for():
    store = WeightStore()
    seen = store.newest
    store.publish(0, intake_of(tensors()))

    await asyncio.wait_for(store.wait_for_change(seen), 1)
