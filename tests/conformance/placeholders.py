"""A layer between generated tests and a real service.

The SDK's generated tests of the Agents API were made for a server that answers from a schema alone. They name records by the names of
parameters (``session_id``) and send ``x`` wherever text is wanted. This layer serves their address, puts real records and sensible
values in the place of such placeholders, makes anew what a test has deleted, and asks the service.

A field that the service refuses by name is left out and noted in ``refused``, so that the answer without it is looked at.
"""

import json
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final
from urllib.parse import parse_qsl, urlencode, urlsplit

import httpx

from tests.processes import until
from tests.stack import Stack, say, script, shell
from tests.unit.skills.archives import asked_plugin, plugin

_STRIPPED_MAX: Final = 20
_ARTIFACTS: Final = 40
"""Of the session that placeholders stand for: more than tests delete."""
_VALUES: Final[dict[tuple[str, Any], Any]] = {
    ("model", "model"): "demo",
    ("cwd", "cwd"): "/workspace",
    ("command", "command"): "true",
    ("expression", "x"): "0 9 * * MON",
    ("timezone", "x"): "UTC",
    ("run_at", 0): 4_000_000_000,
    ("run_at", 1): 4_000_000_000,
    ("expires_at", "expires_at"): "2096-10-02T07:06:40Z",
    ("mcp_server_url", "mcp_server_url"): "https://depot.example/mcp",
    ("token_endpoint", "token_endpoint"): "https://depot.example/token",
    ("resource", "resource"): "https://depot.example/",
    ("version", "version"): "latest",
    ("parameters", "bar"): "bar",
    ("data", "x"): asked_plugin(plugin(name="x", description="description"))["source"]["data"],
}
"""What a field is sent as instead of its placeholder."""
_NETWORK: Final = {"access": "restricted", "allowed_domains": ["example.com"]}
_CALL: Final = {"call": {"name": "depot__find_part", "arguments": {"sku": "A-7"}}}


