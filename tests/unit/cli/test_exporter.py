"""What Prometheus reads of a run."""

import re

import pytest

from mycelia.run.v1 import run_pb2 as pb
from mycelia_cli.exporter import scrape
from mycelia_core.rpc.errors import FailedPreconditionError, UnavailableError

LINE = re.compile(r'[a-z_]+(\{([a-z_]+="[^"]*",?)*\})? -?[0-9.e+]+')


class Registry:
    """Answers like a `RunClient`."""

    def __init__(self, answer):
        self.answer = answer

    def get_run(self, timeout):
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@pytest.fixture
def answer():
    answer = pb.GetRunResponse(weight_version=9)
    answer.run.name, answer.run.run_id = 'a "run"', "0123456789ab"
    answer.progress.env_steps = 1234
    answer.progress.recent_episodes.add(episode_return=10)
    answer.progress.recent_episodes.add(episode_return=30)
    answer.progress.evaluations.add(policy_version=3, episode_returns=[1, 3])
    actor = answer.members.add(role=pb.ROLE_ACTOR, index=1, alive=True, host="here")
    actor.counters["policy_version"] = 7
    return answer


def test_the_run_and_its_members_are_told_in_prometheus_format(answer):
    lines = list(scrape(Registry(answer)))

    assert all(LINE.fullmatch(line.replace(r"\"", "")) for line in lines), lines
    run = r'{run="a \"run\"",run_id="0123456789ab"}'
    assert f"mycelia_env_steps_total{run} 1234.0" in lines
    assert f"mycelia_training_return_mean{run} 20.0" in lines
    assert f"mycelia_evaluation_return_mean{run} 2.0" in lines
    assert f"mycelia_staleness_versions_max{run} 2.0" in lines
    assert 'mycelia_member_policy_version{role="actor",index="1"} 7.0' in lines


@pytest.mark.parametrize(
    ("error", "up"), [(FailedPreconditionError("no run"), 1), (UnavailableError("away"), 0)]
)
def test_without_a_run_it_says_whether_the_registry_is_there(error, up):
    assert list(scrape(Registry(error))) == [f"mycelia_up {float(up)}"]
