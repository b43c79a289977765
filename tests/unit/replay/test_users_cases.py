"""What users of other replay services were bitten by, as far as one table shows it."""

import numpy as np
import pytest

from mycelia_core.config import TableConfig, WindowConfig
from mycelia_core.specs import ColumnSpec, Signature
from mycelia_replay.rows import Rows, Segment
from mycelia_replay.sum_tree import SumTree
from mycelia_replay.table import Table

STATE = Signature.of(
    [ColumnSpec("observation", np.dtype(np.int64))],
    [ColumnSpec("state", np.dtype(np.float32), (2,))],
)


def episode(table, stream, start_row, actions, *, states=None, end="terminated", first=0):
    """Inserts an episode of T actions; observations and states are the row's place in it."""
    count = actions + 1
    places = np.arange(count)
    columns = {
        "observation": first + places,
        "reward": np.ones(count, np.float32),
        "first": places == 0,
        "terminated": (places == actions) & (end == "terminated"),
        "truncated": (places == actions) & (end == "truncated"),
    }
    every = places if states is None else states
    values = np.repeat((first + every)[:, None], 2, axis=1).astype(np.float32)
    rows = Rows([Segment(stream, start_row, count)], columns, None, count, every, {"state": values})
    table.insert(rows)
    return start_row + count


def recurrent_table(**window) -> Table:
    config = TableConfig(capacity_rows=500, sampler="uniform", window=WindowConfig(**window))
    return Table(config, STATE, np.random.SeedSequence(1))


def all_items(table):
    """Every item of a table once, by key."""
    sampled = table.sample(2000)
    _, which = np.unique(sampled.item_keys, return_index=True)
    return sampled, which


def test_t1_a_late_update_never_reaches_the_item_that_took_the_place(make_driver):
    driver = make_driver(capacity_rows=4, bootstrap_rows=0, priority_exponent=1.0)
    driver.insert("a", [(0, "f"), (1, ""), (2, ""), (3, "")])
    old = np.unique(driver.table.sample(200).item_keys)
    driver.insert("a", [(4, ""), (5, ""), (6, ""), (7, "")])

    assert driver.table.update_priorities(old, np.full(4, 1e6)) == (0, 4)

    drawn = np.bincount(driver.table.sample(20_000).item_keys, minlength=8)[4:]
    assert ((drawn - 5000) ** 2 / 5000).sum() < 16.27  # p > 0.001 with 3 degrees of freedom
    assert driver.table.counters.stale_updates == 4


def test_t2_draws_stay_in_the_filled_part_and_off_priority_zero():
    generator = np.random.default_rng(1)
    tree = SumTree(500)
    for _ in range(50):
        tree.set(np.arange(100), generator.random(100) + 1e-8)
        slots = tree.draw(generator, 20_000)
        assert slots.max() < 100
        share = tree[np.array([99])][0] / tree.total
        last = np.count_nonzero(slots == 99)
        assert abs(last - 20_000 * share) <= 5 * np.sqrt(20_000 * share) + 1

    tree.set(np.arange(100), 10.0 ** generator.uniform(-12, 12, 100))
    tree.set(np.array([0, 50, 99]), 0.0)
    found = tree.find(np.r_[0.0, tree.total, generator.random(100_000) * tree.total])
    assert not set(found.tolist()) & {0, 50, 99}
    single = SumTree(1)
    single.set(np.array([0]), 1e-12)
    assert single.draw(generator, 100).tolist() == [0] * 100


def test_ten_million_updates_leave_the_tree_exact():
    generator = np.random.default_rng(1)
    tree, mirror = SumTree(1024), np.zeros(1024)
    for _ in range(10_000):
        slots = generator.integers(0, 1024, 1000)
        values = generator.random(1000) * 10.0 ** generator.integers(-6, 6)
        tree.set(slots, values)
        mirror[slots] = values
        assert tree.total > 0

    assert tree.total == pytest.approx(mirror.sum(), rel=1e-14)


@pytest.mark.parametrize(
    ("actions", "expected"),
    [
        (9, [(0, 0, 4), (0, 2, 4), (2, 4, 4), (4, 6, 3)]),
        (8, [(0, 0, 4), (0, 2, 4), (2, 4, 4)]),
        (3, [(0, 0, 3)]),
    ],
)
def test_t9_sequences_come_with_burn_in_and_the_state_stored_where_it_starts(actions, expected):
    """Burn-in 2, learn 4, period 2: (state stored at, learn start, rows learned from)."""
    table = recurrent_table(learn_rows=4, period=2, burn_in_rows=2)
    episode(table, "a", 0, actions)

    sampled, which = all_items(table)

    found = [
        (int(state[0]), int(start), int(count) - 1)
        for state, start, count in zip(
            sampled.item_columns["state"][which],
            sampled.columns["observation"][2, which],
            sampled.row_counts[which],
            strict=True,
        )
    ]
    assert found == expected
    for i in which:
        real = sampled.columns["observation"][2 - sampled.burn_in_counts[i] :, i]
        assert (np.diff(real[: sampled.burn_in_counts[i] + sampled.row_counts[i]]) == 1).all()
        assert real[0] == sampled.item_columns["state"][i, 0]


