"""Which windows become items, against worked examples."""

import numpy as np
import pytest


def n_step(items, rewards, gamma, terminated):
    """What a learner makes of items: (first row, return, discount, last row or None)."""
    found = []
    for key, (observations, row_count) in sorted(items.items()):
        steps = row_count - 1
        ret = sum(gamma**k * rewards[observations[k]] for k in range(steps))
        boot = observations[steps]
        ends = boot in terminated
        found.append((key, round(ret, 6), 0 if ends else round(gamma**steps, 6), boot))
    return found


REWARDS = [1.0, 2, 3, 4, 5, 0]


def test_n_step_windows_of_an_episode_that_goes_on(make_driver):
    driver = make_driver(bootstrap_rows=3, capacity_rows=50)

    driver.insert("a", [(0, "f"), (1, ""), (2, ""), (3, ""), (4, ""), (5, "")])

    assert n_step(driver.items(), REWARDS, 0.9, set()) == [
        (0, 5.23, 0.729, 3),
        (1, 7.94, 0.729, 4),
        (2, 10.65, 0.729, 5),
    ]


def test_n_step_windows_are_shortened_at_a_termination_without_bootstrap(make_driver):
    driver = make_driver(bootstrap_rows=3, capacity_rows=50)

    driver.episode("a", 5)

    assert n_step(driver.items(), REWARDS, 0.9, {5})[2:] == [
        (2, 10.65, 0, 5),
        (3, 8.5, 0, 5),
        (4, 5.0, 0, 5),
    ]


def test_n_step_windows_are_shortened_at_a_truncation_with_bootstrap(make_driver):
    driver = make_driver(bootstrap_rows=3, capacity_rows=50)

    driver.episode("a", 5, end="c")

    assert n_step(driver.items(), REWARDS, 0.9, set())[2:] == [
        (2, 10.65, 0.729, 5),
        (3, 8.5, 0.81, 5),
        (4, 5.0, 0.9, 5),
    ]


def test_a_fresh_window_begins_after_an_early_termination(make_driver):
    driver = make_driver(bootstrap_rows=3, capacity_rows=50)

    driver.episode("a", 3)
    driver.insert("a", [(4, "f"), (5, ""), (6, ""), (7, "")])

    items = driver.items()
    assert n_step(items, [1.0, 2, 3, 0, 0, 0, 0, 0], 0.9, {3}) == [
        (0, 5.23, 0, 3),
        (1, 4.7, 0, 3),
        (2, 3.0, 0, 3),
        (4, 0, 0.729, 7),
    ]


def test_t4_fragments_that_cut_episodes_lose_no_transition_and_join_none(make_driver):
    """A: rewards 1,1,1,1 terminated; B: 5,5 truncated; C goes on. Sent three rows at a time."""
    rows = [(0, "f"), (1, ""), (2, ""), (3, ""), (4, "t")]
    rows += [(10, "f"), (11, ""), (12, "c"), (20, "f"), (21, "")]
    rewards = {0: 1, 1: 1, 2: 1, 3: 1, 10: 5, 11: 5, 20: 9, 21: 9}
    driver = make_driver(bootstrap_rows=3, capacity_rows=50)

    for start in range(0, len(rows), 3):
        driver.insert("a", rows[start : start + 3])

    assert [item[1:] for item in n_step(driver.items(), rewards, 0.9, {4})] == [
        (2.71, 0.729, 3),
        (2.71, 0, 4),
        (1.9, 0, 4),
        (1.0, 0, 4),
        (9.5, 0.81, 12),
        (5.0, 0.9, 12),
    ]


def test_the_head_of_a_small_ring_passes_through_without_mixing_old_and_new(make_driver):
    driver = make_driver(bootstrap_rows=3, capacity_rows=5)

    for start in range(0, 12, 3):
        flags = "f" if start == 0 else ""
        driver.insert("a", [(start, flags), (start + 1, ""), (start + 2, "")])
        for observations, row_count in driver.items().values():
            assert row_count == 4
            assert observations == list(range(observations[0], observations[0] + 4))
    assert len(driver.items()) == 2


@pytest.mark.parametrize(
    ("actions", "expected"),
    [
        (9, [(0, 4), (2, 4), (4, 4), (6, 3)]),
        (8, [(0, 4), (2, 4), (4, 4)]),
        (3, [(0, 3)]),
    ],
)
def test_sequences_overlap_and_stop_once_the_end_is_covered(make_driver, actions, expected):
    """Burn-in 2 as context, learn 4, period 2: (start, rows learned from)."""
    driver = make_driver(learn_rows=4, bootstrap_rows=1, period=2, context_rows=2, capacity_rows=50)

    driver.episode("a", actions)

    assert [(key, count - 1) for key, (_, count) in sorted(driver.items().items())] == expected


