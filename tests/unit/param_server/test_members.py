"""Leases, indices and counters of members, on a clock that the test turns."""

import logging

import pytest

from mycelia_core.rpc.errors import InvalidArgumentError, NotFoundError
from mycelia_param_server.members import MAX_GONE_MEMBERS, Identity, Members, Role

LEASE_SECONDS = 10.0


class Clock:
    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def members(clock):
    return Members(LEASE_SECONDS, clock, clock)


def actor(name):
    return Identity(instance_id=name, role=Role.ACTOR, host="box", pid=17)


def test_members_of_a_role_are_counted_from_0(members):
    learner = Identity(instance_id="l", role=Role.LEARNER)

    indices = [members.join(who).index for who in (actor("a"), learner, actor("b"), actor("c"))]

    assert indices == [0, 0, 1, 2]


def test_joining_again_keeps_the_index(members):
    members.join(actor("a"))
    members.join(actor("b"))

    assert members.join(actor("b")).index == 1
    assert len(list(members)) == 2


def test_the_place_of_a_lost_member_is_taken_by_the_next_one(members, clock):
    for name in "abc":
        members.join(actor(name))
    clock.now += LEASE_SECONDS / 2
    for name in "ac":
        members.heartbeat(name, 1, {})
    clock.now += LEASE_SECONDS / 2

    lost = members.expire()

    assert [member.identity.instance_id for member in lost] == ["b"]
    assert members.join(actor("d")).index == 1
    assert members.join(actor("e")).index == 3


def test_who_comes_back_gets_its_index_unless_it_is_taken(members, clock):
    members.join(actor("a"))
    members.join(actor("b"))
    clock.now += LEASE_SECONDS
    members.expire()

    assert members.join(actor("b")).index == 1
    assert members.join(actor("c")).index == 0
    assert members.join(actor("a")).index == 2


def test_a_heartbeat_renews_the_lease(members, clock):
    members.join(actor("a"))
    for sequence in range(1, 10):
        clock.now += LEASE_SECONDS * 0.9
        assert members.expire() == []
        members.heartbeat("a", sequence, {})

    clock.now += LEASE_SECONDS

    assert len(members.expire()) == 1
    with pytest.raises(NotFoundError, match="'a' has no lease"):
        members.heartbeat("a", 10, {})


def test_a_lost_lease_is_logged_with_who_it_was(members, clock, caplog):
    members.join(actor("a"))
    clock.now += 12.5

    with caplog.at_level(logging.WARNING):
        members.expire()

    assert "actor 0 (host box, pid 17) lost its lease: last seen 12.5 s ago" in caplog.text


def test_a_stranger_has_no_lease(members):
    with pytest.raises(NotFoundError, match="'x'"):
        members.heartbeat("x", 1, {})


def test_repeated_and_late_heartbeats_are_told_from_new_ones(members):
    members.join(actor("a"))

    news = [members.heartbeat("a", sequence, {}) for sequence in (1, 1, 3, 2, 3, 4)]

    assert news == [True, False, True, False, False, True]


def test_a_late_heartbeat_does_not_turn_counters_back(members):
    members.join(actor("a"))
    members.heartbeat("a", 2, {"env_steps": 20, "policy_version": 5})
    members.heartbeat("a", 1, {"env_steps": 10, "policy_version": 4})

    assert members.find("a").counters == {"env_steps": 20, "policy_version": 5}


def test_env_steps_of_gone_actors_still_count(members, clock):
    members.join(actor("a"))
    members.heartbeat("a", 1, {"env_steps": 100})
    members.leave("a")
    members.join(actor("b"))
    members.heartbeat("b", 1, {"env_steps": 10})
    clock.now += LEASE_SECONDS
    members.expire()

    members.join(actor("c"))
    members.heartbeat("c", 1, {"env_steps": 1})

    assert members.env_steps == 111


def test_env_steps_of_others_than_actors_do_not_count(members):
    members.join(Identity(instance_id="e", role=Role.EVALUATOR))
    members.heartbeat("e", 1, {"env_steps": 100})

    assert members.env_steps == 0


def test_who_has_left_is_off_the_list_and_leaves_its_index(members):
    members.join(actor("a"))
    members.leave("a")
    members.leave("a")

    assert list(members) == []
    assert members.join(actor("b")).index == 0


def test_only_so_many_gone_members_are_remembered(members):
    for number in range(MAX_GONE_MEMBERS + 50):
        members.join(actor(f"a{number}"))
        members.heartbeat(f"a{number}", 1, {"env_steps": 1})
        members.leave(f"a{number}")

    assert members.find("a0") is None
    assert members.find(f"a{MAX_GONE_MEMBERS + 49}") is not None
    assert members.env_steps == MAX_GONE_MEMBERS + 50


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1.0, 1e300])
def test_a_total_that_cannot_be_is_refused(members, value):
    members.join(actor("a"))

    with pytest.raises(InvalidArgumentError, match="env_steps must be in"):
        members.heartbeat("a", 1, {"env_steps": value})


def test_a_gauge_may_be_nan(members):
    members.join(actor("a"))

    assert members.heartbeat("a", 1, {"loss": float("nan")})


def test_an_instance_cannot_change_its_role(members):
    members.join(actor("a"))

    with pytest.raises(InvalidArgumentError, match="got LEARNER, instance a has joined as ACTOR"):
        members.join(Identity(instance_id="a", role=Role.LEARNER))
