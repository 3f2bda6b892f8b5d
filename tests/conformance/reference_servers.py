"""Public servers of the Model Context Protocol, each used over HTTP by a model of the embedded stack: listed, called, allowed by a
person, and asked for what it cannot do.

``mcp-server-time`` and ``mcp-server-git`` (PyPI) speak by their standard streams and stand behind HTTP here; ``server-everything``
(npm) speaks streamable HTTP, and HTTP+SSE. One that is not installed is skipped with the reason.
"""

import json
import os
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from tests.conformance.verdicts import Verdict
from tests.mcp_servers import LOOPBACK, Running, behind_http, beside
from tests.processes import until
from tests.stack import Stack, say, script

_EVERYTHING: Final = Path("node_modules", "@modelcontextprotocol", "server-everything", "dist", "index.js")


@dataclass(frozen=True, slots=True)
class There:
    """The servers that run, by label, and why the others do not."""

    urls: dict[str, str]
    repository: Path
    missing: dict[str, str]

    def environment(self, models: Path) -> dict[str, str]:
        """Of a stack whose requests reach them; ``time`` is its operator's own."""
        models.write_text(f'[mcp.time]\nurl = "{self.urls["time"]}"\n' if "time" in self.urls else "")
        ports = sorted({url.split(":")[2].split("/")[0] for url in self.urls.values()})
        return {
            "MOORAGE_MODELS_FILE": str(models),
            "MOORAGE_EGRESS_PORTS": ",".join(ports) or "8080",
            "MOORAGE_FETCH_ALLOWED_NETWORKS": ",".join(LOOPBACK),
        }


@contextmanager
def running(python: Path, node: Path, folder: Path) -> Iterator[There]:
    """``python`` and ``node`` are the environments that they are installed in."""
    there = There({}, folder / "repository", {})
    with ExitStack() as opened:
        for label, arguments in {"time": (), "git": ("--repository", str(_repository(there.repository)))}.items():
            program = python / "bin" / f"mcp-server-{label}"
            if program.exists():
                opening = partial(behind_http, str(program), *arguments)
                there.urls[label] = f"{opened.enter_context(beside(opening)).url}/mcp"
            else:
                there.missing[label] = f"mcp-server-{label} is not installed"
        for label, kind, path in (("everything", "streamableHttp", "/mcp"), ("everything_sse", "sse", "/sse")):
            if shutil.which("node") is not None and (node / _EVERYTHING).exists():
                there.urls[label] = opened.enter_context(_everything(node, kind)).url + path
            else:
                there.missing[label] = "server-everything is not installed"
        yield there


def _repository(folder: Path) -> Path:
    folder.mkdir(parents=True)
    (folder / "notes.txt").write_text("one\n")
    about = ("-c", "user.name=moorage", "-c", "user.email=moorage@example.com")
    for command in (("init", "--quiet"), ("add", "."), (*about, "commit", "--quiet", "-m", "Begin")):
        subprocess.run(["git", "-C", str(folder), *command], check=True, capture_output=True)
    for name, value in (("user.name", "moorage"), ("user.email", "moorage@example.com")):
        subprocess.run(["git", "-C", str(folder), "config", name, value], check=True)
    return folder


