"""A fleet on a Docker engine: its containers, network and volumes, all found again by a label."""

import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import docker
from docker.errors import APIError, DockerException, ImageNotFound, NotFound
from docker.types import Healthcheck

from mycelia_cli.errors import CommandError, InputError, one_line
from mycelia_cli.fleet_plan import REGISTRY_PORT, ROOT, Service, dockerfile

FLEET_LABEL = "org.mycelia.fleet"
SERVICE_LABEL = "org.mycelia.service"

_HEALTH_SECONDS = 90.0
_STOP_SECONDS = 60
_NANOSECONDS = 1_000_000_000


class FleetEngine:
    """One fleet, by name. Owned by one thread; everything it makes carries the fleet's label."""

    def __init__(self, name: str) -> None:
        """Connects to the engine that `DOCKER_HOST` names, or to the local one.

        Raises:
          CommandError: no engine answers.
        """
        self.name = name
        self._labels = {FLEET_LABEL: name}
        try:
            self._client = docker.from_env()
            self._client.ping()
        except DockerException as error:
            raise CommandError(f"no Docker engine answers: {one_line(str(error))}") from error

    def image(self, name: str) -> str:
        """Returns the full name of one of our images."""
        prefix, tag = os.environ.get("MYCELIA_IMAGES", "mycelia"), os.environ.get("MYCELIA_TAG")
        return f"{prefix}/{name}:{tag or 'latest'}"

    def missing_images(self, names: Iterable[str]) -> list[str]:
        """Returns which of our images the engine has not got."""
        return [name for name in dict.fromkeys(names) if not self._has_image(self.image(name))]

    def build(self, name: str, network: str | None) -> None:
        """Builds an image from the checkout. Takes minutes.

        Raises:
          CommandError: this is no checkout, or the build failed; the end of its output is told.
        """
        if not (ROOT / dockerfile(name)).is_file():
            raise CommandError(f"there is no image {self.image(name)}, and no checkout to build it")
        arguments = {"EXTRAS": "gradients"} if name == "param_server" else {}
        try:
            self._client.images.build(
                path=str(ROOT),
                dockerfile=str(dockerfile(name)),
                tag=self.image(name),
                buildargs=arguments,
                network_mode=network,
                rm=True,
            )
        except DockerException as error:
            raise CommandError(f"cannot build {name}: {one_line(str(error))}") from error

    def prepare(self, runs: Path) -> None:
        """Makes the network, and lets the learner write in the folder of runs."""
        runs.mkdir(parents=True, exist_ok=True)
        if not self._client.networks.list(names=[self._network]):
            self._client.networks.create(self._network, labels=self._labels)
        self._client.containers.run(
            self.image("replay"),
            entrypoint=["chmod", "1777", "/runs"],
            command=[],
            user="0:0",
            cap_drop=["ALL"],
            cap_add=["FOWNER"],
            labels=self._labels,
            volumes=[f"{runs.resolve()}:/runs"],
            network_mode="none",
            remove=True,
        )

    def start(self, service: Service, index: int = 0, runs: Path | None = None) -> None:
        """Starts one container of a service.

        Raises:
          CommandError: the engine refused.
        """
        volumes = [f"{self._volume(service.name)}:{service.data}"] if service.data else []
        volumes += [f"{runs.resolve()}:/runs"] if runs else []
        if service.data:
            self._client.volumes.create(self._volume(service.name), labels=self._labels)
        endpoint = self._client.api.create_endpoint_config(aliases=[service.name])
        ports = {f"{REGISTRY_PORT}/tcp": ("127.0.0.1", None)}
        try:
            container = self._client.containers.create(
                self.image(service.image),
                list(service.command),
                entrypoint=list(service.entrypoint) or None,
                name=f"{self._network}-{service.name}-{index}",
                labels=self._labels | {SERVICE_LABEL: service.name},
                environment=service.environ,
                user=_user() if runs else None,
                volumes=volumes,
                ports=ports if service.name == "param_server" else None,
                mem_limit=service.memory,
                init=True,
                read_only=True,
                tmpfs={"/tmp": ""},
                cap_drop=["ALL"],
                security_opt=["no-new-privileges:true"],
                restart_policy={"Name": "on-failure"},
                healthcheck=_healthcheck(service),
                network=self._network,
                networking_config={self._network: endpoint},
            )
            container.start()
        except APIError as error:
            raise CommandError(f"cannot start {service.name}: {error.explanation}") from error

    def wait_healthy(self, name: str) -> None:
        """Waits until a service says that it serves.

        Raises:
          CommandError: it has ended, or it takes too long.
        """
        deadline = time.monotonic() + _HEALTH_SECONDS
        while time.monotonic() < deadline:
            (container,) = self.containers(name)[:1] or [None]
            if container is None or container.status in ("exited", "dead"):
                raise CommandError(f"{name} ended at once; see `mycelia fleet logs {name}`")
            if container.attrs["State"].get("Health", {}).get("Status") == "healthy":
                return
            time.sleep(0.2)
        raise CommandError(f"{name} was not healthy after {_HEALTH_SECONDS:.0f} s")

    def containers(self, service: str = "") -> list[Any]:
        """Returns the fleet's containers, gone ones included, in the order of their names."""
        labels = [f"{FLEET_LABEL}={self.name}"]
        labels += [f"{SERVICE_LABEL}={service}"] if service else [SERVICE_LABEL]
        found = self._client.containers.list(
            all=True, filters={"label": labels}, ignore_removed=True
        )
        return sorted(found, key=lambda container: str(container.name))

    def address(self) -> str | None:
        """Returns where the run registry is reached from this machine; None if it is not up."""
        for container in self.containers("param_server"):
            bound = container.ports.get(f"{REGISTRY_PORT}/tcp")
            if bound:
                return f"127.0.0.1:{bound[0]['HostPort']}"
        return None

    def remove(self, container: Any) -> None:
        """Stops a container, giving it time for its last words, and removes it."""
        try:
            container.stop(timeout=_STOP_SECONDS)
            container.remove(v=True, force=True)
        except NotFound:
            pass  # somebody else was faster

    def down(self) -> None:
        """Removes all of this fleet: containers, network and volumes, but not the run folders."""
        # The parameter server last: the others take leave from it.
        for container in sorted(self.containers(), key=_is_server):
            self.remove(container)
        filters = {"label": f"{FLEET_LABEL}={self.name}"}
        for network in self._client.networks.list(filters=filters):
            network.remove()
        for volume in self._client.volumes.list(filters=filters):
            volume.remove(force=True)

    @property
    def _network(self) -> str:
        return f"mycelia-{self.name}"

    def _volume(self, service: str) -> str:
        return f"{self._network}-{service}"

    def _has_image(self, full_name: str) -> bool:
        try:
            self._client.images.get(full_name)
        except ImageNotFound:
            return False
        return True


def service_of(container: Any) -> str:
    """Returns which service a container belongs to."""
    return str(container.labels[SERVICE_LABEL])


def parse_scale(words: list[str]) -> dict[str, int]:
    """Reads `actor=8`; only actors can be more than one.

    Raises:
      InputError: it reads otherwise.
    """
    counts = {}
    for word in words:
        name, _, count = word.partition("=")
        if name != "actor" or not count.isdecimal():
            raise InputError(f'cannot scale "{word}": expected actor=COUNT')
        counts[name] = int(count)
    return counts


def _is_server(container: Any) -> bool:
    return service_of(container) == "param_server"


def _user() -> str:
    # Root's fleets run as the images' own user: no container is root.
    return f"{os.getuid()}:{os.getgid()}" if os.getuid() else "1000:1000"


def _healthcheck(service: Service) -> Healthcheck | None:
    if not service.health_port:
        return None
    probe = ["CMD", "python", "-m", "mycelia_core.rpc.health", f"127.0.0.1:{service.health_port}"]
    second = _NANOSECONDS
    return Healthcheck(test=probe, interval=2 * second, timeout=5 * second, retries=30)
