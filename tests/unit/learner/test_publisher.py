"""Publishing, against a real parameter server."""

import numpy as np
import pytest

from mycelia_core.clients.params import ParamClient
from mycelia_learner.publisher import Publisher, Snapshot

from .conftest import create_run, make_config


@pytest.fixture
def run_id(run_client):
    return create_run(run_client, make_config()).run_id


@pytest.fixture
def param_client(run_client, run_id):
    with ParamClient(run_client.address, run_id) as client:
        yield client


def snapshot(step):
    return Snapshot(step, {"w": np.full(3, step, np.float32)})


def test_versions_count_up_and_what_was_published_is_kept(param_client, run_client, run_id):
    publisher = Publisher(param_client, run_client, run_id)

    assert [publisher.publish(snapshot(step)) for step in (5, 6)] == [1, 2]
    publisher.put(snapshot(7))
    publisher.close(5)

    assert param_client.get().learner_step == 7
    assert publisher.version == 3
    assert publisher.find(2).learner_step == 6
    assert publisher.find(9) is None


def test_a_new_publisher_goes_on_from_the_servers_version(param_client, run_client, run_id):
    Publisher(param_client, run_client, run_id).publish(snapshot(1))

    assert Publisher(param_client, run_client, run_id).publish(snapshot(2)) == 2


def test_a_version_lost_to_another_is_read_again(param_client, run_client, run_id):
    publisher = Publisher(param_client, run_client, run_id)
    param_client.publish(snapshot(1).tensors, 1, 0)

    assert publisher.publish(snapshot(2)) == 2
    assert param_client.get().learner_step == 2
