"""A run whose table lies on two replay servers, as a person would start it."""

import json
import time

from mycelia_core.clients.run import RunClient


def test_trains_from_two_replay_servers_each_with_its_share(mycelia):
    command = mycelia(
        "train", "apex-cartpole", "replay.shards=2", "limits.max_env_steps=200000",
        "evaluation.solved_return=10000", "--json",
    )  # fmt: skip
    address = command.wait_for(r"services join at (\S+);")[1]
    deadline = time.monotonic() + 40
    with RunClient(address) as client:
        while True:
            members = client.get_run().members
            replays = [m for m in members if m.counters.get("sampled_items", 0) > 500]
            steps = max((m.counters.get("learner_steps", 0) for m in members), default=0)
            if len(replays) == 2 and steps > 20:
                break
            assert time.monotonic() < deadline, command.text
            time.sleep(0.1)
    command.signal(2)
    command.end()

    shares = [replay.counters["inserted_items"] for replay in replays]
    assert 0.7 < shares[0] / shares[1] < 1.4
    assert {replay.index for replay in replays} == {0, 1}
    assert json.loads(command.lines[-1])["learner_steps"] > 20
