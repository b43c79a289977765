"""Finding algorithms and checking their settings."""

import subprocess
import sys

import pytest

from mycelia_algorithms.dqn.config import DqnConfig
from mycelia_algorithms.registry import load_update, parse_config


def test_settings_become_the_algorithms_own_config():
    config = parse_config({"name": "dqn", "n_step": 5})

    assert config == DqnConfig(n_step=5)
    assert config.window() == {
        "learn_rows": 1,
        "bootstrap_rows": 5,
        "period": 1,
        "context_rows": 0,
    }


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"name": "dqm"}, "did you mean 'dqn'"),
        ({}, "no algorithm None"),
        ({"name": "dqn", "gama": 0.9}, "gama"),
        ({"name": "dqn", "gamma": 1.5}, "gamma"),
        (
            {"name": "dqn", "learning_rate_warmup_steps": 9, "learning_rate_decay_until_step": 9},
            "above",
        ),
    ],
)
def test_wrong_settings_are_refused_by_name(fields, message):
    with pytest.raises(ValueError, match=message):
        parse_config(fields)


def test_an_unknown_algorithm_has_no_update():
    with pytest.raises(ValueError, match="no algorithm 'ppo'"):
        load_update("ppo")


def test_reading_a_config_does_not_import_torch():
    program = (
        "import sys, mycelia_algorithms.registry as r; r.parse_config({'name': 'dqn'});"
        "sys.exit('torch' in sys.modules)"
    )

    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
