"""A deployment that answers: the models' words, a sandbox, and that the sandbox cannot get out. Nothing is kept of it."""

import asyncio
import json
import re
import socket
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final
from urllib.parse import urlsplit

import httpx
import orjson
from botocore.exceptions import BotoCoreError, ClientError

from moorage.cli.checks.findings import CheckProgress, Finding, Said, fail, ok, warn
from moorage.cli.checks.machine import of_a_start
from moorage.cli.target import Target, TargetError, answer_of, refused, unreachable
from moorage.store.api_keys import ApiKeys

_MODELS_ASKED_MAX: Final = 100
"""Beyond them the findings say how many were not asked."""
_TOGETHER: Final = 8
"""So many models are asked at once."""
_ANSWER_SECONDS_MAX: Final = 120.0
"""A local model may have to be loaded first."""
_MARK: Final = "moorage-doctor"
_EMBEDDERS: Final = "moorage-embeddings"
"""``owned_by`` of models that embed, and give no answers."""
_NAME_A_MODEL: Final = (
    "Start it with OPENAI_API_KEY, ANTHROPIC_API_KEY or MOORAGE_UPSTREAM_URL. docs/models.md says how a real one is named."
)
_SCRIPTED: Final = "demo"
"""The model that every deployment has."""


def table_finding(target: Target) -> Finding:
    try:
        keys = asyncio.run(ApiKeys(target.table(), clock=time.time).page())
    except (ClientError, BotoCoreError) as error:
        return fail(f"the table {target.table_name} cannot be read", refused(error))
    if not keys:
        return warn(f"the table {target.table_name} holds no key yet", "'moorage keys create --tenant NAME' makes one.")
    return ok(f"the table {target.table_name} holds {len(keys)} {'key' if len(keys) == 1 else 'keys'}")


def of_deployment(target: Target, environ: Mapping[str, str]) -> Iterator[Said]:
    """The models' answers, a sandbox, and that it cannot get out; of a local stack that does not run, what a start would find."""
    try:
        http = target.http()
    except TargetError as error:
        yield warn("the deployment was not asked", str(error))
        return
    with http:
        try:
            models = answer_of(http.get("/models"))["data"]
        except httpx.TransportError as error:
            yield (warn if target.is_local else fail)("the deployment does not answer", unreachable(error))
            if target.is_local:
                yield from of_a_start(environ)
            return
        except TargetError as error:
            yield fail(f"{target.url} refuses to list its models", str(error))
            return
        names = [model["id"] for model in models if model["owned_by"] != _EMBEDDERS]
        yield ok(f"{target.url} answers; models: {', '.join(names)}")
        if names == [_SCRIPTED]:
            yield warn("the scripted demo model answers: no other is configured", _NAME_A_MODEL)
        asked = names[:_MODELS_ASKED_MAX]
        yield CheckProgress(
            f"'{asked[0]}' is asked for an answer" if len(asked) == 1 else f"{len(asked)} models are asked for an answer"
        )
        with ThreadPoolExecutor(_TOGETHER) as pool:
            yield from pool.map(partial(_answer, http), asked)
        if len(names) > len(asked):
            yield warn(f"{len(names) - len(asked)} more models were not asked", f"The first {len(asked)} are.")
        for name in [model["id"] for model in models if model["owned_by"] == _EMBEDDERS][:_MODELS_ASKED_MAX]:
            yield _embedding(http, name)
        yield from _sandbox(http, str(target.url))


def _embedding(http: httpx.Client, model: str) -> Finding:
    """A vector of an embedding model; the API checks its length against models.toml."""
    began = time.monotonic()
    try:
        made = answer_of(http.post("/embeddings", json={"model": model, "input": "ready"}))
    except (httpx.TransportError, TargetError) as error:
        return fail(
            f"'{model}' did not embed: {error}",
            "Correct its [[embedding]] in models.toml: files wait for it, and stores that were made with it cannot be searched.",
        )
    length = len(made["data"][0]["embedding"])
    return ok(f"'{model}' embedded in {time.monotonic() - began:.2f} s; its vectors have {length} numbers")


