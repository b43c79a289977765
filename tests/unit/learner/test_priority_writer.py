"""Priorities on their way back, against a real replay server."""

import numpy as np

from mycelia_core.clients.replay import ReplayClient
from mycelia_learner.priority_writer import PriorityWriter

from .conftest import create_run, insert, make_config


def test_priorities_of_many_batches_reach_the_table(servers, run_client):
    config = make_config()
    run = create_run(run_client, config)
    server = servers.start_replay(run.run_id, config)
    insert(server.address, run.run_id, 110)

    with ReplayClient(server.address, run.run_id) as client:
        with client.sampler("train", 16) as sampler:
            batches = [sampler.next(timeout=10) for _ in range(5)]
        writer = PriorityWriter(client, "train")
        for batch in batches:
            writer.put(batch.item_keys, np.full(16, 0.5))
        writer.close(5)
        (info,) = client.info(["train"])

    assert info.updated_priority_count + info.stale_update_count == 80
    assert writer.dropped_batches == 0


def test_priorities_for_a_server_that_is_gone_are_counted_and_the_writer_ends(caplog):
    with ReplayClient("127.0.0.1:1", "0" * 12) as client:
        writer = PriorityWriter(client, "train")
        writer.put(np.arange(3), np.ones(3))
        writer.close(20)

    assert writer.dropped_batches == 1
    assert "priorities of 1 batches were lost" in caplog.text
