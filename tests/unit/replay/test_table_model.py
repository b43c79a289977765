"""The table against a model of dictionaries and lists that does everything row by row."""

import math
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from mycelia_core.config import TableConfig, WindowConfig
from mycelia_core.specs import ColumnSpec, Signature
from mycelia_replay.rows import Rows, Segment
from mycelia_replay.table import Table

INTEGER = np.dtype(np.int64)
SIGNATURE = Signature.of([ColumnSpec("observation", INTEGER)], [ColumnSpec("state", INTEGER)])


@dataclass
class ModelStream:
    next_row: int = 0
    ended: bool = True
    fragment: list[int] = field(default_factory=list)


@dataclass
class ModelItem:
    keys: list[int]
    context: list[int]
    burn_in: list[int]
    priority: float
    times_sampled: int = 0


class Model:
    """What the table should hold, by keys of rows."""

    def __init__(self, config: TableConfig) -> None:
        self.config, self.window = config, config.window
        self.observations: list[int] = []
        self.priorities: list[float] = []
        self.oldest = 0
        self.streams: dict[str, ModelStream] = {}
        self.items: dict[int, ModelItem] = {}
        self.inserted = self.removed = self.duplicates = self.missing = 0
        self.arrivals: dict[int, int] = {}

    def insert(self, segments) -> None:
        candidates: list[ModelItem] = []
        for stream_id, start_row, rows in segments:
            candidates += self._insert_segment(stream_id, start_row, rows)
        self.oldest = max(self.oldest, len(self.observations) - self.config.capacity_rows)
        self.items = {k: item for k, item in self.items.items() if self._alive(item)}
        new = [item for item in candidates if self._alive(item)]
        new.sort(key=lambda item: item.keys[0])
        default = self._default_priority()
        for item in new:
            self.arrivals[item.keys[0]] = len(self.arrivals)
            known = self.priorities[item.keys[0]]
            item.priority = default if math.isnan(known) else known
            self.items[item.keys[0]] = item
        self.inserted += len(new)
        self._make_room()

    def _default_priority(self) -> float:
        heeded = self.config.sampler in ("prioritized", "rank", "max_heap") or (
            self.config.max_items and self.config.remover == "lowest_priority"
        )
        known = [item.priority for item in self.items.values()] if heeded else []
        return max(known, default=0.0) or 1.0

    def _make_room(self) -> None:
        excess = len(self.items) - self.config.max_items if self.config.max_items else 0
        for _ in range(excess):
            del self.items[min(self.items, key=self._leaves_first)]
            self.removed += 1

    def _leaves_first(self, key: int) -> tuple[float, int]:
        arrival, remover = self.arrivals[key], self.config.remover
        if remover == "lifo":
            return 0.0, -arrival
        return self.items[key].priority if remover == "lowest_priority" else 0.0, arrival

    def drawn_first(self, count: int) -> list[int]:
        """The keys that a sampler which leaves nothing to chance draws."""
        newest = -1 if self.config.sampler == "lifo" else 1
        by_priority = self.config.sampler == "max_heap"
        return sorted(
            self.items,
            key=lambda k: (
                -self.items[k].priority if by_priority else 0.0,
                newest * self.arrivals[k],
            ),
        )[:count]

    def _insert_segment(self, stream_id, start_row, rows) -> list[ModelItem]:
        stream = self.streams.setdefault(stream_id, ModelStream())
        made: list[ModelItem] = []
        for number, (observation, flag, priority) in enumerate(rows, start_row):
            if number < stream.next_row:
                self.duplicates += 1
                continue
            if number > stream.next_row:
                self.missing += number - stream.next_row
                if not stream.ended:
                    made += self._close(stream, shortest_done=True)
                stream.fragment, stream.ended = [], True
            if stream.ended:
                stream.fragment = []
            stream.fragment.append(len(self.observations))
            self.observations.append(observation)
            self.priorities.append(priority)
            stream.next_row, stream.ended = number + 1, flag != ""
            made += self._close(stream) if flag else self._complete(stream)
        return made

    def _complete(self, stream: ModelStream) -> list[ModelItem]:
        start = len(stream.fragment) - self.window.rows
        if start < 0 or start % self.window.period:
            return []
        return [self._item(stream.fragment, start)]

    def _close(self, stream: ModelStream, shortest_done: bool = False) -> list[ModelItem]:
        actions = len(stream.fragment) - 1
        made = []
        for start in range(0, actions, self.window.period):
            is_done = start + self.window.rows <= len(stream.fragment) - (not shortest_done)
            covered = start > 0 and start - self.window.period + self.window.learn_rows >= actions
            if not is_done and not covered:
                made.append(self._item(stream.fragment, start))
        return made

    def _item(self, fragment: list[int], start: int) -> ModelItem:
        wanted = range(start - self.window.lead_rows, start)
        context = [fragment[max(0, place)] for place in wanted]
        burn_in = fragment[max(0, start - self.window.burn_in_rows) : start]
        rows = fragment[start : start + self.window.rows]
        return ModelItem(rows, context, burn_in, math.nan)

    def _alive(self, item: ModelItem) -> bool:
        return min([*item.context, *item.keys]) >= self.oldest

    def rows(self, item: ModelItem) -> list[int]:
        padding = [item.keys[-1]] * (self.window.rows - len(item.keys))
        return [self.observations[key] for key in [*item.context, *item.keys, *padding]]