def test_rows_past_the_end_repeat_the_last_one_and_context_the_first(make_driver):
    driver = make_driver(bootstrap_rows=3, context_rows=2, capacity_rows=50)

    driver.episode("a", 3, first=10)

    assert driver.items() == {
        0: ([10, 10, 10, 11, 12, 13], 4),
        1: ([10, 10, 11, 12, 13, 13], 3),
        2: ([10, 11, 12, 13, 13, 13], 2),
    }


def test_a_frame_stack_never_reaches_over_the_beginning_of_an_episode(make_driver):
    """End pattern F F T F T F F F T F and stack 3: index 3 -> 3,3,3; 5 -> 5,5,5; 7 -> 5,6,7."""
    flags = ["f", "", "t", "f", "t", "f", "", "", "t", "f"]
    driver = make_driver(bootstrap_rows=1, context_rows=2, capacity_rows=50)

    driver.insert("a", list(enumerate(flags)))

    stacks = {key: observations[:3] for key, (observations, _) in driver.items().items()}
    assert stacks[3] == [3, 3, 3]
    assert stacks[5] == [5, 5, 5]
    assert stacks[7] == [5, 6, 7]


def test_an_episode_without_actions_makes_no_item(make_driver):
    driver = make_driver(bootstrap_rows=3, capacity_rows=50)

    driver.insert("a", [(0, "ft"), (1, "f"), (2, "t")])

    assert driver.items() == {1: ([1, 2, 2, 2], 2)}


def test_a_gap_ends_the_windows_before_it_and_nothing_connects_over_it(make_driver):
    driver = make_driver(bootstrap_rows=3, context_rows=1, capacity_rows=50)

    driver.insert("a", [(0, "f"), (1, ""), (2, ""), (3, ""), (4, "")])
    result = driver.insert("a", [(7, ""), (8, ""), (9, ""), (10, "")], start_row=7)

    assert result.missing_count == 2
    assert driver.items() == {
        0: ([0, 0, 1, 2, 3], 4),
        1: ([0, 1, 2, 3, 4], 4),
        2: ([1, 2, 3, 4, 4], 3),
        3: ([2, 3, 4, 4, 4], 2),
        5: ([7, 7, 8, 9, 10], 4),
    }


def test_windows_without_bootstrap_rows_cover_every_action_once(make_driver):
    driver = make_driver(learn_rows=2, bootstrap_rows=0, period=2, capacity_rows=50)

    driver.episode("a", 5)

    assert driver.items() == {0: ([0, 1], 2), 2: ([2, 3], 2), 4: ([4, 5], 2)}


def test_single_row_items_are_made_of_every_row_but_the_final_one(make_driver):
    driver = make_driver(learn_rows=1, bootstrap_rows=0, capacity_rows=50)

    driver.episode("a", 2)

    assert driver.items() == {0: ([0], 1), 1: ([1], 1)}


def test_t8_frames_are_kept_once_and_stacked_when_sampled():
    """84x84 frames, stack 4, capacity 8, episodes of 5: bytes against the naive layout."""
    from mycelia_core.config import TableConfig, WindowConfig
    from mycelia_core.specs import ColumnSpec, Signature
    from mycelia_replay.rows import Rows, Segment
    from mycelia_replay.table import Table

    signature = Signature.of([ColumnSpec("observation", np.dtype(np.uint8), (84, 84))])
    config = TableConfig(capacity_rows=8, window=WindowConfig(context_rows=3))
    table = Table(config, signature, np.random.SeedSequence(1))
    naive_bytes = 8 * 2 * 4 * 84 * 84

    for row in range(40):
        place = row % 6
        columns = {
            "observation": np.full((1, 84, 84), 1 + row, np.uint8),
            "reward": np.ones(1, np.float32),
            "first": np.array([place == 0]),
            "terminated": np.array([False]),
            "truncated": np.array([place == 5]),
        }
        table.insert(Rows([Segment("a", row, 1)], columns, None, 1))
        if table.can_draw(32):
            check_stacks(table.sample(32).columns["observation"][:, :, 0, 0].astype(int) - 1)

    assert table.nbytes <= 0.35 * naive_bytes


def check_stacks(rows: np.ndarray) -> None:
    """[5, B] row numbers of 3 context rows, the item's own row, and the one after it."""
    own = rows[3]
    first = own - own % 6
    for back in range(4):
        assert (rows[3 - back] == np.maximum(own - back, first)).all()
    assert (rows[4] == own + 1).all()
    assert (rows >= 0).all()
