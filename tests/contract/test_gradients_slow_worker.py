"""What one slow worker costs the others, with and without rounds and with and without drops."""

import threading
import time

import numpy as np
import pytest

from mycelia_core.clients.gradients import GradientClient, PushOutcome

WORKERS = 4
STEP_SECONDS = 0.05
RUN_SECONDS = 2.5

pytestmark = pytest.mark.slow


def applied_per_second(client, step_seconds):
    """Returns how many gradients each worker has applied per second; they step in sleep."""
    end = time.monotonic() + RUN_SECONDS
    counts = [0] * len(step_seconds)

    def work(index, step):
        version = 1
        with GradientClient(client.address, client.run_id) as mine:
            sequence = 0
            while time.monotonic() < end:
                time.sleep(step)
                sequence += 1
                result = mine.push(
                    {"w": np.ones(1000, np.float32)},
                    version=version,
                    worker_id=str(index),
                    sequence=sequence,
                    sample_count=1,
                )
                version = result.version
                counts[index] += result.outcome is PushOutcome.APPLIED

    threads = [
        threading.Thread(target=work, args=(index, step)) for index, step in enumerate(step_seconds)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    return np.array(counts) / RUN_SECONDS


def measure(gradient_run, topology, slowness, **gradients):
    """Returns the mean rate of all workers but the last, which is so many times slower."""
    client, _ = gradient_run(topology, tensors={"w": np.zeros(1000, np.float32)}, **gradients)
    steps = [STEP_SECONDS] * (WORKERS - 1) + [STEP_SECONDS * slowness]
    return applied_per_second(client, steps)[:-1].mean()


def test_a_worker_ten_times_slower_costs_a_round_that_drops_one_less_than_a_tenth(gradient_run):
    settings = {"workers": WORKERS, "drop_workers": 1}
    even = measure(gradient_run, "sync-gradients", 1, workers=WORKERS)

    slowed = measure(gradient_run, "sync-gradients", 10, **settings)

    assert slowed > 0.9 * even


def test_without_drops_the_same_worker_slows_all_down(gradient_run):
    even = measure(gradient_run, "sync-gradients", 1, workers=WORKERS)

    slowed = measure(gradient_run, "sync-gradients", 10, workers=WORKERS)

    assert slowed < 0.5 * even


def test_a_worker_ten_times_slower_does_not_slow_the_others_without_rounds(gradient_run):
    even = measure(gradient_run, "async-gradients", 1)

    slowed = measure(gradient_run, "async-gradients", 10)

    assert slowed > 0.95 * even
