"""The REST API of the gateway in front of a stack on this machine: the functions of the deployment, run by AWS's runtime client and by
the start command of the streaming one, on the stack's table and bucket."""

import asyncio
import contextlib
import shutil
import socket
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import uvicorn

from tests.twin.calls import own_name
from tests.twin.functions import StreamingFunction
from tests.twin.gateway import STAGE, GatewayTwin, Streamed
from tests.twin.runtime_api import Function
from tests.twin.template import Template

ROOT: Final = Path(__file__).resolve().parents[2]
_FOLDERS: Final = {"Authorizer": "authorizer", "Containers": "containers", "Sessions": "containers", "Files": "files"}
_MODELS: Final = '[[models]]\nname = "demo"\nprovider = "demo"\n'


class Functions:
    """Those behind the API, by name."""

    def __init__(self, package: Path, variables: Callable[[str], Mapping[str, str]]) -> None:
        layer = ROOT / "layers" / "core"
        self.called: Counter[str] = Counter()
        self.buffered = {
            name: Function(
                name, ROOT / "functions" / folder, "handler.handle", variables(name), paths=(layer / "python",), seconds_max=29
            )
            for name, folder in _FOLDERS.items()
        }
        self.streaming = StreamingFunction(package, [layer], variables("Responses"))

    async def invoke(self, function: str, event: dict[str, Any]) -> Any:
        name = own_name(function)
        self.called[name] += 1
        return await asyncio.to_thread(self.buffered[name].invoke, event)

    async def stream(self, function: str, event: dict[str, Any]) -> Streamed:
        self.called[own_name(function)] += 1
        return await self.streaming.stream(event)


@contextlib.contextmanager
def rest_of(
    template: Template, variables: Callable[[str], Mapping[str, str]], listener: socket.socket
) -> Iterator[tuple[str, Functions]]:
    """The address of the stage. ``variables`` are what each function is told; ``listener`` is bound to where the API is."""
    with tempfile.TemporaryDirectory(prefix="moorage-rest-") as folder:
        package = Path(folder) / "responses"
        shutil.copytree(ROOT / "functions" / "responses", package)
        (package / "models.toml").write_text(_MODELS)
        functions = Functions(package, variables)
        server = uvicorn.Server(
            uvicorn.Config(
                GatewayTwin(template, functions, patience=10), lifespan="off", log_level="error", timeout_graceful_shutdown=5
            )
        )

        async def serve() -> None:
            try:
                await server.serve([listener])
            finally:
                await functions.streaming.aclose()

        listener.listen(64)  # whoever comes before the thread has begun waits
        thread = threading.Thread(target=lambda: asyncio.run(serve()))
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}/{STAGE}", functions
        finally:
            server.should_exit = True
            thread.join(20)
            for function in functions.buffered.values():
                function.end()
