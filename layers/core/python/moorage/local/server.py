"""The API's server of the stack on one machine, and the reaper's work beside it."""

import asyncio
import logging
import os
import shlex
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import uvicorn

from moorage import limits
from moorage.agents.imports import settle_imports
from moorage.api.app import create_app
from moorage.api.routers import ROUTERS
from moorage.automations.delivery import invoke_due
from moorage.command_hints import command_for_clients, own_command, typed_here
from moorage.identity.ended_sessions import CALLBACK
from moorage.local.address import Address, LocalOriginGuard
from moorage.local.disk_guard import DiskLimits
from moorage.local.engine_disk import EngineDisk
from moorage.local.exports import write_exports
from moorage.local.housekeeping import Housekeeping
from moorage.local.logs import STEPS, cut
from moorage.local.loop_watch import LoopWatch
from moorage.local.metrics import Metrics, address_of
from moorage.local.processes import write_private
from moorage.local.service_manager import ServiceManager
from moorage.local.state_folder import StackSecrets
from moorage.local.supervision import Supervisor
from moorage.loop.expire import expire
from moorage.loop.recover import recover
from moorage.model.catalog import ModelCatalog
from moorage.net.http_server import BoundedHttp
from moorage.net.websocket_server import WholeFrames
from moorage.runtime import Runtime, relieve_collector
from moorage.sandbox.docker import DockerProvisioner
from moorage.store.audit import AuditKind
from moorage.store.sqlite_table import SqliteTable
from moorage.telemetry import tell_error
from moorage.terminal import clear_status, say
from moorage.webhooks.delivery import deliver_due

TENANT = "default"
_REAPER_SECONDS = 5
_log = logging.getLogger("moorage.local")


async def serve(
    runtime: Runtime,
    listener: socket.socket,
    address: Address,
    state_dir: Path,
    kept: StackSecrets,
    supervisor: Supervisor,
    metrics_listener: socket.socket | None,
    manager: ServiceManager,
) -> int:
    """Serve until a signal comes, or a child cannot live."""
    stores = runtime.stores
    asyncio.get_running_loop().set_default_executor(DaemonExecutor(thread_name_prefix="stack"))
    await _first_key(runtime, state_dir, kept)

    def on_started() -> None:
        url, is_inside = address.url(listener.getsockname()[1]), address.listens_at is not None
        announce(runtime.models.catalog, url, state_dir, kept, metrics_listener, is_inside=is_inside)
        manager.tell("READY=1")

    runtime.command = command_for_clients(own_command(os.environ.get("PATH"), sys.executable))
    app, loop_watch = create_app(runtime, ROUTERS), LoopWatch()
    landings = [] if app.state.sign_in is None else [f"/console/{CALLBACK}"]
    app.state.late_silence_seconds = lambda: loop_watch.late_silence_seconds
    server = _ApiServer(
        uvicorn.Config(
            app if not address.is_loopback else LocalOriginGuard(app, runtime.settings.cors_origins, landings),
            log_level="warning",
            access_log=False,
            lifespan="off",
            http=BoundedHttp,
            ws=WholeFrames,
            timeout_keep_alive=limits.KEEP_ALIVE_IDLE_SECONDS,
            timeout_graceful_shutdown=limits.STOP_REQUESTS_SECONDS_MAX,
            ws_max_size=limits.REQUEST_BODY_BYTES_MAX,
            ws_per_message_deflate=False,  # A packed frame is unpacked in one call, which holds up everybody.
            **address.tls,
        ),
        on_started=on_started,
        loop_watch=loop_watch,
    )
    if stores.responses.bell is not None:
        stores.responses.bell.listen()
    relieve_collector()
    metrics = None if metrics_listener is None else Metrics(runtime, state_dir)
    works = [_reap(runtime, state_dir, metrics), _deliver(runtime), manager.keep_told()]
    for owner in (fleet.owner for fleet in runtime.computers.fleets):
        if isinstance(owner, DockerProvisioner):
            works.append(EngineDisk(owner, DiskLimits(tenant_max=owner.settings.tenant_disk_bytes_max)).watch())
    if isinstance(stores.table, SqliteTable):
        works.append(Housekeeping(stores.table.journal).keep())
    beside = {asyncio.create_task(work) for work in works}
    if metrics is not None and metrics_listener is not None:
        beside.add(asyncio.create_task(metrics.serve(metrics_listener)))
    watch = asyncio.create_task(supervisor.watch())
    watch.add_done_callback(lambda _: server.handle_exit(signal.SIGTERM, None))
    try:
        await server.serve(sockets=[listener])
    finally:
        manager.tell("STOPPING=1")
        await _end({*beside, watch}, runtime)
        if metrics is not None:
            metrics.close()
        if stores.responses.bell is not None:
            stores.responses.bell.close()
    if watch.done() and not watch.cancelled():
        watch.result()
    return 0 if server.started else 1


