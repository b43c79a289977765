"""The Compose files: read by Compose, the same stack as a fleet, and scraped where they listen."""

import json
import os
import re
import subprocess
from pathlib import Path

import pytest
import yaml
from benchmarks.first_run import compose_command

from mycelia_cli.fleet_plan import plan
from mycelia_cli.settings import resolve

ROOT = Path(__file__).resolve().parents[3]
MONITORING = ROOT / "deploy" / "monitoring"
FILES = ("compose.yaml", "compose.override.yaml", "compose.gpu.yaml", "tests/e2e/host-network.yaml")
PROFILES = ("tensorboard", "monitoring", "inference")


def services():
    """Returns the services of the files that Compose reads by itself, the second over the first."""
    both = [yaml.safe_load((ROOT / name).read_text())["services"] for name in FILES[:2]]
    return {name: both[0].get(name, {}) | both[1].get(name, {}) for name in both[0] | both[1]}


def command(service):
    """Returns the words of a service's command, with variables replaced by their defaults."""
    return re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", service["command"]).split()


def options(words):
    """Returns the options among the words, as pairs of name and value."""
    following = [*words[1:], ""]
    return {
        (word, "" if value.startswith("--") else value)
        for word, value in zip(words, following, strict=True)
        if word.startswith("--")
    }


@pytest.mark.parametrize("count", range(1, len(FILES) + 1))
def test_compose_reads_the_files(count):
    try:
        words = compose_command()
    except SystemExit as error:
        pytest.skip(str(error))
    words += [word for name in FILES[:count] for word in ("-f", name)]
    words += [word for name in PROFILES for word in ("--profile", name)]
    environ = {name: text for name, text in os.environ.items() if not name.startswith("MYCELIA_")}

    done = subprocess.run(
        [*words, "config", "-q"],
        cwd=ROOT,
        env=environ,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert not done.stdout


def test_compose_and_a_fleet_start_the_same():
    there = services()
    settings = ("actor.inference=central",)
    config = resolve("apex-cartpole", settings, {}).config
    fleet = plan("apex-cartpole", settings, config)

    assert {service.name for service in fleet} < set(there)
    for service in fleet:
        ours = there[service.name]
        assert f"/{service.image}:" in ours["image"]
        assert options(service.command) <= options(command(ours)), service.name
        assert list(service.entrypoint) == ours.get("entrypoint", [])
        assert service.memory in ours["deploy"]["resources"]["limits"]["memory"]
        assert service.environ == {
            name: text
            for name, text in ours.get("environment", {}).items()
            if name != "MYCELIA_RUNS_ON_HOST"
        }
        address = f"127.0.0.1:{service.health_port}"
        assert bool(service.health_port) == (address in ours.get("healthcheck", {}).get("test", []))
        volumes = [mount.partition(":")[::2] for mount in ours.get("volumes", [])]
        assert ([service.data] if service.data else []) == [
            inside for name, inside in volumes if name.endswith("_data")
        ]


def test_prometheus_scrapes_what_listens():
    there = services()
    config = yaml.safe_load((MONITORING / "prometheus.yaml").read_text())
    targets = [
        target.split(":")
        for job in config["scrape_configs"]
        for group in job["static_configs"]
        for target in group["targets"]
    ]

    assert {name for name, _ in targets} == {"exporter", "param_server", "replay"}
    for name, port in targets:
        listening = {("--metrics-port", port), ("--bind", f"0.0.0.0:{port}")}
        assert options(command(there[name])) & listening, name


def test_grafana_is_given_its_data_source_and_dashboards_where_it_looks():
    grafana, provisioning = services()["grafana"], MONITORING / "grafana"
    mounted = grafana["volumes"][0].split(":")[1]
    (source,) = yaml.safe_load((provisioning / "datasources/prometheus.yaml").read_text())[
        "datasources"
    ]
    (provider,) = yaml.safe_load((provisioning / "dashboards/provider.yaml").read_text())[
        "providers"
    ]
    home = grafana["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    dashboard = json.loads((provisioning / "dashboards/mycelia.json").read_text())

    assert source["url"] == "http://prometheus:9090"
    assert provider["options"]["path"] == f"{mounted}/dashboards"
    assert home == f"{mounted}/dashboards/mycelia.json"
    used = {panel["datasource"]["uid"] for panel in dashboard["panels"]}
    assert used == {source["uid"]}


def test_the_dashboard_shows_what_matters():
    dashboard = json.loads((MONITORING / "grafana/dashboards/mycelia.json").read_text())
    titles = " | ".join(panel["title"] for panel in dashboard["panels"])

    for topic in (
        "Return",
        "Env steps per second",
        "Learner steps per second",
        "Staleness",
        "Replay fill",
        "Samples per insert",
        "Who waits for whom",
    ):
        assert topic in titles
    assert all(panel["targets"] for panel in dashboard["panels"])
