"""The folder of a stack's state: one stack at a time, and the files of the first start."""

import contextlib
import fcntl
import json
import os
import secrets
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from moorage.dataclass import dataclass
from moorage.errors import SettingsConflict
from moorage.ids import KEY_PREFIX
from moorage.local.processes import end_leftover, identity, is_running, write_private

_LEFTOVER_SECONDS_MAX = 2.0
"""Processes whose stack has died end at once, unless they hang."""


@dataclass(frozen=True, slots=True)
class StackSecrets:
    """The files of the first start, found by every later one."""

    api_key: str
    content_key: str


@contextlib.contextmanager
def held(state_dir: Path) -> Iterator[IO[str]]:
    """The state directory, for one stack alone: a second one would overwrite the first one's state.

    Processes that have the store open are given the lock too. If a stack was killed, the next one waits a moment until they have
    ended, and ends them if need be.
    """
    try:
        state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = (state_dir / "lock").open("a+")
    except OSError as error:
        raise SettingsConflict(
            f"State cannot be kept in {state_dir}: {error.strerror}. MOORAGE_STATE_DIR takes another folder."
        ) from error
    with lock:
        began = time.monotonic()
        while not _take(lock):
            lock.seek(0)
            if is_running(lock.read()):
                raise SettingsConflict(
                    f"A stack with its state in {state_dir} is running already. Use that one, stop it first, or take another folder "
                    "with MOORAGE_STATE_DIR or 'moorage up --state-dir'."
                )
            if time.monotonic() - began > _LEFTOVER_SECONDS_MAX:
                # The stack is dead and a child of it hangs. It holds nothing that is not on disk.
                end_leftovers(state_dir)
            time.sleep(0.02)
        lock.truncate(0)
        lock.write(identity(os.getpid()))
        lock.flush()
        yield lock


def end_leftovers(state_dir: Path) -> None:
    """Kill the children that a stack has left. They are gone when this returns."""
    for noted in (*state_dir.glob("*.process"), state_dir / "aws" / "process"):
        end_leftover(noted)


def _take(lock: IO[str]) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def kept_secrets(state_dir: Path) -> StackSecrets:
    path = state_dir / "secrets.json"
    if not path.exists():
        made = {"api_key": f"{KEY_PREFIX}{secrets.token_urlsafe(32)}", "content_key": secrets.token_hex(32)}
        try:
            write_private(path, json.dumps(made))
        except OSError as error:
            raise SettingsConflict(f"State cannot be kept in {state_dir}: {error.strerror}.") from error
    return StackSecrets(**json.loads(path.read_text()))
