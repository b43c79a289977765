"""Checkpoints of tables: an exact continuation, and nothing but whole ones."""

import asyncio
import json
import random
import shutil
import subprocess
import sys
import time
from dataclasses import asdict

import numpy as np
import pytest

from mycelia_core.compression import compress
from mycelia_core.config import TableConfig, WindowConfig
from mycelia_core.specs import Codec, ColumnSpec, Signature
from mycelia_replay.checkpoint.checkpointer import Checkpointer
from mycelia_replay.checkpoint.folder import ROWS, find_all
from mycelia_replay.checkpoint.reading import restore
from mycelia_replay.checkpoint.storage import Storage
from mycelia_replay.checkpoint.writing import Snapshot, write
from mycelia_replay.rows import Rows, Segment
from mycelia_replay.table import Table
from mycelia_replay.table_creation import create_table

SIGNATURE = Signature.of([ColumnSpec("observation", np.dtype(np.int64), (3,))])


class Source:
    """Rows of three streams, whose observation is ten times their number plus the stream's."""

    def __init__(self):
        self.next_rows = [0, 0, 0]

    def insert(self, table, rows=7, priorities=None):
        segments, columns, marks = [], [], []
        for stream, start in enumerate(self.next_rows):
            numbers = np.arange(start, start + rows)
            segments.append(Segment(f"stream-{stream}", start, rows))
            columns.append(10 * numbers + stream)
            marks.append(numbers % 11)
            self.next_rows[stream] += rows
        observations, marks = np.concatenate(columns), np.concatenate(marks)
        table.insert(
            Rows(
                segments,
                {
                    "observation": np.repeat(observations[:, None], 3, axis=1),
                    "reward": np.zeros(len(marks), np.float32),
                    "first": marks == 0,
                    "terminated": marks == 10,
                    "truncated": np.zeros(len(marks), np.bool_),
                },
                priorities,
                len(marks),
            )
        )


def make_table(**settings):
    settings = {"capacity_rows": 200, "samples_per_insert": 2, "error_buffer": 1000} | settings
    window = WindowConfig(bootstrap_rows=2, context_rows=1)
    return Table(TableConfig(**settings, window=window), SIGNATURE, np.random.SeedSequence(1))


def assert_same_batch(one, other):
    for name, value in asdict(one).items():
        if name == "item_keys":
            # Rows stored after the restore have keys of another life.
            np.testing.assert_array_equal(value % 2**44, other.item_keys % 2**44)
        elif name == "columns":
            for column, values in value.items():
                np.testing.assert_array_equal(values, other.columns[column])
        else:
            np.testing.assert_array_equal(value, getattr(other, name))


def save(folder, table, run_id="", earlier=None):
    return write(folder, run_id, {table.name: Snapshot.of(table)}, earlier or {})


@pytest.mark.parametrize(
    "settings",
    [
        {"sampler": "prioritized"},
        {"sampler": "uniform"},
        {"sampler": "fifo", "max_times_sampled": 1},
        {"sampler": "prioritized", "max_times_sampled": 3},
        {"sampler": "rank", "max_items": 9},
        {"sampler": "max_heap", "max_items": 9, "remover": "lowest_priority"},
        {"sampler": "lifo", "max_items": 9, "remover": "lifo", "max_times_sampled": 2},
    ],
    ids=str,
)
@pytest.mark.parametrize("inserts", [3, 25], ids=["half full", "wrapped"])
def test_a_restored_table_draws_the_very_batches_of_one_that_was_never_stopped(
    tmp_path, settings, inserts
):
    table, source = make_table(**settings), Source()
    generator = np.random.default_rng(3)
    for _ in range(inserts):
        source.insert(table, priorities=generator.random(21))
        batch = table.sample(4)
        table.update_priorities(batch.item_keys, generator.random(4))
    save(tmp_path, table)

    restored = restore(tmp_path, "", lambda: [make_table(**settings)]).tables[0]

    assert restored.counters == table.counters
    assert restored.limiter.difference == table.limiter.difference
    assert restored.total_priority == table.total_priority
    other_source = Source()
    other_source.next_rows = list(source.next_rows)
    for _ in range(100):
        priorities = generator.random(21)
        source.insert(table, priorities=priorities)
        other_source.insert(restored, priorities=priorities)
        one, other = table.sample(8), restored.sample(8)
        assert_same_batch(one, other)
        updates = generator.random(8)
        assert table.update_priorities(one.item_keys, updates) == restored.update_priorities(
            other.item_keys, updates
        )


def test_rows_that_a_restored_table_has_are_dropped_and_a_gap_is_counted(tmp_path):
    table, source = make_table(), Source()
    source.insert(table)
    save(tmp_path, table)
    restored = restore(tmp_path, "", lambda: [make_table()]).tables[0]

    source.next_rows = [5, 9, 7]
    source.insert(restored)

    assert restored.counters.duplicate_rows == 2
    assert restored.counters.missing_rows == 2


