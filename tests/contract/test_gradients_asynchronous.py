"""Pushing gradients that are applied as they come, against a real parameter server."""

from concurrent.futures import ThreadPoolExecutor

import grpc
import numpy as np
import pytest

from mycelia.params.v1 import params_pb2 as pb
from mycelia.params.v1 import params_pb2_grpc
from mycelia_core.clients.gradients import GradientClient, PushOutcome
from mycelia_core.parts import split, tensor_spec
from mycelia_core.rpc.errors import (
    FailedPreconditionError,
    InvalidArgumentError,
    UnavailableError,
)


def gradient(fill=1.0):
    return {"w": np.full((2, 3), fill, np.float32), "b": np.full(4, fill, np.float32)}


def push(client, fill=1.0, **changes):
    settings = {"version": 1, "worker_id": "a", "sequence": 1, "sample_count": 5, "timeout": 10}
    return client.push(gradient(fill), **(settings | changes))


def read(client, version=0):
    return client.get(newer_than=version).tensors


def test_a_gradient_is_applied_at_once_and_answered_with_the_weights_it_leads_to(gradient_run):
    client, params = gradient_run(optimizer="sgd", learning_rate=0.5)

    result = push(client, 2.0)

    assert (result.outcome, result.version, result.staleness) == (PushOutcome.APPLIED, 2, 0)
    np.testing.assert_array_equal(result.weights.tensors["w"], np.full((2, 3), -1.0))
    np.testing.assert_array_equal(result.weights.tensors["b"], np.full(4, -1.0))
    np.testing.assert_array_equal(read(params)["w"], result.weights.tensors["w"])


def test_weights_that_are_not_asked_for_are_not_sent(gradient_run):
    client, _ = gradient_run()

    assert push(client, want_weights=False).weights is None


def test_shared_rmsprop_agrees_with_the_paper_over_pushes_of_several_workers(gradient_run):
    client, _ = gradient_run(optimizer="rmsprop", learning_rate=0.1, weight=1.0)
    seen = []

    for sequence, (worker, fill) in enumerate([("a", 1.0), ("b", -2.0), ("a", 0.5)], start=1):
        result = push(client, fill, worker_id=worker, sequence=sequence, version=sequence)
        seen.append(result.weights.tensors["b"][0])

    # Statistics of its own for each worker would give .293, 1.187, .853.
    assert seen == pytest.approx([0.2928932188, 1.1100710653, 0.9091057208], abs=1e-6)


def test_a_push_sent_again_is_applied_once(gradient_run):
    client, params = gradient_run()
    push(client, metrics={"loss": 3.0})

    again = push(client, metrics={"loss": 3.0})

    assert (again.outcome, again.version) == (PushOutcome.DUPLICATE, 2)
    assert again.metrics == {"loss": 3.0}
    np.testing.assert_array_equal(again.weights.tensors["w"], read(params)["w"])
    assert client.info().update_count == 1


def test_a_push_from_beyond_the_bound_is_refused_and_counted(gradient_run):
    client, _ = gradient_run(max_staleness=2)
    outcomes = [push(client, sequence=n, version=1).outcome for n in range(1, 6)]

    assert outcomes == [PushOutcome.APPLIED] * 3 + [PushOutcome.REFUSED_STALE] * 2
    info = client.info()
    assert (info.version, info.update_count) == (4, 3)
    assert dict(info.push_counts) == {"applied": 3, "refused_stale": 2}
    assert list(info.staleness_bounds)[:4] == [0, 1, 2, 4]
    assert list(info.staleness_counts)[:4] == [1, 1, 1, 2]


def test_a_refused_push_brings_the_weights_to_go_on_from(gradient_run):
    client, params = gradient_run(max_staleness=1)
    push(client, sequence=1)
    push(client, sequence=2)

    refused = push(client, sequence=3)

    assert (refused.outcome, refused.staleness, refused.version) == (
        PushOutcome.REFUSED_STALE,
        2,
        3,
    )
    np.testing.assert_array_equal(refused.weights.tensors["w"], read(params)["w"])


def test_beyond_the_bound_the_step_can_be_divided_by_the_staleness_instead(gradient_run):
    client, _ = gradient_run(max_staleness=1, stale_gradients="scale", weight=0.0)
    for sequence in range(1, 4):
        before = push(client, 0.0, sequence=sequence, version=sequence).weights

    result = push(client, 8.0, sequence=9, version=before.version - 2)

    assert (result.outcome, result.staleness) == (PushOutcome.APPLIED, 2)
    np.testing.assert_array_equal(result.weights.tensors["b"], np.full(4, -4.0))


