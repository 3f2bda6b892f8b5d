"""The Docker provisioner against a fake engine, which refuses what the documented API refuses, and runs the exec server without a
container. ``tests/docker`` has the same provisioner on a real engine."""

import asyncio
import contextlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from moorage.egress.ca import new_ca
from moorage.errors import DeskUnavailable, SandboxCapacity, SandboxError, SandboxGone, SandboxStarting, SettingsConflict
from moorage.local.disk_guard import DiskLimits, DiskWarning
from moorage.local.engine_disk import EngineDisk
from moorage.runtime import build_runtime
from moorage.sandbox import seccomp
from moorage.sandbox.docker import DockerProvisioner, DockerSettings, server_config
from moorage.sandbox.docker_engine import Engine, engine_socket
from moorage.sandbox.exec_client import ExecClient
from moorage.sandbox.machine_bounds import MachineBounds
from moorage.sandbox.provisioner import CONFIG_VARIABLE, EgressSpec, Handle, SandboxSpec, SandboxStatus
from moorage.settings import Settings, SettingsError

from tests.unit.sandbox.support import EXEC_SERVER, ROOT, TOKEN, exec_server, run

SPEC = SandboxSpec("acme", "cntr_1", TOKEN, memory_gib=4, env={"API_KEY": "placeholder"})


@dataclass
class FakeContainer:
    name: str
    body: dict[str, Any]
    status: str = "created"
    processes: ExitStack = field(default_factory=ExitStack)


def profile_of(body: dict[str, Any]) -> str:
    (profile,) = [each.removeprefix("seccomp=") for each in body["HostConfig"]["SecurityOpt"] if each.startswith("seccomp=")]
    return str(profile)


@dataclass
class FakeEngine(httpx.AsyncBaseTransport):
    """``/version``, ``/info``, ``/images`` and ``/containers``, with the engine's statuses.

    An engine refuses with 400 a version in the path that it does not take ("client version 1.41 is too old. Minimum supported API
    version is 1.44": docker/docs#23910), and a bind whose source is not there. Podman refuses the text of a profile of system calls at
    the create (containers/podman#27710), Docker refuses a path at the start.
    """

    newest: str = "1.51"
    oldest: str = "1.44"
    name: str = "Engine"
    images: tuple[str, ...] = ("moorage-sandbox",)
    containers: dict[str, FakeContainer] = field(default_factory=dict)
    made: int = 0
    start_error: str | None = None
    runs_server: bool = True

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        path = request.url.path
        if path == "/version":
            told = {"ApiVersion": self.newest, "MinAPIVersion": self.oldest, "Components": [{"Name": self.name}, {"Name": "runc"}]}
            return httpx.Response(200, json=told)
        _, version, kind, *rest = path.split("/")
        numbers = [[int(part) for part in text.removeprefix("v").split(".")] for text in (self.oldest, version, self.newest)]
        if numbers != sorted(numbers):
            return httpx.Response(400, json={"message": f"client version {version} is too old or too new"})
        match kind, rest:
            case "info", []:
                return httpx.Response(200, json={"Runtimes": {"runc": {}, "runsc": {}}, "DockerRootDir": "/nowhere"})
            case "images", [image, "json"]:
                is_there = image in self.images
                return httpx.Response(200 if is_there else 404, json={} if is_there else {"message": f"No such image: {image}"})
            case "containers", ["create"]:
                return self._create(request.url.params["name"], json.loads(await request.aread()))
            case "containers", ["json"]:
                assert dict(request.url.params) == {"all": "true", "filters": '{"label": ["moorage.uid"]}'}
                found = [
                    {"Id": key, "Names": [f"/{each.name}"], "Labels": each.body["Labels"]} for key, each in self.containers.items()
                ]
                return httpx.Response(200, json=found)
            case "containers", [name, *what]:
                return self._of_one(request, name, what)
            case _:
                raise AssertionError(request)

    def _of_one(self, request: httpx.Request, name: str, what: list[str]) -> httpx.Response:
        container_id = self._find(name)
        if container_id is None:
            return httpx.Response(404, json={"message": f"No such container: {name}"})
        container = self.containers[container_id]
        match request.method, what:
            case "GET", ["json"]:
                state = {"Status": container.status, "Running": container.status == "running"}
                config = {name: container.body[name] for name in ("Labels", "Env")}
                host = {"Mounts": container.body["HostConfig"]["Mounts"]}
                body = {"Id": container_id, "Name": f"/{container.name}", "State": state, "Config": config, "HostConfig": host}
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
        for mount in body["HostConfig"]["Mounts"]:
            if not Path(mount["Source"]).exists():
                message = f'invalid mount config for type "bind": bind source path does not exist: {mount["Source"]}'
                return httpx.Response(400, json={"message": message})
        if self.name == "Podman Engine" and not Path(profile_of(body)).exists():
            message = f"container create: opening seccomp profile failed: open {profile_of(body)}: file name too long"
            return httpx.Response(500, json={"message": message})
        self.made += 1
        container_id = f"{self.made:064x}"
        self.containers[container_id] = FakeContainer(name, body)
        return httpx.Response(201, json={"Id": container_id, "Warnings": []})

    def _start(self, container: FakeContainer) -> httpx.Response:
        if self.start_error:
            return httpx.Response(500, json={"message": self.start_error})
        if self.name == "Engine" and not profile_of(container.body).startswith("{"):
            return httpx.Response(500, json={"message": "Decoding seccomp profile failed: invalid character '/'"})
        container.status = "running"
        if self.runs_server:
            (variable,) = container.body["Env"]
            config = json.loads(variable.removeprefix(f"{CONFIG_VARIABLE}="))
            (shared,) = [m["Source"] for m in container.body["HostConfig"]["Mounts"] if m["Target"] == "/run/moorage"]
            directory = Path(container.processes.enter_context(tempfile.TemporaryDirectory()))
            sockets = [name for name in ("listen", "control_path", "neighbour_path") if name in config]
            inside = {name: config[name].replace("/run/moorage", shared) for name in sockets}
            process = exec_server(directory, token_sha256=config["token_sha256"], env=config.get("env", {}), **inside)
            container.processes.enter_context(process)
        return httpx.Response(204)

    def _find(self, name: str) -> str | None:
        return next((key for key, container in self.containers.items() if name in (key, container.name)), None)