def test_late_updates_for_lost_rows_do_not_reach_the_rows_in_their_place(tmp_path):
    table, source = make_table(), Source()
    source.insert(table)
    kept = table.sample(8).item_keys
    save(tmp_path, table)
    source.insert(table)
    seen = np.concatenate([table.sample(8).item_keys for _ in range(50)])
    lost = np.unique(seen[seen > kept.max() + 3])

    for _ in range(2):  # two restores from one checkpoint must not know each other's rows either
        restored = restore(tmp_path, "", lambda: [make_table()]).tables[0]
        source.insert(restored)
        total = restored.total_priority

        assert restored.update_priorities(lost, np.full(len(lost), 1e6)) == (0, len(lost))
        assert restored.total_priority == total
        assert restored.counters.stale_updates == len(lost)
        assert restored.update_priorities(kept, np.ones(8)) == (8, 0)
        seen = np.concatenate([restored.sample(8).item_keys for _ in range(50)])
        lost = np.union1d(lost, seen[seen % 2**44 > kept.max() + 3])


def test_rows_are_saved_as_they_were_however_fast_they_are_overwritten(tmp_path):
    table, source = make_table(), Source()
    for _ in range(20):
        source.insert(table)
    snapshot = Snapshot.of(table)
    snapshot.hold.block_rows = 16
    twin = make_table()
    expected = twin
    twin_source = Source()
    for _ in range(20):
        twin_source.insert(twin)

    read = snapshot.hold.next_block
    blocks = []

    def read_and_overwrite():
        block = read()
        blocks.append(block)
        source.insert(table, rows=20)
        return block

    snapshot.hold.next_block = read_and_overwrite
    write(tmp_path, "", {"train": snapshot}, {})

    restored = restore(tmp_path, "", lambda: [make_table()]).tables[0]
    assert snapshot.hold.aside_bytes > 0
    for _ in range(10):
        assert_same_batch(expected.sample(8), restored.sample(8))


def test_rows_are_written_once_and_shared_by_later_checkpoints(tmp_path, monkeypatch):
    monkeypatch.setattr("mycelia_replay.checkpoint.writing.SEGMENT_BYTES", 1)
    monkeypatch.setattr("mycelia_replay.row_hold.BLOCK_BYTES", 16 * 31)
    table, source = make_table(), Source()
    for _ in range(8):
        source.insert(table)
    first = save(tmp_path, table)
    source.insert(table)

    second = save(tmp_path, table, earlier=first.segments)

    shared = set(map(id, first.segments["train"])) & set(map(id, second.segments["train"]))
    assert len(shared) == len(first.segments["train"]) - 1
    restored = restore(tmp_path, "", lambda: [make_table()])
    assert_same_batch(table.sample(8), restored.tables[0].sample(8))

    for _ in range(12):
        source.insert(table)
        second = save(tmp_path, table, earlier=second.segments)
        restored = restore(tmp_path, "", lambda: [make_table()])
        batch = restored.tables[0].sample(8)
        assert_same_batch(table.sample(8), batch)
    listed = {
        entry.path for segment in second.segments["train"] for entry in segment.columns.values()
    }
    on_disk = {f"{ROWS}/{path.name}" for path in (tmp_path / ROWS).iterdir()}
    assert listed <= on_disk
    assert len(find_all(tmp_path)) == 2


