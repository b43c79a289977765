"""How frames travel: compressed, each once, and through shared memory on the same host."""

import gc
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path

import lz4.block
import numpy as np
import pytest

from mycelia.experience.v1 import signature_pb2
from mycelia.replay.v1 import replay_pb2 as pb
from mycelia_core.clients.shared_segment import SharedSegment
from mycelia_core.codec import encode
from mycelia_core.rpc.errors import InvalidArgumentError
from mycelia_core.specs import Codec, ColumnSpec, Signature
from mycelia_replay.shared_memory import SharedMemory

FRAME = (84, 84)


def signature_of(codec: Codec) -> Signature:
    return Signature.of([ColumnSpec("observation", np.dtype(np.uint8), FRAME, codec=codec)])


def fill(client, codec: Codec, count: int = 60) -> np.ndarray:
    """Writes one episode whose reward is the number of the frame; returns the frames."""
    frames = np.random.default_rng(1).integers(0, 256, (count, *FRAME), np.uint8)
    frames[::2] = frames[::2, :1, :1]
    with client.writer("train", ["a"], signature_of(codec)) as writer:
        for i, frame in enumerate(frames):
            columns = {"observation": frame[None], "reward": np.array([i], np.float32)}
            for flag, value in (("first", i == 0), ("terminated", False), ("truncated", False)):
                columns[flag] = np.array([value])
            writer.append(columns)
    return frames


def assert_right(batch, frames) -> None:
    rewards = batch.columns["reward"].astype(int)
    assert np.array_equal(np.diff(rewards, axis=0)[batch.context_rows :], np.ones((4, 32)))
    assert np.array_equal(batch.columns["observation"], frames[rewards])


@pytest.fixture
def serve(make_table, start_server, connect):
    def start(codec: Codec):
        table = make_table(signature_of(codec), bootstrap_rows=4, context_rows=3)
        return connect(start_server(table))

    return start


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("shared_memory", [True, False])
def test_frames_come_back_whatever_the_codec_and_the_way(serve, codec, shared_memory):
    client = serve(codec)
    frames = fill(client, codec)

    with client.sampler("train", 32, shared_memory=shared_memory) as sampler:
        for _ in range(10):
            assert_right(sampler.next(timeout=10), frames)


def test_batches_that_are_kept_are_never_overwritten(serve):
    client = serve(Codec.RAW)
    frames = fill(client, Codec.RAW)

    with client.sampler("train", 32, prefetch=2) as sampler:
        kept = [sampler.next(timeout=10) for _ in range(25)]
        for batch in kept:
            assert_right(batch, frames)
        del kept[::2]
        gc.collect()
        kept += [sampler.next(timeout=10) for _ in range(10)]
    for batch in kept:
        assert_right(batch, frames)


def test_each_distinct_row_of_a_batch_is_sent_once(serve, stub_of, start_server):
    client = serve(Codec.LZ4)
    fill(client, Codec.LZ4, count=20)

    request = pb.SampleRequest(run_id=client.run_id, table="train", batch_size=64, credit=1)
    header = next(iter(client.stub.Sample(iter([request]), timeout=5))).header

    (column,) = header.compressed_columns
    assert column.rows.shape == [8, 64]
    assert column.lengths.shape[0] <= 20


def test_a_bomb_is_refused_and_nothing_is_stored(serve):
    client = serve(Codec.LZ4)
    block = lz4.block.compress(bytes(2_500_000), store_size=False)
    blob = struct.pack("<I", len(block)) + block
    flags = {"first": True, "terminated": False, "truncated": False}
    columns = [pb.ColumnData(name=name, values=encode(np.array([v]))) for name, v in flags.items()]
    columns.append(pb.ColumnData(name="reward", values=encode(np.zeros(1, np.float32))))
    lengths = encode(np.array([len(blob)], np.int32))
    compressed = signature_pb2.CompressedRows(lengths=lengths, data=blob)
    columns.append(pb.ColumnData(name="observation", compressed=compressed))
    request = pb.InsertRequest(
        run_id=client.run_id,
        table="train",
        sequence=1,
        segments=[pb.Segment(stream_id="a", row_count=1)],
        columns=columns,
    )

    with pytest.raises(Exception, match="INVALID_ARGUMENT"):
        list(client.stub.Insert(iter([request]), timeout=5))

    assert client.info()[0].row_count == 0


