"""Which replay member is which shard."""

from mycelia.run.v1 import run_pb2 as pb
from mycelia_core.clients.run_replay import shard_addresses


def member(index, address, *, alive=True, role=pb.ROLE_REPLAY):
    return pb.Member(role=role, index=index, address=address, alive=alive)


def test_a_shard_is_its_index_whatever_the_order_of_joining():
    members = [member(1, "b"), member(0, "x", role=pb.ROLE_LEARNER), member(0, "a")]

    assert shard_addresses(members, 2) == ["a", "b"]


def test_who_is_gone_or_not_listening_is_not_there():
    members = [member(0, "a", alive=False), member(1, "")]

    assert shard_addresses(members, 2) == [None, None]


def test_a_server_started_again_under_a_new_name_takes_the_place_of_the_one_that_is_gone():
    members = [member(0, "a"), member(1, "b", alive=False), member(2, "c")]

    assert shard_addresses(members, 2) == ["a", "c"]
    assert shard_addresses([member(0, "a", alive=False), member(1, "b")], 1) == ["b"]
