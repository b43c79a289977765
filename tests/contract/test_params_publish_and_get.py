"""Publishing and getting weights, against a real parameter server."""

import time
import zlib

import grpc
import numpy as np
import pytest

from mycelia.params.v1 import params_pb2 as pb
from mycelia.params.v1 import params_pb2_grpc
from mycelia_core.clients.params import ParamClient
from mycelia_core.clients.run import RunClient
from mycelia_core.parts import split
from mycelia_core.rpc.errors import (
    AbortedError,
    FailedPreconditionError,
    NotFoundError,
    ResourceExhaustedError,
)
from mycelia_core.weights import Weights, make_header


def tensors(fill=0.0, size=6):
    return {"w": np.full(size, fill, np.float32), "b": np.asarray(fill, np.float64)}


@pytest.fixture
def stub(param_server):
    with grpc.insecure_channel(param_server.address) as channel:
        yield params_pb2_grpc.ParamServiceStub(channel)


def publish_requests(run_id, arrays, expected_version=0, **changes):
    header = make_header(Weights(0, 1, arrays))
    header.MergeFrom(pb.WeightsHeader(**changes))
    batches = list(split(arrays.values(), part_bytes=16))
    yield pb.PublishWeightsRequest(
        run_id=run_id, expected_version=expected_version, header=header, parts=batches[0]
    )
    for parts in batches[1:]:
        yield pb.PublishWeightsRequest(parts=parts)


def refusal(call):
    with pytest.raises(grpc.RpcError) as info:
        call()
    return info.value.code(), info.value.details()


def test_weights_come_back_as_they_were_published(param_client):
    before = time.time()

    version = param_client.publish(tensors(3.0), learner_step=25, expected_version=0)
    weights = param_client.get()

    assert (version, weights.version, weights.learner_step) == (1, 1, 25)
    assert before - 1 < weights.publish_time < time.time() + 1
    for name, array in tensors(3.0).items():
        np.testing.assert_array_equal(weights.tensors[name], array)
        assert weights.tensors[name].dtype == array.dtype


def test_weights_larger_than_a_message_come_back_whole(param_client):
    arrays = {"w": np.random.default_rng(1).random(2_000_003), "b": np.zeros(3, np.uint8)}

    param_client.publish(arrays, learner_step=1, expected_version=0)
    weights = param_client.get()

    np.testing.assert_array_equal(weights.tensors["w"], arrays["w"])


def test_nothing_comes_before_the_first_publish_nor_if_nothing_is_newer(param_client):
    assert param_client.get() is None

    param_client.publish(tensors(), learner_step=1, expected_version=0)

    assert param_client.get(newer_than=1) is None
    assert param_client.get(newer_than=0).version == 1


def test_a_version_that_was_handed_out_can_be_had_again(param_client):
    param_client.publish(tensors(1.0), learner_step=1, expected_version=0)
    param_client.get()
    param_client.publish(tensors(2.0), learner_step=2, expected_version=1)
    param_client.publish(tensors(3.0), learner_step=3, expected_version=2)

    again = param_client.get(version=1)

    assert (again.version, again.learner_step, again.tensors["b"]) == (1, 1, 1.0)
    # Nobody has asked for version 2, so it was not kept.
    with pytest.raises(NotFoundError, match="version"):
        param_client.get(version=2)


def test_the_answer_without_weights_is_one_header_with_the_current_version(param_client, stub):
    param_client.publish(tensors(), learner_step=25, expected_version=0)
    request = pb.GetWeightsRequest(run_id=param_client.run_id, newer_than_version=1)

    [response] = list(stub.GetWeights(request, timeout=5))

    assert (response.header.version, response.header.learner_step) == (1, 25)
    assert not response.header.tensors
    assert response.last


def test_a_publish_onto_an_old_version_loses(param_client):
    param_client.publish(tensors(1.0), learner_step=1, expected_version=0)
    param_client.publish(tensors(2.0), learner_step=2, expected_version=1)

    with pytest.raises(AbortedError, match="got 1, the newest is 2"):
        param_client.publish(tensors(3.0), learner_step=3, expected_version=1)

    assert param_client.get().tensors["b"] == 2.0


