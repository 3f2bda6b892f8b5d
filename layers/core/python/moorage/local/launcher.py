"""The launcher: owns the bubblewrap sandboxes of this machine (``moorage/local/bubblewrap.py``).

``python -m moorage.local.launcher --socket PATH --state-dir DIR [--toolbox VENV] [--cache DIR]`` serves, over a Unix socket that only
its user can open:

* ``POST /v1/sandboxes`` with a spec: start the container's sandbox or find the one that runs; ``{"sandbox_id", "endpoint"}``.
* ``PUT /v1/sandboxes/{sandbox_id}/skills/{directory}`` with a zip: a folder that the sandbox's commands can read and not change.
* ``PUT /v1/sandboxes/{sandbox_id}/desk`` with ``{"token_sha256", "starts"}``: the exec server of its browser, ``{"endpoint"}``.
* ``GET /v1/sandboxes``, ``GET`` and ``DELETE /v1/sandboxes/{sandbox_id}``.
* ``GET /v1/place``: ``{"programs"}``, what commands find in a sandbox here, with versions.

Sandboxes do not mind when callers come and go. When the launcher ends, the kernel ends them all, and the next launcher removes what
a killed one left on disk.
"""

import argparse
import asyncio
import contextlib
import ctypes
import fcntl
import gc
import logging
import os
import shutil
import signal
import socket
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Final

if __name__ == "__main__":
    gc.disable()  # As in moorage/local/stack.py, until it serves.

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from moorage import limits
from moorage.errors import DeskUnavailable, SandboxCapacity, SandboxError, SandboxGone
from moorage.local.bubblewrap import Bubblewrap
from moorage.local.control_groups import ControlGroups
from moorage.local.disk_guard import DiskLimits
from moorage.local.disks import Disks
from moorage.local.processes import take_name
from moorage.local.programs import known_programs
from moorage.local.resource_paths import ROOT
from moorage.local.sandbox_paths import TERMINALS_NAME, Site, Toolbox
from moorage.local.start_cache import StartCache
from moorage.local.terminals import may_mount_terminals
from moorage.local.users import check_namespaces, has_disable_userns, may_run_as_other_users
from moorage.sandbox.machine_bounds import MachineBounds
from moorage.sandbox.provisioner import EgressSpec, SandboxSpec


