"""Layers of settings."""

import pytest

from mycelia_cli.errors import InputError
from mycelia_cli.layers import Layers, key_of_variable, parse_environment, parse_overrides


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1", 1),
        ("1e-3", 0.001),
        ("50_000", 50_000),
        ("true", True),
        ("[64, 64]", [64, 64]),
        ('"1"', "1"),
        ("CartPole-v1", "CartPole-v1"),
        ("a = 1", "a = 1"),
        ("", ""),
        ("2026-12-01", "2026-12-01"),
        ("1\nother = 2", "1\nother = 2"),
        ("none", None),
    ],
)
def test_values_are_toml_and_bare_words_are_strings(text, value):
    assert parse_overrides([f"section.key={text}"]) == {"section.key": value}


def test_a_value_may_hold_equals_signs():
    assert parse_overrides(["name=a=b"]) == {"name": "a=b"}


@pytest.mark.parametrize("word", ["batch_size", "=1", "learner.=1", ".batch_size=1", "a..b=1"])
def test_a_word_that_is_not_key_and_value_is_refused_by_name(word):
    with pytest.raises(InputError, match="expected key=value") as refusal:
        parse_overrides([word])

    assert f'"{word}"' in str(refusal.value)


def test_only_variables_with_the_prefix_count():
    found = parse_environment({"MYCELIA__LEARNER__BATCH_SIZE": "64", "MYCELIA": "1", "PATH": "x"})

    assert found == {"MYCELIA__LEARNER__BATCH_SIZE": 64}
    assert key_of_variable("MYCELIA__LEARNER__BATCH_SIZE") == "learner.batch_size"


def test_a_later_layer_wins_key_by_key_and_leaves_the_rest():
    layers = Layers()

    layers.lay({"learner": {"batch_size": 1, "learning_rate": 0.1}}, "first")
    layers.lay({"learner.batch_size": 2}, "second")

    assert layers.settings == {"learner": {"batch_size": 2, "learning_rate": 0.1}}
    assert layers.origin("learner.batch_size") == "second"
    assert layers.origin("learner.learning_rate") == "first"
    assert layers.origin("learner.adam_epsilon") == "default"


def test_the_origin_of_an_element_is_that_of_its_list():
    layers = Layers()

    layers.lay({"network.hidden_sizes": [1, "a"]}, "command line")

    assert layers.origin("network.hidden_sizes.1") == "command line"


def test_a_key_below_a_value_is_refused():
    layers = Layers()
    layers.lay({"seed": 1}, "preset")

    with pytest.raises(InputError, match=r'unknown key "seed.x".*"seed" is not a section'):
        layers.lay({"seed.x": 1}, "command line")