def test_a_repeated_publish_gives_the_same_version(param_client):
    versions = [param_client.publish(tensors(1.0), 1, expected_version=0) for _ in range(3)]

    assert versions == [1, 1, 1]


def test_a_truncated_publish_is_refused_and_leaves_the_old_version(param_client, stub):
    param_client.publish(tensors(1.0), 1, expected_version=0)
    requests = list(publish_requests(param_client.run_id, tensors(2.0), 1))

    code, text = refusal(lambda: stub.PublishWeights(iter(requests[:-1]), timeout=5))

    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert "b: got 0 bytes, expected 8" in text or "w: got" in text
    assert param_client.get().version == 1


def test_a_publish_that_breaks_off_leaves_the_old_version(param_client, stub):
    param_client.publish(tensors(1.0), 1, expected_version=0)

    def broken():
        yield next(publish_requests(param_client.run_id, tensors(2.0), 1))
        raise ConnectionError("the publisher dies")

    code, _ = refusal(lambda: stub.PublishWeights(broken(), timeout=5))

    assert code is grpc.StatusCode.UNKNOWN
    assert param_client.get().version == 1
    assert param_client.publish(tensors(2.0), 2, expected_version=1) == 2


def test_a_wrong_checksum_is_refused(param_client, stub):
    arrays = tensors(1.0)
    requests = publish_requests(param_client.run_id, arrays, crc32=zlib.crc32(b"other"))

    code, text = refusal(lambda: stub.PublishWeights(requests, timeout=5))

    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert f"crc32: got {zlib.crc32(b'other')}" in text
    assert param_client.get() is None


def test_a_publish_without_a_header_is_refused(param_client, stub):
    for requests in ([], [pb.PublishWeightsRequest(run_id=param_client.run_id)]):
        code, text = refusal(lambda requests=requests: stub.PublishWeights(iter(requests)))

        assert code is grpc.StatusCode.INVALID_ARGUMENT
        assert "header: required" in text


def test_weights_over_the_limit_are_refused_with_setting_and_sizes(start_param_server, config_json):
    server = start_param_server(max_weight_bytes=10_000)
    with RunClient(server.address) as runs:
        run = runs.create_run("test", config_json)
    with ParamClient(server.address, run.run_id) as client:
        started = time.monotonic()

        with pytest.raises(ResourceExhaustedError, match=r"12\d+ bytes.*--max-weight-bytes.*10000"):
            client.publish(tensors(size=3_000), 1, expected_version=0, timeout=30)

        assert time.monotonic() - started < 5
        assert client.publish(tensors(size=2_000), 1, expected_version=0) == 1


def test_another_runs_weights_are_neither_given_nor_taken(param_server, param_client):
    param_client.publish(tensors(), 1, expected_version=0)
    wrong = f"got 'other', this server's run is '{param_client.run_id}'"

    with ParamClient(param_server.address, "other") as stranger:
        with pytest.raises(FailedPreconditionError, match=wrong):
            stranger.get()
        with pytest.raises(FailedPreconditionError, match=wrong):
            stranger.publish(tensors(), 1, expected_version=1)
        with pytest.raises(FailedPreconditionError, match=wrong):
            next(iter(stranger.watch()))


def test_a_new_run_starts_without_weights(param_server, run_client, param_client, config_json):
    from mycelia.run.v1 import run_pb2

    param_client.publish(tensors(), 1, expected_version=0)
    run_client.finish_run(run_pb2.OUTCOME_STOPPED)

    second = run_client.create_run("test", config_json)

    with ParamClient(param_server.address, second.run_id) as client:
        assert client.get() is None
        assert client.publish(tensors(), 1, expected_version=0) == 1
    with pytest.raises(FailedPreconditionError):
        param_client.get()


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_weights_published_in_16_bits_are_read_as_float32(param_client, dtype):
    arrays = {"w": np.linspace(-2, 2, 9, dtype=np.float32), "steps": np.arange(3)}

    param_client.publish(arrays, learner_step=1, expected_version=0, wire_dtype=dtype)
    weights = param_client.get()

    assert weights.tensors["w"].dtype == np.float32
    np.testing.assert_array_equal(weights.tensors["w"], arrays["w"])
    np.testing.assert_array_equal(weights.tensors["steps"], arrays["steps"])
