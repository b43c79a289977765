"""Memberships: heartbeats, lost leases, and registries that go away."""

import threading
import time

import pytest

from mycelia.run.v1 import run_pb2 as pb
from mycelia_core.clients.run import RunClient, RunFinishedError, StoppedError
from mycelia_core.rpc.errors import UnavailableError


def wait_until(condition, seconds=10.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)


def seconds_of(action):
    start = time.monotonic()
    action()
    return time.monotonic() - start


@pytest.fixture
def short_lease(start_param_server, config_json):
    """A client of a registry whose leases last half a second."""
    server = start_param_server(lease_seconds=0.5)
    with RunClient(server.address) as client:
        client.create_run("test", config_json)
        yield client


def test_counters_and_episodes_arrive(run_client):
    with run_client.join(pb.ROLE_ACTOR, wait_seconds=5) as membership:
        assert membership.config.env.id == "CartPole-v1"
        membership.set_counters({"env_steps": 30})
        membership.add_episode(10.0, 10)
        membership.add_episode(20.0, 20)
        wait_until(lambda: membership.env_steps == 30)

    progress = run_client.get_run().progress
    assert [e.episode_return for e in progress.recent_episodes] == [10.0, 20.0]
    assert not run_client.get_run().members


def test_leaving_reports_what_was_added_last(run_client):
    membership = run_client.join(pb.ROLE_ACTOR, wait_seconds=5)
    membership.set_counters({"env_steps": 10})
    membership.add_episode(10.0, 10)

    membership.leave()
    membership.leave()

    progress = run_client.get_run().progress
    assert (progress.env_steps, progress.episode_count) == (10, 1)


def test_members_see_the_phase_and_the_end(run_client):
    with (
        run_client.join(pb.ROLE_LEARNER, wait_seconds=5) as learner,
        run_client.join(pb.ROLE_ACTOR, wait_seconds=5) as actor,
    ):
        learner.set_phase(pb.PHASE_TRAINING)
        wait_until(lambda: actor.phase == pb.PHASE_TRAINING)
        assert not actor.finished.is_set()

        run_client.finish_run(pb.OUTCOME_SOLVED)

        assert actor.finished.wait(5)
        assert learner.finished.wait(5)
        assert not actor.lost


def test_a_living_members_lease_does_not_end(short_lease):
    with short_lease.join(pb.ROLE_ACTOR, wait_seconds=5):
        time.sleep(1.5)

        assert [member.alive for member in short_lease.get_run().members] == [True]


def test_a_silent_members_lease_ends_and_its_index_is_free(short_lease, caplog):
    first = short_lease.join(pb.ROLE_ACTOR, wait_seconds=5)
    second = short_lease.join(pb.ROLE_ACTOR, wait_seconds=5)
    assert (first.index, second.index) == (0, 1)

    freeze(first)
    wait_until(lambda: "actor 0" in caplog.text and "lost its lease" in caplog.text)

    assert [member.alive for member in short_lease.get_run().members] == [False, True]
    with short_lease.join(pb.ROLE_ACTOR, wait_seconds=5) as third:
        assert third.index == 0
    second.leave()


def freeze(membership):
    """Stops the heartbeats as a process that is killed does: without a word."""
    membership._leaving.set()
    membership._wake.set()
    membership._thread.join(5)


def test_who_lost_its_lease_comes_back_with_its_index(short_lease, caplog, monkeypatch):
    with short_lease.join(pb.ROLE_ACTOR, wait_seconds=5) as membership:
        membership.set_counters({"env_steps": 5})
        beat = membership._beat
        monkeypatch.setattr(membership, "_beat", lambda: time.sleep(0.1))
        wait_until(lambda: "lost its lease" in caplog.text)
        membership.set_counters({"env_steps": 8})
        membership.add_episode(8.0, 8)
        monkeypatch.setattr(membership, "_beat", beat)

        wait_until(lambda: short_lease.get_run().progress.episode_count == 1)

        [member] = short_lease.get_run().members
        assert (member.index, member.alive, membership.index) == (0, True, 0)
        assert short_lease.get_run().progress.env_steps == 8
        assert not membership.lost
        assert not membership.finished.is_set()


class LossyStub:
    """Passes heartbeats to a real registry, and loses requests or replies as it is told."""

    def __init__(self, stub, losses):
        self._stub = stub
        self._losses = iter(losses)
        self.on_loss = lambda: None

    def Heartbeat(self, request, timeout):
        loss = next(self._losses, None)
        if loss == "request":
            self.on_loss()
            raise UnavailableError("the request was lost")
        response = self._stub.Heartbeat(request, timeout=timeout)
        if loss == "reply":
            self.on_loss()
            raise UnavailableError("the reply was lost")
        return response

    def LeaveRun(self, request, timeout):
        return self._stub.LeaveRun(request, timeout=timeout)