@pytest.mark.parametrize(
    ("change", "kind", "message"),
    [
        (lambda g: g | {"extra": np.ones(2, np.float32)}, "unknown_tensor", "extra: "),
        (lambda g: {"w": g["w"]}, "missing_tensor", "b: missing"),
        (
            lambda g: g | {"w": np.ones((3, 2), np.float32)},
            "misshapen_tensor",
            r"w: got shape \[3, 2\], the weights have \[2, 3\]",
        ),
        (lambda g: g | {"w": g["w"].astype(np.int32)}, "misshapen_tensor", "w: got dtype int32"),
        (lambda g: g | {"b": np.full(4, np.nan, np.float32)}, "not_finite", "b: has a NaN"),
        (lambda g: g | {"b": np.full(4, -np.inf, np.float32)}, "not_finite", "b: has a NaN"),
    ],
)
def test_a_wrong_gradient_is_refused_whole_by_the_tensors_name(gradient_run, change, kind, message):
    client, params = gradient_run()
    before = params.get()

    with pytest.raises(InvalidArgumentError, match=message):
        client.push(change(gradient()), version=1, worker_id="a", sequence=1, sample_count=1)

    after = params.get()
    assert after.version == before.version
    np.testing.assert_array_equal(after.tensors["w"], before.tensors["w"])
    assert dict(client.info().push_counts) == {kind: 1}
    assert push(client).outcome is PushOutcome.APPLIED, "the worker goes on"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"version": 2}, "version: got 2, the newest is 1"),
        ({"sequence": 0}, "sequence: got 0"),
        ({"sample_count": 0}, "sample_count: got 0"),
        ({"worker_id": ""}, "worker_id: got 0 characters"),
        ({"metrics": {"kl": float("nan")}}, "metrics: kl is nan"),
    ],
)
def test_a_field_out_of_its_range_is_refused(gradient_run, changes, message):
    client, _ = gradient_run()

    with pytest.raises(InvalidArgumentError, match=message):
        push(client, **changes)

    assert client.info().update_count == 0


def test_another_run_is_refused(gradient_run):
    client, _ = gradient_run()
    with (
        GradientClient(client.address, "another") as stranger,
        pytest.raises(FailedPreconditionError, match="run_id: got 'another'"),
    ):
        push(stranger)


def test_a_run_without_gradients_refuses_pushes(param_client):
    param_client.publish(gradient(), learner_step=0, expected_version=0)
    with (
        GradientClient(param_client.address, param_client.run_id) as client,
        pytest.raises(FailedPreconditionError, match="topology has no gradients"),
    ):
        push(client)


def test_weights_that_cannot_be_trained_are_refused_by_name(gradient_run):
    _, params = gradient_run()

    with pytest.raises(InvalidArgumentError, match="steps: got int64, expected float32"):
        params.publish({"steps": np.arange(3)}, learner_step=0, expected_version=1)


def requests_of(run_id, arrays, cut=0):
    header = pb.PushHeader(
        run_id=run_id,
        worker_id="raw",
        sequence=1,
        version=1,
        sample_count=1,
        tensors=[tensor_spec(name, array) for name, array in arrays.items()],
    )
    [parts] = split(arrays.values())
    if cut:
        parts[-1].data = parts[-1].data[:-cut]
    return [pb.PushGradientsRequest(header=header, parts=parts, last=True)]


def test_a_push_that_is_cut_short_is_refused(gradient_run):
    client, _ = gradient_run()
    with grpc.insecure_channel(client.address) as channel:
        stub = params_pb2_grpc.ParamServiceStub(channel)
        call = stub.PushGradients(iter(requests_of(client.run_id, gradient(), cut=4)), timeout=5)

        with pytest.raises(grpc.RpcError) as info:
            list(call)

    assert info.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "b: got 12 bytes, expected 16" in info.value.details()


def test_the_order_of_the_tensors_does_not_matter(gradient_run):
    client, _ = gradient_run()
    arrays = {"b": np.arange(4, dtype=np.float32), "w": np.ones((2, 3), np.float32)}

    result = client.push(arrays, version=1, worker_id="a", sequence=1, sample_count=1)

    np.testing.assert_array_equal(result.weights.tensors["b"], -np.arange(4))
    np.testing.assert_array_equal(result.weights.tensors["w"], -np.ones((2, 3)))


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_sixteen_bits_on_the_wire_leave_the_masters_at_full_precision(gradient_run, dtype):
    client, params = gradient_run(
        learning_rate=2.0**-12, weight=1.0, param_server_config={"wire_dtype": dtype}
    )
    for sequence in range(1, 65):
        result = push(client, sequence=sequence, version=sequence)

    # 64 steps of 2^-12: each alone is lost in 16 bits, together they are 2^-6.
    np.testing.assert_array_equal(result.weights.tensors["b"], np.full(4, 1 - 2.0**-6))
    assert result.weights.tensors["b"].dtype == np.float32
    np.testing.assert_array_equal(read(params)["b"], result.weights.tensors["b"])