@dataclass
class SlowEngine(httpx.AsyncBaseTransport):
    """Lets others in before each answer, as a socket does."""

    engine: FakeEngine

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        for _ in range(10):
            await asyncio.sleep(0)
        return await self.engine.handle_async_request(request)


async def started(provisioner: DockerProvisioner, spec: SandboxSpec) -> Handle:
    """As the loop does: one that is on its way is asked for again, and takes long on a busy machine."""
    while True:
        try:
            return await provisioner.start(spec)
        except SandboxStarting as error:
            await asyncio.sleep(error.retry_after_seconds)


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
def settings(runtime_dir: Path) -> DockerSettings:
    return DockerSettings(runtime_dir, "home")


@pytest.fixture
def provisioner(engine: FakeEngine, settings: DockerSettings) -> DockerProvisioner:
    return DockerProvisioner(settings, Engine("/none", engine))


async def test_a_container_is_started_once_used_and_stopped(
    provisioner: DockerProvisioner, engine: FakeEngine, runtime_dir: Path
) -> None:
    assert await provisioner.find(SPEC) is None
    handle = await started(provisioner, SPEC)
    assert await started(provisioner, SPEC) == handle
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


async def test_podman_is_told_where_the_profile_of_system_calls_lies(
    provisioner: DockerProvisioner, engine: FakeEngine, runtime_dir: Path
) -> None:
    engine.name = "Podman Engine"
    handle = await started(provisioner, SPEC)
    profile = Path(profile_of(engine.containers[handle.sandbox_id].body))
    assert (profile, json.loads(profile.read_text())) == (runtime_dir / "seccomp.json", seccomp.profile())


async def test_a_container_that_has_ended_or_has_another_token_is_replaced(provisioner: DockerProvisioner, engine: FakeEngine) -> None:
    first = await started(provisioner, SPEC)
    engine.containers[first.sandbox_id].status = "exited"
    second = await started(provisioner, SPEC)
    third = await started(provisioner, SandboxSpec("acme", "cntr_1", "another-token-of-at-least-32-characters"))
    assert len({first.sandbox_id, second.sandbox_id, third.sandbox_id}) == 3
    assert list(engine.containers) == [third.sandbox_id]


