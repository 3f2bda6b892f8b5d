"""moorage on one machine: ``make up``.

One terminal, no Docker, no Node, no account. This process serves the API. Its children are the workers that play the loop, and the
launcher, which owns the sandboxes. All but the launcher have the store open (``store/journal.py``). State lies under ``.moorage/`` and
is there at the next start. Ctrl-C and SIGTERM stop everything in order.
"""

import contextlib
import gc
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

if __name__ == "__main__":
    gc.disable()  # What is imported stays: to look for garbage in it is a seventh of the start. It ends with relieve_collector().

from moorage.command_hints import typed_here
from moorage.errors import MoorageError, SettingsConflict
from moorage.local.address import Address
from moorage.local.children import LAUNCHER_STOP_SECONDS_MAX, LauncherProcess, egress_socket, prepare_environments
from moorage.local.processes import uninterrupted
from moorage.local.provisioners import provisioner_of
from moorage.local.service_manager import ServiceManager
from moorage.local.state_folder import end_leftovers, held
from moorage.local.supervision import Child, stop_child
from moorage.settings import SettingsError
from moorage.terminal import say

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
        manager, address = ServiceManager.taken_from(os.environ), Address.from_environment(os.environ)
        provisioner = provisioner or provisioner_of(os.environ)
        listener = stack.enter_context(address.bound())
        if address.warning is not None:
            say(typed_here(address.warning), out=sys.stderr)
        prepare_environments()
        stack.callback(end_leftovers, state_dir)  # At last: one that hung while it was started again is nobody's child.
        launcher = begun_launcher(stack, state_dir) if provisioner == "launcher" else None
        address.check_certificate()
        from moorage.local.start import start  # With most modules, which the launcher does not need.

        code = start(stack, address, listener, state_dir, lock, provisioner, launcher, manager)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # Threads may still wait for an answer that nobody will give.


def begun_launcher(stack: contextlib.ExitStack, state_dir: Path) -> tuple[LauncherProcess, Child]:
    """The owner of the sandboxes, which is not waited for. It begins as a copy, before there is what it must not have: secrets, the
    private key of TLS, and the modules of the API."""
    launcher = LauncherProcess(state_dir, state_dir / "launcher.sock")
    with uninterrupted():
        child = launcher.child()
        stack.callback(stop_child, child, LAUNCHER_STOP_SECONDS_MAX)
    return launcher, child


if __name__ == "__main__":
    sys.exit(main())