@pytest.mark.parametrize("losses", [["request"] * 2, ["reply"] * 2, ["reply", "request", "reply"]])
def test_each_episode_counts_once_whatever_is_lost(run_client, losses):
    with run_client.join(pb.ROLE_ACTOR, wait_seconds=5) as membership:
        lossy = LossyStub(membership._stub, losses)
        # Episodes go on finishing while the report before is still unacknowledged.
        lossy.on_loss = lambda: membership.add_episode(2.0, 2)
        membership.add_episode(1.0, 1)
        membership._stub = lossy
        wait_until(lambda: run_client.get_run().progress.episode_count >= 1 + len(losses))

    returns = [e.episode_return for e in run_client.get_run().progress.recent_episodes]
    assert returns == [1.0] + [2.0] * len(losses)


def test_a_registry_that_stays_away_loses_its_members(start_param_server, config_json):
    server = start_param_server()
    with RunClient(server.address) as client:
        client.create_run("test", config_json)
        membership = client.join(pb.ROLE_ACTOR, wait_seconds=5, give_up_seconds=1.0)

        server.stop()

        assert membership.finished.wait(10)
        assert membership.lost
        assert seconds_of(membership.leave) < 2


def test_a_member_leaves_quickly_though_the_registry_is_gone(start_param_server, config_json):
    server = start_param_server()
    with RunClient(server.address) as client:
        client.create_run("test", config_json)
        membership = client.join(pb.ROLE_ACTOR, wait_seconds=5)
        server.stop()

        assert seconds_of(membership.leave) < 3
        assert not membership.lost


def test_a_registry_that_comes_back_without_the_run_loses_its_members(
    start_param_server, config_json
):
    server = start_param_server()
    with RunClient(server.address) as client:
        client.create_run("test", config_json)
        membership = client.join(pb.ROLE_ACTOR, wait_seconds=5)
        server.stop()
        start_param_server(server.address)

        assert membership.finished.wait(15)

        assert membership.lost
        membership.leave()


def test_joining_waits_for_the_server_and_for_the_run(start_param_server, config_json):
    placeholder = start_param_server()
    address = placeholder.address
    placeholder.stop()
    joined = []

    def join():
        with RunClient(address) as client, client.join(pb.ROLE_ACTOR, wait_seconds=20) as member:
            joined.append(member.run_id)

    thread = threading.Thread(target=join)
    thread.start()
    time.sleep(0.3)
    start_param_server(address)
    time.sleep(0.3)
    assert not joined
    with RunClient(address) as client:
        run = client.create_run("test", config_json)
    thread.join(15)

    assert joined == [run.run_id]


def test_joining_gives_up_in_time_and_says_what_was_missing(param_server):
    with RunClient(param_server.address) as client:
        start = time.monotonic()

        with pytest.raises(TimeoutError, match=r"waited 0.5 s for a run .*no run yet"):
            client.join(pb.ROLE_ACTOR, wait_seconds=0.5)

        assert time.monotonic() - start < 2


def test_waits_end_early_when_stopped(run_client, param_server):
    waits = [
        lambda stop: run_client.wait_for_member(pb.ROLE_REPLAY, 30, stop),
        lambda stop: run_client.wait_for_signature(30, stop),
    ]
    for wait in waits:
        stop = threading.Event()
        threading.Timer(0.2, stop.set).start()

        with pytest.raises(StoppedError):
            wait(stop)


def test_waiting_for_a_member_finds_the_one_with_an_address(run_client):
    with pytest.raises(TimeoutError, match="none of them a living replay with an address"):
        run_client.wait_for_member(pb.ROLE_REPLAY, timeout=0.2)

    with run_client.join(pb.ROLE_REPLAY, address="10.0.0.1:7", wait_seconds=5):
        assert run_client.wait_for_member(pb.ROLE_REPLAY, timeout=2).address == "10.0.0.1:7"


def test_waiting_ends_when_the_run_does(run_client):
    threading.Timer(0.2, run_client.finish_run, (pb.OUTCOME_STOPPED,)).start()

    with pytest.raises(RunFinishedError):
        run_client.wait_for_signature(timeout=30)


def test_a_report_that_is_refused_does_not_cost_the_membership(run_client, caplog):
    with run_client.join(pb.ROLE_ACTOR, wait_seconds=5) as membership:
        membership.add_episode(float("nan"), 1)
        wait_until(lambda: "refused a report" in caplog.text)
        membership.add_episode(5.0, 5)
        wait_until(lambda: run_client.get_run().progress.episode_count == 1)

        assert not membership.lost


def test_a_finished_run_that_is_replaced_is_not_lost(run_client, config_json, caplog):
    membership = run_client.join(pb.ROLE_ACTOR, wait_seconds=5)
    run_client.finish_run(pb.OUTCOME_STOPPED)
    assert membership.finished.wait(5)

    run_client.create_run("next", config_json)
    wait_until(lambda: not membership._thread.is_alive())

    assert not membership.lost
    membership.leave()