async def test_tenants_have_containers_of_their_own(provisioner: DockerProvisioner) -> None:
    one = await started(provisioner, SPEC)
    other = await started(provisioner, SandboxSpec("umbrella", "cntr_1", TOKEN))
    assert one.sandbox_id != other.sandbox_id


async def test_trouble_of_the_engine_is_told_by_its_kind(provisioner: DockerProvisioner, engine: FakeEngine, runtime_dir: Path) -> None:
    engine.start_error = "no space left on device"
    with pytest.raises(SandboxError, match="refused: no space left"):
        await provisioner.start(SPEC)
    assert engine.containers == {}
    engine.start_error, engine.runs_server = None, False
    with pytest.raises(SandboxStarting):
        await provisioner.start(SPEC)
    async with DockerProvisioner(DockerSettings(runtime_dir, "home"), Engine(str(runtime_dir / "none"))) as nobody:
        with pytest.raises(SandboxCapacity, match="engine does not answer"):
            await nobody.start(SPEC)
        with pytest.raises(SettingsConflict, match="engine does not answer"):
            await nobody.check()


def test_a_container_has_no_network_no_privileges_and_limits(provisioner: DockerProvisioner) -> None:
    body = provisioner.container(SPEC, Path("/run/user/1/moorage/x"), 20_001)
    host = body["HostConfig"]
    privileges, seccomp = host["SecurityOpt"]
    assert (privileges, json.loads(seccomp.removeprefix("seccomp="))["defaultAction"]) == ("no-new-privileges:true", "SCMP_ACT_ALLOW")
    assert {key: host[key] for key in ("NetworkMode", "CapDrop", "ReadonlyRootfs", "IpcMode", "Memory", "MemorySwap")} == {
        "NetworkMode": "none",
        "CapDrop": ["ALL"],
        "ReadonlyRootfs": True,
        "IpcMode": "private",
        "Memory": 4 * 1024**3,
        "MemorySwap": 4 * 1024**3,
    }
    assert set(host["CapAdd"]) == {"CHOWN", "DAC_OVERRIDE", "FOWNER", "KILL", "SETGID", "SETUID"}
    assert host["PidsLimit"] == 520
    assert "Privileged" not in host
    assert [mount["Target"] for mount in host["Mounts"]] == ["/run/moorage", "/etc/passwd", "/etc/group"]
    assert TOKEN not in json.dumps(body)


def test_the_way_out_is_a_shared_directory_and_variables(provisioner: DockerProvisioner) -> None:
    egress = EgressSpec(proxy="unix:/run/proxy/egress.sock", username="cntr_1", password="secret", ca_pem="PEM")
    body = provisioner.container(SandboxSpec("acme", "cntr_1", TOKEN, egress=egress), Path("/x"), 20_001)
    assert body["HostConfig"]["Mounts"][3] == {"Type": "bind", "Source": "/run/proxy", "Target": "/run/egress", "ReadOnly": True}
    config = json.loads(body["Env"][0].partition("=")[2])
    assert config["egress"] == {"socket": "/run/egress/egress.sock", "ca_pem": "PEM", "username": "cntr_1", "password": "secret"}
    assert config["env"]["HTTPS_PROXY"] == "http://cntr_1:secret@127.0.0.1:3128"
    with pytest.raises(SandboxError, match="Unix socket"):
        provisioner.container(
            SandboxSpec("acme", "cntr_1", TOKEN, egress=EgressSpec(proxy="http://proxy:1", username="u", password="p")),
            Path("/x"),
            20_001,
        )


# --- the browser beside a sandbox -------------------------------------------------------------------------------------------------


def desks(engine: FakeEngine) -> list[FakeContainer]:
    return [each for each in engine.containers.values() if "moorage.desk-of" in each.body["Labels"]]


async def test_a_browser_has_a_container_beside_the_sandboxs_as_long_as_that_lives(
    provisioner: DockerProvisioner, engine: FakeEngine
) -> None:
    engine.images = ("moorage-sandbox", "moorage-desk")
    handle = await started(provisioner, SPEC)
    one, other = await asyncio.gather(provisioner.desk(handle), provisioner.desk(handle))
    assert (one, one.endpoint != handle.endpoint, one.token) == (other, True, TOKEN)
    (desk,) = desks(engine)
    assert Path(one.endpoint.removeprefix("unix:")).parent.stat().st_mode & 0o777 == 0o755
    assert [each.sandbox_id for each in await provisioner.running()] == [handle.sandbox_id]
    desk.status = "exited"
    assert await provisioner.desk(handle) == one
    (again,) = desks(engine)
    assert again is not desk
    await provisioner.stop(handle.sandbox_id)
    assert engine.containers == {}
    with pytest.raises(SandboxGone):
        await provisioner.desk(handle)


