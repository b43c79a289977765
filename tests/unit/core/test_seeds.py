"""Seeds of a run's generators."""

from itertools import product

from mycelia_core.seeds import seed_int, seed_sequence


def test_no_two_environments_of_any_two_actors_or_runs_share_a_seed():
    keys = list(product([0, 1, 2], ["actor", "evaluator"], range(8), range(16)))

    states = {
        tuple(seed_sequence(run, role, actor, slot).generate_state(4))
        for run, role, actor, slot in keys
    }

    assert len(states) == len(keys)


def test_the_same_place_in_the_same_run_has_the_same_seed():
    assert seed_int(seed_sequence(7, "actor", 1, 2)) == seed_int(seed_sequence(7, "actor", 1, 2))


def test_integers_fit_libraries_that_take_31_bits():
    assert all(0 <= seed_int(seed_sequence(seed, "x")) < 2**31 for seed in range(200))
