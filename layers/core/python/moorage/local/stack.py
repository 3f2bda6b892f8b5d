"""moorage on one machine: ``make up``.

One terminal, no Docker, no Node, no account. This process serves the API. Its children are the workers that play the loop, and the
launcher, which owns the sandboxes. All but the launcher have the store open (``store/journal.py``). State lies under ``.moorage/`` and
is there at the next start. Ctrl-C and SIGTERM stop everything in order.
"""

import asyncio
import contextlib
import gc
import logging
import os
import socket
import sys
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from pathlib import Path
from typing import IO, Any, NoReturn, TextIO, cast

if __name__ == "__main__":
    gc.disable()  # What is imported stays: to look for garbage in it is a seventh of the start. It ends with relieve_collector().

from moorage.command_hints import typed_here
from moorage.errors import MoorageError, SettingsConflict
from moorage.local.address import Address
from moorage.local.children import (
    LAUNCHER_STOP_SECONDS_MAX,
    PROXY_STOP_SECONDS_MAX,
    WORKER_STOP_SECONDS_MAX,
    LauncherProcess,
    ProxyProcess,
    WorkerProcess,
    egress_settings,
    egress_socket,
    prepare_environments,
    programs_here,
)
from moorage.local.desks import browser_here
from moorage.local.docker_sandboxes import KINDS, begin, docker_environment, end, has_browsers, provisioner_of
from moorage.local.key_file import kept_keys
from moorage.local.logs import API, STEPS, RotatingFile
from moorage.local.metrics import listening
from moorage.local.processes import inherited_environment, stop_process
from moorage.local.resource_paths import models_file
from moorage.local.service_manager import ServiceManager
from moorage.local.state_folder import end_leftovers, held, kept_secrets
from moorage.local.step_worker import workers_from
from moorage.local.stores import store_place
from moorage.local.supervision import Child, ChildKeepsDying, Supervisor
from moorage.local.turn_meter import event_loop, turn_ms
from moorage.model.catalog import ModelCatalog, ollama_url, probe_ollama
from moorage.runtime import build_runtime
from moorage.settings import Settings, SettingsError, unknown_variables
from moorage.store.audit import AUDIT_FILE
from moorage.store.sqlite_table import SqliteTable
from moorage.telemetry import open_log
from moorage.terminal import say, show_status
from moorage.wire.validation import build_validators

_INTERRUPTED = 130
_SOCKET_PATH_BYTES_MAX = 107
"""unix(7): sun_path has 108 bytes, the last of them null."""


def main(chosen: Mapping[str, str] | None = None, *, provisioner: str = "") -> int:
    """Run until a signal comes, with ``chosen`` in place of what the environment says. What keeps it from starting is said in a
    sentence, with exit code 1. Returns only if it was interrupted before it had started.

    ``provisioner``: one whose sandboxes need no owner on this machine, in place of those that the environment may name."""
    os.environ.update(chosen or {})
    try:
        run(provisioner)
    except (SettingsError, MoorageError) as error:
        raise SystemExit(typed_here(f"moorage: {error}")) from error
    except KeyboardInterrupt:
        return _INTERRUPTED


def run(provisioner: str) -> NoReturn:
    """Raises the reason that keeps it from starting; the end of a stack that has started is the end of the process."""
    state_dir = Path(os.environ.get("MOORAGE_STATE_DIR", ".moorage")).resolve()
    if len(os.fsencode(egress_socket(state_dir))) > _SOCKET_PATH_BYTES_MAX:
        raise SettingsConflict(f"Sockets cannot lie in {state_dir}: its path is too long. MOORAGE_STATE_DIR takes another folder.")
    with contextlib.ExitStack() as stack:
        lock = stack.enter_context(held(state_dir))
        address = Address.from_environment(os.environ)
        listener = stack.enter_context(address.bound())
        if address.warning is not None:
            say(typed_here(address.warning), out=sys.stderr)
        code = start(stack, address, listener, state_dir, lock, provisioner)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # Threads may still wait for an answer that nobody will give.