async def test_a_browsers_container_has_other_walls_than_the_commands(provisioner: DockerProvisioner, engine: FakeEngine) -> None:
    engine.images = ("moorage-sandbox", "moorage-desk")
    handle = await started(provisioner, SPEC)
    await provisioner.desk(handle)
    sandbox, (desk,) = engine.containers[handle.sandbox_id].body, desks(engine)
    host = desk.body["HostConfig"]
    uid = desk.body["Labels"]["moorage.uid"]
    assert (desk.body["Image"], desk.body["User"], uid != sandbox["Labels"]["moorage.uid"]) == ("moorage-desk", f"{uid}:{uid}", True)
    assert [host.get(name) for name in ("NetworkMode", "CapDrop", "CapAdd", "ReadonlyRootfs", "IpcMode", "Memory")] == [
        *("none", ["ALL"], None, True, "private", 2 * 1024**3)
    ]
    profiles = [json.loads(profile_of(body))["syscalls"][0]["names"] for body in (sandbox, desk.body)]
    assert set(profiles[0]) - set(profiles[1]) == {"chroot", "unshare"}
    assert {mount["Target"]: mount["ReadOnly"] for mount in host["Mounts"]} == {
        "/run/moorage": False,
        "/etc/chromium/policies/managed/moorage.json": True,
        "/run/desk": True,
    }
    assert TOKEN not in json.dumps(desk.body)


async def test_a_browser_goes_out_by_its_containers_proxy(provisioner: DockerProvisioner, engine: FakeEngine, tmp_path: Path) -> None:
    engine.images = ("moorage-sandbox", "moorage-desk")
    egress = EgressSpec(proxy=f"unix:{tmp_path}/egress.sock", username="cntr_1", password="secret", ca_pem=new_ca().certificate_pem)
    await provisioner.desk(await started(provisioner, replace(SPEC, egress=egress)))
    (desk,) = desks(engine)
    config = json.loads(desk.body["Env"][0].partition("=")[2])["desk"]
    assert config["upstream"] == {"socket": "/run/egress/egress.sock", "username": "cntr_1", "password": "secret"}
    mounts = {mount["Target"]: mount["Source"] for mount in desk.body["HostConfig"]["Mounts"]}
    assert mounts["/run/egress"] == str(tmp_path)
    policies = json.loads(Path(mounts["/etc/chromium/policies/managed/moorage.json"]).read_text())
    assert len(policies["CACertificates"]) == 1


async def test_without_the_image_of_browsers_its_name_and_remedy_are_told(provisioner: DockerProvisioner) -> None:
    handle = await started(provisioner, SPEC)
    assert not await provisioner.has_desks()
    with pytest.raises(DeskUnavailable, match=r"has no image 'moorage-desk'.*'moorage sandbox-image build --desk' makes it"):
        await provisioner.desk(handle)
    with pytest.raises(DeskUnavailable, match="No browser runs"):
        await provisioner.desk(handle, starts=False)


async def test_each_container_has_a_user_of_its_own_with_a_name(
    provisioner: DockerProvisioner, engine: FakeEngine, runtime_dir: Path
) -> None:
    """The kernel counts processes and inotify instances by user, over all containers of an engine."""
    for number in range(3):
        await started(provisioner, SandboxSpec("acme", f"cntr_{number}", TOKEN))
    made = [*engine.containers.values()]
    uids = [int(container.body["Labels"]["moorage.uid"]) for container in made]
    assert len({*uids}) == 3
    assert all(20_000 <= uid < 60_000 for uid in uids)
    configs = [json.loads(container.body["Env"][0].partition("=")[2]) for container in made]
    assert [config["uid"] for config in configs] == uids
    for container, uid in zip(made, uids, strict=True):
        assert f"user:x:{uid}:{uid}::/home/user:/bin/bash" in (runtime_dir / container.name / "passwd").read_text().splitlines()


