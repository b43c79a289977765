"""The run registry's contract, against a real server."""

import time

import grpc
import numpy as np
import pytest

from mycelia.run.v1 import run_pb2 as pb
from mycelia.run.v1 import run_pb2_grpc
from mycelia_core.clients.run import RunClient, RunFinishedError
from mycelia_core.rpc.errors import (
    AlreadyExistsError,
    FailedPreconditionError,
    InvalidArgumentError,
)
from mycelia_core.specs import ColumnSpec, Signature


def signature(observation_size=4):
    return Signature.of(
        [
            ColumnSpec("observation", np.dtype(np.float32), (observation_size,)),
            ColumnSpec("action", np.dtype(np.int64), (), 2),
        ]
    )


@pytest.fixture
def stub(param_server):
    with grpc.insecure_channel(param_server.address) as channel:
        yield run_pb2_grpc.RunServiceStub(channel)


def refusal(call):
    with pytest.raises(grpc.RpcError) as info:
        call()
    return info.value.code(), info.value.details()


def join(stub, instance_id="a", role=pb.ROLE_ACTOR):
    return stub.JoinRun(pb.JoinRunRequest(instance_id=instance_id, role=role), timeout=5)


def heartbeat(stub, run_id, sequence, instance_id="a", **fields):
    request = pb.HeartbeatRequest(
        run_id=run_id, instance_id=instance_id, sequence=sequence, **fields
    )
    return stub.Heartbeat(request, timeout=5)


def test_a_run_is_described_as_it_was_created(param_server, config_json):
    with RunClient(param_server.address) as client:
        created = client.create_run("apex", config_json, initial_env_steps=7, request_id="r")
        again = client.create_run("apex", config_json, request_id="r")
        response = client.get_run()

    assert created == again == response.run
    assert (created.name, created.config_json) == ("apex", config_json)
    assert created.phase == pb.PHASE_STARTING
    assert abs(created.create_time.ToDatetime().timestamp() - time.time()) < 86_400
    assert not created.HasField("signature")
    assert not created.HasField("train_start_time")
    assert response.progress.env_steps == 7
    assert response.weight_version == 0


def test_a_second_run_is_refused_while_the_first_goes_on(run_client, config_json):
    with pytest.raises(AlreadyExistsError, match="has not finished"):
        run_client.create_run("other", config_json)

    run_client.finish_run(pb.OUTCOME_STOPPED)

    assert run_client.create_run("other", config_json).name == "other"


@pytest.mark.parametrize(
    ("bad_config", "named"),
    [("no json", "JSON"), ("{}", "name"), ('{"name": "x", "colour": 1}', "env")],
)
def test_a_config_that_cannot_be_read_is_refused(param_server, bad_config, named):
    with (
        RunClient(param_server.address) as client,
        pytest.raises(InvalidArgumentError, match=f"config_json: {named}"),
    ):
        client.create_run("test", bad_config)


def test_every_call_but_create_needs_a_run(stub):
    calls = [
        lambda: stub.GetRun(pb.GetRunRequest()),
        lambda: join(stub),
        lambda: heartbeat(stub, "x", 1),
        lambda: stub.ReportEvaluation(pb.ReportEvaluationRequest(run_id="x")),
        lambda: stub.FinishRun(pb.FinishRunRequest(run_id="x", outcome=pb.OUTCOME_STOPPED)),
        lambda: stub.LeaveRun(pb.LeaveRunRequest(run_id="x")),
    ]

    for call in calls:
        code, text = refusal(call)
        assert code is grpc.StatusCode.FAILED_PRECONDITION
        assert "no run yet" in text


def test_every_call_refuses_strangers_and_names_both_runs(run_client, stub):
    run_id = run_client.get_run().run.run_id
    calls = [
        lambda: stub.GetRun(pb.GetRunRequest(run_id="x")),
        lambda: stub.JoinRun(
            pb.JoinRunRequest(run_id="x", instance_id="a", role=pb.ROLE_ACTOR), timeout=5
        ),
        lambda: heartbeat(stub, "x", 1),
        lambda: stub.ReportEvaluation(pb.ReportEvaluationRequest(run_id="x")),
        lambda: stub.FinishRun(pb.FinishRunRequest(run_id="x", outcome=pb.OUTCOME_STOPPED)),
        lambda: stub.LeaveRun(pb.LeaveRunRequest(run_id="x")),
    ]

    for call in calls:
        code, text = refusal(call)
        assert code is grpc.StatusCode.FAILED_PRECONDITION
        assert text == f"run_id: got 'x', this server's run is '{run_id}'"


