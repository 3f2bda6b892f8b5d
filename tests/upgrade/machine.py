"""Step Functions as far as a deployment concerns it: an execution goes on with the definition, and by it with the versions of
functions, that were current when it began.

Its definition is the version's own file, played by the rules of the Amazon States Language that it uses; what is not understood here is
an error. A task that fails is noted, and goes where its Catch leads, without another try.
"""

import json
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

import httpx

ARN: Final = "arn:aws:states:us-east-1:000000000000:stateMachine:loop"
_EXECUTION: Final = ARN.replace(":stateMachine:", ":execution:")
_SECONDS_MAX: Final = 60


class TaskFailed(Exception):
    """What a function has raised."""


class Stopped(Exception):
    """Somebody has stopped the execution."""


@dataclass(frozen=True)
class Version:
    name: str
    url: str
    definition: Mapping[str, Any]

    def invoke(self, folder: str, handler: str, event: Any) -> Any:
        answer = httpx.post(f"{self.url}/invoke/{folder}/{handler}", json=event, timeout=2 * _SECONDS_MAX, trust_env=False)
        if answer.status_code != 200:
            raise TaskFailed(f"{handler} of {self.name}: {answer.text}")
        return answer.json()


@dataclass
class Execution:
    name: str
    version: Version
    status: str = "RUNNING"
    tasks: int = 0
    """Begun so far."""
    ended: threading.Event = field(default_factory=threading.Event)


@dataclass
class StateMachine:
    current: Version | None = None
    before_task: Callable[[Execution], None] = lambda execution: None
    """Called before each task, of an execution that runs; may take its time."""
    executions: dict[str, Execution] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        handler = type("Bound", (_Requests,), {"machine": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def start(self, name: str, state: dict[str, Any]) -> bool:
        assert self.current is not None
        with self.lock:
            if name in self.executions:
                return False
            execution = self.executions[name] = Execution(name, self.current)
        threading.Thread(target=self._run, args=(execution, state), daemon=True).start()
        return True

    def _run(self, execution: Execution, state: dict[str, Any]) -> None:
        definition = execution.version.definition
        try:
            self._play(execution, definition["States"], definition["StartAt"], state)
            self._end(execution, "SUCCEEDED")
        except Stopped:
            pass
        except Exception as error:
            self.failures.append(f"{execution.name}: {error!r}")
            self._end(execution, "FAILED")
        finally:
            execution.ended.set()

    def _end(self, execution: Execution, status: str) -> None:
        with self.lock:
            if execution.status == "RUNNING":
                execution.status = status

    def stop(self, name: str) -> None:
        self._end(self.executions[name], "ABORTED")

    def _play(self, execution: Execution, states: Mapping[str, Any], at: str, data: Any) -> None:
        while True:
            state = states[at]
            kind = state["Type"]
            if kind == "Choice":
                at = next((c["Next"] for c in state["Choices"] if data.get(c["Variable"][2:]) == c["StringEquals"]), state["Default"])
                continue
            if kind == "Succeed":
                return
            if kind == "Task":
                try:
                    answer = self._task(execution, state, data)
                except TaskFailed as error:
                    self.failures.append(str(error))
                    at = state["Catch"][0]["Next"]
                    continue
                data = answer if state.get("ResultPath", "$") == "$" else data
            elif kind == "Map":
                self._map(execution, state, data)
            elif kind == "Wait":
                time.sleep(data[state["SecondsPath"][2:]])
            elif kind != "Pass":
                raise AssertionError(f"{kind} is not understood")
            if state.get("End"):
                return
            at = state["Next"]

    def _task(self, execution: Execution, state: Mapping[str, Any], data: Any) -> Any:
        with self.lock:
            execution.tasks += 1
        self.before_task(execution)
        if execution.status != "RUNNING":
            raise Stopped
        function = state["Resource"].removeprefix("${").removesuffix("Arn}")
        handler = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in function).lstrip("_")
        return execution.version.invoke("steps", handler, selected(state["Parameters"], data) if "Parameters" in state else data)

    def _map(self, execution: Execution, state: Mapping[str, Any], data: Any) -> None:
        inner = state["ItemProcessor"]
        items = [selected(state["ItemSelector"], data, item) for item in data[state["ItemsPath"][2:]]]
        with ThreadPoolExecutor(state["MaxConcurrency"]) as side_by_side:
            list(side_by_side.map(lambda item: self._play(execution, inner["States"], inner["StartAt"], item), items))


def selected(template: Mapping[str, str], data: Any, item: Any = None) -> dict[str, Any]:
    def value(path: str) -> Any:
        if path.startswith("$$.Map.Item.Value"):
            return item[path.rpartition(".")[2]] if path.count(".") == 4 else item
        if path == "$.calls[0]":
            return data["calls"][0]
        assert path.startswith("$."), path
        assert path[2:].isidentifier(), path
        return data[path[2:]]

    return {name.removesuffix(".$"): value(path) for name, path in template.items()}


class _Requests(BaseHTTPRequestHandler):
    """AWS's JSON protocol, as botocore speaks it."""

    protocol_version = "HTTP/1.1"
    machine: StateMachine

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        operation = self.headers["x-amz-target"].partition(".")[2]
        name = asked.get("name") or asked["executionArn"].rpartition(":")[2]
        known = self.machine.executions.get(name)
        if operation == "StartExecution":
            is_new = self.machine.start(name, json.loads(asked["input"]))
            arn = {"executionArn": f"{_EXECUTION}:{name}", "startDate": 0}
            self._answer(*((200, arn) if is_new else (400, {"__type": "ExecutionAlreadyExists"})))
        elif known is None:
            self._answer(400, {"__type": "ExecutionDoesNotExist"})
        elif operation == "DescribeExecution":
            self._answer(200, {"executionArn": asked["executionArn"], "stateMachineArn": ARN, "status": known.status, "startDate": 0})
        else:
            assert operation == "StopExecution", operation
            self.machine.stop(name)
            self._answer(200, {"stopDate": 0})

    def _answer(self, status: int, body: Mapping[str, Any]) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-type", "application/x-amz-json-1.0")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        pass