@contextmanager
def _everything(node: Path, kind: str) -> Iterator[Running]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    environment = {"PATH": os.environ["PATH"], "PORT": str(port)}
    child = subprocess.Popen(
        ["node", str(node / _EVERYTHING), kind], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        until(lambda: _listens(port))
        yield Running(port)
    finally:
        child.kill()
        child.wait()


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


# --- what is tried --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Tried:
    stack: Stack
    there: There

    def ask(self, label: str, *calls: tuple[str, dict[str, Any]], **fields: Any) -> list[Any]:
        """What a response says that makes these calls one after the other."""
        return list(self.send(self.request(label, *calls, **fields)).output)

    def send(self, request: dict[str, Any], **more: Any) -> Any:
        return self.stack.client().responses.create(**request, **more)

    def request(self, label: str, *calls: tuple[str, dict[str, Any]], **fields: Any) -> dict[str, Any]:
        steps = [{"call": {"name": f"{label}__{name}", "arguments": arguments}} for name, arguments in calls]
        where = {} if label == "time" else {"server_url": self.there.urls[label]}
        tool = {"type": "mcp", "server_label": label, "require_approval": "never", **where, **fields}
        return {"model": "demo", "input": script(*steps, say("done")), "tools": [tool]}


def _results(output: list[Any]) -> list[tuple[str, str, Any]]:
    calls = [item for item in output if item.type == "mcp_call"]
    return [(item.name, item.status, item.output if item.error is None else item.error.to_dict()) for item in calls]


def time_is_told(tried: Tried) -> None:
    wanted = {"source_timezone": "Europe/Oslo", "time": "12:00", "target_timezone": "Asia/Tokyo"}
    output = tried.ask("time", ("convert_time", wanted), ("get_current_time", {"timezone": "Europe/Oslo"}))
    assert [tool.name for tool in output[0].tools] == ["convert_time", "get_current_time"], output[0]
    (_, first, converted), (_, second, now) = _results(output)
    assert (first, second) == ("completed", "completed"), output
    assert json.loads(converted)["target"]["timezone"] == "Asia/Tokyo", converted
    assert json.loads(now)["timezone"] == "Europe/Oslo", now


def a_time_that_there_is_not_is_an_error_of_the_tool(tried: Tried) -> None:
    ((_, status, error),) = _results(tried.ask("time", ("get_current_time", {"timezone": "Mars/Base"})))
    assert (status, error["type"]) == ("failed", "mcp_tool_execution_error"), error


def a_repository_is_read_and_written(tried: Tried) -> None:
    path = str(tried.there.repository)
    (tried.there.repository / "more.txt").write_text("two\n")
    calls = (("git_status", {"repo_path": path}), ("git_add", {"repo_path": path, "files": ["more.txt"]}))
    commit = ("git_commit", {"repo_path": path, "message": "Go on"})
    results = _results(tried.ask("git", *calls, commit, ("git_log", {"repo_path": path})))
    assert [status for _, status, _ in results] == ["completed"] * 4, results
    assert ("more.txt" in results[0][2], "Go on" in results[3][2]) == (True, True), results
    assert "Go on" in _log(tried)


def what_writes_waits_for_a_persons_word(tried: Tried) -> None:
    path = str(tried.there.repository)
    gated = {"require_approval": {"never": {"read_only": True}}}
    branch = ("git_create_branch", {"repo_path": path, "branch_name": "allowed"})
    request = tried.request("git", ("git_status", {"repo_path": path}), branch, **gated)
    first = tried.send(request)
    assert [item.type for item in first.output] == ["mcp_list_tools", "mcp_call", "mcp_approval_request"], first.output
    assert "allowed" not in _branches(tried)
    answer = {"type": "mcp_approval_response", "approval_request_id": first.output[-1].id, "approve": True}
    second = tried.send({**request, "input": [answer]}, previous_response_id=first.id)
    assert _results(second.output)[0][1] == "completed", second.output
    assert "allowed" in _branches(tried)


def a_repository_elsewhere_is_refused(tried: Tried) -> None:
    ((_, status, error),) = _results(tried.ask("git", ("git_status", {"repo_path": "/"})))
    assert (status, error["type"]) == ("failed", "mcp_tool_execution_error"), error


def everything_is_used(tried: Tried, label: str = "everything") -> None:
    calls: tuple[tuple[str, dict[str, Any]], ...] = (
        ("echo", {"message": "hello"}),
        ("get-sum", {"a": 2, "b": 3}),
        ("get-tiny-image", {}),
        ("get-structured-content", {"location": "Chicago"}),
        ("trigger-long-running-operation", {"duration": 1, "steps": 2}),
        ("get-annotated-message", {"messageType": "error", "includeImage": True}),
        ("get-resource-links", {"count": 2}),
    )
    results = _results(tried.ask(label, *calls))
    assert [status for _, status, _ in results] == ["completed"] * len(calls), results
    outputs = {name: output for name, _, output in results}
    assert (outputs["echo"], "5" in outputs["get-sum"]) == ("Echo: hello", True), outputs
    assert [part["type"] for part in json.loads(outputs["get-tiny-image"])] == ["text", "image", "text"], outputs
    assert "temperature" in outputs["get-structured-content"], outputs
    assert "completed" in outputs["trigger-long-running-operation"], outputs
    assert "resource_link" in outputs["get-resource-links"], outputs


def everything_is_used_by_events(tried: Tried) -> None:
    everything_is_used(tried, "everything_sse")


def resources_are_listed_and_read(tried: Tried) -> None:
    lists: tuple[tuple[str, dict[str, Any]], ...] = (("list_mcp_resources", {}), ("list_mcp_resource_templates", {}))
    (_, _, listed), (_, _, templates) = _results(tried.ask("everything", *lists))
    uri = json.loads(listed)["resources"][0]["uri"]
    assert json.loads(templates)["resourceTemplates"], templates
    read, lost = _results(tried.ask("everything", ("read_mcp_resource", {"uri": uri}), ("read_mcp_resource", {"uri": "demo://lost"})))
    assert (read[1], bool(read[2])) == ("completed", True), read
    assert (lost[1], lost[2]["type"]) == ("failed", "mcp_protocol_error"), lost


def wrong_arguments_are_an_error_and_the_model_goes_on(tried: Tried) -> None:
    output = tried.ask("everything", ("get-sum", {"a": "two"}), ("no-such-tool", {}))
    ((_, status, error),) = _results(output)
    assert (status, error["type"] in ("mcp_tool_execution_error", "mcp_protocol_error")) == ("failed", True), error
    assert output[-1].type == "message", output


def a_tool_is_found_before_it_is_called(tried: Tried) -> None:
    request = tried.request("everything", ("get-sum", {"a": 1, "b": 1}), defer_loading=True)
    find = {"call": {"name": "tool_search", "arguments": {"query": "sum of two numbers", "limit": 1}}}
    request["input"] = script(find, {"call": {"name": "everything__get-sum", "arguments": {"a": 1, "b": 1}}}, say("done"))
    request["tools"].append({"type": "tool_search"})
    output = tried.send(request).output
    assert [item.type for item in output] == ["mcp_list_tools", "tool_search_call", "tool_search_output", "mcp_call", "message"], output
    assert [tool.allowed_tools for tool in output[2].tools] == [["get-sum"]], output[2]


def _log(tried: Tried) -> str:
    return subprocess.run(["git", "-C", str(tried.there.repository), "log"], capture_output=True, text=True, check=True).stdout


def _branches(tried: Tried) -> str:
    return subprocess.run(["git", "-C", str(tried.there.repository), "branch"], capture_output=True, text=True, check=True).stdout


TRIALS: Final[dict[str, tuple[Callable[[Tried], None], ...]]] = {
    "time": (time_is_told, a_time_that_there_is_not_is_an_error_of_the_tool),
    "git": (a_repository_is_read_and_written, what_writes_waits_for_a_persons_word, a_repository_elsewhere_is_refused),
    "everything": (
        everything_is_used,
        resources_are_listed_and_read,
        wrong_arguments_are_an_error_and_the_model_goes_on,
        a_tool_is_found_before_it_is_called,
    ),
    "everything_sse": (everything_is_used_by_events,),
}


def tried(stack: Stack, there: There) -> list[Verdict]:
    """A verdict for each server."""
    return [_verdict(Tried(stack, there), label, trials) for label, trials in TRIALS.items()]


def _verdict(at: Tried, label: str, trials: tuple[Callable[[Tried], None], ...]) -> Verdict:
    name = f"reference server '{label}'"
    if label in at.there.missing:
        return Verdict(name, reason=f"{at.there.missing[label]}; 'make conformance' installs it where the network allows")
    failures = []
    for trial in trials:
        try:
            trial(at)
        except Exception as error:  # Whatever it was, the other trials are made.
            failures.append(f"{trial.__name__}: {type(error).__name__}: {str(error)[:1500]}")
    return Verdict(name, passed=len(trials) - len(failures), failures=tuple(failures))