def start(
    stack: contextlib.ExitStack, address: Address, listener: socket.socket, state_dir: Path, lock: IO[str], provisioner: str
) -> int:
    manager = ServiceManager.taken_from(os.environ)
    kept, key = kept_secrets(state_dir), kept_keys(state_dir)
    launcher_socket = state_dir / "launcher.sock"
    settings_environment = {
        "MOORAGE_MODELS_FILE": str(models_file(os.environ)),
        "MOORAGE_CONTENT_KEY": kept.content_key,
        "MOORAGE_PROVISIONER": provisioner or provisioner_of(os.environ),
        "MOORAGE_LAUNCHER_SOCKET": str(launcher_socket),
        "MOORAGE_LOG_FILE": str(state_dir / STEPS),
        "MOORAGE_AUDIT_FILE": str(state_dir / AUDIT_FILE),
        "MOORAGE_EXECUTIONS_FILE": str(state_dir / "executions.sqlite"),
    }
    if settings_environment["MOORAGE_PROVISIONER"] == "docker":
        settings_environment |= docker_environment(os.environ, state_dir)
    # These refuse what is set wrongly before anything is started.
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
    prepare_environments()
    show_status("Starting the owner of the sandboxes and the API ...")
    environment = {**os.environ, **settings_environment}
    place.prepare()
    children: list[Child] = []
    stack.callback(end_leftovers, state_dir)  # At last: one that hung while it was started again is nobody's child.
    if os.environ.get("MOORAGE_ALLOWED_EGRESS_DOMAINS"):
        proxy_environment = egress_settings(state_dir, key)
        settings_environment |= proxy_environment
        environment |= proxy_environment
        proxy = ProxyProcess(state_dir, inherited_environment() | settings_environment | place.aws, lock)
        children.append(Child("The egress proxy", proxy.begin(), proxy.start, str(proxy.log_file), str(egress_socket(state_dir))))
        stack.callback(stop_child, children[-1], PROXY_STOP_SECONDS_MAX)
    launcher = begin_launcher(stack, children, environment, state_dir)
    serve = loaded_server()  # The launcher takes as long to start.
    environment.setdefault("MOORAGE_SANDBOX_PROGRAMS", programs_of_sandboxes(stack, children, environment, launcher))
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
    if not runtime.stores.blobs.has_room() or (
        isinstance(runtime.stores.table, SqliteTable) and runtime.stores.table.journal.is_refusing
    ):
        say(
            "moorage: There is no room on the disk that holds the state: what was refused last is not stored. All that was "
            "acknowledged is.",
            out=sys.stderr,
        )
        return 1
    return code


def loaded_server() -> Callable[..., Coroutine[Any, Any, int]]:
    """What serves the API: a third of all modules, and the validators. Workers get what is loaded here."""
    from moorage.local.server import serve

    build_validators()
    return serve


def begin_launcher(
    stack: contextlib.ExitStack, children: list[Child], environment: Mapping[str, str], state_dir: Path
) -> LauncherProcess | None:
    """The owner of the sandboxes, which is not waited for; None where they have another."""
    if environment["MOORAGE_PROVISIONER"] == "docker" or environment["MOORAGE_PROVISIONER"] not in KINDS:
        return None
    launcher_socket = Path(environment["MOORAGE_LAUNCHER_SOCKET"])
    launcher = LauncherProcess(state_dir, launcher_socket)
    children.append(Child("The owner of the sandboxes", launcher.begin(), launcher.start, str(launcher.log_file), str(launcher_socket)))
    stack.callback(stop_child, children[-1], LAUNCHER_STOP_SECONDS_MAX)
    return launcher


def programs_of_sandboxes(
    stack: contextlib.ExitStack, children: list[Child], environment: Mapping[str, str], launcher: LauncherProcess | None
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
    launcher.await_answer(children[-1].process)
    return "" if is_told else asyncio.run(programs_here(launcher.socket_path))


def has_browser(environment: Mapping[str, str]) -> bool:
    """Whether hosted computers can run beside these sandboxes."""
    if environment["MOORAGE_PROVISIONER"] == "docker":
        return has_browsers(Settings.from_environment(environment))
    return environment["MOORAGE_PROVISIONER"] == "launcher" and browser_here() is not None


def stop_child(child: Child, seconds_max: int) -> None:
    """Its running processes: it may have been started again."""
    stop_process(child.process, seconds_max)


def _text_of(models_file: str) -> str:
    return Path(models_file).read_text(errors="replace") if Path(models_file).exists() else ""


if __name__ == "__main__":
    sys.exit(main())