class SignalledServer(uvicorn.Server):
    """Returns from a signal: uvicorn's own raises it again. Before it serves, signals have their usual effect."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self.handle_exit, number, None)
        yield


log = logging.getLogger("moorage.launcher")

NAME: Final = "moorage-launch"
"""Of its process, which has room for 15 bytes."""

SERVER_DIR: Final = ROOT / "functions" / "sandbox"
PR_SET_PDEATHSIG: Final = 1
_LOCK_SECONDS_MAX: Final = 2.0
_CALLERS_SECONDS_MAX: Final = 2
"""Callers whose answer takes longer lose it when the launcher ends: their sandbox ends with it."""


def application(sandboxes: Bubblewrap, programs: Callable[[], Awaitable[str]]) -> Starlette:
    async def start(request: Request) -> JSONResponse:
        body = await request.json()
        egress = EgressSpec(**body["egress"]) if body["egress"] else None
        sandbox = await sandboxes.start(SandboxSpec(**{**body, "egress": egress}))
        return JSONResponse({"sandbox_id": sandbox.sandbox_id, "endpoint": sandbox.endpoint})

    async def running(request: Request) -> JSONResponse:
        data = [
            {
                "sandbox_id": each.sandbox_id,
                "tenant_id": each.tenant_id,
                "container_id": each.container_id,
                "pid": each.first_process,
            }
            for each in sandboxes.running()
        ]
        return JSONResponse({"data": data})

    async def add_skill(request: Request) -> JSONResponse:
        place = request.path_params
        await sandboxes.add_skill(place["sandbox_id"], place["directory"], await request.body())
        return JSONResponse({})

    async def desk(request: Request) -> JSONResponse:
        body = await request.json()
        endpoint = await sandboxes.desk(request.path_params["sandbox_id"], body["token_sha256"], starts=body["starts"])
        return JSONResponse({"endpoint": endpoint})

    async def describe(request: Request) -> JSONResponse:
        return JSONResponse({"status": sandboxes.describe(request.path_params["sandbox_id"])})

    async def stop(request: Request) -> JSONResponse:
        await sandboxes.stop(request.path_params["sandbox_id"])
        return JSONResponse({})

    async def place(request: Request) -> JSONResponse:
        return JSONResponse({"programs": await programs()})

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        watch = asyncio.create_task(sandboxes.watch_disk())
        sandboxes.prewarm()
        yield
        watch.cancel()
        await sandboxes.stop_all()

    routes = [
        Route("/v1/place", place, methods=["GET"]),
        Route("/v1/sandboxes", start, methods=["POST"]),
        Route("/v1/sandboxes", running, methods=["GET"]),
        Route("/v1/sandboxes/{sandbox_id}", describe, methods=["GET"]),
        Route("/v1/sandboxes/{sandbox_id}", stop, methods=["DELETE"]),
        Route("/v1/sandboxes/{sandbox_id}/desk", desk, methods=["PUT"]),
        Route("/v1/sandboxes/{sandbox_id}/skills/{directory}", add_skill, methods=["PUT"]),
    ]
    return Starlette(routes=routes, lifespan=lifespan, exception_handlers={SandboxError: refused})


_STATUS: Final = {DeskUnavailable: 501, SandboxCapacity: 503, SandboxGone: 410}
"""Of answers that refuse; all others have 500."""


async def refused(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, SandboxError), error
    log.warning("%s", error.message)
    return JSONResponse(
        {"error": {"message": error.message}}, next((_STATUS[kind] for kind in _STATUS if isinstance(error, kind)), 500)
    )


def serve(options: argparse.Namespace) -> None:
    if options.exit_with_parent:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    with only_launcher(options.state_dir), runtime_directory(options.state_dir) as runtime_dir:
        cache = StartCache(options.cache)
        site = prepared_site(options, runtime_dir, cache)
        sandboxes = Bubblewrap(site)
        with listening(options.socket) as listener:
            config = uvicorn.Config(
                application(sandboxes, lambda: known_programs(sandboxes, site, cache)),
                log_level="warning",
                loop="asyncio",
                ws="none",
                timeout_graceful_shutdown=_CALLERS_SECONDS_MAX,
            )
            gc.freeze()
            gc.enable()
            asyncio.run(SignalledServer(config).serve(sockets=[listener]))


@contextlib.contextmanager
def only_launcher(state_dir: Path) -> Iterator[None]:
    """One launcher per state directory. The lock goes with the process, so a killed one leaves none behind; one that is on its way
    out is waited for."""
    state_dir.mkdir(parents=True, exist_ok=True)
    # Also where the directory was there before: other users of this machine have no business in it.
    state_dir.chmod(0o700)
    with open(state_dir / "launcher.lock", "w") as file:
        deadline = time.monotonic() + _LOCK_SECONDS_MAX
        while not _taken(file):
            if time.monotonic() > deadline:
                raise SystemExit(f"Another launcher runs in {state_dir}.")
            time.sleep(0.02)
        yield


def _taken(lock: IO[str]) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextlib.contextmanager
def runtime_directory(state_dir: Path) -> Iterator[Path]:
    """A private directory for sockets; that of a launcher that was killed is removed."""
    note = state_dir / "runtime-dir"
    with contextlib.suppress(FileNotFoundError):
        old = Path(note.read_text())
        if old.name.startswith("moorage-"):
            shutil.rmtree(old, ignore_errors=True)
    # Sandboxes of a root launcher are other users, who have no way through a private TMPDIR.
    directory = Path(tempfile.mkdtemp(prefix="moorage-", dir="/tmp" if os.geteuid() == 0 else None))
    note.write_text(str(directory))
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def prepared_site(options: argparse.Namespace, runtime_dir: Path, cache: StartCache) -> Site:
    state_dir, is_root = options.state_dir.resolve(), may_run_as_other_users()
    terminals = runtime_dir / TERMINALS_NAME
    terminals.mkdir()
    site = Site(
        state_dir=state_dir,
        runtime_dir=runtime_dir,
        server_dir=SERVER_DIR,
        toolbox=Toolbox.at(options.toolbox) if options.toolbox else None,
        groups=ControlGroups(Path("/sys/fs/cgroup"), Path("/proc/self/cgroup").read_text()),
        runs_as_other_users=is_root,
        has_disable_userns=has_disable_userns(),
        has_terminals=may_mount_terminals(terminals, is_root),
        disks=prepared_disks(state_dir, options.disk_bytes) if is_root else None,
        disk_bytes_max=options.disk_bytes,
        bounds=MachineBounds(
            options.sandboxes_max, options.tenant_sandboxes_max, options.memory_gib_max, options.tenant_memory_gib_max
        ),
        disk_limits=DiskLimits(options.disk_reserve_bytes, tenant_max=options.tenant_disk_bytes),
    )
    check_namespaces(site.runs_as_other_users)
    if not site.has_terminals:
        log.warning("Sandboxes share the pseudo-terminals of this machine: one that takes them all leaves none to others.")
    if not site.groups.are_available:
        log.warning("No control groups here: memory is limited per process only, and CPU not at all.")
    site.clear_leftovers()
    site.prepare(cache)
    return site


def prepared_disks(state_dir: Path, bytes_max: int) -> Disks | None:
    disks = Disks(state_dir, bytes_max, limits.SANDBOX_ENTRIES_MAX)
    try:
        disks.prepare()
    except SandboxError as error:
        log.warning("Sandboxes have no file systems of their own, so that their disk quota is looked after twice a second: %s", error)
        return None
    return disks


@contextlib.contextmanager
def listening(path: Path) -> Iterator[socket.socket]:
    """A Unix socket that only this user can open. The lock is ours, so a socket that lies there is dead."""
    path.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        path.chmod(0o600)
        listener.listen(1024)
        try:
            yield listener
        finally:
            path.unlink(missing_ok=True)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Own the bubblewrap sandboxes of this machine.")
    parser.add_argument("--socket", type=Path, required=True, help="Unix socket to serve")
    parser.add_argument("--state-dir", type=Path, required=True, help="where workspaces live, such as .moorage")
    parser.add_argument("--toolbox", type=Path, help="virtual environment that every sandbox sees (requirements/toolbox.txt)")
    parser.add_argument("--cache", type=Path, help="where what a start finds out is kept for later ones; by default nowhere")
    parser.add_argument("--disk-bytes", type=int, default=limits.WORKSPACE_BYTES_MAX, help="disk quota of one sandbox")
    parser.add_argument("--disk-reserve-bytes", type=int, default=limits.DISK_RESERVE_BYTES, help="what sandboxes leave of the disk")
    parser.add_argument("--tenant-disk-bytes", type=int, default=limits.TENANT_DISK_BYTES_MAX, help="of all sandboxes of a tenant")
    parser.add_argument("--sandboxes-max", type=int, default=limits.LOCAL_SANDBOXES_MAX)
    parser.add_argument("--tenant-sandboxes-max", type=int, default=limits.TENANT_SANDBOXES_MAX)
    parser.add_argument("--memory-gib-max", type=int, default=limits.LOCAL_MEMORY_GIB_MAX, help="of all sandboxes together")
    parser.add_argument("--tenant-memory-gib-max", type=int, default=limits.TENANT_MEMORY_GIB_MAX)
    parser.add_argument("--exit-with-parent", action="store_true", help="end when the process that started the launcher ends")
    logging.basicConfig(level=logging.WARNING, format="%(name)s: %(message)s")
    try:
        serve(parser.parse_args(arguments))
    except SandboxError as error:
        raise SystemExit(error.message) from error


if __name__ == "__main__":
    take_name(NAME)
    main()
