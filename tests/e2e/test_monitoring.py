"""What Prometheus scrapes, and what the dashboard asks of it, from a stack that trains."""

import json
import re

import pytest
import yaml

from .conftest import ROOT

MONITORING = ROOT / "deploy/monitoring"
GRADIENTS = re.compile("gradient|round|push_wait")
REPLAY = re.compile("replay|inserted|insert_wait|sample|capacity_rows")


def targets():
    """Returns the addresses that Prometheus is told to scrape."""
    config = yaml.safe_load((MONITORING / "prometheus.yaml").read_text())
    return [
        address
        for job in config["scrape_configs"]
        for group in job["static_configs"]
        for address in group["targets"]
    ]


def asked_for():
    """Returns the names of metrics in the dashboard's queries."""
    dashboard = json.loads((MONITORING / "grafana/dashboards/mycelia.json").read_text())
    queries = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    return {name for query in queries for name in re.findall(r"mycelia_\w+", query)}


def exported(stack):
    names = set()
    for address in targets():
        code = f"import urllib.request as u; print(u.urlopen('http://{address}/metrics').read().decode())"
        names |= set(re.findall(r"^(mycelia_\w+)", stack.inside("learner", code), re.MULTILINE))
    return names


@pytest.mark.parametrize(
    ("preset", "foreign"), [("apex-cartpole", GRADIENTS), ("a3c-cartpole", REPLAY)]
)
def test_the_dashboard_asks_for_what_is_exported(make_stack, preset, foreign):
    stack = make_stack("evaluation.solved_return=none limits.max_env_steps=100_000_000", preset)
    stack.up()
    stack.compose("--profile", "monitoring", "up", "-d", "--no-build", "exporter")
    stack.wait_status(lambda s: s["eval_return_mean"] is not None, "an evaluation")
    wanted = {name for name in asked_for() if not foreign.search(name)}

    names = exported(stack)

    assert len(wanted) > 5
    assert wanted <= names, wanted - names