async def test_no_two_containers_take_one_user_even_of_two_deployments(engine: FakeEngine, settings: DockerSettings) -> None:
    first = DockerProvisioner(settings, Engine("/none", engine))
    handle = await started(first, SPEC)
    other = DockerProvisioner(replace(settings, deployment="away"), Engine("/none", engine))
    # As if both names had led to the same number.
    engine.containers[handle.sandbox_id].body["Labels"]["moorage.uid"] = str(other._place("x", SPEC, []))
    assert other._place("x", SPEC, await other._listed()) == int(engine.containers[handle.sandbox_id].body["Labels"]["moorage.uid"]) + 1


ALL_OF = "All sandboxes of this {} together have 8 GiB of memory at most."
TOO_LARGE = "This sandbox would have 16 GiB of memory. On this machine the sandboxes of an account together have 8 GiB at most."


@pytest.mark.parametrize(
    ("bounds", "running", "new", "refusal"),
    [
        # docker.md, B3: the launcher holds 256 sandboxes, 64 of a tenant.
        (MachineBounds(2), "acme 1, umbrella 1", "hooli 1", "2 sandboxes are running on this machine; it takes no more."),
        (MachineBounds(9, 2), "acme 1, acme 1", "acme 1", "2 sandboxes of this account are running; no account has more at once."),
        (MachineBounds(9, 2), "acme 1, acme 1", "umbrella 1", None),
        # Issue 33: bounds of number, disk and memory; B3: one key can start containers until the machine has no memory.
        (MachineBounds(memory_gib_max=8), "acme 4, umbrella 4", "hooli 1", ALL_OF.format("machine")),
        (MachineBounds(tenant_memory_gib_max=8), "acme 4, acme 4", "acme 1", ALL_OF.format("account")),
        (MachineBounds(tenant_memory_gib_max=8), "acme 4, acme 4", "umbrella 4", None),
        (MachineBounds(tenant_memory_gib_max=8), "acme 4", "acme 4", None),
        (MachineBounds(tenant_memory_gib_max=8), "acme 1", "acme 16", TOO_LARGE),
        (MachineBounds(memory_gib_max=8), "acme 1", "acme 16", TOO_LARGE),
    ],
)
async def test_sandboxes_are_bounded_by_number_and_memory_for_tenant_and_machine(
    bounds: MachineBounds, running: str, new: str, refusal: str | None, engine: FakeEngine, settings: DockerSettings
) -> None:
    bounded = DockerProvisioner(replace(settings, bounds=bounds), Engine("/none", engine))
    for number, words in enumerate(running.split(", ")):
        body = bounded.container(spec_of(words, number), settings.runtime_dir, 20_000 + number)
        engine.containers[str(number)] = FakeContainer(f"moorage-{number}", body)
    try:
        await started(bounded, spec_of(new, 9))
        told = None
    except SandboxError as error:
        told = error.message
    assert told == refusal
    kept = [f"{each.share.tenant_id} {each.share.memory_gib}" for each in await bounded.running()]
    assert kept == running.split(", ") + ([] if refusal else [new])


def spec_of(words: str, number: int) -> SandboxSpec:
    tenant_id, memory_gib = words.split()
    return SandboxSpec(tenant_id, f"cntr_{number}", TOKEN, memory_gib=int(memory_gib))


async def test_two_processes_of_a_stack_do_not_take_one_place(engine: FakeEngine, settings: DockerSettings) -> None:
    """Each process of a stack has a provisioner of its own."""
    bounded = replace(settings, bounds=MachineBounds(sandboxes_max=1))
    processes = [DockerProvisioner(bounded, Engine("/none", SlowEngine(engine))) for _ in range(2)]
    starts = [started(each, SandboxSpec("acme", f"cntr_{number}", TOKEN)) for number, each in enumerate(processes)]
    assert {type(each) for each in await asyncio.gather(*starts, return_exceptions=True)} == {Handle, SandboxCapacity}
    assert len(engine.containers) == 1


MIB = 1024**2


