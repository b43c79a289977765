"""The example of an environment of one's own is found by class and by id."""

from pathlib import Path

import gymnasium
import numpy as np
import pytest

from mycelia_actor.environments.backend import make_environments
from mycelia_actor.environments.make import MakeEnvironmentError, make_environment
from mycelia_core.config import EnvConfig

EXAMPLES = Path(__file__).parents[3] / "examples"


@pytest.fixture(autouse=True)
def _examples(monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLES))


@pytest.mark.parametrize(
    "config",
    [
        EnvConfig(
            id="custom_env.corridor:Corridor",
            kwargs={"length": 6},
            action_mask="info",
            backend="sync",
        ),
        EnvConfig.model_validate(
            {
                "id": "Corridor-v0",
                "import": "custom_env.corridor",
                "kwargs": {"length": 6},
                "action_mask": "info",
                "backend": "sync",
            }
        ),
    ],
    ids=["class", "import"],
)
def test_the_corridor_is_walked_to_its_door(config):
    environments = make_environments(config, 3)
    observation = environments.reset([1, 2, 3])

    results = [environments.step({"action": np.ones(3, np.int64)}) for _ in range(5)]

    assert observation.columns["observation"].shape == (3, 1)
    ends = np.concatenate([result.ended for result in results])
    assert set(ends.tolist()) == {0, 1, 2}
    assert all(result.episode_returns.min(initial=1) > 0.9 for result in results)


def test_the_import_survives_the_run_s_stored_config():
    config = EnvConfig.model_validate({"id": "Corridor-v0", "import": "custom_env.corridor"})

    assert EnvConfig.model_validate_json(config.model_dump_json()) == config


def test_wrappers_are_put_around_it_in_order():
    config = EnvConfig(
        id="custom_env.corridor:Corridor", wrappers=("gymnasium.wrappers:FlattenObservation",)
    )

    assert isinstance(make_environment(config), gymnasium.wrappers.FlattenObservation)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"import": "no_such_module"}, r"env\.import: importing 'no_such_module' failed"),
        ({"wrappers": ["gymnasium.wrappers:Nope"]}, r"no 'Nope' in 'gymnasium\.wrappers'"),
    ],
)
def test_what_cannot_be_imported_is_named(changes, expected):
    config = EnvConfig.model_validate({"id": "CartPole-v1"} | changes)

    with pytest.raises(MakeEnvironmentError, match=expected):
        make_environment(config)
