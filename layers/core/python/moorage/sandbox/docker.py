"""Sandboxes as Docker containers, for machines that have an engine (Linux; its API of version 1.41 or newer).

The engine owns the containers, so this is a client of its Unix socket and nothing more. The image is that of
``functions/sandbox/Dockerfile``: the exec server runs as root without most capabilities, commands as another user. A container has no
network; the exec server listens on a Unix socket in a directory that is shared with it, and the egress proxy's directory is shared in
the same way.

A browser has a container of its own beside that of the commands, from an image of its own (``functions/sandbox/Dockerfile.desk``). The
two meet at one socket, in a directory that no command may enter. The browser's has neither capabilities nor a network.

Each container has a user of its own: the kernel counts processes and inotify instances by user, and containers of an engine share its
user namespace. Labels name the deployment, tenant and container, so that leftovers are found and bounds are counted.
"""

import asyncio
import contextlib
import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import field, fields
from pathlib import Path
from typing import Any, Final, Self

import httpx

from moorage import limits
from moorage.dataclass import dataclass
from moorage.egress import trust
from moorage.errors import DeskUnavailable, SandboxError, SandboxGone, SandboxStarting, SettingsConflict
from moorage.sandbox import browser_policies, seccomp
from moorage.sandbox.desk_config import DESK_DIRECTORY, LINK_DIRECTORY, LINK_SOCKET, desk_config
from moorage.sandbox.docker_engine import Engine, refusal
from moorage.sandbox.exec_client import ExecClient
from moorage.sandbox.machine_bounds import MachineBounds, SandboxShare
from moorage.sandbox.over_http import AsyncClosing
from moorage.sandbox.provisioner import CONFIG_VARIABLE, EgressSpec, Handle, SandboxSpec, SandboxStatus
from moorage.settings import SettingsError, nearest
from moorage.skills.bundle import SKILLS

UIDS_FROM: Final = 20_000
UIDS: Final = 40_000
"""Commands are users of these numbers. An engine whose containers have a user namespace knows those below 65,536 alone."""

DEPLOYMENT_LABEL: Final = "moorage.deployment"
TENANT_LABEL: Final = "moorage.tenant"
CONTAINER_LABEL: Final = "moorage.container"
TOKEN_LABEL: Final = "moorage.token-sha256"  # noqa: S105
UID_LABEL: Final = "moorage.uid"
MEMORY_LABEL: Final = "moorage.memory-gib"
DESK_LABEL: Final = "moorage.desk-of"
"""Of a browser's container: the id of the sandbox that it stands beside."""
SOCKET_DIRECTORY: Final = "/run/moorage"
CONTROL_SOCKET: Final = "control.sock"
EGRESS_DIRECTORY: Final = "/run/egress"
CAPABILITIES: Final = ("CHOWN", "DAC_OVERRIDE", "FOWNER", "KILL", "SETGID", "SETUID")
"""What the exec server needs to start commands as another user, to end them, and to hand files to them."""

_SECCOMP: Final = json.dumps(seccomp.profile(), separators=(",", ":"))
_DESK_SECCOMP: Final = json.dumps(seccomp.profile(has_namespaces=True), separators=(",", ":"))
_LINK: Final = "link"
"""What the sandbox sees as ``/run/moorage/link`` a browser's container sees as ``LINK_DIRECTORY``."""
_DESK_SOCKETS: Final = "run"
_POLICIES: Final = "policies.json"
NO_DESK_IMAGE: Final = (
    "The container engine has no image '{image}', and so sandboxes have no browser: 'moorage sandbox-image build --desk' makes it."
)
CPUS: Final = {1: 1, 4: 2, 16: 4, 64: 16}
_START_POLLS: Final = 40
_DESK_START_POLLS: Final = 400
"""A call of the computer waits for its browser; a sandbox that is slow is asked for again by the loop."""
_START_POLL_SECONDS: Final = 0.05
_LOCK_TRY_SECONDS: Final = 0.02
_LOCK_TRIES_MAX: Final = int(limits.SANDBOX_START_SECONDS / _LOCK_TRY_SECONDS)


