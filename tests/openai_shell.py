"""OpenAI's hosted shell, as far as a client sees it: ``/v1/responses`` streams calls that run in its own containers, ``/v1/containers``
answers for these.

It knows one key and no tenants, and it refuses what OpenAI refuses: ids of items that it has not stored, calls without outputs and
outputs without calls, containers that it does not have, fields that nobody documents. A line ``RUN <command>`` of the user's last
message is run, every other is said.
"""

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

Json = dict[str, Any]
KEY = "sk-operator"
_FIELDS = {
    *("model", "input", "instructions", "store", "stream", "include", "tools", "tool_choice", "parallel_tool_calls"),
    *("max_tool_calls", "max_output_tokens", "reasoning", "text", "temperature", "top_p", "truncation", "metadata"),
}


class Refused(Exception):
    def __init__(self, status: int, message: str, *, param: str | None = None, code: str | None = None) -> None:
        self.status = status
        self.body = {"error": {"message": message, "type": "invalid_request_error", "param": param, "code": code}}


@dataclass
class OpenAIShell:
    requests: list[Json] = field(default_factory=list)
    """The bodies of the responses that were asked for."""
    containers: dict[str, dict[str, bytes]] = field(default_factory=dict)
    """Files by path, by container."""
    expired: set[str] = field(default_factory=set)
    breaks_after: str | None = None
    """The connection is lost behind the first event of this type."""

    @property
    def app(self) -> Starlette:
        base = "/v1/containers/{container_id}"
        return Starlette(
            routes=[
                Route("/v1/responses", self._create, methods=["POST"]),
                Route(base, self._container, methods=["GET", "DELETE"]),
                Route(f"{base}/files", self._files, methods=["GET", "POST"]),
                Route(f"{base}/files/{{file_id}}", self._file, methods=["GET", "DELETE"]),
                Route(f"{base}/files/{{file_id}}/content", self._content),
            ],
            exception_handlers={Refused: _refuse},
        )

    # --- responses ---

    async def _create(self, request: Request) -> Response:
        _check_key(request)
        body = await request.json()
        self.requests.append(body)
        for name in body.keys() - _FIELDS:
            raise Refused(400, f"Unknown parameter: '{name}'.", param=name, code="unknown_parameter")
        self._check_items(body["input"])
        container_id = self._container_for(body)
        return StreamingResponse(self._stream(body, container_id), media_type="text/event-stream")

    def _check_items(self, items: list[Json]) -> None:
        calls = [item["call_id"] for item in items if item["type"] == "shell_call"]
        outputs = [item["call_id"] for item in items if item["type"] == "shell_call_output"]
        for index, item in enumerate(items):
            if "id" in item:
                raise Refused(404, f"Item with id '{item['id']}' not found.", param=f"input[{index}].id")
            environment = item.get("environment") or {}
            if environment.get("type") == "container_reference":
                self._check_container(environment["container_id"], f"input[{index}].environment.container_id")
        for call_id in {*calls} ^ {*outputs}:
            wanted = "output found for shell call" if call_id in calls else "call found for shell call output with call_id"
            raise Refused(400, f"No tool {wanted} {call_id}.", param="input")

    def _check_container(self, container_id: str, param: str | None) -> None:
        if container_id not in self.containers:
            raise Refused(404, f"Container with id '{container_id}' not found.", param=param)
        if container_id in self.expired:
            raise Refused(400, "Container is expired.")

    def _container_for(self, body: Json) -> str | None:
        environments = [tool["environment"] for tool in body.get("tools", ()) if tool["type"] == "shell"]
        if not environments or environments[0]["type"] == "local":
            return None
        (environment,) = environments
        if environment["type"] == "container_reference":
            self._check_container(environment["container_id"], "tools[0].environment.container_id")
            return str(environment["container_id"])
        for file_id in environment.get("file_ids", ()):
            raise Refused(404, f"File with id '{file_id}' not found.", param="tools[0].environment.file_ids")
        used = [item["environment"]["container_id"] for item in body["input"] if item["type"] == "shell_call" and _is_there(item)]
        container_id = used[-1] if used else f"cntr_upstream{len(self.containers)}"
        self.containers.setdefault(container_id, {})
        return str(container_id)

    async def _stream(self, body: Json, container_id: str | None) -> AsyncIterator[str]:
        for number, event in enumerate(self._events(body, container_id)):
            yield f"event: {event['type']}\ndata: {json.dumps(event | {'sequence_number': number})}\n\n"
            if event["type"] == self.breaks_after:
                return

    def _events(self, body: Json, container_id: str | None) -> list[Json]:
        asked = [part["text"] for item in body["input"] if item.get("role") == "user" for part in item["content"]][-1]
        events: list[Json] = [{"type": "response.created", "response": {"id": "resp_theirs", "status": "in_progress", "output": []}}]
        output: list[Json] = []
        for line in asked.splitlines():
            if line.startswith("RUN ") and container_id is not None:
                events += self._ran(line.removeprefix("RUN "), container_id, output)
            else:
                events += _said(line, output)
        usage = {"input_tokens": 20, "output_tokens": 5, "total_tokens": 25}
        final = {"id": "resp_theirs", "status": "completed", "output": output, "usage": usage}
        return [*events, {"type": "response.completed", "response": final}]

    def _ran(self, command: str, container_id: str, output: list[Json]) -> list[Json]:
        at, call_id = len(output), f"call_{len(output)}"
        self.containers[container_id]["/mnt/data/ran.txt"] = command.encode()
        call: Json = {
            "id": f"sh_theirs{at}",
            "type": "shell_call",
            "status": "completed",
            "call_id": call_id,
            "action": {"commands": [command], "timeout_ms": None, "max_output_length": None},
            "environment": {"type": "container_reference", "container_id": container_id},
        }
        printed = {"stdout": f"{command}!", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}
        answer: Json = {
            "id": f"sho_theirs{at}",
            "type": "shell_call_output",
            "status": "completed",
            "call_id": call_id,
            "output": [printed],
            "max_output_length": None,
        }
        output += [call, answer]
        begun = {"status": "in_progress"}
        head, below = {"output_index": at, "command_index": 0}, {"output_index": at + 1, "command_index": 0, "item_id": answer["id"]}
        return [
            _added(at, call | begun | {"action": call["action"] | {"commands": []}}),
            {"type": "response.shell_call_command.added", "command": "", **head},
            {"type": "response.shell_call_command.delta", "delta": command, **head},
            {"type": "response.shell_call_command.done", "command": command, **head},
            _done(at, call),
            _added(at + 1, answer | begun | {"output": []}),
            {"type": "response.shell_call_output_content.delta", "delta": {"stdout": f"{command}!"}, **below},
            {"type": "response.shell_call_output_content.done", "output": [printed], **below},
            _done(at + 1, answer),
        ]

    # --- containers ---

    async def _container(self, request: Request) -> Response:
        container_id = self._known(request)
        if request.method == "DELETE":
            del self.containers[container_id]
            return JSONResponse({"id": container_id, "object": "container.deleted", "deleted": True})
        return JSONResponse({"id": container_id, "object": "container", "name": "auto", "status": "running", "created_at": 1})

    async def _files(self, request: Request) -> Response:
        container_id = self._known(request)
        files = self.containers[container_id]
        if request.method == "GET":
            data = [_file_object(container_id, path, content) for path, content in files.items()]
            return JSONResponse({"object": "list", "data": data, "has_more": False, "first_id": None, "last_id": None})
        async with request.form() as form:
            upload: Any = form["file"]
            path = f"/mnt/data/{upload.filename}"
            files[path] = await upload.read()
        return JSONResponse(_file_object(container_id, path, files[path]))

    async def _file(self, request: Request) -> Response:
        container_id, path = self._known(request), self._path(request)
        if request.method == "DELETE":
            del self.containers[container_id][path]
            return JSONResponse({"id": request.path_params["file_id"], "object": "container.file.deleted", "deleted": True})
        return JSONResponse(_file_object(container_id, path, self.containers[container_id][path]))

    async def _content(self, request: Request) -> Response:
        content = self.containers[self._known(request)][self._path(request)]
        return Response(content, media_type="text/html", headers={"set-cookie": "theirs=1", "x-request-id": "req_theirs"})

    def _known(self, request: Request) -> str:
        _check_key(request)
        container_id: str = request.path_params["container_id"]
        self._check_container(container_id, None)
        return container_id

    def _path(self, request: Request) -> str:
        path: str = "/mnt/data/" + request.path_params["file_id"].removeprefix("cfile_")
        if path not in self.containers[request.path_params["container_id"]]:
            raise Refused(404, "Container file not found.")
        return path


