"""The images: what they hold, what they weigh, and what a change rebuilds."""

import json
import shutil
import subprocess
import sys
import uuid

import pytest

from .conftest import FILES, ROOT, SERVICES, compose_command, files, run

MEGABYTES = 1e6
BASE = "python:3.11-slim-bookworm"
COPIED = ("constraints.txt", ".dockerignore", *FILES)
CONTEXT = ("protos", "libs", "services", "cli", "configs", "requirements", "deploy", ".ci")


def inspect(image):
    return json.loads(run(["docker", "image", "inspect", image]))[0]


def above_base(image):
    return inspect(image)["Size"] - inspect(BASE)["Size"]


def layers(image):
    return inspect(image)["RootFS"]["Layers"]


def python(image, code):
    return run(["docker", "run", "--rm", "--entrypoint", "python", image, "-c", code]).strip()


def has_torch(image):
    code = "import importlib.util as u; print(u.find_spec('torch') is not None)"
    return python(image, code) == "True"


@pytest.fixture
def build(images):
    """Yields what builds an image as Compose does, under another tag; removes what it built."""
    built = []

    def build(service, *, context=ROOT, **environ):
        tag = f"e2e-{uuid.uuid4().hex[:8]}"
        words = [*compose_command(), *files(), "build", service]
        run(words, timeout=600, cwd=context, MYCELIA_TAG=tag, **environ)
        built.append(f"mycelia/{service}:{tag}")
        return built[-1]

    yield build
    for image in built:
        run(["docker", "rmi", image])


@pytest.fixture
def checkout(tmp_path):
    """Returns a copy of what images are built from, to be changed."""
    skip = shutil.ignore_patterns("__pycache__", "*.egg-info")
    for name in CONTEXT:
        shutil.copytree(ROOT / name, tmp_path / name, ignore=skip)
    (tmp_path / "tests/e2e").mkdir(parents=True)
    for name in COPIED:
        shutil.copy2(ROOT / name, tmp_path / name)
    return tmp_path


def test_the_replay_image_is_small_and_has_no_torch(images):
    assert above_base("mycelia/replay:latest") < 200 * MEGABYTES
    assert not has_torch("mycelia/replay:latest")


def test_the_parameter_server_has_no_torch_unless_it_applies_gradients(build):
    image = build("param_server", MYCELIA_PARAM_SERVER_EXTRAS="none")

    assert has_torch("mycelia/param_server:latest")
    assert not has_torch(image)
    assert above_base(image) < 200 * MEGABYTES


def test_actor_and_learner_have_the_cpu_build_of_torch(images):
    for image in ("mycelia/actor:latest", "mycelia/learner:latest"):
        assert python(image, "import torch; print(torch.version.cuda)") == "None"


@pytest.mark.parametrize("service", SERVICES)
def test_no_build_tool_is_left_in_an_image(images, service):
    tools = "pip", "hatchling", "grpc_tools", "mypy_protobuf"
    code = f"import importlib.util as u; print([n for n in {tools} if u.find_spec(n)])"
    assert python(f"mycelia/{service}:latest", code) == "[]"


@pytest.mark.parametrize("service", SERVICES)
def test_an_image_says_what_it_is(images, service):
    labels = inspect(f"mycelia/{service}:latest")["Config"]["Labels"]

    assert labels["org.opencontainers.image.title"] == "mycelia-" + service.replace("_", "-")
    for name in ("description", "licenses", "version", "revision"):
        assert labels[f"org.opencontainers.image.{name}"]


def test_a_changed_source_rebuilds_the_last_layer_alone(build, checkout):
    source = checkout / "services/learner/src/mycelia_learner/main.py"
    source.write_text(source.read_text() + "# changed\n")

    image = build("learner", context=checkout)

    old, new = layers("mycelia/learner:latest"), layers(image)
    assert old[:-1] == new[:-1]
    assert old[-1] != new[-1]


def test_a_changed_dependency_does_not_install_torch_again(build, checkout):
    declared = checkout / "cli/pyproject.toml"
    declared.write_text(declared.read_text() + "# changed\n")

    image = build("learner", context=checkout)

    *old, old_packages, _ = layers("mycelia/learner:latest")
    *new, new_packages, _ = layers(image)
    assert old == new
    assert old_packages != new_packages


def test_an_image_is_built_from_a_folder_of_wheels(build, checkout):
    download = [sys.executable, "-m", "pip", "download", "-q", "-d", str(checkout / "wheels")]
    third_party = [sys.executable, "deploy/third_party.py", "libs/protos", "libs/core"]
    needed = run([*third_party, "services/replay"]).split()
    words = ["-c", "constraints.txt", "-r", "requirements/build.txt", *needed]
    subprocess.run([*download, *words], cwd=ROOT, check=True, timeout=300)

    image = build("replay", context=checkout, PIP_NO_INDEX="1")

    assert python(image, "import mycelia_replay.main; print('it starts')") == "it starts"
