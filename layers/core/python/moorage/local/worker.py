"""The step functions of a local stack: those of AWS (``functions/steps``), which end with their emulator and can be started ahead."""

import os
import threading
import time
from collections.abc import Callable
from typing import Any, Final

Handler = Callable[[dict[str, Any], object], dict[str, Any]]

WARM: Final = "warm"
"""A call with this word alone makes ready what the first real one needs."""
_LOOK_SECONDS: Final = 0.25


def end_with_parent() -> None:
    """Whose emulator has died asks nobody any more. The kernel tells of a parent's death too, but means the thread that forked."""
    threading.Thread(target=_watch, args=(os.getppid(),), daemon=True, name="watch").start()


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_LOOK_SECONDS)
    os._exit(1)


def warmed(handler: Handler, runtime: Callable[[], Any]) -> Handler:
    def handle(event: dict[str, Any], context: object) -> dict[str, Any]:
        if event == {WARM: True}:
            runtime()
            return {}
        return handler(event, context)

    return handle
