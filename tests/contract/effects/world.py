"""What the checks of parameters look at, and where each says which rows of docs/parameters.toml it checks."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import httpx

from docs import parameters
from tests.drawing import Drawing
from tests.mcp_servers import Depot
from tests.search_engines import SearchEngines
from tests.stack import Stack, raw_events
from tests.upstream import MockUpstream

TABLE = parameters.load()
Json = dict[str, Any]
PIXEL = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


@dataclass(frozen=True, slots=True)
class World:
    """A stack, its upstream, and a client."""

    stack: Stack
    upstream: MockUpstream
    http: httpx.Client
    depot: Depot
    """A remote server, and where it is."""
    depot_url: str
    engines: SearchEngines
    drawing: Drawing
    """Where the web is searched, and a page of it."""
    page_url: str

    def create(self, model: str = "native", **body: Any) -> Json:
        answer = self.http.post("/responses", json={"model": model, "input": "hi", **body})
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    def asked(self, model: str = "native", **body: Any) -> Json:
        """What the upstream was asked for a request."""
        self.create(model, **body)
        return self.upstream.requests[-1].body

    def stream(self, **body: Any) -> list[Json]:
        with self.http.stream("POST", "/responses", json={"model": "native", "input": "hi", "stream": True, **body}) as answer:
            assert answer.headers["content-type"].startswith("text/event-stream")
            return raw_events(answer.iter_lines())

    def get(self, path: str, **query: Any) -> Json:
        answer = self.http.get(path, params=query)
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    def post(self, path: str, body: Json | None = None) -> Json:
        answer = self.http.post(path, json=body)
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    def records(self) -> list[Json]:
        """What the table holds."""
        return self.stack.records()


Check = Callable[[World], None]
CHECKS: dict[tuple[str, str], Check] = {}


def row(group: str, *names: str) -> Callable[[Check], Check]:
    """The function checks these rows of the table."""

    def register(check: Check) -> Check:
        for name in names:
            assert (group, name) not in CHECKS, name
            CHECKS[group, name] = check
        return check

    return register


FUNCTION: Json = {
    "type": "function",
    "name": "look",
    "description": "Look.",
    "parameters": {"type": "object", "properties": {}},
    "strict": False,
}
SHELL: Json = {"type": "shell", "environment": {"type": "container_auto"}}
