"""`docker compose up` on a real engine."""

import json
import os
import subprocess

import pytest

from .conftest import ROOT, SERVICES, run, wait_for

MEGABYTES = 1e6


def size(image):
    return int(run(["docker", "image", "inspect", "-f", "{{.Size}}", image]))


def python(image, code):
    return run(["docker", "run", "--rm", "--entrypoint", "python", image, "-c", code]).strip()


def has_torch(image):
    code = "import importlib.util as u; print(u.find_spec('torch') is not None)"
    return python(image, code) == "True"


def test_the_replay_image_is_small_and_has_no_torch(images):
    above_base = size("mycelia/replay:latest") - size("python:3.11-slim-bookworm")

    assert above_base < 200 * MEGABYTES
    assert not has_torch("mycelia/replay:latest")


def test_the_parameter_server_has_no_torch_unless_it_applies_gradients(images):
    tag = "mycelia-e2e/param_server"
    dockerfile = ["-f", "services/param_server/Dockerfile", "-t", tag]
    run(["docker", "build", "--network", "host", *dockerfile, "."], timeout=600)

    assert not has_torch(tag)
    assert size(tag) - size("python:3.11-slim-bookworm") < 200 * MEGABYTES
    run(["docker", "rmi", tag])


def test_actor_and_learner_have_the_cpu_build_of_torch(images):
    for image in ("mycelia/actor:latest", "mycelia/learner:latest"):
        assert python(image, "import torch; print(torch.version.cuda)") == "None"


@pytest.mark.parametrize("service", SERVICES)
def test_no_build_tool_is_left_in_an_image(images, service):
    tools = "pip", "hatchling", "grpc_tools", "mypy_protobuf"
    code = f"import importlib.util as u; print([n for n in {tools} if u.find_spec(n)])"
    assert python(f"mycelia/{service}:latest", code) == "[]"


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
        stack.wait_status(lambda s, n=count: actors(s) == n, f"{count} actors")
    steps = stack.status()["env_steps"]

    stack.wait_status(lambda s: s["env_steps"] > steps, "further env steps")


@pytest.mark.parametrize("service", ["actor", "evaluator", "learner", "replay", "param_server"])
def test_training_goes_on_after_a_container_is_killed(stack, service):
    stack.up()
    stack.wait_log("weights v1")
    stack.wait_status(lambda s: s["learner_steps"] > 200, "200 updates")
    wait_for_checkpoint(stack)
    before = stack.status()

    stack.kill(service)

    stack.wait_status(
        lambda s: s["phase"] == "training" and s["learner_steps"] > before["learner_steps"] + 100,
        f"training to go on without the killed {service}",
    )
    after = stack.status()
    assert after["env_steps"] >= saved_env_steps(stack)
    assert len(list(stack.runs.glob("apex-cartpole-*"))) == 1


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


def actors(status):
    return sum(m["role"] == "actor" and m["alive"] for m in status["members"])


def checkpoints(stack):
    return sorted(
        stack.runs.glob("apex-cartpole-*/checkpoint/step-*/state.json"), key=os.path.getmtime
    )


def wait_for_checkpoint(stack):
    wait_for(lambda: checkpoints(stack), "a checkpoint", 60, stack)


def saved_env_steps(stack):
    return json.loads(checkpoints(stack)[-1].read_text())["env_steps"]