@pytest.mark.parametrize("harm", ["array", "rows", "manifest", "missing"])
def test_a_broken_checkpoint_is_reported_and_the_one_before_is_taken(tmp_path, harm, caplog):
    table, source = make_table(), Source()
    source.insert(table)
    save(tmp_path, table)
    expected = make_table()
    Source().insert(expected)
    source.insert(table)
    newest = save(tmp_path, table)
    victim = {
        "array": newest.path / "train.items%2Fis_there.raw",
        "rows": tmp_path / newest.segments["train"][-1].columns["observation"].path,
        "manifest": newest.path / "manifest.json",
        "missing": newest.path / "train.items%2Frow_counts.raw",
    }[harm]
    if harm == "missing":
        victim.unlink()
    else:
        content = bytearray(victim.read_bytes())
        content[len(content) // 2] ^= 1
        victim.write_bytes(content)

    restored = restore(tmp_path, "", lambda: [make_table()])

    assert "broken" in caplog.text
    assert restored.path.name == "checkpoint-00000001"
    assert_same_batch(expected.sample(8), restored.tables[0].sample(8))
    save(tmp_path, restored.tables[0], earlier=restored.segments)
    assert restore(tmp_path, "", lambda: [make_table()]).path.name == "checkpoint-00000003"


def test_a_table_that_was_made_on_request_comes_back_with_its_states(tmp_path):
    signature = Signature.of(SIGNATURE.columns[:1], [ColumnSpec("state", np.dtype(np.int64))])
    config = TableConfig(name="more", capacity_rows=50, window=WindowConfig(burn_in_rows=1))
    table = create_table(config, signature)
    observations = np.repeat(np.arange(9)[:, None], 3, axis=1)
    flags = {"terminated": np.zeros(9, np.bool_), "truncated": np.zeros(9, np.bool_)}
    columns = {"observation": observations, "reward": np.zeros(9, np.float32), **flags}
    columns["first"] = np.arange(9) == 0
    every = np.arange(9)
    table.insert(Rows([Segment("a", 0, 9)], columns, None, 9, every, {"state": 100 + every}))
    save(tmp_path, table)

    train, more = restore(tmp_path, "", lambda: [make_table()]).tables

    assert (train.row_count, more.name, more.row_count) == (0, "more", 9)
    sampled = more.sample(32)
    starts = 1 - sampled.burn_in_counts
    observed = sampled.columns["observation"][starts, np.arange(32), 0]
    assert (sampled.item_columns["state"] == 100 + observed).all()
    save(tmp_path, more)
    assert len(restore(tmp_path, "", lambda: [make_table()]).tables) == 2


def test_a_checkpoint_of_other_settings_is_refused_with_the_setting(tmp_path):
    save(tmp_path, make_table())

    with pytest.raises(ValueError, match="had capacity_rows=200, now capacity_rows=300"):
        restore(tmp_path, "", lambda: [make_table(capacity_rows=300)])


def test_a_checkpoint_of_another_run_is_left_alone_unless_asked_for(tmp_path, caplog):
    save(tmp_path, make_table(), run_id="old")

    assert restore(tmp_path, "new", lambda: [make_table()]) is None
    assert "is of run old" in caplog.text
    assert restore(tmp_path, None, lambda: [make_table()]) is not None


def test_a_checkpoint_holds_no_code(tmp_path):
    table = make_table()
    Source().insert(table)
    path = save(tmp_path, table).path

    for file in [*path.iterdir(), *(tmp_path / ROWS).iterdir()]:
        assert file.suffix in (".raw", ".json")
    entry = next(iter(json.loads((path / "manifest.json").read_text())["manifest"]["tables"]))
    assert entry == "train"


def test_compressed_columns_come_back_as_they_were(tmp_path):
    codec = next((c for c in Codec if c is not Codec.RAW), None)
    spec = ColumnSpec("observation", np.dtype(np.uint8), (64,), codec=codec)
    signature = Signature.of([spec])

    def make():
        config = TableConfig(capacity_rows=50, window=WindowConfig())
        return Table(config, signature, np.random.SeedSequence(1))

    table = make()
    for start in range(0, 90, 10):
        values = np.repeat(np.arange(start, start + 10, dtype=np.uint8)[:, None], 64, axis=1)
        flags = np.zeros(10, np.bool_)
        columns = {
            "observation": compress(spec, values),
            "reward": np.zeros(10, np.float32),
            "first": np.arange(start, start + 10) == 0,
            "terminated": flags,
            "truncated": flags,
        }
        table.insert(Rows([Segment("a", start, 10)], columns, None, 10))
    save(tmp_path, table)

    restored = restore(tmp_path, "", lambda: [make()]).tables[0]

    one, other = table.sample(8).columns["observation"], restored.sample(8).columns["observation"]
    assert one.rows.data == other.rows.data
    np.testing.assert_array_equal(one.index, other.index)


async def test_saves_wait_for_one_another_and_outlive_whoever_asked(tmp_path):
    table, source = make_table(), Source()
    source.insert(table)
    checkpointer = Checkpointer(tmp_path, "", [table])
    asked = asyncio.create_task(checkpointer.save())
    await asyncio.sleep(0)
    asked.cancel()

    await checkpointer.save()

    assert checkpointer.saved_count == 2
    assert len(find_all(tmp_path)) == 2


def test_two_servers_cannot_use_one_folder_and_who_comes_back_is_the_same(tmp_path):
    storage = Storage(tmp_path)
    with pytest.raises(ValueError, match="another process uses it"):
        Storage(tmp_path)
    known = storage.instance_id
    storage.close()

    again = Storage(tmp_path)

    assert again.instance_id == known
    again.close()


SAVING = """
import sys
from pathlib import Path
sys.path.insert(0, {tests!r})
from test_checkpoint import Source, make_table, save
table, source, earlier = make_table(), Source(), {{}}
while True:
    source.insert(table)
    earlier = save(Path({folder!r}), table, earlier=earlier).segments
    print("saved", flush=True)
"""


@pytest.mark.slow
def test_killed_at_any_of_20_instants_of_saving_a_whole_checkpoint_is_left(tmp_path):
    generator = random.Random(7)
    code = SAVING.format(tests=str(__file__).rpartition("/")[0], folder=str(tmp_path))
    previous = 0
    for _ in range(20):
        process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
        assert process.stdout.readline()
        time.sleep(generator.uniform(0.0, 0.1))
        process.kill()
        process.communicate()
        checkpoints = find_all(tmp_path)
        restored = restore(tmp_path, "", lambda: [make_table()])
        # The newest was committed whole, and none has gone that was there before.
        assert restored.path == checkpoints[0][1]
        assert checkpoints[0][0] >= previous
        previous = checkpoints[0][0]
        observations = restored.tables[0].sample(8).columns["observation"]
        assert (observations == observations[..., :1]).all()
    assert previous > 0
    shutil.rmtree(tmp_path / ROWS)
