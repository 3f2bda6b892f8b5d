"""Hosted tools that ask a person for each of their calls, in their place and at the end of a response: nobody outside hears of a call
before the word is given, and then once."""

import json
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from moorage import ids
from moorage.errors import ApiError
from moorage.store.responses import Ancestor, StoredResponse
from moorage.tools.capabilities import ValidatesItems
from moorage.tools.registry import ROOMS

from tests.drawing import Drawing
from tests.search_engines import SearchEngines
from tests.stack import assert_well_formed
from tests.unit.api.served import Served
from tests.unit.loop import test_image_generation as drawing
from tests.unit.loop import test_web_search as searching
from tests.unit.loop.lab import Turn, say
from tests.unit.loop.test_pause import run_all

ALWAYS = {"require_approval": "always"}
DENIED = "The user did not allow this call, and it was not run. They say: Not today."


@dataclass
class World:
    """A tool whose calls somebody outside would notice, in a lab with one turn that calls it."""

    served: Served
    tool: dict[str, Any]
    secret: str
    noticed: Callable[[], int]
    arguments: dict[str, Any]

    async def begun(self, *items: dict[str, Any], parks: bool, after: StoredResponse | None = None) -> StoredResponse:
        """A response in the background that has come as far as it does by itself."""
        lab = self.served.lab
        changes: dict[str, Any] = {"input_items": list(items)} if items else {}
        if after is not None:
            last = (await lab.responses.snapshot("t", after.response_id)).last
            assert last is not None
            changes["ancestors"] = (Ancestor(after.response_id, last.first),)
        stored = await lab.background(
            tools=[self.tool],
            container_id=None,
            secrets={"secret_0": lab.runtime.stores.sealer.seal("t", self.secret)},
            parameters={"approvals": {"park": parks}},
            **changes,
        )
        await run_all(lab, stored.response_id)
        return stored

    async def decided(self, stored: StoredResponse, *, approve: bool) -> dict[str, Any]:
        """The response, run on after a decision."""
        approval_id = ids.approval_id(stored.response_id, 0)
        body = {"approve": approve, "reason": "Not today."}
        answer = await self.served.post(f"/responses/{stored.response_id}/approvals/{approval_id}", body)
        assert answer.status_code == 200, answer.text
        await run_all(self.served.lab, f"{stored.response_id}-p1")
        return await self.output(stored)

    async def output(self, stored: StoredResponse) -> dict[str, Any]:
        """The whole response, as its client sees it."""
        lab = self.served.lab
        events = await (drawing.shown(lab, stored) if self.tool["type"] == "image_generation" else lab.events(stored))
        assert_well_formed(events)
        response: dict[str, Any] = events[-1]["response"]
        return response

    def read(self) -> str:
        """What the model was told last of its call."""
        return str(self.served.lab.model.requests[-1].items[-1]["output"])


@asynccontextmanager
async def world(kind: str, *turns: Turn) -> AsyncIterator[World]:
    if kind == "web_search":
        async with searching.web(searching.SEARCH, *turns) as (engines, running, lab):
            secret = SearchEngines().engine("brave", running.port).to_secret()
            tool = {"type": "web_search", "engine": "secret_0", **ALWAYS}
            yield World(Served.of(lab), tool, secret, lambda: len(engines.asked), {"action": "search", "query": "tides oslo"})
    else:
        async with drawing.studio(drawing.DRAW, *turns) as (made, running, lab):
            secret = Drawing().engine(running.port).to_secret()
            tool = {"type": "image_generation", "engine": "secret_0", **ALWAYS}
            yield World(Served.of(lab), tool, secret, lambda: len(made.asked), {"prompt": "A lighthouse at dusk"})


KINDS = pytest.mark.parametrize("kind", ["web_search", "image_generation"])


def answer_to(request: dict[str, Any], approve: bool, **fields: Any) -> dict[str, Any]:
    return {"id": "mcpa_1", "type": "mcp_approval_response", "approval_request_id": request["id"], "approve": approve, **fields}


@KINDS
async def test_a_call_waits_in_its_place_and_runs_once_when_it_is_allowed(kind: str) -> None:
    async with world(kind, say("done")) as there:
        stored = await there.begun(parks=True)
        (approval,) = (await there.served.get(f"/responses/{stored.response_id}/approvals")).json()["data"]
        assert (approval["status"], approval["call"]["type"], there.noticed()) == ("waiting", f"{kind}_call", 0)
        response = await there.decided(stored, approve=True)
        assert (response["status"], there.noticed()) == ("completed", 1)
        assert [(item["type"], item["status"]) for item in response["output"]] == [
            (f"{kind}_call", "completed"),
            ("message", "completed"),
        ]


