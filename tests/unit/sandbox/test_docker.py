"""The Docker provisioner against a fake engine, which keeps to the documented API and runs the exec server without a container."""

import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
from moorage.errors import SandboxCapacity, SandboxError, SandboxGone, SandboxStarting
from moorage.sandbox.docker import DockerProvisioner
from moorage.sandbox.exec_client import ExecClient
from moorage.sandbox.provisioner import CONFIG_VARIABLE, EgressSpec, SandboxSpec, SandboxStatus

from tests.unit.sandbox.support import EXEC_SERVER, ROOT, TOKEN, exec_server, run

SPEC = SandboxSpec("acme", "cntr_1", TOKEN, memory_gib=4, env={"API_KEY": "placeholder"})


@dataclass
class FakeContainer:
    name: str
    body: dict[str, Any]
    status: str = "created"
    processes: ExitStack = field(default_factory=ExitStack)


class FakeEngine(httpx.AsyncBaseTransport):
    """``/containers/create``, ``start``, ``json`` and ``DELETE``, with the engine's statuses."""

    def __init__(self) -> None:
        self.containers: dict[str, FakeContainer] = {}
        self.made = 0
        self.start_error: str | None = None
        self.runs_server = True

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        parts = request.url.path.split("/")
        assert parts[:3] == ["", "v1.41", "containers"]
        if parts[3:] == ["create"]:
            return self._create(request.url.params["name"], json.loads(await request.aread()))
        container_id = self._find(parts[3])
        if container_id is None:
            return httpx.Response(404, json={"message": f"No such container: {parts[3]}"})
        container = self.containers[container_id]
        match request.method, parts[4:]:
            case "GET", ["json"]:
                state = {"Status": container.status, "Running": container.status == "running"}
                labels = container.body["Labels"]
                body = {"Id": container_id, "Name": f"/{container.name}", "State": state, "Config": {"Labels": labels}}
                return httpx.Response(200, json=body)
            case "POST", ["start"]:
                return self._start(container)
            case "DELETE", []:
                assert dict(request.url.params) == {"force": "true", "v": "true"}
                container.processes.close()
                del self.containers[container_id]
                return httpx.Response(204)
            case _:
                raise AssertionError(request)

    def close(self) -> None:
        for container in self.containers.values():
            container.processes.close()

    def _create(self, name: str, body: dict[str, Any]) -> httpx.Response:
        if self._find(name):
            return httpx.Response(409, json={"message": f"Conflict. The container name {name} is already in use"})
        self.made += 1
        container_id = f"{self.made:064x}"
        self.containers[container_id] = FakeContainer(name, body)
        return httpx.Response(201, json={"Id": container_id, "Warnings": []})

    def _start(self, container: FakeContainer) -> httpx.Response:
        if self.start_error:
            return httpx.Response(500, json={"message": self.start_error})
        container.status = "running"
        if self.runs_server:
            (variable,) = container.body["Env"]
            config = json.loads(variable.removeprefix(f"{CONFIG_VARIABLE}="))
            (shared,) = [m["Source"] for m in container.body["HostConfig"]["Mounts"] if m["Target"] == "/run/moorage"]
            directory = Path(container.processes.enter_context(tempfile.TemporaryDirectory()))
            process = exec_server(directory, token_sha256=config["token_sha256"], listen=f"unix:{shared}/exec.sock", env=config["env"])
            container.processes.enter_context(process)
        return httpx.Response(204)

    def _find(self, name: str) -> str | None:
        return next((key for key, container in self.containers.items() if name in (key, container.name)), None)


@pytest.fixture
def engine() -> Iterator[FakeEngine]:
    engine = FakeEngine()
    yield engine
    engine.close()


@pytest.fixture
def runtime_dir() -> Iterator[Path]:
    directory = Path(tempfile.mkdtemp())
    yield directory
    shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture
def provisioner(engine: FakeEngine, runtime_dir: Path) -> DockerProvisioner:
    return DockerProvisioner(runtime_dir, image="moorage-sandbox", engine_socket="/none", transport=engine)


