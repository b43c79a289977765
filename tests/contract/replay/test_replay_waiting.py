"""Waiting: for the rate limiter, for a server that is away, and how each wait ends."""

import contextlib
import logging
import socket
import threading
import time

import grpc
import numpy as np
import pytest

from mycelia.replay.v1 import replay_pb2 as pb
from mycelia_core.clients.replay import BackPressureTimeout
from mycelia_core.clients.waiting import StoppedError
from mycelia_replay import gate


def wait_until(condition, timeout=5.0):
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.01)


def one_row(place: int, count: int = 1) -> dict[str, np.ndarray]:
    return {
        "observation": np.full((count, 4), place, np.float32),
        "action": np.zeros(count, np.int64),
        "reward": np.zeros(count, np.float32),
        "first": np.full(count, place == 0),
        "terminated": np.zeros(count, np.bool_),
        "truncated": np.zeros(count, np.bool_),
    }


class Proxy:
    """A TCP proxy whose connections can be cut, before or after the server's answers pass."""

    def __init__(self, address: str) -> None:
        host, port = address.rsplit(":", 1)
        self._target = (host, int(port))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.answers_pass = True
        self._sockets: list[socket.socket] = []
        self._closed = False
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        sockets, self._sockets = self._sockets, []
        for connection in sockets:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()

    def close(self) -> None:
        self._closed = True
        self._listener.close()
        self.cut()

    def _accept(self) -> None:
        while not self._closed:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            far = socket.create_connection(self._target)
            self._sockets += [near, far]
            threading.Thread(target=self._pump, args=(near, far, False), daemon=True).start()
            threading.Thread(target=self._pump, args=(far, near, True), daemon=True).start()

    def _pump(self, source, sink, is_answer) -> None:
        try:
            while data := source.recv(65536):
                if self.answers_pass or not is_answer:
                    sink.sendall(data)
        except OSError:
            pass


@pytest.fixture
def proxy_to():
    proxies = []

    def start(server) -> Proxy:
        proxies.append(Proxy(server.address))
        return proxies[-1]

    yield start
    for proxy in proxies:
        proxy.close()


def test_rows_resent_after_a_cut_connection_are_stored_once(
    start_server, make_table, connect, proxy_to, signature
):
    """The cut comes when the server has stored the rows and the answer has not arrived."""
    server = start_server(make_table())
    proxy = proxy_to(server)
    client = connect(proxy)
    writer = client.writer("train", ["a"], signature, chunk_rows=4)
    for place in range(4):
        writer.append(one_row(place))
    writer.flush(10)
    proxy.answers_pass = False
    for place in range(4, 8):
        writer.append(one_row(place))
    wait_until(lambda: server.table.counters.inserted_rows == 8)

    proxy.cut()
    proxy.answers_pass = True
    for place in range(8, 12):
        writer.append(one_row(place))
    writer.close(20)

    counters = server.table.counters
    assert counters.inserted_rows == 12
    assert counters.duplicate_rows == 4
    assert counters.missing_rows == 0
    assert server.table.item_count == 11


def test_the_sampler_goes_on_after_a_cut_connection(
    start_server, make_table, connect, proxy_to, signature
):
    server = start_server(make_table())
    proxy = proxy_to(server)
    with connect(server).writer("train", ["a"], signature) as writer:
        for place in range(20):
            writer.append(one_row(place))
    with connect(proxy).sampler("train", 4) as sampler:
        sampler.next(timeout=10)
        proxy.cut()
        for _ in range(10):
            sampler.next(timeout=10)


def test_sixty_four_waiting_inserts_are_released_by_a_sample(
    start_server, make_table, stub_of, insert_request
):
    table = make_table(samples_per_insert=1.0, min_items_to_sample=1, error_buffer=200.0)
    server = start_server(table)
    stub = stub_of(server)
    filled = insert_request(300, stream="first")
    (answer,) = stub.Insert(iter([filled]), timeout=5)
    assert answer.stored_row_count == 300
    answers = []
    threads = [
        threading.Thread(
            target=lambda i=i: answers.extend(
                stub.Insert(iter([insert_request(2, stream=f"s{i}")]), timeout=20)
            )
        )
        for i in range(64)
    ]
    for thread in threads:
        thread.start()
    info = lambda: stub.GetInfo(pb.GetInfoRequest(run_id="the-run"), timeout=5).tables[0]  # noqa: E731
    wait_until(lambda: info().rate_limiter.waiting_insert_count == 64)
    waited = info().rate_limiter.insert_wait_seconds

    request = pb.SampleRequest(run_id="the-run", table="train", batch_size=200, credit=1)
    batches = list(stub.Sample(iter([request]), timeout=10))
    for thread in threads:
        thread.join(10)

    assert batches[-1].last
    assert len(answers) == 64
    assert info().inserted_row_count == 300 + 128
    assert info().rate_limiter.waiting_insert_count == 0
    assert info().rate_limiter.insert_wait_seconds > waited > 0


def test_back_pressure_ends_with_the_writers_deadline_and_loses_nothing(
    start_server, make_table, connect, signature
):
    table = make_table(samples_per_insert=1.0, min_items_to_sample=1, error_buffer=8.0)
    client = connect(start_server(table))
    writer = client.writer(
        "train", ["a"], signature, chunk_rows=4, max_in_flight=2, timeout_seconds=0.3
    )
    recorded = 0
    with pytest.raises(BackPressureTimeout, match=r"2 requests not acknowledged for 0.3 s"):
        for place in range(1000):
            writer.append(one_row(place))
            recorded += 1
    assert 0.3 <= writer.wait_seconds < 2

    with client.sampler("train", 4) as sampler:
        stop = threading.Event()

        def consume() -> None:
            while not stop.is_set():
                with contextlib.suppress(TimeoutError):
                    sampler.next(timeout=0.1)

        consumer = threading.Thread(target=consume)
        consumer.start()
        writer.close(10)
        stop.set()
        consumer.join(5)

    assert writer.stored_row_count == recorded
    assert table.counters.missing_rows == 0