async def _end(beside: "set[asyncio.Task[None]]", runtime: Runtime) -> None:
    """Children may hang, and their callers with them: those that have not ended in time are left to the end of the process."""
    for task in beside:
        task.cancel()
    closing = asyncio.create_task(runtime.aclose())
    _, late = await asyncio.wait({*beside, closing}, timeout=limits.STOP_TASKS_SECONDS_MAX)
    if closing.done() and not closing.cancelled() and (error := closing.exception()) is not None:
        _log.warning("the stop stumbled over what went on behind requests: %s", error)
    for task in late:
        _log.warning("the stop does not wait any longer for %s", task.get_coro())


class DaemonExecutor(ThreadPoolExecutor):
    """Its threads may wait for a child that does not answer; a stop does not wait for them."""

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        super().shutdown(wait=False, cancel_futures=True)


async def _first_key(runtime: Runtime, state_dir: Path, kept: StackSecrets) -> None:
    """The key that is announced, made once: a start does not bring back one that was revoked."""
    made = state_dir / "key-made"
    if made.exists():
        return
    if not await runtime.identity.api_keys.page():
        first, _ = await runtime.identity.api_keys.create(TENANT, name="made at the first start", key=kept.api_key)
        await runtime.stores.audit.note(AuditKind.KEY_MADE, {"key_id": first.key_id}, who="the first start", tenant_id=TENANT)
    write_private(made, "")


class _ApiServer(uvicorn.Server):
    """Announces its address once it listens, and returns from a signal; a watched loop hears the signal also while it is busy."""

    def __init__(self, config: uvicorn.Config, on_started: Callable[[], None], loop_watch: LoopWatch) -> None:
        super().__init__(config)
        self._on_started = on_started
        self._loop_watch = loop_watch

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        with self._loop_watch.watching(self.handle_exit):
            yield

    async def startup(self, sockets: Any = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._on_started()


async def _reap(runtime: Runtime, state_dir: Path, metrics: Metrics | None) -> None:
    """The work of the reaper's functions on AWS, once a minute."""

    async def read_steps() -> None:
        if metrics is not None:
            metrics.read()
        cut(state_dir / STEPS)

    while True:
        works = (recover, invoke_due, settle_imports, expire)
        await reap(*(partial(work, runtime) for work in works), read_steps)
        await asyncio.sleep(_REAPER_SECONDS)


async def reap(*parts: Callable[[], Awaitable[object]]) -> None:
    """A round of the tasks that are functions of their own on AWS: a response that cannot be taken up must not keep idle sandboxes
    alive.
    """
    for part in parts:
        try:
            await part()
        except Exception as error:  # nor must a bad round end the rounds
            tell_error(error, "the reaper stumbled")


async def _deliver(runtime: Runtime) -> None:
    """The reaper's other half, in rounds of its own: endpoints may be slow."""
    while True:
        try:
            await deliver_due(runtime)
        except Exception as error:
            tell_error(error, "webhooks could not be delivered")
        await asyncio.sleep(_REAPER_SECONDS)


def announce(
    catalog: ModelCatalog,
    url: str,
    state_dir: Path,
    kept: StackSecrets,
    metrics_listener: socket.socket | None = None,
    *,
    is_inside: bool = False,
) -> None:
    """Show the address to the user, and to scripts by ``.moorage/env``; ``is_inside`` of a container, so that its files stay unseen."""
    model = catalog.default_model
    path = state_dir / "env"
    write_exports(path, {"OPENAI_BASE_URL": url, "OPENAI_API_KEY": kept.api_key, "MOORAGE_MODEL": model})
    clear_status()
    notes = "".join(f"  note   {sentence}\n" for sentence in catalog.notices)
    if metrics_listener is not None:
        notes = f"  count  {address_of(metrics_listener)}\n{notes}"
    from_file = f". {shlex.quote(os.path.relpath(path))}"
    variables = f"export OPENAI_BASE_URL={url} OPENAI_API_KEY={kept.api_key}" if is_inside else from_file
    place = "In the container " if is_inside else ""
    say(
        f"moorage is up.\n  URL    {url}\n  key    {kept.api_key}\n  model  {catalog.describe_default()}\n{notes}"
        f"  try    {variables}; "
        f"curl $OPENAI_BASE_URL/responses -H \"Authorization: Bearer $OPENAI_API_KEY\" -H 'Content-Type: application/json' "
        f'-d \'{{"model": "{model}", "input": "hello"}}\'\n'
        "Ctrl-C stops it; what it stored is there at the next start.\n"
        + typed_here(
            f"{place}'moorage console' shows what runs in a browser, 'moorage logs -f' what it does, 'moorage doctor' whether all is "
            "well."
        )
    )