@KINDS
async def test_a_call_that_is_denied_in_its_place_does_not_run_and_the_model_reads_why(kind: str) -> None:
    async with world(kind, say("As you wish.")) as there:
        stored = await there.begun(parks=True)
        response = await there.decided(stored, approve=False)
        assert (response["status"], response["output"][0]["status"], there.noticed()) == ("completed", "failed", 0)
        assert DENIED in there.read()


@KINDS
async def test_an_allowed_call_runs_once_before_the_model_is_asked(kind: str) -> None:
    async with world(kind, say("done"), say("still done")) as there:
        first = await there.begun(parks=False)
        (request,) = (await there.output(first))["output"]
        assert request == {
            "id": request["id"],
            "type": "mcp_approval_request",
            "server_label": f"moorage://{kind}",
            "name": kind,
            "arguments": request["arguments"],
        }
        assert (json.loads(request["arguments"]), there.noticed()) == (there.arguments, 0)
        answer = answer_to(request, True)
        second = await there.begun(answer, parks=False, after=first)
        called, message = (await there.output(second))["output"]
        assert (called["type"], called["status"], called["approval_request_id"]) == (f"{kind}_call", "completed", request["id"])
        assert (message["type"], there.noticed()) == ("message", 1)
        again = {"id": "msg_2", "type": "message", "role": "user", "content": "Sure?"}
        third = await there.begun(request, answer, called, message, again, parks=False)
        assert ([item["type"] for item in (await there.output(third))["output"]], there.noticed()) == (["message"], 1)


@KINDS
async def test_a_denial_by_item_is_read_as_the_output_of_the_call(kind: str) -> None:
    async with world(kind, say("As you wish.")) as there:
        first = await there.begun(parks=False)
        (request,) = (await there.output(first))["output"]
        second = await there.begun(answer_to(request, False, reason="Not today."), parks=False, after=first)
        assert ([item["type"] for item in (await there.output(second))["output"]], there.noticed()) == (["message"], 0)
        asked = there.served.lab.model.requests[-1].items[-2]
        assert (asked["name"], json.loads(asked["arguments"]), DENIED in there.read()) == (kind, there.arguments, True)


async def test_one_word_is_for_one_call_and_not_for_the_next() -> None:
    async with world("web_search", searching.SEARCH, say("?")) as there:
        first = await there.begun(parks=False)
        (request,) = (await there.output(first))["output"]
        second = await there.begun(answer_to(request, True), parks=False, after=first)
        called, again = (await there.output(second))["output"]
        assert (called["type"], again["type"], there.noticed()) == ("web_search_call", "mcp_approval_request", 1)


async def test_never_asks_nobody() -> None:
    async with world("web_search", say("done")) as there:
        there.tool["require_approval"] = "never"
        stored = await there.begun(parks=True)
        assert ((await there.output(stored))["status"], there.noticed()) == ("completed", 1)


def requested(kind: str, arguments: str) -> dict[str, Any]:
    return {
        "id": "mcpr_1",
        "type": "mcp_approval_request",
        "server_label": f"moorage://{kind}",
        "name": kind,
        "arguments": arguments,
    }


REFUSED: dict[str, tuple[dict[str, Any], list[dict[str, Any]], str]] = {
    "no web search": (
        requested("web_search", '{"action":"search","query":"x"}'),
        [],
        "The tool 'web_search' of this call is not among 'tools'.",
    ),
    "no call of it": (
        requested("web_search", "x"),
        [{"type": "web_search"}],
        "what was asked for is no call of 'web_search'.",
    ),
    "no file search": (
        requested("file_search", '{"queries":["x"]}'),
        [],
        "The tool 'file_search' of this call is not among 'tools'.",
    ),
    "no interpreter": (
        requested("code_interpreter", '{"code":"1"}'),
        [],
        "The tool 'code_interpreter' of this call is not among 'tools'.",
    ),
    "another tool": (
        requested("image_generation", '{"prompt":"x"}'),
        [{"type": "web_search"}],
        "The tool 'image_generation' of this call is not among 'tools'.",
    ),
}


@pytest.mark.parametrize(("request_", "tools", "message"), REFUSED.values(), ids=REFUSED)
def test_an_approval_of_what_cannot_run_is_refused(request_: dict[str, Any], tools: list[dict[str, Any]], message: str) -> None:
    def admit() -> None:
        for room in ROOMS:
            if isinstance(room, ValidatesItems):
                room.validate_items([request_, answer_to(request_, True)], [], [tool for tool in tools if tool["type"] in room.types])

    with pytest.raises(ApiError, match=re.escape(message)):
        admit()
