"""Sandboxes as Docker containers, for machines that have an engine (Linux; its API of version 1.41 or newer).

The engine owns the containers, so this is a client of its Unix socket and nothing more. The image is that of
``functions/sandbox/Dockerfile``: the exec server runs as root without most capabilities, commands as another user. A container has no
network; the exec server listens on a Unix socket in a directory that is shared with it, and the egress proxy's directory is shared in
the same way.

Tested against a fake engine that keeps to the documented API (``tests/unit/sandbox/test_docker.py``), not against a real one.
"""

import asyncio
import hashlib
import json
import shutil
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import httpx

from moorage import limits
from moorage.egress import trust
from moorage.errors import SandboxCapacity, SandboxError, SandboxGone, SandboxStarting
from moorage.sandbox.exec_client import ExecClient
from moorage.sandbox.over_http import OverHttp
from moorage.sandbox.provisioner import CONFIG_VARIABLE, EgressSpec, Handle, SandboxSpec, SandboxStatus
from moorage.skills.bundle import SKILLS

COMMAND_UID: Final = 61_000
"""Not 1000: that may be the number of whoever runs this, and the socket's directory belongs to them."""

TOKEN_LABEL: Final = "moorage.token-sha256"  # noqa: S105
SOCKET_DIRECTORY: Final = "/run/moorage"
EGRESS_DIRECTORY: Final = "/run/egress"
CAPABILITIES: Final = ("CHOWN", "DAC_OVERRIDE", "FOWNER", "KILL", "SETGID", "SETUID")
"""What the exec server needs to start commands as another user, to end them, and to hand files to them."""

CPUS: Final = {1: 1, 4: 2, 16: 4, 64: 16}
_START_POLLS: Final = 40
_START_POLL_SECONDS: Final = 0.05


class DockerProvisioner(OverHttp):
    def __init__(self, runtime_dir: Path, *, image: str, engine_socket: str, transport: httpx.AsyncBaseTransport | None = None) -> None:
        """``runtime_dir`` holds the exec servers' sockets: a short path that only this user may enter."""
        self._runtime_dir = runtime_dir
        self._image = image
        self._http = httpx.AsyncClient(
            base_url="http://engine/v1.41",
            transport=transport or httpx.AsyncHTTPTransport(uds=engine_socket, verify=_NO_TLS),
            timeout=httpx.Timeout(limits.SANDBOX_START_SECONDS, connect=limits.EXEC_CONNECT_SECONDS),
            verify=_NO_TLS,
            trust_env=False,
        )

    async def start(self, spec: SandboxSpec) -> Handle:
        """Idempotent by the container's name, which the engine keeps unique."""
        name = _name(spec)
        found = await self._inspect(name)
        if found is not None and not (found["State"]["Running"] and found["Config"]["Labels"].get(TOKEN_LABEL) == _hash(spec.token)):
            # It has ended, or it is that of an earlier incarnation with another token.
            await self.stop(found["Id"])
            found = None
        sandbox_id = found["Id"] if found else await self._create(name, spec)
        handle = Handle(f"unix:{self._runtime_dir / name / 'exec.sock'}", spec.token, sandbox_id)
        await self._until_healthy(handle)
        return handle

    async def find(self, spec: SandboxSpec) -> str | None:
        found = await self._inspect(_name(spec))
        return None if found is None else str(found["Id"])

    async def stop(self, sandbox_id: str) -> None:
        found = await self._inspect(sandbox_id)
        if found is None:
            return
        response = await self._ask("DELETE", f"/containers/{sandbox_id}", params={"force": "true", "v": "true"})
        if response.status_code not in (httpx.codes.NO_CONTENT, httpx.codes.NOT_FOUND, httpx.codes.CONFLICT):
            raise _refusal(response)
        shutil.rmtree(self._runtime_dir / found["Name"].lstrip("/"), ignore_errors=True)

    async def add_skill(self, handle: Handle, directory: str, archive: bytes) -> bool:
        return False

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
        directory = self._runtime_dir / name
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        response = await self._ask("POST", "/containers/create", params={"name": name}, json=self.container(spec, directory))
        match response.status_code:
            case httpx.codes.CREATED:
                sandbox_id = str(response.json()["Id"])
            case httpx.codes.CONFLICT:
                raise SandboxStarting(_START_POLL_SECONDS * 10)  # somebody else has just made it
            case _:
                raise _refusal(response)
        response = await self._ask("POST", f"/containers/{sandbox_id}/start")
        if response.status_code not in (httpx.codes.NO_CONTENT, httpx.codes.NOT_MODIFIED):
            await self.stop(sandbox_id)
            raise _refusal(response)
        return sandbox_id

    def container(self, spec: SandboxSpec, directory: Path) -> dict[str, Any]:
        """The body of ``POST /containers/create``. The engine's default seccomp and AppArmor profiles stay on."""
        mounts = [_shared(directory, SOCKET_DIRECTORY, read_only=False)]
        if spec.egress is not None:
            mounts.append(_shared(_socket_of(spec.egress).parent, EGRESS_DIRECTORY, read_only=True))
        memory = spec.memory_gib * 1024**3
        return {
            "Image": self._image,
            "Hostname": "sandbox",
            "User": "0:0",
            "Env": [f"{CONFIG_VARIABLE}={json.dumps(server_config(spec), separators=(',', ':'))}"],
            "Labels": {
                "moorage.tenant": spec.tenant_id,
                "moorage.container": spec.container_id,
                TOKEN_LABEL: _hash(spec.token),
            },
            # Anonymous volumes, removed with the container: on disk, unlike the tmpfs mounts.
            "Volumes": {"/mnt/data": {}, "/home/user": {}, "/tmp/.exec": {}, SKILLS: {}},  # noqa: S108
            "HostConfig": {
                "NetworkMode": "none",
                "CapDrop": ["ALL"],
                "CapAdd": list(CAPABILITIES),
                "SecurityOpt": ["no-new-privileges:true"],
                "ReadonlyRootfs": True,
                "Tmpfs": {"/tmp": f"rw,nosuid,nodev,exec,mode=1777,size={memory // limits.SANDBOX_TMP_SHARE}"},  # noqa: S108
                "ShmSize": memory // limits.SANDBOX_SHM_SHARE,
                "Mounts": mounts,
                "Memory": memory,
                "MemorySwap": memory,
                "NanoCpus": CPUS.get(spec.memory_gib, 1) * 10**9,
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
            },
        }

    async def _until_healthy(self, handle: Handle) -> None:
        async with ExecClient(handle) as client:
            for _ in range(_START_POLLS):
                try:
                    await client.health()
                except SandboxGone:
                    await asyncio.sleep(_START_POLL_SECONDS)
                else:
                    return
        if await self.describe(handle.sandbox_id) == SandboxStatus.STOPPED:
            raise SandboxError("The sandbox ended as soon as it was started; 'docker logs' says why.")
        raise SandboxStarting(_START_POLL_SECONDS * 10)

    async def _inspect(self, name: str) -> dict[str, Any] | None:
        response = await self._ask("GET", f"/containers/{name}/json")
        if response.status_code == httpx.codes.NOT_FOUND:
            return None
        if response.is_error:
            raise _refusal(response)
        found: dict[str, Any] = response.json()
        return found

    async def _ask(self, method: str, path: str, **arguments: Any) -> httpx.Response:
        try:
            return await self._http.request(method, path, **arguments)
        except httpx.TransportError as error:
            raise SandboxCapacity("The container engine does not answer; is it running?") from error


