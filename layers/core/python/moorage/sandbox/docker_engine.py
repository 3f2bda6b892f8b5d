"""A container engine's HTTP API, over its Unix socket: which one, at which version, and what it refuses.

The socket is that of ``MOORAGE_DOCKER_SOCKET``, of ``DOCKER_HOST``, or the first that exists of those that Docker, Docker Desktop,
OrbStack, Colima and Podman use. The version is the newest that both sides know: an engine refuses what is older than its
``MinAPIVersion`` (Docker 29 takes 1.44 and newer) and what it does not know yet.
"""

import json
import os
import ssl
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import httpx

from moorage import limits
from moorage.errors import SandboxCapacity, SandboxError, SettingsConflict
from moorage.sandbox.over_http import OverHttp

_OLDEST: Final = (1, 41)
"""Docker 20.10."""
_NEWEST: Final = (1, 51)
"""Docker 28.3. The fields that are used here have the same meaning from 1.41 on (the engine's API version history)."""
_BUILD_SECONDS_MAX: Final = 3600
_PODMAN: Final = "Podman Engine"
"""The first of the components that Podman's ``/version`` lists."""


def engine_socket(environ: Mapping[str, str]) -> str:
    """The path of the engine's socket. Raises :class:`SettingsConflict` for a ``DOCKER_HOST`` that is no Unix socket."""
    if named := environ.get("MOORAGE_DOCKER_SOCKET"):
        return named
    if host := environ.get("DOCKER_HOST"):
        address = urlsplit(host)
        if address.scheme != "unix":
            raise SettingsConflict(
                f"DOCKER_HOST is '{host}': sandboxes share sockets with this machine, so the engine must be on it (unix://...). "
                "MOORAGE_DOCKER_SOCKET takes another one."
            )
        return address.path
    return next((path for path in _usual_sockets(environ) if Path(path).exists()), _usual_sockets(environ)[0])


def _usual_sockets(environ: Mapping[str, str]) -> list[str]:
    home = environ.get("HOME", "/root")
    runtime = environ.get("XDG_RUNTIME_DIR") or f"/run/user/{os.getuid()}"
    return [
        "/var/run/docker.sock",
        f"{runtime}/docker.sock",
        f"{home}/.docker/run/docker.sock",
        f"{home}/.orbstack/run/docker.sock",
        f"{home}/.colima/default/docker.sock",
        f"{runtime}/podman/podman.sock",
        "/run/podman/podman.sock",
    ]


class Engine(OverHttp):
    def __init__(self, socket: str, transport: httpx.AsyncBaseTransport | None = None) -> None:
        self.socket = socket
        self._http = httpx.AsyncClient(
            base_url="http://engine",
            transport=transport or httpx.AsyncHTTPTransport(uds=socket, verify=_NO_TLS),
            timeout=httpx.Timeout(limits.SANDBOX_START_SECONDS, connect=limits.EXEC_CONNECT_SECONDS),
            verify=_NO_TLS,
            trust_env=False,
        )
        self._version: str | None = None
        self._is_podman = False

    async def ask(self, method: str, path: str, **arguments: Any) -> httpx.Response:
        """The answer, with any status. Raises :class:`SandboxCapacity` if the engine is away."""
        try:
            return await self._http.request(method, f"/v{await self.version()}{path}", **arguments)
        except httpx.TransportError as error:
            self._version = None  # It may come back as another one.
            raise _away(self.socket) from error

    async def read(self, path: str, **arguments: Any) -> Any:
        """The JSON at ``path``; None if there is nothing. Raises :class:`SandboxError` for a refusal."""
        response = await self.ask("GET", path, **arguments)
        if response.status_code == httpx.codes.NOT_FOUND:
            return None
        if response.is_error:
            raise refusal(response)
        return response.json()

    async def version(self) -> str:
        """The API's version that both sides know, such as ``1.44``. Raises :class:`SandboxError` for an engine that is too old."""
        if self._version is None:
            try:
                response = await self._http.get("/version")
            except httpx.TransportError as error:
                raise _away(self.socket) from error
            if response.is_error:
                raise refusal(response)
            told = response.json()
            self._is_podman = any(part.get("Name") == _PODMAN for part in told.get("Components") or [])
            self._version = _common(str(told["ApiVersion"]), str(told.get("MinAPIVersion") or told["ApiVersion"]))
        return self._version

    async def takes_paths(self) -> bool:
        """Whether a profile of system calls is named by its path. Podman opens it on its own machine, and takes a profile's text for a
        path (containers/podman#27710); Docker takes nothing but the text."""
        await self.version()
        return self._is_podman

    async def build(self, context: bytes, tag: str, arguments: Mapping[str, str], dockerfile: str = "Dockerfile") -> AsyncIterator[str]:
        """Build an image from a tar; yields the engine's output, line by line. Raises :class:`SandboxError` if it fails."""
        params = {"t": tag, "dockerfile": dockerfile, "buildargs": json.dumps(dict(arguments)), "rm": "true", "forcerm": "true"}
        timeout = httpx.Timeout(_BUILD_SECONDS_MAX, connect=limits.EXEC_CONNECT_SECONDS)
        request = self._http.build_request(
            "POST",
            f"/v{await self.version()}/build",
            params=params,
            content=context,
            headers={"content-type": "application/x-tar"},
            timeout=timeout,
        )
        try:
            response = await self._http.send(request, stream=True)
            try:
                if response.is_error:
                    await response.aread()
                    raise refusal(response)
                async for line in response.aiter_lines():
                    said = json.loads(line) if line.strip() else {}
                    if "error" in said:
                        raise SandboxError(f"The image could not be built: {str(said['error']).strip()}")
                    if text := str(said.get("stream", said.get("status", ""))).rstrip():
                        yield text
            finally:
                await response.aclose()
        except httpx.TransportError as error:
            raise _away(self.socket) from error


def _common(newest: str, oldest: str) -> str:
    low, high = max(_numbers(oldest), _OLDEST), min(_numbers(newest), _NEWEST)
    if _numbers(newest) < _OLDEST:
        raise SandboxError(f"The container engine is too old: its API has version {newest}; {_text(_OLDEST)} (Docker 20.10) is needed.")
    # An engine that takes none of the versions known here is asked in its own oldest one.
    return _text(max(low, high))


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2])


def _text(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


def _away(socket: str) -> SandboxCapacity:
    return SandboxCapacity(f"The container engine does not answer at {socket}; is it running?")


def refusal(response: httpx.Response) -> SandboxError:
    """An engine's message, for a model and its user to read."""
    try:
        message = response.json()["message"]
    except (ValueError, KeyError, TypeError):
        message = f"status {response.status_code}"
    return SandboxError(f"The container engine refused: {message}")


_NO_TLS: Final = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