def test_values_that_should_be_compressed_are_refused(serve):
    client = serve(Codec.LZ4)

    with pytest.raises(InvalidArgumentError, match="lz4"):
        fill(client, Codec.RAW)


def test_memory_of_another_process_is_not_attached():
    memory = SharedMemory(4096, 2)
    wrong = pb.SharedMemory()
    wrong.CopyFrom(memory.offer)
    wrong.nonce = bytes(16)

    with pytest.raises(ValueError, match="nonce"):
        SharedSegment(wrong)
    wrong.size_bytes += 4096
    with pytest.raises(ValueError, match="segment"):
        SharedSegment(wrong)
    memory.close()
    with pytest.raises(OSError, match=str(memory.offer.fd)):
        SharedSegment(memory.offer)


def test_batches_come_by_grpc_where_memory_cannot_be_shared(serve, monkeypatch):
    def refuse(*_: object) -> None:
        raise OSError("another host")

    monkeypatch.setattr("mycelia_core.clients.batches.SharedSegment", refuse)
    client = serve(Codec.RAW)
    frames = fill(client, Codec.RAW)

    with client.sampler("train", 32) as sampler:
        for _ in range(5):
            assert_right(sampler.next(timeout=10), frames)


def test_nothing_is_left_behind_when_a_reader_is_killed(serve):
    client = serve(Codec.RAW)
    fill(client, Codec.RAW)
    before = set(Path("/dev/shm").iterdir())
    script = (
        "import sys, time; from mycelia_core.clients.replay import ReplayClient\n"
        "sampler = ReplayClient(sys.argv[1], sys.argv[2]).sampler('train', 32)\n"
        "kept = [sampler.next(20) for _ in range(5)]; print('ready', flush=True); time.sleep(60)"
    )
    reader = subprocess.Popen(
        [sys.executable, "-c", script, client.address, client.run_id], stdout=subprocess.PIPE
    )
    try:
        assert reader.stdout.readline() == b"ready\n"
    finally:
        reader.send_signal(signal.SIGKILL)
        reader.communicate()

    assert set(Path("/dev/shm").iterdir()) <= before
    deadline = time.monotonic() + 10
    while _links() and time.monotonic() < deadline:
        gc.collect()
        time.sleep(0.05)
    assert not _links()


def _links() -> list[str]:
    found = []
    for path in Path("/proc/self/fd").iterdir():
        try:
            found.append(str(path.readlink()))
        except OSError:
            continue
    return [link for link in found if "mycelia-batches" in link]


def test_updates_in_the_background_are_applied_in_order(serve):
    client = serve(Codec.RAW)
    fill(client, Codec.RAW)
    with client.sampler("train", 32) as sampler:
        keys = np.unique(sampler.next(timeout=10).item_keys)

    with client.updater("train") as updater:
        for value in (5.0, 0.0, 3.0):
            updater.submit(keys, np.full(len(keys), value))
        updater.submit(np.array([10**9]), [1.0])
        updater.flush(10)

        assert (updater.applied_count, updater.stale_count) == (3 * len(keys), 1)
    others = client.info()[0].item_count - len(keys)
    assert client.info()[0].total_priority == pytest.approx(len(keys) * 3.0**0.6 + others)
    with client.updater("train") as updater:
        updater.submit(keys, np.full(len(keys), np.nan))
        with pytest.raises(InvalidArgumentError, match="priorities"):
            updater.flush(10)