def test_t9_no_sequence_or_burn_in_crosses_an_episode():
    table = recurrent_table(learn_rows=20, period=10, burn_in_rows=10)
    row = 0
    for number, actions in enumerate((7, 20, 33)):
        row = episode(table, "a", row, actions, first=1000 * number)

    sampled, which = all_items(table)

    observations = sampled.columns["observation"][:, which]
    assert (observations // 1000 == observations[0] // 1000).all()
    assert (sampled.item_columns["state"][which, 0] // 1000 == observations[0] // 1000).all()
    assert len(which) == 1 + 1 + 3


def test_a_state_is_kept_only_for_rows_where_an_item_starts():
    table = recurrent_table(learn_rows=4, period=4, burn_in_rows=2)
    episode(table, "a", 0, 40)

    # Rows 0 and 2, 6, ..., 38.
    kept = table._item_columns.are_there(np.arange(41)).nonzero()[0]
    assert kept.tolist() == [0, *range(2, 41, 4)]


def test_an_item_whose_start_came_without_a_state_is_not_made_and_counted():
    table = recurrent_table(learn_rows=4, period=4, burn_in_rows=2)

    episode(table, "a", 0, 12, states=np.array([0, 6]))

    assert np.unique(table.sample(100).item_keys).tolist() == [0, 8]
    assert table.counters.stateless_items == 1


def test_states_are_given_up_with_their_rows():
    config = TableConfig(capacity_rows=40, window=WindowConfig(learn_rows=2, period=2))
    table = Table(config, STATE, np.random.SeedSequence(1))
    row = 0
    for _ in range(100):
        row = episode(table, "a", row, 10)
        held = table._item_columns.nbytes
    assert held == table._item_columns.nbytes
    assert table._item_columns._place_count == 64

    table.reset()
    assert len(table._item_columns._free) == 64


def test_frames_take_at_most_three_tenths_of_the_naive_layout_for_n_steps_of_stacks():
    """n=3, stacks of 4 frames; naive: both stacks of each transition."""
    signature = Signature.of([ColumnSpec("observation", np.dtype(np.uint8), (84, 84))])
    window = WindowConfig(bootstrap_rows=3, context_rows=3)
    table = Table(
        TableConfig(capacity_rows=2000, window=window), signature, np.random.SeedSequence(1)
    )

    assert table.nbytes <= 0.30 * 2000 * 2 * 4 * 84 * 84


@pytest.mark.parametrize("sampler", ["uniform", "prioritized", "rank", "max_heap", "fifo", "lifo"])
def test_t8_a_frame_that_a_living_item_needs_is_there_as_long_as_the_item(make_driver, sampler):
    driver = make_driver(
        capacity_rows=11, sampler=sampler, bootstrap_rows=3, context_rows=2, burn_in_rows=1
    )
    for number in range(60):
        start = 100 * number
        driver.episode("a", 1 + number % 7, first=start, end="c")
        for observations, _ in driver.items().values():
            assert len({observation // 100 for observation in observations}) == 1
            assert (np.diff(observations) >= 0).all()
            assert (np.diff(observations) <= 1).all()


def test_unrolls_of_a_queue_are_consumed_once_and_in_order(make_driver):
    driver = make_driver(
        capacity_rows=100,
        sampler="fifo",
        rate_limiter="queue",
        max_times_sampled=1,
        max_items=8,
        learn_rows=5,
        period=5,
    )
    driver.insert("a", [(0, "f"), *((i, "") for i in range(1, 26))])

    first = driver.table.sample(2)
    second = driver.table.sample(3)

    assert first.columns["observation"][0].tolist() == [0, 5]
    assert second.columns["observation"][0].tolist() == [10, 15, 20]
    assert not driver.table.can_draw(1)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"rate_limiter": "queue"}, "needs sampler=fifo, max_times_sampled=1 and max_items"),
        ({"rate_limiter": "stack", "sampler": "fifo"}, "needs sampler=lifo"),
        ({"rate_limiter": "min_size", "samples_per_insert": 2.0}, "means nothing"),
        ({"max_items": 5, "min_items_to_sample": 6}, "no sample could ever be drawn"),
        ({"samples_per_insert": 4.0, "error_buffer": 3.0}, "would wait for each other"),
        ({"burn_in_rows": 1000}, "longer than"),
    ],
)
def test_t21_impossible_settings_are_refused_with_the_reason(make_driver, settings, reason):
    with pytest.raises(ValueError, match=reason):
        make_driver(**({"capacity_rows": 100} | settings))