def _check_key(request: Request) -> None:
    if request.headers.get("authorization") != f"Bearer {KEY}":
        raise Refused(401, f"Incorrect API key provided: {request.headers.get('authorization')}.", code="invalid_api_key")


def _is_there(call: Json) -> bool:
    return bool(call["environment"]["type"] == "container_reference")


def _file_object(container_id: str, path: str, content: bytes) -> Json:
    file_id = "cfile_" + path.removeprefix("/mnt/data/")
    return {
        "id": file_id,
        "object": "container.file",
        "container_id": container_id,
        "path": path,
        "bytes": len(content),
        "created_at": 1,
        "source": "assistant",
    }


def _added(index: int, item: Json) -> Json:
    return {"type": "response.output_item.added", "output_index": index, "item": item}


def _done(index: int, item: Json) -> Json:
    return {"type": "response.output_item.done", "output_index": index, "item": item}


def _said(text: str, output: list[Json]) -> list[Json]:
    at = len(output)
    part = {"type": "output_text", "text": text, "annotations": []}
    item = {"id": f"msg_theirs{at}", "type": "message", "role": "assistant", "status": "completed", "content": [part]}
    output.append(item)
    delta = {"type": "response.output_text.delta", "item_id": item["id"], "output_index": at, "content_index": 0, "delta": text}
    return [_added(at, item | {"status": "in_progress", "content": []}), delta, _done(at, item)]


def _refuse(request: Request, error: Exception) -> Response:
    assert isinstance(error, Refused)
    return JSONResponse(error.body, status_code=error.status)
