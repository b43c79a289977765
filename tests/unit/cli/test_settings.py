"""From presets, environment and command line to a config."""

import pytest

from mycelia_cli.errors import InputError
from mycelia_cli.presets import preset_names
from mycelia_cli.settings import resolve


@pytest.mark.parametrize("name", preset_names())
def test_every_preset_is_valid_and_says_what_it_is(name):
    config = resolve(name, [], {}).config

    assert config.name == name
    assert config.description
    assert config.replay.window is not None


def test_the_command_line_wins_over_the_environment_and_that_over_the_preset():
    environ = {"MYCELIA__LEARNER__BATCH_SIZE": "32", "MYCELIA__SEED": "7"}

    config = resolve("apex-cartpole", ["learner.batch_size=64"], environ).config

    assert config.learner.batch_size == 64
    assert config.seed == 7
    assert config.env.id == "CartPole-v1"
    assert config.learner.adam_epsilon == 1e-8


def test_the_window_follows_from_the_algorithm_unless_it_is_set():
    follows = resolve("apex-cartpole", ["algorithm.n_step=5"], {}).config.replay.window
    is_set = resolve("apex-cartpole", ["replay.window.bootstrap_rows=2"], {}).config.replay.window

    assert follows is not None
    assert is_set is not None
    assert follows.bootstrap_rows == 5
    assert is_set.bootstrap_rows == 2


def test_none_unsets_what_may_be_unset():
    config = resolve("apex-cartpole", ["evaluation.solved_return=none"], {}).config

    assert config.evaluation.solved_return is None


def test_keywords_of_the_environment_are_free():
    config = resolve("apex-cartpole", ["env.kwargs.sutton_barto_reward=true"], {}).config

    assert config.env.kwargs == {"sutton_barto_reward": True}


def test_the_algorithm_section_is_complete_with_its_defaults():
    algorithm = resolve("apex-cartpole", [], {}).config.algorithm

    assert algorithm["name"] == "dqn"
    assert "huber_delta" in algorithm


def test_a_file_of_ones_own_is_a_preset_named_by_the_file(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text('[env]\nid = "CartPole-v1"\n[algorithm]\nname = "dqn"\n')

    config = resolve(str(path), [], {}).config

    assert config.name == "mine"


@pytest.mark.parametrize(
    ("override", "parts"),
    [
        ("learner.bach_size=1", ["learner.bach_size", 'did you mean "learner.batch_size"?']),
        ("leaner.batch_size=1", ["leaner.batch_size", 'did you mean "learner.batch_size"?']),
        ("learner.gamma=0.9", ["learner.gamma", 'did you mean "algorithm.gamma"?']),
        ("algorithm.n_stp=1", ["algorithm.n_stp", 'did you mean "algorithm.n_step"?']),
        ("algorithm.batch_size=1", ["algorithm.batch_size", '"learner.batch_size"?']),
        ("qqqq=1", ["qqqq", "mycelia config"]),
        ("learner.batch_size=abc", ['learner.batch_size="abc"', "expected a valid integer"]),
        ("learner.batch_size=0", ["learner.batch_size=0", "expected a number greater than"]),
        ("replay.sampler=best", ['replay.sampler="best"', "'max_heap', 'fifo' or 'lifo'"]),
        ("algorithm.name=dqm", ['algorithm.name="dqm"', 'did you mean "dqn"?']),
        ("algorithm.gamma=2", ["algorithm.gamma=2", "less than or equal to 1"]),
        ("learner=1", ["learner=1", "expected a section of keys"]),
        ("algorithm=1", ["algorithm.name", "expected one of", "dqn"]),
        ("replay.min_items_to_sample=1000000", ["min_items_to_sample=1000000", "capacity_rows"]),
        ("network.hidden_sizes=[1, true, []]", ["network.hidden_sizes.2", "integer"]),
    ],
)
def test_what_is_wrong_is_said_in_one_line_with_its_name(override, parts):
    with pytest.raises(InputError) as refusal:
        resolve("apex-cartpole", [override], {})

    text = str(refusal.value)
    assert "\n" not in text
    for part in parts:
        assert part in text


def test_a_bad_environment_variable_is_named_as_the_person_wrote_it():
    with pytest.raises(InputError, match=r"MYCELIA__LEARNER__BATCH_SIZE.*integer"):
        resolve("apex-cartpole", [], {"MYCELIA__LEARNER__BATCH_SIZE": "many"})
    with pytest.raises(InputError, match="MYCELIA__LERNER__X"):
        resolve("apex-cartpole", [], {"MYCELIA__LERNER__X": "1"})


def test_a_file_without_an_environment_says_which_key_is_missing(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text('[algorithm]\nname = "dqn"\n')

    with pytest.raises(InputError, match='"env" is not set'):
        resolve(str(path), [], {})