async def test_each_tenants_containers_have_a_bound_on_the_engines_disk(
    provisioner: DockerProvisioner,
) -> None:
    watching = asyncio.create_task(EngineDisk(provisioner, DiskLimits(reserve=0, tenant_max=30 * MIB)).watch())
    specs = [SandboxSpec("acme", "cntr_1", TOKEN), SandboxSpec("acme", "cntr_2", TOKEN), SandboxSpec("umbrella", "cntr_1", TOKEN)]
    handles = [await started(provisioner, spec) for spec in specs]
    async with ExecClient(handles[0]) as one, ExecClient(handles[1]) as two, ExecClient(handles[2]) as other:
        assert (await run(one, "head -c 10M /dev/zero > x; echo kept")).stdout == "kept\n"
        neighbour = asyncio.create_task(run(other, "head -c 25M /dev/zero > x; sleep 3; echo mine"))
        second = await run(two, "head -c 25M /dev/zero > x; sleep 30; echo STILL ALIVE", timeout_ms=60_000)
        assert (second.outcome, second.stdout) == ("killed", "")
        assert DiskWarning.TENANT in second.stderr
        assert (await neighbour).stdout == "mine\n"
        assert (await run(one, "wc -c < x")).stdout == f"{10 * MIB}\n"
        assert (await run(two, "rm x; sleep 1; echo gone", timeout_ms=60_000)).stdout == "gone\n"
        async with asyncio.timeout(30):
            while (await run(two, "head -c 5M /dev/zero > y; sleep 2; echo fine", timeout_ms=60_000)).stdout != "fine\n":
                pass
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)


async def test_a_container_that_takes_the_reserve_of_the_disk_is_stopped(provisioner: DockerProvisioner) -> None:
    """Of a disk that has nothing left but the reserve, as it is told here."""
    free = _free(provisioner.settings.runtime_dir)
    watching = asyncio.create_task(EngineDisk(provisioner, DiskLimits(reserve=4 * free, share_min=10 * MIB)).watch())
    small, large = await started(provisioner, SPEC), await started(provisioner, replace(SPEC, container_id="cntr_2"))
    async with ExecClient(small) as one, ExecClient(large) as two:
        assert (await run(one, "echo kept > x; cat x")).stdout == "kept\n"
        with contextlib.suppress(SandboxGone):
            await run(two, "head -c 25M /dev/zero > x; sleep 30; echo STILL ALIVE", timeout_ms=60_000)
        async with asyncio.timeout(30):
            while await provisioner.describe(large.sandbox_id) != SandboxStatus.STOPPED:
                await asyncio.sleep(0.05)
        assert (await run(one, "cat x")).stdout == "kept\n"
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)


def _free(place: Path) -> int:
    disk = os.statvfs(place)
    return disk.f_bavail * disk.f_frsize


async def test_leftovers_of_a_deployment_are_found_and_ended_and_no_others(engine: FakeEngine, settings: DockerSettings) -> None:
    async with DockerProvisioner(settings, Engine("/none", engine)) as ours:
        await started(ours, SPEC)
        theirs = DockerProvisioner(replace(settings, deployment="away"), Engine("/none", engine))
        kept = await started(theirs, SPEC)
        # One that was made and never started: its starter died in between.
        (_, lost) = (await started(ours, SandboxSpec("acme", "cntr_2", TOKEN))), engine.containers[f"{engine.made:064x}"]
        lost.status = "created"
        assert await ours.stop_all() == 2
        assert [*engine.containers] == [kept.sandbox_id]


@pytest.mark.parametrize(
    ("newest", "oldest", "spoken"),
    [("1.41", "1.12", "1.41"), ("1.47", "1.24", "1.47"), ("1.52", "1.44", "1.51"), ("1.60", "1.55", "1.55")],
)
async def test_the_version_is_one_that_both_sides_know(
    newest: str, oldest: str, spoken: str, engine: FakeEngine, provisioner: DockerProvisioner
) -> None:
    engine.newest, engine.oldest = newest, oldest
    assert await Engine("/none", engine).version() == spoken
    assert await provisioner.find(SPEC) is None


async def test_an_engine_that_is_too_old_is_told_so(engine: FakeEngine, provisioner: DockerProvisioner) -> None:
    engine.newest, engine.oldest = "1.40", "1.12"
    with pytest.raises(SandboxError, match=r"too old: its API has version 1\.40; 1\.41 \(Docker 20\.10\) is needed"):
        await provisioner.find(SPEC)