flags_strategy = st.lists(st.sampled_from(["", "", "", "", "t", "c"]), min_size=1, max_size=9)


class TableMachine(RuleBasedStateMachine):
    """Does the same to a table and to the model, and compares them."""

    @initialize(
        capacity=st.integers(12, 60),
        learn_rows=st.integers(1, 4),
        bootstrap_rows=st.integers(0, 3),
        period=st.integers(1, 4),
        context_rows=st.integers(0, 2),
        burn_in_rows=st.integers(0, 3),
        sampler=st.sampled_from(["prioritized", "rank", "uniform", "max_heap", "fifo", "lifo"]),
        remover=st.sampled_from(["fifo", "lifo", "lowest_priority"]),
        max_items=st.sampled_from([0, 0, 1, 4, 9]),
        max_times_sampled=st.sampled_from([0, 0, 1, 3]),
    )
    def make(self, capacity, sampler, remover, max_items, max_times_sampled, **window):
        config = TableConfig(
            capacity_rows=capacity,
            sampler=sampler,
            remover=remover,
            max_items=max_items,
            max_times_sampled=max_times_sampled,
            priority_exponent=0.7,
            window=WindowConfig(**window),
        )
        self.table = Table(config, SIGNATURE, np.random.SeedSequence(1))
        self.model = Model(config)
        self.gone: list[int] = []
        self.observation = 0

    @rule(
        data=st.data(),
        streams=st.lists(st.sampled_from("abc"), unique=True, min_size=1),
        with_priorities=st.booleans(),
    )
    def insert(self, data, streams, with_priorities):
        segments = []
        for stream_id in streams:
            stream = self.model.streams.get(stream_id, ModelStream())
            gap = data.draw(st.sampled_from([0, 0, 0, 0, 2]))
            back = data.draw(st.sampled_from([0, 0, 0, 3])) if not gap else 0
            start_row = max(0, stream.next_row + gap - back)
            flags = data.draw(flags_strategy)
            segments.append((stream_id, start_row, self._rows(flags, with_priorities)))
        total = sum(len(rows) for _, _, rows in segments)
        if total <= self.table.config.capacity_rows:
            self._insert(segments, with_priorities)

    def _rows(self, flags, with_priorities):
        rows = []
        for flag in flags:
            self.observation += 1
            priority = float(self.observation % 7) if with_priorities else math.nan
            rows.append((self.observation, flag, priority))
        return rows

    def _insert(self, segments, with_priorities):
        first, rows = [], []
        for stream_id, start_row, segment_rows in segments:
            stream = self.model.streams.get(stream_id, ModelStream())
            skipped = min(max(0, stream.next_row - start_row), len(segment_rows))
            ended = stream.ended
            for place, row in enumerate(segment_rows):
                first.append(ended if place >= skipped else False)
                ended = row[1] != "" if place >= skipped else ended
            if start_row > stream.next_row:
                first[-len(segment_rows)] = True
            rows += segment_rows
        columns = {
            "observation": np.array([row[0] for row in rows]),
            "reward": np.zeros(len(rows), np.float32),
            "first": np.array(first),
            "terminated": np.array([row[1] == "t" for row in rows]),
            "truncated": np.array([row[1] == "c" for row in rows]),
        }
        priorities = np.array([row[2] for row in rows]) if with_priorities else None
        asked = [Segment(s, start, len(segment_rows)) for s, start, segment_rows in segments]
        before = set(self.model.items)
        self.model.insert(segments)
        every = np.arange(len(rows))
        states = {"state": 1000 + columns["observation"]}
        self.table.insert(Rows(asked, columns, priorities, len(rows), every, states))
        self.gone += sorted(before - set(self.model.items))

    @precondition(lambda self: self.table.can_draw(4))
    @rule()
    def sample(self):
        model, expected = self.model, self.model.drawn_first(4)
        sampled = self.table.sample(4)
        if self.table.config.sampler in ("fifo", "lifo", "max_heap"):
            assert sampled.item_keys.tolist() == expected
        for i, key in enumerate(sampled.item_keys.tolist()):
            item = model.items[key]
            assert sampled.columns["observation"][:, i].tolist() == model.rows(item)
            assert sampled.row_counts[i] == len(item.keys)
            assert sampled.burn_in_counts[i] == len(item.burn_in)
            start = model.observations[[*item.burn_in, *item.keys][0]]
            assert sampled.item_columns["state"][i] == 1000 + start
            item.times_sampled += 1
        limit = self.table.config.max_times_sampled
        for key, times in zip(sampled.item_keys.tolist(), sampled.times_sampled, strict=True):
            assert times == model.items[key].times_sampled
            assert not limit or times <= limit
        for key in set(sampled.item_keys.tolist()):
            if limit and model.items[key].times_sampled == limit:
                del model.items[key]
                self.gone.append(key)

    @rule(data=st.data(), priority=st.sampled_from([0.0, 0.5, 3.0, 1e6]))
    def update_priorities(self, data, priority):
        living, gone = sorted(self.model.items), self.gone[-20:]
        keys = data.draw(st.lists(st.sampled_from([*living, *gone, 10**9, -3]), max_size=6))
        for key in keys:
            if key in self.model.items:
                self.model.items[key].priority = priority

        result = self.table.update_priorities(
            np.array(keys, np.int64), np.full(len(keys), priority)
        )

        stale = sum(key not in self.model.items for key in keys)
        assert result == (len(keys) - stale, stale)

    @rule(data=st.data())
    def delete_items(self, data):
        known = [*sorted(self.model.items), *self.gone[-5:], 10**9]
        keys = data.draw(st.lists(st.sampled_from(known), max_size=2))
        living = set(keys) & set(self.model.items)
        for key in living:
            del self.model.items[key]
        self.gone += sorted(living)

        result = self.table.delete_items(np.array(keys, np.int64))

        assert result == (len(living), len(keys) - len(living))

    @rule()
    def reset(self):
        self.gone += sorted(self.model.items)
        self.model.items.clear()
        self.model.oldest = len(self.model.observations)
        self.table.reset()

    @invariant()
    def agrees(self):
        table, model = self.table, self.model
        slots = table._items.slots
        keys = table._ring.keys(slots)
        assert set(keys.tolist()) == set(model.items)
        assert table.item_count == len(model.items)
        assert table.row_count == len(model.observations) - model.oldest
        assert table.counters.inserted_items == model.inserted
        assert table.counters.removed_items == model.removed
        assert table.counters.stateless_items == 0
        assert table.counters.duplicate_rows == model.duplicates
        assert table.counters.missing_rows == model.missing
        gathered = table._ring.gather(
            table._ring.window(slots, table.window.rows, table.window.lead_rows)
        )["observation"]
        for i, key in enumerate(keys.tolist()):
            assert gathered[:, i].tolist() == model.rows(model.items[key])
            assert table._items.row_counts(slots)[i] == len(model.items[key].keys)
        self._check_priorities()

    def _check_priorities(self):
        items = self.model.items.values()
        if self.table.config.sampler == "prioritized":
            leaves = [item.priority**0.7 if item.priority else 0.0 for item in items]
            assert self.table.total_priority == pytest.approx(sum(leaves), rel=1e-12)
        elif self.table.config.sampler == "rank":
            count = sum(item.priority > 0 for item in items)
            ranks = np.arange(1.0, count + 1)
            assert self.table.total_priority == pytest.approx((ranks**-0.7).sum(), rel=1e-12)
        else:
            assert self.table.total_priority == len(items)


TableMachine.TestCase.settings = settings(
    max_examples=200,
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
TestTableModel = TableMachine.TestCase
