"""This machine, before a stack runs on it."""

import asyncio
import shutil
import socket
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import httpx

from moorage.cli.checks.computer import of_computer
from moorage.cli.checks.findings import Finding, Level, Said, fail, ok, warn
from moorage.errors import SandboxError, SettingsConflict
from moorage.local.environments import ENVIRONMENTS, ToolEnvironment
from moorage.local.environments import environment as environment_of
from moorage.local.resource_paths import models_file
from moorage.local.users import check_namespaces, check_system, has_disable_userns, may_run_as_other_users
from moorage.model.catalog import ModelCatalog
from moorage.sandbox.docker import DockerProvisioner, DockerSettings
from moorage.sandbox.docker_engine import Engine, engine_socket
from moorage.settings import SettingsError, api_port, unknown_variables

_DISK_BYTES_MIN: Final = 2 * 1024**3
_SECONDS_MAX: Final = 10


def of_machine(environ: Mapping[str, str]) -> Iterator[Said]:
    yield python_finding(sys.version_info[:3])
    sandboxes = sandbox_finding(environ)
    yield sandboxes
    if sandboxes.level is Level.OK:
        yield from of_computer(environ)
    yield from (environment_finding(environ, environment_of(name)) for name in ENVIRONMENTS)
    yield disk_finding(Path(environ.get("MOORAGE_STATE_DIR", ".moorage")))
    for sentence in unknown_variables(environ):
        yield warn(sentence, "A setting that is mistyped is no setting: correct it, or take it out of this shell.")


def of_a_start(environ: Mapping[str, str]) -> Iterator[Finding]:
    """The findings of a stack that would start from this shell."""
    yield port_finding(environ)
    yield model_finding(environ)


def python_finding(version: tuple[int, ...]) -> Finding:
    shown = ".".join(map(str, version))
    return ok(f"Python {shown}") if version >= (3, 11) else fail(f"Python {shown}", "moorage needs Python 3.11 or newer.")


def sandbox_finding(environ: Mapping[str, str], platform: str = sys.platform) -> Finding:
    """The same looks that the stack takes at its start."""
    if environ.get("MOORAGE_PROVISIONER") == "docker":
        return _engine_finding(environ)
    try:
        check_system(platform)
        has_disable_userns()
        check_namespaces(may_run_as_other_users())
    except (SandboxError, SettingsConflict) as error:
        return fail("this machine can have no sandboxes", str(error))
    return ok("bubblewrap makes sandboxes here")


def _engine_finding(environ: Mapping[str, str]) -> Finding:
    try:
        at = engine_socket(environ)
        asyncio.run(_check_engine(environ, at))
    except (SettingsConflict, SettingsError) as error:
        return fail("the container engine can start no sandboxes", str(error))
    return ok(f"the container engine at {at} can start sandboxes")


async def _check_engine(environ: Mapping[str, str], at: str) -> None:
    own = {name.removeprefix("MOORAGE_DOCKER_").lower(): value for name, value in environ.items() if name.startswith("MOORAGE_DOCKER_")}
    async with DockerProvisioner(DockerSettings.from_settings(own, "doctor"), Engine(at)) as sandboxes:
        await sandboxes.check()


def environment_finding(environ: Mapping[str, str], known: ToolEnvironment) -> Finding:
    """A start installs those of the egress proxy if it may have one."""
    if known.is_made:
        return ok(f"{known.use} are installed in {known.folder}")
    if known.name == "egress" and not environ.get("MOORAGE_ALLOWED_EGRESS_DOMAINS"):
        return ok(f"{known.use} are not installed, and not needed: MOORAGE_ALLOWED_EGRESS_DOMAINS allows no domain")
    return warn(f"{known.use} are not installed", f"'moorage up' installs what it needs into {known.folder}, once.")


def disk_finding(state_dir: Path, bytes_min: int = _DISK_BYTES_MIN) -> Finding:
    folder = next(path for path in (state_dir.absolute(), *state_dir.absolute().parents) if path.exists())
    free = shutil.disk_usage(folder).free
    shown = f"{free / 1024**3:.1f} GiB free for {state_dir}"
    return ok(shown) if free >= bytes_min else warn(shown, "Files, artifacts and sandboxes lie there: make room.")


def port_finding(environ: Mapping[str, str]) -> Finding:
    """Free, or ours already."""
    try:
        port = api_port(environ)
    except SettingsError as error:
        return fail("no port for the API", str(error))
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except PermissionError:
            return fail(f"port {port} is not for this user", "MOORAGE_PORT=8080 (or any above 1023) chooses another.")
        except OSError:
            pass
        else:
            return ok(f"port {port} is free")
    try:
        if httpx.get(f"http://127.0.0.1:{port}/healthz", timeout=_SECONDS_MAX).json()["status"] == "ok":
            return ok(f"port {port} is moorage's")
    except (httpx.HTTPError, ValueError, LookupError, TypeError):
        pass
    return fail(f"port {port} is taken by another program", "MOORAGE_PORT=8090 (or any free port) chooses another.")


def model_finding(environ: Mapping[str, str]) -> Finding:
    """The model that would answer, and whether its server does."""
    named = models_file(environ)
    try:
        catalog = ModelCatalog.load(named, environ)
        entry = catalog.resolve(None)
    except (SettingsError, SettingsConflict) as error:
        return fail(f"models: {error}", f"Correct {named} or the variable that it names.")
    said = f"The model is {catalog.describe_default()}"
    if entry.provider_kind == "demo":
        return warn(said, "Set OPENAI_API_KEY, ANTHROPIC_API_KEY or MOORAGE_UPSTREAM_URL, or fill in models.toml, for a real model.")
    if catalog.notices:
        return warn(f"{said} {' '.join(catalog.notices)}", "Set what the models need, or take them out of models.toml.")
    if not entry.base_url:
        return ok(said)
    try:
        httpx.get(entry.base_url, timeout=_SECONDS_MAX)
    except httpx.HTTPError as error:
        return fail(f"{said} It does not answer: {error}.", "Start that server, or correct its address.")
    return ok(f"{said} It answers.")