@dataclass(frozen=True, slots=True)
class DockerSettings:
    """``MOORAGE_DOCKER_*``."""

    runtime_dir: Path
    """Holds the exec servers' sockets: a short path that only this user may enter, and that the engine sees under the same name."""
    deployment: str
    """Whose containers these are, among those of one engine."""
    image: str = "moorage-sandbox"
    runtime: str = ""
    """An OCI runtime that the engine knows, such as ``runsc`` (gVisor) or ``kata``; empty for the engine's default."""
    tenant_disk_bytes_max: int = limits.TENANT_DISK_BYTES_MAX
    """``MOORAGE_DOCKER_TENANT_DISK_BYTES_MAX``: what all containers of a tenant may hold on the engine's disk."""
    bounds: MachineBounds = field(default_factory=MachineBounds)
    """``MOORAGE_DOCKER_SANDBOXES_MAX``, ``MOORAGE_DOCKER_TENANT_SANDBOXES_MAX``, ``MOORAGE_DOCKER_MEMORY_GIB_MAX`` and
    ``MOORAGE_DOCKER_TENANT_MEMORY_GIB_MAX``."""
    desk_image: str = "moorage-desk"
    """Of the browsers beside sandboxes. Without it on the engine there are no hosted computers."""

    @classmethod
    def from_settings(cls, values: Mapping[str, str], deployment: str) -> Self:
        """Read ``Settings.docker``; ``deployment`` is the name if none is given. Raises :class:`SettingsError`."""
        bounds = {each.name for each in fields(MachineBounds)}
        known = ({each.name for each in fields(cls)} - {"bounds"}) | bounds | {"socket"}
        for name, value in values.items():
            variable = f"MOORAGE_DOCKER_{name.upper()}"
            if name not in known:
                raise SettingsError(f"{variable} is no setting{nearest(name, known)}.")
            if name in {*bounds, "tenant_disk_bytes_max"} and value and not (value.isascii() and value.isdecimal() and int(value) > 0):
                raise SettingsError(f"{variable} is '{value}', and takes a whole number above 0.")
        return cls(
            Path(values.get("runtime_dir") or "/run/moorage"),
            values.get("deployment") or deployment,
            values.get("image") or "moorage-sandbox",
            values.get("runtime", ""),
            int(values.get("tenant_disk_bytes_max") or limits.TENANT_DISK_BYTES_MAX),
            MachineBounds(**{name: int(values[name]) for name in bounds if values.get(name)}),
            values.get("desk_image") or "moorage-desk",
        )


@dataclass(frozen=True, slots=True)
class DockerSandbox:
    """A container as the engine lists it."""

    sandbox_id: str
    name: str
    labels: Mapping[str, str]

    @property
    def tenant_id(self) -> str:
        return self.labels.get(TENANT_LABEL, "")

    @property
    def container_id(self) -> str:
        return self.labels.get(CONTAINER_LABEL, "")

    @property
    def uid(self) -> int:
        return self._number(UID_LABEL)

    @property
    def is_desk(self) -> bool:
        return DESK_LABEL in self.labels

    @property
    def share(self) -> SandboxShare:
        return SandboxShare(self.tenant_id, self._number(MEMORY_LABEL))

    def _number(self, label: str) -> int:
        said = self.labels.get(label, "")
        return int(said) if said.isdecimal() else 0

    def belongs_to(self, token: str) -> bool:
        return self.labels.get(TOKEN_LABEL) == _hash(token)