def server_config(spec: SandboxSpec) -> dict[str, Any]:
    """The exec server's configuration. The engine shows it to whoever may ask it, so it bears only the token's hash."""
    return {
        "token_sha256": _hash(spec.token),
        "listen": f"unix:{SOCKET_DIRECTORY}/exec.sock",
        "uid": COMMAND_UID,
        "env": {**_egress_variables(spec.egress), **spec.env},
        "egress": None
        if spec.egress is None
        else {"socket": f"{EGRESS_DIRECTORY}/{_socket_of(spec.egress).name}", "ca_pem": spec.egress.ca_pem},
        "scratch": ["/tmp", "/dev/shm"],  # noqa: S108
        "limits": {
            "processes": limits.CONTAINER_PROCESSES_MAX,
            "memory_bytes": spec.memory_gib * 1024**3,
            "open_files": limits.CONTAINER_OPEN_FILES_MAX,
            "disk_bytes": limits.WORKSPACE_BYTES_MAX,
            "spool_bytes": limits.OUTPUT_SPOOL_BYTES_MAX,
        },
    }


def _egress_variables(egress: EgressSpec | None) -> Mapping[str, str]:
    if egress is None:
        return {}
    return trust.environment(trust.proxy_url(trust.FORWARDER, egress.username, egress.password), trust.CA_BUNDLE)


def _socket_of(egress: EgressSpec) -> Path:
    if not egress.proxy.startswith("unix:"):
        raise SandboxError("A Docker sandbox has no network: the egress proxy must be a Unix socket.")
    return Path(egress.proxy.removeprefix("unix:"))


def _shared(source: Path, target: str, *, read_only: bool) -> dict[str, Any]:
    return {"Type": "bind", "Source": str(source), "Target": target, "ReadOnly": read_only}


def _name(spec: SandboxSpec) -> str:
    """The same for the same container of the same tenant; short, for it is part of a socket's path."""
    return "moorage-" + _hash(f"{spec.tenant_id}/{spec.container_id}")[:24]


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _refusal(response: httpx.Response) -> SandboxError:
    try:
        message = response.json()["message"]
    except (ValueError, KeyError, TypeError):
        message = f"status {response.status_code}"
    return SandboxError(f"The container engine refused: {message}")


_NO_TLS: Final = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
