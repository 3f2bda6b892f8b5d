"""The start of a stack beside its launcher: settings, workers and the API."""

import asyncio
import contextlib
import logging
import os
import socket
import sys
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from pathlib import Path
from typing import IO, Any, TextIO, cast

from moorage.command_hints import typed_here
from moorage.local.address import Address
from moorage.local.children import PROXY_STOP_SECONDS_MAX, LauncherProcess, ProxyProcess, egress_settings, egress_socket, programs_here
from moorage.local.desks import browser_here
from moorage.local.docker_sandboxes import begin, docker_environment, end, has_browsers
from moorage.local.key_file import kept_keys
from moorage.local.logs import API, STEPS, RotatingFile
from moorage.local.metrics import listening
from moorage.local.processes import inherited_environment
from moorage.local.resource_paths import models_file
from moorage.local.service_manager import ServiceManager
from moorage.local.state_folder import kept_secrets
from moorage.local.step_worker import workers_from
from moorage.local.stores import store_place
from moorage.local.supervision import Child, ChildKeepsDying, Supervisor, stop_child
from moorage.local.turn_meter import event_loop, turn_ms
from moorage.local.worker_process import WORKER_STOP_SECONDS_MAX, WorkerProcess
from moorage.model.catalog import ModelCatalog, ollama_url, probe_ollama
from moorage.runtime import Runtime, build_runtime
from moorage.settings import Settings, unknown_variables
from moorage.store.audit import AUDIT_FILE
from moorage.store.sqlite_table import SqliteTable
from moorage.telemetry import open_log
from moorage.terminal import say, show_status
from moorage.wire.validation import build_validators

_NO_ROOM = (
    "moorage: There is no room on the disk that holds the state: what was refused last is not stored. All that was acknowledged is."
)


def start(
    stack: contextlib.ExitStack,
    address: Address,
    listener: socket.socket,
    state_dir: Path,
    lock: IO[str],
    provisioner: str,
    launcher: tuple[LauncherProcess, Child] | None,
    manager: ServiceManager,
) -> int:
    """Serve until a signal comes; answers the exit code. Raises what keeps it from that. ``launcher`` has begun, if there is one."""
    kept, key = kept_secrets(state_dir), kept_keys(state_dir)
    settings_environment = {
        "MOORAGE_MODELS_FILE": str(models_file(os.environ)),
        "MOORAGE_CONTENT_KEY": kept.content_key,
        "MOORAGE_PROVISIONER": provisioner,
        "MOORAGE_LAUNCHER_SOCKET": str(state_dir / "launcher.sock"),
        "MOORAGE_LOG_FILE": str(state_dir / STEPS),
        "MOORAGE_AUDIT_FILE": str(state_dir / AUDIT_FILE),
        "MOORAGE_EXECUTIONS_FILE": str(state_dir / "executions.sqlite"),
    }
    if provisioner == "docker":
        settings_environment |= docker_environment(os.environ, state_dir)
    # These refuse what is set wrongly before a worker is started.
    metrics = stack.enter_context(listening(os.environ))
    workers = workers_from(os.environ)
    turn_ms(os.environ)
    place = store_place(os.environ, state_dir)
    settings_environment |= place.settings
    Settings.from_environment(inherited_environment() | settings_environment)
    for sentence in unknown_variables(os.environ, _text_of(settings_environment["MOORAGE_MODELS_FILE"])):
        say(typed_here(f"moorage: {sentence}"), out=sys.stderr)
    if ModelCatalog.load(Path(settings_environment["MOORAGE_MODELS_FILE"]), os.environ).resolve(None).provider_kind == "demo":
        settings_environment["MOORAGE_OLLAMA_MODELS"] = " ".join(probe_ollama(ollama_url(os.environ)))
    show_status("Starting the owner of the sandboxes and the API ...")
    environment = {**os.environ, **settings_environment}
    place.prepare()
    children = [] if launcher is None else [launcher[1]]
    if os.environ.get("MOORAGE_ALLOWED_EGRESS_DOMAINS"):
        proxy_environment = egress_settings(state_dir, key)
        settings_environment |= proxy_environment
        environment |= proxy_environment
        proxy = ProxyProcess(state_dir, inherited_environment() | settings_environment | place.aws, lock)
        children.append(Child("The egress proxy", proxy.begin(), proxy.start, str(proxy.log_file), str(egress_socket(state_dir))))
        stack.callback(stop_child, children[-1], PROXY_STOP_SECONDS_MAX)
    serve = loaded_server()
    environment.setdefault("MOORAGE_SANDBOX_PROGRAMS", programs_of_sandboxes(stack, environment, launcher))
    environment.setdefault("MOORAGE_SANDBOX_BROWSER", "true" if has_browser(environment) else "false")
    if "MOORAGE_EGRESS_PROXY" in settings_environment:
        proxy.await_answer()
    for worker in (WorkerProcess(state_dir, number, workers, environment, lock) for number in range(workers)):
        children.append(worker.child([listener, *filter(None, [metrics])]))
        stack.callback(stop_child, children[-1], WORKER_STOP_SECONDS_MAX)
    logging.basicConfig(level=os.environ.get("MOORAGE_LOG_LEVEL", "WARNING"), format="%(levelname)s %(name)s %(message)s")
    open_log(cast("TextIO", stack.enter_context(RotatingFile(state_dir / API))))
    runtime = build_runtime(Settings.from_environment(environment))
    try:
        with asyncio.Runner(loop_factory=partial(event_loop, os.environ)) as runner:
            code = runner.run(serve(runtime, listener, address, state_dir, kept, Supervisor(children), metrics, manager))
    except ChildKeepsDying as error:
        say(typed_here(f"moorage: {error}"), out=sys.stderr)
        code = 1
    stack.close()
    if has_room(runtime):
        return code
    say(_NO_ROOM, out=sys.stderr)
    return 1


def has_room(runtime: Runtime) -> bool:
    """Whether what was written last is stored."""
    table = runtime.stores.table
    return runtime.stores.blobs.has_room() and not (isinstance(table, SqliteTable) and table.journal.is_refusing)


def loaded_server() -> Callable[..., Coroutine[Any, Any, int]]:
    """What serves the API, and the validators. Workers get what is loaded here."""
    from moorage.local.server import serve

    build_validators()
    return serve


def programs_of_sandboxes(
    stack: contextlib.ExitStack, environment: Mapping[str, str], launcher: tuple[LauncherProcess, Child] | None
) -> str:
    """Wait for the owner of the sandboxes, or look at the engine. Answers the names of their programs, unless they are known
    already."""
    is_told = "MOORAGE_SANDBOX_PROGRAMS" in environment
    if environment["MOORAGE_PROVISIONER"] == "docker":
        settings = Settings.from_environment(environment)
        programs = begin(settings, asks_programs=not is_told)
        stack.callback(end, settings)
        return programs
    if launcher is None:
        return ""
    owner, child = launcher
    owner.await_answer(child.process)
    return "" if is_told else asyncio.run(programs_here(owner.socket_path))


def has_browser(environment: Mapping[str, str]) -> bool:
    """Whether hosted computers can run beside these sandboxes."""
    if environment["MOORAGE_PROVISIONER"] == "docker":
        return has_browsers(Settings.from_environment(environment))
    return environment["MOORAGE_PROVISIONER"] == "launcher" and browser_here() is not None


def _text_of(models_file: str) -> str:
    return Path(models_file).read_text(errors="replace") if Path(models_file).exists() else ""