def _answer(http: httpx.Client, model: str) -> Finding:
    """A streamed answer of a model."""
    request = {"model": model, "input": "Answer with one word: ready.", "stream": True, "store": False}
    began, first, last = time.monotonic(), 0.0, {}
    try:
        with http.stream("POST", "/responses", json=request, timeout=_ANSWER_SECONDS_MAX) as answer:
            if not answer.is_success:
                answer.read()
                answer_of(answer)
            for line in answer.iter_lines():
                if time.monotonic() - began > _ANSWER_SECONDS_MAX:
                    return _no_answer(model, f"it was not done within {_ANSWER_SECONDS_MAX:.0f} s")
                if line.startswith("data: {"):
                    first = first or time.monotonic() - began
                    last = orjson.loads(line.removeprefix("data: "))
    except httpx.TimeoutException:
        return _no_answer(model, f"it said nothing for {_ANSWER_SECONDS_MAX:.0f} s")
    except (httpx.TransportError, TargetError) as error:
        return _no_answer(model, str(error))
    if last.get("type") != "response.completed":
        return _no_answer(model, _error_of(last.get("response") or {}))
    seconds = time.monotonic() - began
    return ok(f"'{model}' answered in {seconds:.2f} s; the stream began after {first:.2f} s")


def _no_answer(model: str, said: str) -> Finding:
    return fail(
        f"'{model}' did not answer: {said}",
        "Check its key and address (models.toml, MOORAGE_UPSTREAM_URL). Here 'moorage logs' shows why, on AWS the function's log.",
    )


def _sandbox(http: httpx.Client, url: str) -> Iterator[Said]:
    """In a container of its own, which is deleted again. The scripted model asks for the command: what another one would make of the
    request says nothing of sandboxes."""
    yield CheckProgress("a sandbox is started and runs a command")
    began = time.monotonic()
    try:
        container = answer_of(http.post("/containers", json={"name": _MARK}))["id"]
        try:
            printed = _printed(answer_of(http.post("/responses", json=_probe(container, _dials(url)))))
        finally:
            http.delete(f"/containers/{container}")
    except (httpx.TransportError, TargetError) as error:
        yield _no_sandbox(str(error) or type(error).__name__)
        return
    if f"{_MARK} done" not in printed:
        yield _no_sandbox(printed.strip())
        return
    yield ok(f"a sandbox started, ran a command and answered in {time.monotonic() - began:.2f} s")
    reached = sorted(re.findall(rf"{_MARK} reached (\S+)", printed))
    if reached:
        yield fail(
            f"a sandbox without a policy reached {', '.join(reached)}",
            "Nothing but its exec server may be reachable: check the sandboxes' security group, subnets and DNS firewall.",
        )
    else:
        yield ok("a sandbox without a policy cannot get out")


def _no_sandbox(said: str) -> Finding:
    if "This deployment has no sandboxes" in said:
        return warn(said, "Hosted tools that run commands are refused: 'provisioner' and 'memory_tiers' in cdk.json say so.")
    return fail(
        f"no sandbox ran a command: {said}",
        "The log says why: 'moorage logs' here, the tool step's on AWS, where 'moorage doctor --aws' shows quotas.",
    )


def _dials(url: str) -> str:
    """A command that tells whether it reaches the API, as this machine does, and whether it can ask for names: DNS is a way out too."""
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
    address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][4][0]
    tries = {f"{address}:{port}": f"socket.create_connection(('{address}', {port}), 5)"}
    if address != host:
        tries["DNS"] = f"socket.getaddrinfo('{host}', {port})"
    shells = [f'(python3 -c "import socket; {dial}" 2>/dev/null && echo {_MARK} reached {name}) &' for name, dial in tries.items()]
    return " ".join(["export RES_OPTIONS='timeout:3 attempts:1';", *shells, f"wait; echo {_MARK} done"])


def _probe(container_id: str, command: str) -> dict[str, Any]:
    """A request whose model, the scripted one, has this command run in the container."""
    return {
        "model": _SCRIPTED,
        "input": f"```moorage-script\n{json.dumps([{'shell': {'commands': [command]}}, {'say': 'done'}])}\n```",
        "tools": [{"type": "shell", "environment": {"type": "container_reference", "container_id": container_id}}],
        "store": False,
    }


def _printed(response: Mapping[str, Any]) -> str:
    """The output of the command, or the status of the response."""
    items = (item for item in response["output"] if item["type"] == "shell_call_output")
    return "".join(one["stdout"] + one["stderr"] for item in items for one in item["output"]) or _error_of(response)


def _error_of(response: Mapping[str, Any]) -> str:
    error = response.get("error") or response.get("incomplete_details") or {}
    return str(error.get("message") or error.get("reason") or "it made no such call")
