"""moorage on one machine: ``make up``.

One terminal, no Docker, no Node, no account. This process serves the API; its children are ministack (DynamoDB, S3, Lambda and Step
Functions: it runs the same state machine and the same step functions as AWS) and the launcher (which owns the sandboxes). State lies
under ``.moorage/`` and is there at the next start. Ctrl-C and SIGTERM stop everything in order.
"""

import asyncio
import contextlib
import logging
import os
import socket
import sys
from pathlib import Path
from typing import IO

from moorage.errors import MoorageError, SettingsConflict
from moorage.local.children import (
    LAUNCHER_STOP_SECONDS_MAX,
    PROXY_STOP_SECONDS_MAX,
    await_egress_proxy,
    await_launcher,
    egress_socket,
    prepare_environments,
    start_egress_proxy,
    start_launcher,
)
from moorage.local.emulator import REGION, Emulator, aws_environment
from moorage.local.places import models_file
from moorage.local.processes import inherited_environment, stop_process
from moorage.local.provision import BUCKET, STATE_MACHINE, TABLE, provision
from moorage.local.server import bound, serve
from moorage.local.state_folder import held, kept_secrets
from moorage.model.catalog import Catalog, probe_ollama
from moorage.runtime import build_runtime
from moorage.settings import Settings, SettingsError, api_port
from moorage.telemetry import open_log

_INTERRUPTED = 130
_SOCKET_PATH_BYTES_MAX = 107
"""unix(7): sun_path has 108 bytes, the last of them null."""


def main() -> int:
    """Run until a signal comes. What keeps it from starting is said in a sentence, with exit code 1."""
    try:
        return run()
    except (SettingsError, MoorageError) as error:
        raise SystemExit(f"moorage: {error}") from error
    except KeyboardInterrupt:
        return _INTERRUPTED


def run() -> int:
    state_dir = Path(os.environ.get("MOORAGE_STATE_DIR", ".moorage")).resolve()
    if len(os.fsencode(egress_socket(state_dir))) > _SOCKET_PATH_BYTES_MAX:
        raise SettingsConflict(f"Sockets cannot lie in {state_dir}: its path is too long. MOORAGE_STATE_DIR takes another folder.")
    with contextlib.ExitStack() as stack:
        lock = stack.enter_context(held(state_dir))
        listener = stack.enter_context(bound(api_port(os.environ)))
        return start(stack, listener, state_dir, lock)


def start(stack: contextlib.ExitStack, listener: socket.socket, state_dir: Path, lock: IO[str]) -> int:
    kept = kept_secrets(state_dir)
    launcher_socket = state_dir / "launcher.sock"
    settings_environment = {
        "MOORAGE_TABLE": TABLE,
        "MOORAGE_BUCKET": BUCKET,
        "MOORAGE_MODELS_FILE": str(models_file()),
        "MOORAGE_CONTENT_KEY": kept.content_key,
        "MOORAGE_PROVISIONER": "launcher",
        "MOORAGE_LAUNCHER_SOCKET": str(launcher_socket),
        # The emulator waits 50 ms for a word from a function that says nothing.
        "POWERTOOLS_LOG_LEVEL": "INFO",
        "MOORAGE_STATE_MACHINE_ARN": f"arn:aws:states:{REGION}:000000000000:stateMachine:{STATE_MACHINE}",
    }
    # Both refuse what is set wrongly before anything is started.
    Settings.from_environment(inherited_environment() | settings_environment)
    if Catalog.load(Path(settings_environment["MOORAGE_MODELS_FILE"]), os.environ).resolve(None).provider_kind == "demo":
        settings_environment["MOORAGE_OLLAMA_MODELS"] = " ".join(probe_ollama())
    prepare_environments()
    logging.basicConfig(level=os.environ.get("MOORAGE_LOG_LEVEL", "WARNING"), format="%(levelname)s %(name)s %(message)s")
    open_log(stack.enter_context((state_dir / "api.log").open("a")))
    environment = inherited_environment() | settings_environment
    emulator = Emulator.start(state_dir / "aws", environment, lock)
    stack.callback(emulator.stop)
    (state_dir / "aws" / "endpoint").write_text(emulator.endpoint)
    os.environ.update(aws_environment(emulator.endpoint))
    proxy = None
    if os.environ.get("MOORAGE_ALLOWED_EGRESS_DOMAINS"):
        proxy_environment, proxy = start_egress_proxy(state_dir, environment | aws_environment(emulator.endpoint))
        settings_environment |= proxy_environment
        environment |= proxy_environment
        stack.callback(stop_process, proxy, PROXY_STOP_SECONDS_MAX)
    provision(settings_environment)
    launcher = start_launcher(state_dir, launcher_socket)
    stack.callback(stop_process, launcher, LAUNCHER_STOP_SECONDS_MAX)
    await_launcher(launcher, launcher_socket, state_dir / "launcher.log")
    if proxy is not None:
        await_egress_proxy(proxy, state_dir)
    runtime = build_runtime(Settings.from_environment(environment | aws_environment(emulator.endpoint)))
    return asyncio.run(serve(runtime, listener, state_dir, kept))


if __name__ == "__main__":
    sys.exit(main())
