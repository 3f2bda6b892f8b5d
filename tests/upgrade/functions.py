"""The functions of one version in a process of their own, as Lambda has them: ``uvicorn --factory functions:make_app``, with the
version's package first on Python's path and its tree in ``TREE``.

The streaming function's application answers as it does behind the Web Adapter. ``POST /invoke/<folder>/<handler>`` calls a handler of
another function; each environment takes one event at a time, and a new one is made when none is free.
"""

import asyncio
import importlib.util
import json
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

ENVIRONMENTS_MAX: Final = 5
"""More of them take longer to be made than what they do here."""
TREE: Final = Path(os.environ.get("TREE", "."))


class Environment(threading.local):
    """Of the thread that asks: the modules of handlers that it has imported."""

    def __init__(self) -> None:
        self._modules: dict[str, Any] = {}

    def call(self, folder: str, handler: str, event: dict[str, Any]) -> Any:
        if folder not in self._modules:
            self._modules[folder] = loaded(TREE / "functions" / folder / "handler.py")
            if folder == "reaper":
                # What it finds has been silent for an hour.
                self._modules[folder]._runtime().clock = lambda: time.time() + 3600
        return getattr(self._modules[folder], handler)(event, None)


def loaded(file: Path) -> Any:
    spec = importlib.util.spec_from_file_location(f"{file.parent.name}_{threading.get_ident()}", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def make_app() -> Any:
    import moorage

    assert TREE in Path(moorage.__file__).parents, f"{moorage.__file__} is not of {TREE}"
    api = loaded(TREE / "functions" / "responses" / "app.py").make_app()
    environment, threads = Environment(), ThreadPoolExecutor(ENVIRONMENTS_MAX)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http" or not scope["path"].startswith("/invoke/"):
            await api(scope, receive, send)
            return
        body, is_whole = b"", False
        while not is_whole:
            message = await receive()
            body, is_whole = body + message.get("body", b""), not message.get("more_body")
        folder, handler = scope["path"].split("/")[2:]
        status = 200
        try:
            answer = await asyncio.get_running_loop().run_in_executor(threads, environment.call, folder, handler, json.loads(body))
        except Exception as error:
            status, answer = 500, {"errorType": type(error).__name__, "errorMessage": str(error)}
        await send({"type": "http.response.start", "status": status, "headers": [(b"content-type", b"application/json")]})
        await send({"type": "http.response.body", "body": json.dumps(answer).encode()})

    return app