async def test_a_container_is_started_once_used_and_stopped(
    provisioner: DockerProvisioner, engine: FakeEngine, runtime_dir: Path
) -> None:
    assert await provisioner.find(SPEC) is None
    handle = await provisioner.start(SPEC)
    assert await provisioner.start(SPEC) == handle
    assert await provisioner.find(SPEC) == handle.sandbox_id
    assert engine.made == 1
    assert await provisioner.describe(handle.sandbox_id) == SandboxStatus.RUNNING
    async with ExecClient(handle) as client:
        assert (await run(client, "echo $API_KEY")).stdout == "placeholder\n"
        await provisioner.stop(handle.sandbox_id)
        with pytest.raises(SandboxGone):
            await client.health()
    await provisioner.stop(handle.sandbox_id)
    assert await provisioner.describe(handle.sandbox_id) == SandboxStatus.STOPPED
    assert list(runtime_dir.iterdir()) == []


async def test_a_container_that_has_ended_or_has_another_token_is_replaced(provisioner: DockerProvisioner, engine: FakeEngine) -> None:
    first = await provisioner.start(SPEC)
    engine.containers[first.sandbox_id].status = "exited"
    second = await provisioner.start(SPEC)
    third = await provisioner.start(SandboxSpec("acme", "cntr_1", "another-token-of-at-least-32-characters"))
    assert len({first.sandbox_id, second.sandbox_id, third.sandbox_id}) == 3
    assert list(engine.containers) == [third.sandbox_id]


async def test_tenants_have_containers_of_their_own(provisioner: DockerProvisioner) -> None:
    one = await provisioner.start(SPEC)
    other = await provisioner.start(SandboxSpec("umbrella", "cntr_1", TOKEN))
    assert one.sandbox_id != other.sandbox_id


async def test_trouble_of_the_engine_is_told_by_its_kind(provisioner: DockerProvisioner, engine: FakeEngine, runtime_dir: Path) -> None:
    engine.start_error = "no space left on device"
    with pytest.raises(SandboxError, match="refused: no space left"):
        await provisioner.start(SPEC)
    assert engine.containers == {}
    engine.start_error, engine.runs_server = None, False
    with pytest.raises(SandboxStarting):
        await provisioner.start(SPEC)
    async with DockerProvisioner(runtime_dir, image="x", engine_socket=str(runtime_dir / "none")) as nobody:
        with pytest.raises(SandboxCapacity, match="engine does not answer"):
            await nobody.start(SPEC)


def test_a_container_has_no_network_no_privileges_and_limits(provisioner: DockerProvisioner) -> None:
    body = provisioner.container(SPEC, Path("/run/user/1/moorage/x"))
    host = body["HostConfig"]
    assert {
        key: host[key] for key in ("NetworkMode", "CapDrop", "SecurityOpt", "ReadonlyRootfs", "IpcMode", "Memory", "MemorySwap")
    } == {
        "NetworkMode": "none",
        "CapDrop": ["ALL"],
        "SecurityOpt": ["no-new-privileges:true"],
        "ReadonlyRootfs": True,
        "IpcMode": "private",
        "Memory": 4 * 1024**3,
        "MemorySwap": 4 * 1024**3,
    }
    assert set(host["CapAdd"]) == {"CHOWN", "DAC_OVERRIDE", "FOWNER", "KILL", "SETGID", "SETUID"}
    assert host["PidsLimit"] == 520
    assert "Privileged" not in host
    assert [mount["Target"] for mount in host["Mounts"]] == ["/run/moorage"]
    assert TOKEN not in json.dumps(body)


def test_the_way_out_is_a_shared_directory_and_variables(provisioner: DockerProvisioner) -> None:
    egress = EgressSpec("unix:/run/proxy/egress.sock", "cntr_1", "secret", "PEM")
    body = provisioner.container(SandboxSpec("acme", "cntr_1", TOKEN, egress=egress), Path("/x"))
    assert body["HostConfig"]["Mounts"][1] == {"Type": "bind", "Source": "/run/proxy", "Target": "/run/egress", "ReadOnly": True}
    config = json.loads(body["Env"][0].partition("=")[2])
    assert config["egress"] == {"socket": "/run/egress/egress.sock", "ca_pem": "PEM"}
    assert config["env"]["HTTPS_PROXY"] == "http://cntr_1:secret@127.0.0.1:3128"
    with pytest.raises(SandboxError, match="Unix socket"):
        provisioner.container(SandboxSpec("acme", "cntr_1", TOKEN, egress=EgressSpec("http://proxy:1", "u", "p")), Path("/x"))


def test_the_image_is_built_from_the_pinned_toolbox() -> None:
    assert (EXEC_SERVER.parent / "toolbox.txt").read_text() == (ROOT / "requirements" / "toolbox.txt").read_text()