def test_a_member_is_listed_with_what_it_said(run_client):
    with run_client.join(
        pb.ROLE_LEARNER, address="10.0.0.1:7", run_dir="runs/x", wait_seconds=5
    ) as membership:
        membership.set_counters({"learner_steps": 3})
        deadline = time.monotonic() + 5
        while not (response := run_client.get_run()).members[0].counters:
            assert time.monotonic() < deadline
            time.sleep(0.02)

        [member] = response.members

    assert (member.role, member.index, member.alive) == (pb.ROLE_LEARNER, 0, True)
    assert (member.address, response.run.run_dir) == ("10.0.0.1:7", "runs/x")
    assert member.host
    assert member.pid
    assert dict(member.counters) == {"learner_steps": 3.0}
    assert response.run.HasField("train_start_time")


@pytest.mark.parametrize("role", [pb.ROLE_UNSPECIFIED, 99])
def test_a_role_that_is_none_is_refused(run_client, stub, role):
    code, text = refusal(lambda: join(stub, role=role))

    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert "role: got" in text


def test_the_first_actors_signature_becomes_the_runs(run_client):
    with run_client.join(pb.ROLE_ACTOR, signature=signature(), wait_seconds=5):
        assert run_client.wait_for_signature(timeout=1) == signature()

        with pytest.raises(FailedPreconditionError, match="column 'observation'"):
            run_client.join(pb.ROLE_ACTOR, signature=signature(5), wait_seconds=5)


def test_a_malformed_signature_is_refused(run_client, stub):
    request = pb.JoinRunRequest(instance_id="a", role=pb.ROLE_ACTOR)
    request.signature.SetInParent()

    code, text = refusal(lambda: stub.JoinRun(request, timeout=5))

    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert "signature" in text


def test_episodes_sent_again_with_the_same_sequence_count_once(run_client, stub):
    run_id = run_client.get_run().run.run_id
    join(stub)
    episodes = [pb.Episode(episode_return=10, length=10)]

    for sequence in (1, 1, 1, 2, 1):
        heartbeat(stub, run_id, sequence, episodes=episodes)

    progress = run_client.get_run().progress
    assert progress.episode_count == 2
    assert len(progress.recent_episodes) == 2


def test_a_heartbeat_answers_with_phase_and_env_steps_of_all_actors(run_client, stub):
    run_id = run_client.get_run().run.run_id
    for name in "ab":
        join(stub, name)
    join(stub, "l", pb.ROLE_LEARNER)
    heartbeat(stub, run_id, 1, "a", counters={"env_steps": 5})
    heartbeat(stub, run_id, 1, "l", phase=pb.PHASE_TRAINING)

    response = heartbeat(stub, run_id, 1, "b", counters={"env_steps": 7})

    assert (response.phase, response.env_steps) == (pb.PHASE_TRAINING, 12)


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"counters": {"env_steps": float("nan")}}, "env_steps"),
        ({"counters": {f"c{n}": 0.0 for n in range(300)}}, "counters: got 300"),
        ({"episodes": [pb.Episode(episode_return=float("inf"))]}, "episodes"),
        ({"phase": pb.PHASE_FINISHED}, "phase"),
        ({"phase": 77}, "phase"),
    ],
)
def test_a_report_that_cannot_be_is_refused_and_the_server_lives_on(
    run_client, stub, fields, named
):
    run_id = run_client.get_run().run.run_id
    join(stub)

    code, text = refusal(lambda: heartbeat(stub, run_id, 1, **fields))

    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert named in text
    assert heartbeat(stub, run_id, 1).phase == pb.PHASE_STARTING


def test_evaluations_are_listed_once_per_version(run_client):
    for returns in ([475.0, 500.0], [1.0]):
        run_client.report_evaluation(
            policy_version=3, learner_step=30, env_steps=300, episode_returns=returns
        )

    [evaluation] = run_client.get_run().progress.evaluations
    assert list(evaluation.episode_returns) == [475.0, 500.0]
    assert (evaluation.policy_version, evaluation.learner_step, evaluation.env_steps) == (
        3,
        30,
        300,
    )
    assert evaluation.HasField("record_time")


def test_the_first_outcome_stays_and_nobody_joins_any_more(run_client):
    run_client.finish_run(pb.OUTCOME_SOLVED, "mean return 480")

    run = run_client.finish_run(pb.OUTCOME_FAILED, "too late")

    assert (run.outcome, run.outcome_detail) == (pb.OUTCOME_SOLVED, "mean return 480")
    assert run.phase == pb.PHASE_FINISHED
    assert run.HasField("finish_time")
    with pytest.raises(RunFinishedError, match="SOLVED"):
        run_client.join(pb.ROLE_ACTOR, wait_seconds=30)


def test_an_outcome_is_required(run_client):
    with pytest.raises(InvalidArgumentError, match="outcome: got 0"):
        run_client.finish_run(pb.OUTCOME_UNSPECIFIED)


def test_leaving_twice_is_as_good_as_once(run_client, stub):
    run_id = run_client.get_run().run.run_id
    join(stub)

    for _ in range(2):
        stub.LeaveRun(pb.LeaveRunRequest(run_id=run_id, instance_id="a"), timeout=5)

    assert not run_client.get_run().members