async def test_what_keeps_sandboxes_from_starting_is_told_before_the_first_one(engine: FakeEngine, settings: DockerSettings) -> None:
    await DockerProvisioner(settings, Engine("/none", engine)).check()
    await DockerProvisioner(replace(settings, runtime="runsc"), Engine("/none", engine)).check()
    with pytest.raises(SettingsConflict, match=r"MOORAGE_DOCKER_RUNTIME is 'kata'\. The engine has runc, runsc\."):
        await DockerProvisioner(replace(settings, runtime="kata"), Engine("/none", engine)).check()
    engine.images = ()
    with pytest.raises(SettingsConflict, match="no image 'moorage-sandbox': 'moorage sandbox-image build' makes it"):
        await DockerProvisioner(settings, Engine("/none", engine)).check()


def test_another_runtime_is_handed_to_the_engine(engine: FakeEngine, settings: DockerSettings) -> None:
    provisioner = DockerProvisioner(replace(settings, runtime="runsc"), Engine("/none", engine))
    assert provisioner.container(SPEC, Path("/x"), 20_001)["HostConfig"]["Runtime"] == "runsc"


def test_settings_are_read_and_none_is_ignored() -> None:
    values = {"runtime_dir": "/run/m", "image": "mine", "runtime": "runsc", "sandboxes_max": "8", "socket": "/s"}
    values |= {"tenant_memory_gib_max": "16", "tenant_disk_bytes_max": "1000000000"}
    assert DockerSettings.from_settings(values, "home") == DockerSettings(
        Path("/run/m"), "home", "mine", "runsc", 10**9, MachineBounds(sandboxes_max=8, tenant_memory_gib_max=16)
    )
    assert DockerSettings.from_settings({}, "home") == DockerSettings(Path("/run/moorage"), "home")
    with pytest.raises(SettingsError, match=r"MOORAGE_DOCKER_IMGE is no setting; image is\."):
        DockerSettings.from_settings({"imge": "mine"}, "home")
    with pytest.raises(SettingsError, match="MOORAGE_DOCKER_SANDBOXES_MAX is 'many', and takes a whole number above 0"):
        DockerSettings.from_settings({"sandboxes_max": "many"}, "home")


def test_the_engine_is_where_docker_clients_look_for_it(tmp_path: Path) -> None:
    assert engine_socket({"MOORAGE_DOCKER_SOCKET": "/own", "DOCKER_HOST": "unix:///theirs"}) == "/own"
    assert engine_socket({"DOCKER_HOST": "unix:///theirs/docker.sock"}) == "/theirs/docker.sock"
    with pytest.raises(SettingsConflict, match="DOCKER_HOST is 'tcp://"):
        engine_socket({"DOCKER_HOST": "tcp://10.0.0.1:2375"})
    (tmp_path / ".orbstack" / "run").mkdir(parents=True)
    (tmp_path / ".orbstack" / "run" / "docker.sock").touch()
    found = engine_socket({"HOME": str(tmp_path), "XDG_RUNTIME_DIR": str(tmp_path)})
    assert found in (f"{tmp_path}/.orbstack/run/docker.sock", "/var/run/docker.sock")


def test_the_image_is_built_from_the_pinned_toolbox() -> None:
    assert (EXEC_SERVER.parent / "toolbox.txt").read_text() == (ROOT / "requirements" / "toolbox.txt").read_text()


async def test_a_stack_looks_through_its_containers_and_may_keep_some_warm(tmp_path: Path) -> None:
    """They are counted, those that belong to no record are ended, and a pool holds some of them."""
    environment = {"MOORAGE_STORE_DIR": str(tmp_path), "MOORAGE_PROVISIONER": "docker", "DOCKER_HOST": "unix:///none"}
    environment |= {"MOORAGE_DOCKER_RUNTIME_DIR": str(tmp_path), "MOORAGE_CONTENT_KEY": "00" * 32, "MOORAGE_WARM_POOL": "1g:1"}
    environment |= {"MOORAGE_EXECUTIONS_FILE": str(tmp_path / "executions.sqlite")}
    runtime = build_runtime(Settings.from_environment(environment))
    (fleet,) = runtime.computers.fleets
    assert isinstance(fleet.owner, DockerProvisioner)
    assert (fleet.orphans is None, runtime.computers.warm_pool is None) == (False, False)
    await runtime.aclose()


def test_a_container_for_the_pool_serves_nobody_before_it_is_claimed() -> None:
    spec = SandboxSpec("pool", "pool_1", TOKEN)
    assert [server_config(each, 1)["unclaimed"] for each in (spec, replace(spec, is_unclaimed=True))] == [False, True]