class DockerProvisioner(AsyncClosing):
    def __init__(self, settings: DockerSettings, engine: Engine) -> None:
        self.settings = settings
        self._engine = engine

    async def aclose(self) -> None:
        await self._engine.aclose()

    @property
    def revision(self) -> str:
        """Containers end with the stack, so that all of one stack are started from the same image."""
        return f"{self.settings.image} {self.settings.runtime}".strip()

    async def check(self) -> None:
        """Raises :class:`SettingsConflict` if no sandbox can start: no engine, an old one, no image, no such runtime."""
        image, runtime = self.settings.image, self.settings.runtime
        try:
            found = await self._engine.read(f"/images/{image}/json")
            runtimes = (await self._engine.read("/info")).get("Runtimes") or {}
        except SandboxError as error:
            raise SettingsConflict(error.message) from error
        if found is None:
            raise SettingsConflict(f"The container engine has no image '{image}': 'moorage sandbox-image build' makes it.")
        if runtime and runtime not in runtimes:
            raise SettingsConflict(f"MOORAGE_DOCKER_RUNTIME is '{runtime}'. The engine has {', '.join(sorted(runtimes)) or 'none'}.")

    async def has_desks(self) -> bool:
        """Whether there is a browser for containers that want one."""
        return await self._engine.read(f"/images/{self.settings.desk_image}/json") is not None

    async def start(self, spec: SandboxSpec) -> Handle:
        """Idempotent by the container's name: the engine keeps it unique."""
        name = self._name(spec)
        found = await self._inspect(name)
        if found is not None and not (found["State"]["Running"] and found["Config"]["Labels"].get(TOKEN_LABEL) == _hash(spec.token)):
            # It has ended, or it is that of an earlier incarnation with another token.
            await self.stop(found["Id"])
            found = None
        sandbox_id = found["Id"] if found else await self._create(name, spec)
        handle = Handle(f"unix:{self.settings.runtime_dir / name / 'exec.sock'}", spec.token, sandbox_id)
        await self._until_healthy(handle, sandbox_id)
        return handle

    async def find(self, spec: SandboxSpec) -> str | None:
        found = await self._inspect(self._name(spec))
        return None if found is None else str(found["Id"])

    async def stop(self, sandbox_id: str) -> None:
        found = await self._inspect(sandbox_id)
        if found is None:
            return
        name = found["Name"].lstrip("/")
        await self._remove(_desk_of(name))
        await self._remove(name)

    async def _remove(self, name: str) -> None:
        response = await self._engine.ask("DELETE", f"/containers/{name}", params={"force": "true", "v": "true"})
        if response.status_code not in (httpx.codes.NO_CONTENT, httpx.codes.NOT_FOUND, httpx.codes.CONFLICT):
            raise refusal(response)
        shutil.rmtree(self.settings.runtime_dir / name, ignore_errors=True)

    async def stop_all(self) -> int:
        """End every container of this deployment, by any starter; answers how many there were."""
        left = [each for each in await self._listed() if self._is_own(each)]
        for each in left:
            await self._remove(each.name)
        return len(left)

    async def running(self) -> Sequence[DockerSandbox]:
        """All sandboxes of this deployment that the engine keeps, those that have ended among them."""
        return [each for each in await self._listed() if self._is_own(each) and not each.is_desk]

    def _is_own(self, each: DockerSandbox) -> bool:
        return each.labels.get(DEPLOYMENT_LABEL) == self.settings.deployment

    async def data_root(self) -> str:
        """The engine's folder of volumes, on its side."""
        return str((await self._engine.read("/info"))["DockerRootDir"])

    async def _listed(self) -> list[DockerSandbox]:
        """The containers of every deployment on this engine, the browsers' too."""
        found = await self._engine.read("/containers/json", params={"all": "true", "filters": json.dumps({"label": [UID_LABEL]})})
        return [DockerSandbox(each["Id"], each["Names"][0].lstrip("/"), each["Labels"]) for each in found]

    async def add_skill(self, handle: Handle, directory: str, archive: bytes) -> bool:
        return False

    async def desk(self, handle: Handle, *, starts: bool = True) -> Handle:
        """A container beside the sandbox's; it is made if there is none."""
        sandbox = await self._inspect(handle.sandbox_id)
        if sandbox is None or not sandbox["State"]["Running"]:
            raise SandboxGone("The container is not running.")
        name = _desk_of(sandbox["Name"].lstrip("/"))
        async with _held(self.settings.runtime_dir):
            found = await self._inspect(name)
            is_own = found is not None and found["Config"]["Labels"].get(TOKEN_LABEL) == _hash(handle.token)
            if found is not None and not (is_own and found["State"]["Running"]):
                await self._remove(name)
                found = None
            if found is None and not starts:
                raise DeskUnavailable("No browser runs beside this container.")
            desk_id = found["Id"] if found else await self._create_desk(name, sandbox, handle.token)
        desk = Handle(f"unix:{self.settings.runtime_dir / name / _DESK_SOCKETS / 'exec.sock'}", handle.token, handle.sandbox_id)
        await self._until_healthy(desk, desk_id, _DESK_START_POLLS)
        # No browser has been started yet: none puts a link to elsewhere in the place of the socket.
        (self.settings.runtime_dir / name / _DESK_SOCKETS).chmod(0o755)
        return desk

    async def _create_desk(self, name: str, sandbox: Mapping[str, Any], token: str) -> str:
        if not await self.has_desks():
            raise DeskUnavailable(NO_DESK_IMAGE.format(image=self.settings.desk_image))
        listed = await self._listed()
        own = [each.share for each in listed if self._is_own(each) and each.is_desk]
        self.settings.bounds.check(own, SandboxShare(sandbox["Config"]["Labels"][TENANT_LABEL], limits.DESK_MEMORY_GIB))
        said = next(each for each in sandbox["Config"]["Env"] if each.startswith(f"{CONFIG_VARIABLE}="))
        egress = json.loads(said.partition("=")[2])["egress"]
        _make_desk_directory(self.settings.runtime_dir / name, browser_policies.policies(egress["ca_pem"] if egress else ""))
        profile = self._seccomp_file("desk-seccomp.json", _DESK_SECCOMP) if await self._engine.takes_paths() else _DESK_SECCOMP
        return await self._begin(name, self.desk_container(sandbox, egress, _hash(token), self._free_uid(name, listed), profile))

    async def describe(self, sandbox_id: str) -> SandboxStatus:
        found = await self._inspect(sandbox_id)
        match found["State"]["Status"] if found else "gone":
            case "running":
                return SandboxStatus.RUNNING
            case "created" | "restarting":
                return SandboxStatus.STARTING
            case _:
                return SandboxStatus.STOPPED

    async def _create(self, name: str, spec: SandboxSpec) -> str:
        directory = self.settings.runtime_dir / name
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        (directory / _LINK).mkdir(exist_ok=True, mode=0o755)
        async with _held(self.settings.runtime_dir):
            uid = self._place(name, spec, await self._listed())
            _write_users(directory, uid)
            profile = self._seccomp_file("seccomp.json", _SECCOMP) if await self._engine.takes_paths() else _SECCOMP
            await self._remove(_desk_of(name))  # Of a sandbox that somebody else has removed.
            return await self._begin(name, self.container(spec, directory, uid, profile))

    async def _begin(self, name: str, body: Mapping[str, Any]) -> str:
        response = await self._engine.ask("POST", "/containers/create", params={"name": name}, json=body)
        match response.status_code:
            case httpx.codes.CREATED:
                sandbox_id = str(response.json()["Id"])
            case httpx.codes.CONFLICT:
                raise SandboxStarting(_START_POLL_SECONDS * 10)  # somebody else has just made it
            case _:
                raise refusal(response)
        response = await self._engine.ask("POST", f"/containers/{sandbox_id}/start")
        if response.status_code not in (httpx.codes.NO_CONTENT, httpx.codes.NOT_MODIFIED):
            await self._remove(name)
            raise refusal(response)
        return sandbox_id

    def _place(self, name: str, spec: SandboxSpec, listed: Sequence[DockerSandbox]) -> int:
        """The user of a new container, that no other has. Raises :class:`SandboxCapacity` if one more would be too many."""
        own = [each for each in listed if self._is_own(each) and not each.is_desk]
        self.settings.bounds.check([each.share for each in own], SandboxShare(spec.tenant_id, spec.memory_gib))
        return self._free_uid(name, listed)

    def _free_uid(self, name: str, listed: Sequence[DockerSandbox]) -> int:
        taken = {each.uid for each in listed}
        first = int(_hash(name), 16)
        return next(uid for offset in range(UIDS) if (uid := UIDS_FROM + (first + offset) % UIDS) not in taken)

    def _seccomp_file(self, name: str, profile: str) -> str:
        path = self.settings.runtime_dir / name
        if not path.exists() or path.read_text() != profile:
            aside = path.with_suffix(".new")
            aside.write_text(profile)
            aside.rename(path)
        return str(path)

    def container(self, spec: SandboxSpec, directory: Path, uid: int, profile: str = _SECCOMP) -> dict[str, Any]:
        """The body of ``POST /containers/create``, for commands that run as ``uid`` under a profile of system calls."""
        mounts = [_shared(directory, SOCKET_DIRECTORY, read_only=False)]
        mounts += [_shared(directory / name, f"/etc/{name}", read_only=True) for name in ("passwd", "group")]
        if spec.egress is not None:
            mounts.append(_shared(_socket_of(spec.egress).parent, EGRESS_DIRECTORY, read_only=True))
        memory = spec.memory_gib * 1024**3
        return {
            "Image": self.settings.image,
            "Hostname": "sandbox",
            "User": "0:0",
            "Env": [f"{CONFIG_VARIABLE}={json.dumps(server_config(spec, uid), separators=(',', ':'))}"],
            "Labels": {
                DEPLOYMENT_LABEL: self.settings.deployment,
                TENANT_LABEL: spec.tenant_id,
                CONTAINER_LABEL: spec.container_id,
                TOKEN_LABEL: _hash(spec.token),
                UID_LABEL: str(uid),
                MEMORY_LABEL: str(spec.memory_gib),
            },
            # Anonymous volumes, removed with the container: on disk, unlike the tmpfs mounts.
            "Volumes": {"/mnt/data": {}, "/home/user": {}, "/tmp/.exec": {}, SKILLS: {}},  # noqa: S108
            "HostConfig": {
                **self._walls(spec.memory_gib, profile),
                "CapAdd": list(CAPABILITIES),
                "Tmpfs": {"/tmp": f"rw,nosuid,nodev,exec,mode=1777,size={memory // limits.SANDBOX_TMP_SHARE}"},  # noqa: S108
                "Mounts": mounts,
            },
        }

    def desk_container(
        self, sandbox: Mapping[str, Any], egress: Mapping[str, str] | None, token_sha256: str, uid: int, profile: str = _DESK_SECCOMP
    ) -> dict[str, Any]:
        """The same for the browser beside ``sandbox``, as the engine shows it. Exec server and browser run as ``uid``."""
        name, labels = sandbox["Name"].lstrip("/"), sandbox["Config"]["Labels"]
        directory = self.settings.runtime_dir / _desk_of(name)
        mounts = [
            _shared(directory / _DESK_SOCKETS, SOCKET_DIRECTORY, read_only=False),
            _shared(directory / _POLICIES, browser_policies.PATH, read_only=True),
            _shared(self.settings.runtime_dir / name / _LINK, LINK_DIRECTORY, read_only=True),
        ]
        mounts += [each for each in sandbox["HostConfig"]["Mounts"] if each["Target"] == EGRESS_DIRECTORY]
        scratch = limits.DESK_MEMORY_GIB * 1024**3 // limits.SANDBOX_TMP_SHARE
        upstream = {} if egress is None else {name: egress[name] for name in ("socket", "username", "password")}
        served = desk_config(f"{SOCKET_DIRECTORY}/exec.sock", upstream, egress["ca_pem"] if egress else "")
        config = {"token_sha256": token_sha256, **served}
        return {
            "Image": self.settings.desk_image,
            "Hostname": "desk",
            "User": f"{uid}:{uid}",
            "Env": [f"{CONFIG_VARIABLE}={json.dumps(config, separators=(',', ':'))}"],
            "Labels": {
                DEPLOYMENT_LABEL: self.settings.deployment,
                TENANT_LABEL: labels[TENANT_LABEL],
                DESK_LABEL: sandbox["Id"],
                TOKEN_LABEL: token_sha256,
                UID_LABEL: str(uid),
                MEMORY_LABEL: str(limits.DESK_MEMORY_GIB),
            },
            "HostConfig": {
                **self._walls(limits.DESK_MEMORY_GIB, profile),
                "Tmpfs": {
                    "/tmp": f"rw,nosuid,nodev,noexec,mode=1777,size={scratch}",  # noqa: S108
                    DESK_DIRECTORY: f"rw,nosuid,nodev,noexec,uid={uid},gid={uid},mode=700,size={limits.DESK_DISK_BYTES}",
                },
                "Mounts": mounts,
            },
        }

    def _walls(self, memory_gib: int, profile: str) -> dict[str, Any]:
        """The options of all containers."""
        memory = memory_gib * 1024**3
        return {
            **({"Runtime": self.settings.runtime} if self.settings.runtime else {}),
            "NetworkMode": "none",
            "CapDrop": ["ALL"],
            # The engine's own table depends on its age: before 23.0 it let AF_VSOCK through, before 25.0 io_uring.
            "SecurityOpt": ["no-new-privileges:true", f"seccomp={profile}"],
            "ReadonlyRootfs": True,
            "ShmSize": memory // limits.SANDBOX_SHM_SHARE,
            "Memory": memory,
            "MemorySwap": memory,
            "NanoCpus": CPUS.get(memory_gib, 1) * 10**9,
            "PidsLimit": limits.CONTAINER_PROCESSES_MAX + 8,
            "Ulimits": [
                {"Name": "nofile", "Soft": limits.CONTAINER_OPEN_FILES_MAX, "Hard": limits.CONTAINER_OPEN_FILES_MAX},
                # Not 0, with which a core_pattern that is a program is run (core(5)).
                {"Name": "core", "Soft": 1, "Hard": 1},
            ],
            "IpcMode": "private",
            "CgroupnsMode": "private",
            "RestartPolicy": {"Name": "no"},
            "LogConfig": {"Type": "json-file", "Config": {"max-size": "1m", "max-file": "1"}},
        }

    async def _until_healthy(self, handle: Handle, sandbox_id: str, polls: int = _START_POLLS) -> None:
        async with ExecClient(handle) as client:
            for _ in range(polls):
                try:
                    await client.health()
                except SandboxGone:
                    await asyncio.sleep(_START_POLL_SECONDS)
                else:
                    return
        if await self.describe(sandbox_id) == SandboxStatus.STOPPED:
            raise SandboxError("The sandbox ended as soon as it was started; 'docker logs' says why.")
        raise SandboxStarting(_START_POLL_SECONDS * 10)

    async def _inspect(self, name: str) -> dict[str, Any] | None:
        found: dict[str, Any] | None = await self._engine.read(f"/containers/{name}/json")
        return found

    def _name(self, spec: SandboxSpec) -> str:
        """The same for the same container of the same tenant; short, for it is part of a socket's path."""
        return "moorage-" + _hash(f"{self.settings.deployment}/{spec.tenant_id}/{spec.container_id}")[:24]


