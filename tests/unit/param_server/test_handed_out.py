"""Versions that can be had again after they were handed out."""

import pytest

from mycelia_core.rpc.errors import NotFoundError
from mycelia_param_server.handed_out import KEPT_AT_LEAST, HandedOut


def test_a_version_that_was_handed_out_is_found_again():
    handed_out = HandedOut()

    handed_out.keep(3, (b"three",))
    handed_out.keep(7, (b"seven",))

    assert handed_out.find(3) == (b"three",)
    with pytest.raises(NotFoundError, match="version: 4"):
        handed_out.find(4)


def test_the_oldest_go_first_but_a_few_are_always_kept():
    handed_out = HandedOut(max_bytes=1)

    for version in range(10):
        handed_out.keep(version, (bytes(100),))

    kept = range(10 - KEPT_AT_LEAST, 10)
    assert [handed_out.find(version) for version in kept] == [(bytes(100),)] * KEPT_AT_LEAST
    with pytest.raises(NotFoundError):
        handed_out.find(10 - KEPT_AT_LEAST - 1)


def test_a_version_asked_for_again_counts_as_new():
    handed_out = HandedOut(max_bytes=1)
    for version in (1, 2, 3, 4):
        handed_out.keep(version, (b"..",))

    handed_out.keep(1, (b"..",))
    handed_out.keep(5, (b"..",))

    assert handed_out.find(1)
    with pytest.raises(NotFoundError):
        handed_out.find(2)