@dataclass
class Records:
    """One real record for each placeholder, made when it is first asked for."""

    stack: Stack
    depot_url: str
    ids: dict[str, str] = field(default_factory=dict)
    _spare_artifacts: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.http = self.stack.http()
        self.makers: Mapping[str, Callable[[], str]] = {
            "agent_id": lambda: self._make("/agents", model="demo", name="clerk", metadata={"foo": "string"}),
            "session_id": self._session,
            "turn_id": lambda: self._first(f"/agents/sessions/{self.of('session_id')}/turns"),
            "artifact_id": self._artifact,
            "subagent_id": lambda: self._first(f"/agents/sessions/{self.of('session_id')}/subagents"),
            "subagent_turn_id": lambda: self._first(
                f"/agents/sessions/{self.of('session_id')}/subagents/{self.of('subagent_id')}/turns"
            ),
            "environment_id": lambda: self._make("/agents/environments", environment={"type": "openai_hosted"}),
            "environment_template_id": lambda: self._make("/agents/environments/templates", network=_NETWORK),
            "automation_id": self._automation,
            "invocation_id": lambda: self._make(f"/agents/automations/{self.of('automation_id')}/invocations"),
            "vault_id": lambda: self._make("/vaults", name="vault", metadata={"foo": "string"}),
            "credential_id": self._credential,
            "file_id": self._file,
            "skill_id": self._skill,
        }

    def of(self, name: str) -> str:
        if name not in self.ids:
            self.ids[name] = self.makers[name]()
        return self.ids[name]

    def forget(self, name: str) -> None:
        """Of a record that was deleted, and those that it took along."""
        for gone in {
            "session_id": ("turn_id", "artifact_id", "subagent_id", "subagent_turn_id"),
            "automation_id": ("invocation_id",),
            "vault_id": ("credential_id",),
        }.get(name, ()):
            self.ids.pop(gone, None)
        if name == "session_id":
            self._spare_artifacts.clear()
        self.ids.pop(name, None)

    def pending_approval(self) -> tuple[str, str]:
        """A session that waits for a person's word, and the id of the request."""
        transport = {"type": "http", "server_url": self.depot_url}
        tool = {"type": "mcp", "server_label": "depot", "transport": transport, "require_approval": "always"}
        agent = {"model": "demo", "tools": [tool]}
        session_id = self._make("/agents/sessions", agent=agent, environment={"type": "none"}, input=script(_CALL, say("done")))
        path = f"/agents/sessions/{session_id}"
        until(lambda: self._get(path)["status"] != "in_progress")
        (action,) = self._get(path)["required_actions"]
        return session_id, str(action["request_id"])

    def _make(self, path: str, **body: Any) -> str:
        answer = self.http.post(path, json=body)
        assert answer.is_success, answer.text
        return str(answer.json()["id"])

    def _get(self, path: str, **query: Any) -> Any:
        answer = self.http.get(path, params=query)
        assert answer.is_success, answer.text
        return answer.json()

    def _first(self, path: str) -> str:
        return str(self._get(path)["data"][0]["id"])

    def _session(self) -> str:
        """Whose turn has left artifacts, and had a subagent."""
        files = f"mkdir -p /workspace/outputs && for n in $(seq {_ARTIFACTS}); do echo $n > /workspace/outputs/$n.txt; done"
        environment = {"type": "openai_hosted"}
        spawn = {"call": {"name": "spawn_agent", "arguments": {"task_name": "a", "message": "hi", "fork_turns": "none"}}}
        given = script(shell(files), spawn, {"call": {"name": "wait_agent", "arguments": {}}}, say("done"))
        team = {"multi_agent": {"enabled": True}}
        made = self._make("/agents/sessions", agent_id=self.of("agent_id"), agent=team, environment=environment, input=given)
        until(lambda: self._get(f"/agents/sessions/{made}")["status"] == "idle")
        return made

    def _artifact(self) -> str:
        if not self._spare_artifacts:
            path = f"/agents/sessions/{self.of('session_id')}/artifacts"
            self._spare_artifacts = [entry["id"] for entry in self._get(path, limit=100)["data"]]
        return self._spare_artifacts.pop()

    def _automation(self) -> str:
        message = {"role": "user", "content": [{"type": "input_text", "text": "x"}]}
        target = {"type": "new_session", "agent": {"model": "demo"}, "environment": {"type": "none"}, "input": [message]}
        return self._make(
            "/agents/automations", name="report", target=target, type="periodic", expression="0 9 * * MON", timezone="UTC"
        )

    def _credential(self) -> str:
        refresh = {"client_id": "c", "refresh_token": "r", "token_endpoint": "https://depot.example/token"}
        refresh["token_endpoint_auth"] = {"type": "client_secret_basic", "client_secret": "s"}  # type: ignore[assignment]
        auth = {"type": "mcp_oauth", "mcp_server_url": "https://depot.example/mcp", "access_token": "a", "refresh": refresh}
        return self._make(f"/vaults/{self.of('vault_id')}/credentials", name="depot", auth=auth)

    def _file(self) -> str:
        answer = self.http.post("/files", data={"purpose": "user_data"}, files={"file": ("x.txt", b"x")})
        return str(answer.json()["id"])

    def _skill(self) -> str:
        manifest = b"---\nname: parcels\ndescription: How to weigh.\n---\nUse the scales.\n"
        answer = self.http.post("/skills", files={"files[]": ("parcels/SKILL.md", manifest)})
        assert answer.is_success, answer.text
        return str(answer.json()["id"])


