"""What parameter servers and their shards export of gradients to Prometheus, as real processes."""

import json
import socket
import threading
import time
import urllib.request

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

from mycelia_core.clients.gradients import GradientClient, PushOutcome
from mycelia_core.clients.params import ParamClient
from mycelia_core.clients.run import RunClient
from mycelia_core.rpc.errors import InvalidArgumentError

WEIGHTS = {"w": np.zeros((2, 3), np.float32), "b": np.zeros((2, 2), np.float32)}


@pytest.fixture
def start(start_param_server_process):
    """Starts a server that can be scraped; returns its address and the port of its metrics."""

    def start(*arguments):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        server = start_param_server_process("--metrics-port", str(port), *arguments)
        return server.address, port

    return start


def scrape(port):
    """Returns the families by name, and every sample by its name with labels."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
        families = list(text_string_to_metric_families(answer.read().decode()))
    samples = {
        (sample.name, *sample.labels.values()): sample.value
        for family in families
        for sample in family.samples
    }
    return {family.name: family.type for family in families}, samples


def create_run(address, topology, shards=1, **gradients):
    config = {
        "name": "test",
        "env": {"id": "CartPole-v1"},
        "algorithm": {"name": "dqn"},
        "topology": topology,
        "gradients": {"optimizer": "sgd", "learning_rate": 0.5} | gradients,
        "param_server": {"shards": shards},
    }
    with RunClient(address) as client:
        return client.create_run("test", json.dumps(config)).run_id


def push(client, worker, sequence, version, fill=1.0, **changes):
    gradient = {name: np.full(w.shape, fill, np.float32) for name, w in WEIGHTS.items()}
    settings = {"worker_id": worker, "sequence": sequence, "version": version, "timeout": 20}
    return client.push(gradient, sample_count=1, **(settings | changes))


def test_outcomes_staleness_and_the_optimizer_are_exported(start):
    address, port = start()
    run_id = create_run(address, "async-gradients", max_staleness=2)
    with ParamClient(address, run_id) as params, GradientClient(address, run_id) as client:
        params.publish(WEIGHTS, learner_step=0, expected_version=0)
        for sequence in range(1, 6):
            push(client, "a", sequence, version=1)
        push(client, "a", 5, version=1)
        with pytest.raises(InvalidArgumentError):
            push(client, "a", 6, version=1, fill=np.nan)

        types, samples = scrape(port)

    pushes = {key[1]: n for key, n in samples.items() if key[0] == "mycelia_gradient_pushes_total"}
    assert pushes == {
        "applied": 3,
        "refused_stale": 2,
        "late": 0,
        "duplicate": 1,
        "skipped": 0,
        "not_finite": 1,
    }
    assert types["mycelia_gradient_pushes"] == "counter"
    assert types["mycelia_gradient_staleness_versions"] == "histogram"
    staleness = "mycelia_gradient_staleness_versions"
    # Staleness 0, 1, 2, and twice 3; buckets are cumulative.
    assert [samples[f"{staleness}_bucket", bound] for bound in ("0.0", "1.0", "2.0", "4.0")] == [
        1,
        2,
        3,
        5,
    ]
    assert samples[f"{staleness}_bucket", "+Inf"] == samples[f"{staleness}_count",] == 5
    assert samples[f"{staleness}_sum",] == 9
    assert samples["mycelia_gradient_updates_total",] == 3
    assert samples["mycelia_weight_version",] == 4
    assert samples["mycelia_gradient_learning_rate",] == 0.5
    assert samples["mycelia_gradient_norm",] == pytest.approx(10**0.5)
    assert samples["mycelia_gradient_optimizer_seconds_total",] > 0
    assert samples["mycelia_gradient_other_seconds_total",] > 0


def test_gradients_whose_step_is_scaled_are_counted(start):
    address, port = start()
    run_id = create_run(address, "async-gradients", max_staleness=1, stale_gradients="scale")
    with ParamClient(address, run_id) as params, GradientClient(address, run_id) as client:
        params.publish(WEIGHTS, learner_step=0, expected_version=0)
        for sequence in range(1, 5):
            assert push(client, "a", sequence, version=1).outcome is PushOutcome.APPLIED

        _, samples = scrape(port)

    assert samples["mycelia_gradient_scaled_pushes_total",] == 2
    assert samples["mycelia_gradient_pushes_total", "applied"] == 4


def test_rounds_and_the_stragglers_they_drop_are_exported(start):
    address, port = start()
    run_id = create_run(address, "sync-gradients", workers=3, drop_workers=1)
    with ParamClient(address, run_id) as params:
        params.publish(WEIGHTS, learner_step=0, expected_version=0)
        clients = [GradientClient(address, run_id) for _ in range(2)]

        def work(name, client, wait_seconds):
            for version in range(1, 4):
                time.sleep(wait_seconds)
                push(client, name, version, version)

        threads = [
            threading.Thread(target=work, args=args)
            for args in (("a", clients[0], 0.0), ("b", clients[1], 0.2))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        late = push(clients[0], "c", 1, version=1)
        types, samples = scrape(port)
        for client in clients:
            client.close()

    assert late.outcome is PushOutcome.LATE
    assert types["mycelia_round_seconds"] == "histogram"
    assert samples["mycelia_round_seconds_count",] == 3
    # The first to come waits for the second, who takes a fifth of a second.
    assert samples["mycelia_round_seconds_sum",] >= 0.5
    assert samples["mycelia_round_seconds_bucket", "0.1"] == 0
    assert samples["mycelia_round_seconds_bucket", "+Inf"] == 3
    assert samples["mycelia_round_stragglers_total",] == 3
    assert samples["mycelia_round_workers",] == 3
    assert samples["mycelia_gradient_pushes_total", "late"] == 1


@pytest.mark.parametrize("topology", ["replay", "async-gradients"])
def test_a_shard_exports_what_it_keeps_and_its_calls(start, topology):
    address, _ = start()
    run_id = create_run(address, topology, shards=2)
    _, port = start("--join", address)
    with ParamClient(address, run_id) as params, GradientClient(address, run_id) as client:
        params.publish(WEIGHTS, learner_step=0, expected_version=0, timeout=20)
        weights = params.get()
        if topology == "async-gradients":
            push(client, "a", 1, version=1, placement=weights.placement)

        types, samples = scrape(port)

    assert samples["mycelia_shard_parts",] >= 1
    assert samples["mycelia_shard_bytes",] >= min(w.nbytes for w in WEIGHTS.values())
    method = "mycelia.params.v1.ShardService/PutPart"
    assert samples["mycelia_rpc_calls_total", method, "OK"] >= 1
    if topology == "async-gradients":
        assert samples["mycelia_shard_version",] == 2
        assert samples["mycelia_gradient_optimizer_seconds_total",] > 0
        assert types["mycelia_gradient_optimizer_seconds"] == "counter"