@asynccontextmanager
async def _held(directory: Path) -> AsyncIterator[None]:
    """Over all processes of a stack: held from the look at running containers until the new one is among them, so that two starts do
    not take one place or one user.

    Raises :class:`SandboxStarting` if others hold it for long.
    """
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for _ in range(_LOCK_TRIES_MAX):
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            await asyncio.sleep(_LOCK_TRY_SECONDS)
        else:
            raise SandboxStarting(_START_POLL_SECONDS * 10)
        yield
    finally:
        os.close(descriptor)


def _write_users(directory: Path, uid: int) -> None:
    """``/etc/passwd`` and ``/etc/group`` of a container: its commands have a name there."""
    for name, text in (("passwd", _USERS.format(uid=uid)), ("group", _GROUPS.format(uid=uid))):
        (directory / name).write_text(text)
        (directory / name).chmod(0o644)


_USERS: Final = """\
root:x:0:0:root:/root:/bin/bash
daemon:x:1:1:daemon:/usr/sbin:/usr/sbin/nologin
www-data:x:33:33:www-data:/var/www:/usr/sbin/nologin
nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin
user:x:{uid}:{uid}::/home/user:/bin/bash
"""
_GROUPS: Final = """\
root:x:0:
daemon:x:1:
tty:x:5:
www-data:x:33:
nogroup:x:65534:
user:x:{uid}:
"""