@dataclass
class Layer:
    """What stands between; ``url`` is what the tests take as the API."""

    records: Records
    refused: dict[tuple[str, str], str] = field(default_factory=dict)
    """The service's sentence for each operation and field that was left out."""
    url: str = ""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def translated(self, method: str, target: str, body: bytes) -> tuple[str, bytes, str]:
        """The request as the service is asked it, and its operation."""
        split = urlsplit(target)
        segments = split.path.split("/")
        operation = f"{method} " + "/".join(f"{{{part}}}" if part in self.records.makers else part for part in segments)
        query, path = parse_qsl(split.query, keep_blank_values=True), split.path
        sent = json.loads(body) if body else None
        if isinstance(sent, dict) and sent.get("events", [{}])[0].get("request_id") == "request_id":
            session_id, sent["events"][0]["request_id"] = self.records.pending_approval()
            path = path.replace("session_id", session_id)
        # What a record belongs to comes first in a path, and is made first.
        path = path.replace("/turns/turn_id", "/turns/subagent_turn_id") if "/subagents/" in path else path
        path = "/".join(self.records.of(part) if part in self.records.makers else part for part in path.split("/"))
        asked = dict(query)
        for name in asked.keys() & self.records.makers.keys():
            asked[name] = self.records.of(name)
        if asked.get("path") == "path":
            asked["path"] = "/workspace"
        for name, cursor in (("after", "last_id"), ("page", "next")):
            if asked.get(name) == name:
                known = self._cursor(path, {key: value for key, value in asked.items() if key != name}, cursor)
                asked.pop(name)
                asked |= {} if known is None else {name: known}
        if sent is not None:
            sent = self._completed(operation, self._filled(sent))
        return path + (f"?{urlencode(asked)}" if asked else ""), b"" if sent is None else json.dumps(sent).encode(), operation

    def _cursor(self, path: str, query: dict[str, str], name: str) -> str | None:
        found = self.records.http.get(path, params=query)
        return found.json().get(name) if found.is_success else None

    def _filled(self, value: Any, name: str = "") -> Any:
        """A body without placeholders; those of records go by the name of their field."""
        if isinstance(value, dict):
            return {key: self._filled(inner, key) for key, inner in value.items()}
        if isinstance(value, list):
            ids = [self.records.of("vault_id")] if name == "vault_ids" else value
            return [self._filled(inner, name) for inner in ids]
        if name in self.records.makers and value in (name, "x"):
            return self.records.of(name)
        if (name, value) == ("path", "x"):
            return "/workspace/x"
        return _VALUES.get((name, value), value) if isinstance(value, (str, int)) else value

    @staticmethod
    def _completed(operation: str, body: Any) -> Any:
        """A session needs an agent, and one without an environment a first turn, whatever the types say."""
        sessions = [body] if operation == "POST /agents/sessions" else []
        if operation.startswith("POST /agents/automations") and body.get("target", {}).get("type") == "new_session":
            sessions = [body["target"]]
            sessions[0].pop("agent_id" if "agent" in sessions[0] else "", None)
        for session in sessions:
            if "agent" not in session and "agent_id" not in session:
                session["agent"] = {"model": "demo"}
            session.setdefault("input", "x")
        return body

    def ask(self, method: str, target: str, headers: dict[str, str], body: bytes) -> httpx.Response:
        with self.lock:
            path, translated, operation = self.translated(method, target, body)
        for _ in range(_STRIPPED_MAX):
            if "idempotency-key" in headers:
                headers["idempotency-key"] = uuid.uuid4().hex  # Tests share one for different requests.
            request = self.records.http.build_request(method, path, headers=headers, content=translated)
            answer = self.records.http.send(request, stream=True)
            lessened = None if answer.status_code != 400 else self._lessened(operation, translated, json.loads(answer.read())["error"])
            if lessened is None:
                break
            translated = lessened
        if method == "DELETE" and answer.is_success:
            self.records.forget(target.rsplit("/", 1)[1])
        return answer

    def _lessened(self, operation: str, body: bytes, error: Mapping[str, Any]) -> bytes | None:
        """The body without the field that was refused; None where the error names none."""
        param = error["param"]
        if param is not None and error["code"] == "missing_required_parameter":
            param = param.rpartition(".")[0]  # That was left out before.
        rest = without(json.loads(body or b"null"), param)
        if rest is None:
            return None
        self.refused.setdefault((operation, param), error["message"])
        return json.dumps(rest).encode()


def without(body: Any, param: str | None) -> Any:
    """A body without the field that ``param`` names, such as ``agent.tools[0].async``; None where it has no such field."""
    at: Any = body
    names = [] if param is None else param.replace("[", ".").replace("]", "").split(".")
    for index, name in enumerate(names):
        key: Any = int(name) if name.isdigit() and isinstance(at, list) else name
        if not ((isinstance(at, dict) and key in at) or (isinstance(at, list) and key < len(at))):
            return None
        if index == len(names) - 1:
            del at[key]
            return body
        at = at[key]
    return None


@contextmanager
def serving(stack: Stack, depot_url: str) -> Iterator[Layer]:
    layer = Layer(Records(stack, depot_url))

    class Handler(BaseHTTPRequestHandler):
        def handle_any(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            kept = {
                name: self.headers[name]
                for name in ("accept", "content-type", "idempotency-key", "last-event-id")
                if name in self.headers
            }
            try:
                answer = layer.ask(self.command, self.path, kept, body)
            except AssertionError as error:  # A record could not be made.
                self.send_error(500, explain=str(error))
                return
            self.send_response(answer.status_code)
            self.send_header("content-type", answer.headers.get("content-type", "application/json"))
            self.send_header("connection", "close")
            self.end_headers()
            is_stream = answer.headers.get("content-type", "").startswith("text/event-stream")
            try:
                for piece in answer.iter_raw() if is_stream else [answer.read()]:
                    self.wfile.write(piece)
            except (BrokenPipeError, ConnectionResetError, httpx.TransportError):
                self.close_connection = True
            finally:
                answer.close()

        do_GET = do_POST = do_DELETE = handle_any

        def log_message(self, format: str, *args: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    layer.url = f"http://127.0.0.1:{server.server_address[1]}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield layer
    finally:
        server.shutdown()
        server.server_close()
        layer.records.http.close()