def test_a_stop_event_ends_the_waits_of_writer_and_sampler(
    start_server, make_table, connect, signature
):
    table = make_table(samples_per_insert=1.0, min_items_to_sample=500, error_buffer=1.0)
    client = connect(start_server(table))
    stop = threading.Event()
    sampler = client.sampler("train", 1, stop=stop)
    threading.Timer(0.2, stop.set).start()
    start = time.monotonic()

    with pytest.raises(StoppedError):
        sampler.next(timeout=30)
    assert list(sampler) == []
    sampler.close()
    assert time.monotonic() - start < 3


def test_full_duplicates_are_acknowledged_while_the_limiter_is_closed(
    start_server, make_table, stub_of, insert_request
):
    table = make_table(samples_per_insert=1.0, min_items_to_sample=1, error_buffer=1.0)
    stub = stub_of(start_server(table))
    list(stub.Insert(iter([insert_request(10)]), timeout=5))

    (answer,) = stub.Insert(iter([insert_request(10)]), timeout=5)

    assert (answer.stored_row_count, answer.duplicate_row_count) == (0, 10)


def test_a_malformed_insert_is_refused_at_once_while_the_limiter_is_closed(
    start_server, make_table, stub_of, insert_request
):
    table = make_table(samples_per_insert=1.0, min_items_to_sample=1, error_buffer=1.0)
    stub = stub_of(start_server(table))
    list(stub.Insert(iter([insert_request(10)]), timeout=5))

    with pytest.raises(grpc.RpcError) as caught:
        list(stub.Insert(iter([insert_request(3, start_row=10, flags=("", "f"))]), timeout=5))

    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_who_waits_long_logs_what_for_with_the_numbers(
    start_server, make_table, stub_of, insert_request, monkeypatch, caplog
):
    monkeypatch.setattr(gate, "LOG_PERIOD_SECONDS", 0.1)
    caplog.set_level(logging.INFO, gate.__name__)
    stub = stub_of(start_server(make_table(min_items_to_sample=9)))
    list(stub.Insert(iter([insert_request(5)]), timeout=5))

    request = pb.SampleRequest(run_id="the-run", table="train", batch_size=2, credit=1)
    with pytest.raises(grpc.RpcError):
        list(stub.Sample(iter([request]), timeout=0.5))

    messages = [record.getMessage() for record in caplog.records]
    assert 2 <= len(messages) <= 5
    assert "table 'train': sample waits since 0 s (1 waiting)" in messages[0]
    assert "items: 4 of min_items_to_sample=9 are there" in messages[0]


def test_all_priorities_zero_makes_samples_wait_until_one_is_raised(
    start_server, make_table, connect, signature
):
    client = connect(start_server(make_table()))
    with client.writer("train", ["a"], signature) as writer:
        for place in range(5):
            writer.append(one_row(place), priorities=np.zeros(1))
    with client.sampler("train", 4) as sampler:
        with pytest.raises(TimeoutError, match="total priority 0"):
            sampler.next(timeout=0.3)

        client.update_priorities("train", np.array([2]), np.ones(1))

        assert sampler.next(timeout=5).item_keys.tolist() == [2, 2, 2, 2]


def test_callers_wait_for_a_server_that_does_not_know_the_signature_yet(
    start_server, make_table, connect, signature
):
    server = start_server(None)
    client = connect(server)
    with pytest.raises(grpc.RpcError) as caught:
        client.stub.GetInfo(pb.GetInfoRequest(run_id="the-run"), timeout=0.1)
    assert caught.value.code() in (
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.DEADLINE_EXCEEDED,
    )
    writer = client.writer("train", ["a"], signature, chunk_rows=2)
    sampler = client.sampler("train", 1)
    for place in range(4):
        writer.append(one_row(place))

    server.open(make_table())

    writer.close(10)
    assert sampler.next(timeout=10).item_count >= 1
    sampler.close()


def test_a_server_that_stops_lets_go_of_all_who_wait_and_they_find_its_successor(
    start_server, make_table, connect, signature
):
    """Blocked inserts, a blocked and an idle sampler, an idle writer: all survive the restart."""
    closed = {"samples_per_insert": 1.0, "min_items_to_sample": 1, "error_buffer": 8.0}
    server = start_server(make_table(**closed))
    client = connect(server)
    blocked = client.writer("train", ["a"], signature, chunk_rows=4, max_in_flight=4)
    idle = client.writer("train", ["b"], signature, chunk_rows=4)
    for place in range(28):
        blocked.append(one_row(place))
    wait_until(lambda: client.info()[0].rate_limiter.waiting_insert_count == 1)
    start = time.monotonic()

    server.stop(grace_seconds=0.5)

    assert time.monotonic() - start < 2
    successor = start_server(make_table(), server.address)
    blocked.close(15)
    idle.append(one_row(0))
    idle.close(15)
    with client.sampler("train", 4) as sampler:
        sampler.next(timeout=10)
    assert successor.table.counters.duplicate_rows == 0
    assert successor.table.row_count >= 4 + 1