def server_config(spec: SandboxSpec, uid: int) -> dict[str, Any]:
    """The exec server's configuration.

    The engine shows it to all its clients: the token is there as its hash alone, and the credentials at the proxy only name the policy.
    """
    return {
        "token_sha256": _hash(spec.token),
        "unclaimed": spec.is_unclaimed,
        "listen": f"unix:{SOCKET_DIRECTORY}/exec.sock",
        "control_path": f"{SOCKET_DIRECTORY}/{CONTROL_SOCKET}",
        "neighbour_path": f"{SOCKET_DIRECTORY}/{_LINK}/{LINK_SOCKET}",
        "uid": uid,
        **({"read_only": True} if spec.is_read_only else {}),
        "env": {**({} if spec.egress is None else spec.egress.variables(trust.FORWARDER)), **spec.env},
        "egress": None
        if spec.egress is None
        else {
            "socket": f"{EGRESS_DIRECTORY}/{_socket_of(spec.egress).name}",
            "ca_pem": spec.egress.ca_pem,
            # For the browser beside it (``desk_config``).
            "username": spec.egress.username,
            "password": spec.egress.password,
        },
        "scratch": ["/tmp", "/dev/shm"],  # noqa: S108
        "limits": {
            "processes": limits.CONTAINER_PROCESSES_MAX,
            "memory_bytes": spec.memory_gib * 1024**3,
            "open_files": limits.CONTAINER_OPEN_FILES_MAX,
            "disk_bytes": limits.WORKSPACE_BYTES_MAX,
            "spool_bytes": limits.OUTPUT_SPOOL_BYTES_MAX,
        },
    }


def _make_desk_directory(directory: Path, policies: bytes) -> None:
    """The socket goes into a folder that the browser's user may write to until it is there; above it only this user may enter."""
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    (directory / _POLICIES).write_bytes(policies)
    (directory / _POLICIES).chmod(0o644)
    (directory / _DESK_SOCKETS).mkdir(exist_ok=True)
    (directory / _DESK_SOCKETS).chmod(0o777)


def _desk_of(name: str) -> str:
    return f"{name}-desk"


def _socket_of(egress: EgressSpec) -> Path:
    if not egress.proxy.startswith("unix:"):
        raise SandboxError("A Docker sandbox has no network: the egress proxy must be a Unix socket.")
    return Path(egress.proxy.removeprefix("unix:"))


def _shared(source: Path, target: str, *, read_only: bool) -> dict[str, Any]:
    return {"Type": "bind", "Source": str(source), "Target": target, "ReadOnly": read_only}


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
