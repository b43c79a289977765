"""The schema of the config."""

import pytest
from pydantic import ValidationError

from mycelia_core.config import RunConfig, TableConfig, WindowConfig

MINIMAL = {"name": "x", "env": {"id": "CartPole-v1"}, "algorithm": {"name": "dqn"}}


def test_a_config_survives_json():
    config = RunConfig.model_validate(MINIMAL)

    assert RunConfig.model_validate_json(config.model_dump_json()) == config


@pytest.mark.parametrize("section", ["actor", "replay", "learner", "network", "evaluation"])
def test_unknown_keys_are_errors_in_every_section(section):
    with pytest.raises(ValidationError, match=f"{section}.typo"):
        RunConfig.model_validate(MINIMAL | {section: {"typo": 1}})


def test_a_window_longer_than_the_table_is_refused():
    with pytest.raises(ValidationError, match="a window of 11 rows is longer than"):
        TableConfig(capacity_rows=10, window=WindowConfig(learn_rows=6, bootstrap_rows=5))


def test_a_minimum_that_can_never_be_reached_is_refused():
    with pytest.raises(ValidationError, match="no sample could ever be drawn"):
        TableConfig(capacity_rows=10, min_items_to_sample=11)


def test_a_config_cannot_be_changed():
    config = RunConfig.model_validate(MINIMAL)

    with pytest.raises(ValidationError, match="frozen"):
        config.seed = 2