def test_statistics_of_many_workers_are_those_of_all_their_samples(gradient_run):
    zero = {"statistics/observation/" + part: np.zeros(2) for part in ("mean", "m2")}
    zero["statistics/observation/count"] = np.zeros(())
    client, _ = gradient_run(extra=zero)
    batches = [np.array([[1.0, 5.0], [2, 5], [4, 5]]), np.array([[10.0, 1.0], [-3, 2]])]
    for sequence, batch in enumerate(batches, start=1):
        mean = batch.mean(axis=0)
        increments = {
            "statistics/observation/count": np.float64(len(batch)),
            "statistics/observation/mean": mean,
            "statistics/observation/m2": ((batch - mean) ** 2).sum(axis=0),
        }
        result = push(client, sequence=sequence, version=sequence, statistics=increments)

    joined = np.concatenate(batches)
    merged = result.weights.tensors
    assert merged["statistics/observation/count"] == 5
    np.testing.assert_allclose(merged["statistics/observation/mean"], joined.mean(axis=0))
    np.testing.assert_allclose(merged["statistics/observation/m2"] / 5, joined.var(axis=0))
    assert merged["statistics/observation/mean"][0] == pytest.approx(2.8)


def test_statistics_that_the_weights_lack_are_refused(gradient_run):
    client, _ = gradient_run()

    with pytest.raises(InvalidArgumentError, match="statistics/x/mean: the weights have no"):
        push(client, statistics={"statistics/x/mean": np.zeros(2)})


def test_weights_larger_than_a_message_are_pushed_and_come_back_whole(gradient_run):
    size = 1_000_003
    client, _ = gradient_run(tensors={"w": np.zeros(size, np.float32)})
    values = np.random.default_rng(1).standard_normal(size).astype(np.float32)

    result = client.push({"w": values}, version=1, worker_id="a", sequence=1, sample_count=1)

    np.testing.assert_array_equal(result.weights.tensors["w"], -values)


def test_clipping_and_the_schedule_apply(gradient_run):
    client, _ = gradient_run(
        tensors={"w": np.zeros(2, np.float32)},
        learning_rate=1.0,
        max_grad_norm=1.0,
        schedule="linear",
        limits={"max_updates": 4},
    )
    seen = []
    for sequence in range(1, 5):
        arrays = {"w": np.array([3.0, 4.0], np.float32)}
        result = client.push(
            arrays, version=sequence, worker_id="a", sequence=sequence, sample_count=1
        )
        seen.append(-result.weights.tensors["w"][1])

    assert np.diff([0, *seen]) == pytest.approx([0.8, 0.6, 0.4, 0.2], abs=1e-6)


def test_the_schedule_goes_on_from_where_the_published_weights_were(gradient_run):
    client, params = gradient_run(schedule="linear", limits={"max_updates": 4})
    weights = {"w": np.zeros((2, 3), np.float32), "b": np.zeros(4, np.float32)}
    params.publish(weights, learner_step=3, expected_version=1)

    result = push(client, version=2)

    np.testing.assert_array_equal(result.weights.tensors["b"], np.full(4, -0.25))
    assert result.weights.learner_step == 4


def test_a_client_that_is_away_from_its_server_stops_at_its_deadline(gradient_run):
    client, _ = gradient_run()
    with (
        GradientClient("127.0.0.1:1", client.run_id) as lost,
        pytest.raises((UnavailableError, TimeoutError), match=r"127\.0\.0\.1:1"),
    ):
        push(lost, timeout=0.5)


def test_ten_workers_at_once_all_have_their_gradients_applied(gradient_run):
    client, params = gradient_run()

    def work(index):
        with GradientClient(client.address, client.run_id) as mine:
            for sequence in range(1, 11):
                push(mine, worker_id=f"worker {index}", sequence=sequence)

    with ThreadPoolExecutor(10) as pool:
        list(pool.map(work, range(10)))

    weights = params.get()
    assert weights.version == 101
    np.testing.assert_array_equal(weights.tensors["b"], np.full(4, -100.0))
