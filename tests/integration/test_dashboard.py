"""The dashboard's queries, and what a run that trains really exports."""

import json
import re
import socket
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

MONITORING = Path(__file__).resolve().parents[2] / "deploy" / "monitoring"
SELECTOR = re.compile(r"(mycelia_\w+)(?:\{([^}]*)\})?")
LABEL = re.compile(r'(\w+)="([^"]*)"')
GRADIENTS = re.compile("gradient|round|push_wait")
REPLAY = re.compile("replay|inserted|insert_wait|sample|capacity_rows")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]


def selectors():
    """Returns what the queries select: (name, labels)."""
    dashboard = json.loads((MONITORING / "grafana/dashboards/mycelia.json").read_text())
    queries = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    found = [match for query in queries for match in SELECTOR.findall(query)]
    return {(name, frozenset(LABEL.findall(labels))) for name, labels in found}


def job_names():
    """Returns Prometheus' jobs by the service that each one scrapes."""
    config = yaml.safe_load((MONITORING / "prometheus.yaml").read_text())
    return {
        address.partition(":")[0]: job["job_name"]
        for job in config["scrape_configs"]
        for group in job["static_configs"]
        for address in group["targets"]
    }


def scrape(ports):
    """Returns the samples of all services as Prometheus has them: (name, labels with the job)."""
    samples = set()
    for service, job in job_names().items():
        try:
            url = f"http://127.0.0.1:{ports[service]}/metrics"
            with urllib.request.urlopen(url, timeout=5) as answer:
                text = answer.read().decode()
        except urllib.error.URLError:
            continue  # it is starting
        for family in text_string_to_metric_families(text):
            samples |= {
                (sample.name, frozenset((sample.labels | {"job": job}).items()))
                for sample in family.samples
            }
    return samples


def without_samples(wanted, samples):
    return [
        (name, dict(labels))
        for name, labels in wanted
        if not any(name == other and labels <= theirs for other, theirs in samples)
    ]


def free_ports(*names):
    probes = {name: socket.create_server(("127.0.0.1", 0)) for name in names}
    ports = {name: probe.getsockname()[1] for name, probe in probes.items()}
    for probe in probes.values():
        probe.close()
    return ports


@pytest.mark.parametrize(
    ("preset", "foreign"), [("apex-cartpole", GRADIENTS), ("a3c-cartpole", REPLAY)]
)
def test_every_query_finds_samples_while_a_run_trains(mycelia, preset, foreign):
    ports = free_ports("param_server", "replay", "exporter")

    def serve(service, *words):
        return mycelia("serve", service, "--bind", "127.0.0.1:0", *words)

    server = serve("param-server", "--metrics-port", str(ports["param_server"]))
    registry = server.wait_for(r"ready address=(\S+)").group(1)
    serve("replay", "--join", registry, "--metrics-port", str(ports["replay"]))
    settings = ("evaluation.solved_return=none", "limits.max_env_steps=100_000_000")
    mycelia("train", preset, *settings, "--attach", registry, "--with-learner")
    mycelia("serve", "actor", "--join", registry)
    mycelia("serve", "actor", "--join", registry, "--role", "evaluator")
    mycelia("metrics", registry, "--bind", f"127.0.0.1:{ports['exporter']}")
    wanted = {(name, labels) for name, labels in selectors() if not foreign.search(name)}
    assert len(wanted) > 5

    deadline = time.monotonic() + 60
    while missing := without_samples(wanted, scrape(ports)):
        assert time.monotonic() < deadline, missing
        time.sleep(0.5)
