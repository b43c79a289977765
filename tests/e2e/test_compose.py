"""`docker compose up` on a real engine."""

import json
import os
import subprocess

from .conftest import ROOT, SERVICES, run, wait_for

ROLES = ("actor", "evaluator", "learner", "replay")
SAVED_ROWS = """
import glob, json
manifest = json.load(open(max(glob.glob("/data/checkpoint-*/manifest.json"))))["manifest"]
print(manifest["tables"]["train"]["scalars"]["counters"]["inserted_rows"])
"""


def test_docker_stack_deploy_reads_compose_yaml(engine):
    run(["docker", "stack", "config", "-c", str(ROOT / "compose.yaml")])


def test_up_trains_until_solved_and_stops_by_itself(make_stack):
    stack = make_stack()
    stack.up("--scale", "actor=4")

    codes = stack.wait_end()

    assert set(codes.values()) == {0}, codes
    log = stack.log("learner")
    assert "env steps" in log and "solved: mean return" in log
    (folder,) = stack.runs.glob("apex-cartpole-*")
    assert f"mycelia eval {folder}" in log
    for name in ("config.json", "metrics.jsonl", "curve.png", "checkpoint"):
        assert (folder / name).exists()


def test_containers_are_not_root_and_cannot_write_their_root(stack):
    stack.up()

    for service in (*SERVICES, "evaluator"):
        (container,) = stack.running(service)[:1]
        assert container["Config"]["User"] not in ("", "root", "0")
        assert container["HostConfig"]["ReadonlyRootfs"]
        words = ["docker", "exec", container["Id"], "python", "-c", "open('/written', 'w')"]
        failed = subprocess.run(words, capture_output=True, text=True, check=False)
        assert "Read-only file system" in failed.stderr


def test_actors_come_and_go_while_it_trains(stack):
    stack.up("--scale", "actor=2")
    stack.wait_status(lambda s: s["phase"] == "training", "training")

    for count in (8, 2):
        stack.up("--no-recreate", "--scale", f"actor={count}")
        stack.wait_status(lambda s, n=count: alive(s).count("actor") == n, f"{count} actors")
    steps = stack.status()["env_steps"]

    stack.wait_status(lambda s: s["env_steps"] > steps, "further env steps")


def test_training_survives_the_sigkill_of_each_service_in_turn(stack):
    stack.up()
    stack.wait_log("weights v1")
    stack.wait_status(lambda s: s["learner_steps"] > 200, "200 updates")
    wait_for_checkpoint(stack)
    services = ("actor", "evaluator", "learner", "replay", "param_server")

    for service in services:
        saved, before = what_is_saved(stack), stack.status()
        stack.kill(service)
        stack.wait_status(
            lambda s, b=before: (
                s["phase"] == "training"
                and s["learner_steps"] > b["learner_steps"] + 100
                and s["env_steps"] > b["env_steps"]
                and s["weight_version"] > b["weight_version"]
                and set(ROLES) <= set(alive(s))
            ),
            f"training to go on without the killed {service}",
        )
        after = stack.status()
        assert after["env_steps"] >= saved["env_steps"]
        assert rows(after) >= (saved["rows"] if service == "replay" else rows(before)), service

    assert {s: restarts(stack, s) for s in services} == dict.fromkeys(services, 1)
    assert len(list(stack.runs.glob("apex-cartpole-*"))) == 1


def test_sigterm_reaches_every_service(stack):
    stack.up()
    stack.wait_status(lambda s: s["phase"] == "training", "training")

    stack.compose("stop", "--timeout", "30")

    codes = stack.wait_end()
    # 143 is 128 + SIGTERM; the kernel's SIGKILL would be 137.
    assert set(codes.values()) <= {0, 143}, codes


def test_tensorboard_shows_the_runs(stack):
    stack.up()
    stack.wait_log("weights v1")
    wait_for_checkpoint(stack)

    stack.compose("--profile", "tensorboard", "up", "-d", "--no-build", "tensorboard")

    wait_for(lambda: "apex-cartpole-" in ask_tensorboard(stack), "its list of runs", 60, stack)


def ask_tensorboard(stack):
    code = "import urllib.request as u; print(u.urlopen('http://127.0.0.1:6006/data/runs').read())"
    container = stack.running("tensorboard")[0]["Id"]
    return run(["docker", "exec", container, "python", "-c", code], check=False)


def test_down_and_up_goes_on_where_it_was(stack):
    stack.up()
    stack.wait_status(lambda s: s["learner_steps"] > 200, "200 updates")
    stack.compose("down", timeout=120)
    saved = saved_env_steps(stack)
    assert saved > 0

    stack.up()

    stack.wait_status(lambda s: s["env_steps"] > saved, "env steps beyond the checkpoint's")
    assert len(list(stack.runs.glob("apex-cartpole-*"))) == 1


def test_nothing_is_left_after_down(make_stack):
    stack = make_stack()
    stack.up()
    stack.compose("down", "--volumes", timeout=120)

    label = f"label=com.docker.compose.project={stack.project}"
    for kind in ("container", "volume", "network"):
        every = ["-a"] if kind == "container" else []
        assert run(["docker", kind, "ls", "-q", *every, "--filter", label]) == ""


def alive(status):
    return [member["role"] for member in status["members"] if member["alive"]]


def rows(status):
    """Returns how many rows replay has taken in; none is dropped by these short runs."""
    return status["replay_rows"]


def restarts(stack, service):
    return stack.containers(service)[0]["RestartCount"]


def checkpoints(stack):
    return sorted(
        stack.runs.glob("apex-cartpole-*/checkpoint/step-*/state.json"), key=os.path.getmtime
    )


def wait_for_checkpoint(stack):
    """Waits for a checkpoint of the learner, and of the two that keep theirs in volumes."""
    wait_for(lambda: checkpoints(stack), "a checkpoint", 60, stack)
    for service, name in (("replay", "checkpoint-"), ("param_server", "version-")):
        wait_for(lambda s=service, n=name: n in listing(stack, s), f"{service}'s", 60, stack)


def listing(stack, service):
    return stack.inside(service, "import os; print(os.listdir('/data'))")


def saved_env_steps(stack):
    return json.loads(checkpoints(stack)[-1].read_text())["env_steps"]


def what_is_saved(stack):
    """Returns what the last checkpoints hold: what a SIGKILL now may not take away."""
    return {"env_steps": saved_env_steps(stack), "rows": int(stack.inside("replay", SAVED_ROWS))}
