"""Documents of an input, for a model whose server takes none, where the model step reaches no sandbox: another step reads them."""

import asyncio
import base64
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any, cast

import httpx
import orjson
import pytest
from moorage import limits
from moorage.api.app import create_app
from moorage.api.input_tokens import input_tokens
from moorage.api.routers import ROUTERS
from moorage.errors import ApiError, ConditionFailed
from moorage.loop.create import InlineFirstStep, PreparedResponse, start_background
from moorage.loop.stop import erase
from moorage.model.catalog import ModelEntry
from moorage.store.responses import Ancestor, StoredResponse
from moorage.store.table import Record
from moorage.tracing import Trace
from moorage.wire.requests import parse_input_tokens
from moorage.wire.types import Event, Item

from tests.simulation.clock import run
from tests.stack import assert_well_formed
from tests.twin.deployment import START_SECONDS, Deployment, Refusals
from tests.unit.api.served import Keys, Served
from tests.unit.loop.lab import FakeExecutions, Turn, broken, say
from tests.unit.resources.support import FakeSandbox
from tests.unit.resources.vector_stores import reads

GLACIERS = "A report about glaciers."
READ = f"[File a.pdf]\n{GLACIERS}\n[End of a.pdf]"
TAKES_NO_FILES = ModelEntry("m", "chat_completions", "m", "http://127.0.0.1", context_window_tokens=400_000)
Program = Callable[[FakeSandbox, str], tuple[int, str]]


class Died(Exception):
    """The process is gone."""


class Readers(Deployment):
    """Its sandboxes read documents, and its model takes none."""

    def __init__(self, *turns: Turn, program: Program | None = None, seed: int = 0) -> None:
        super().__init__(*turns, seed=seed)
        self.lab.entry = TAKES_NO_FILES
        self.ecs.programs = program or reads(GLACIERS)

    def asked(self, **changes: Any) -> StoredResponse:
        item = message("a.pdf", b"%PDF-1.7 ice", item_id=f"msg_{random.Random(str(changes)).getrandbits(32)}")
        return self.lab.stored(**{"input_items": [item], "container_id": None, "tools": [], **changes})

    async def background(self, **changes: Any) -> StoredResponse:
        stored = self.asked(**changes)
        await start_background(self.outside.stores, PreparedResponse(stored, [], is_streamed=False))
        return stored

    async def foreground(self, **changes: Any) -> tuple[StoredResponse, list[Event]]:
        """What a client has heard from the API's process, until the state machine took over."""
        stored, heard = self.asked(is_background=False, is_looping=False, **changes), list[Event]()
        inline = InlineFirstStep(self.outside, PreparedResponse(stored, [], is_streamed=True), heard.append)
        await inline.run()
        assert inline.is_handed_over
        return stored, heard

    def shown(self) -> list[list[str]]:
        """What each request to the model had in its messages."""
        return [[part["text"] for item in request.items for part in item["content"]] for request in self.lab.model.requests]

    def left(self, word: str) -> list[str]:
        """Objects and records that hold it."""
        objects = [key for key, data in self.bucket.objects.items() if word.encode() in data or word in key]
        return sorted([*objects, *(f"{pk} {sk}" for (pk, sk), record in self.lab.table.records.items() if word in repr(record))])

    async def ended(self, stored: StoredResponse) -> dict[str, Any]:
        assert_well_formed(await self.lab.events(stored))
        response = await self.lab.object_of(stored)
        return {"status": response["status"], "error": response["error"]}


WELL = {"status": "completed", "error": None}


def message(name: str, content: bytes, *, item_id: str) -> Item:
    data = f"data:application/octet-stream;base64,{base64.b64encode(content).decode()}"
    part = {"type": "input_file", "filename": name, "file_data": data}
    return {"id": item_id, "type": "message", "role": "user", "content": [part]}


def test_a_background_response_reads_its_documents_before_its_model_is_asked() -> None:
    async def story() -> None:
        place = Readers(say("Ice."))
        stored = await place.background()
        assert await place.run(stored) == "Done"
        assert (await place.ended(stored), place.shown(), place.tasks) == (WELL, [[READ]], ["ModelStep", "ParseStep", "ModelStep"])
        assert place.lab.now - stored.created_at < START_SECONDS + 5
        assert (place.ecs.running, [key for key in place.bucket.objects if "/documents/" in key]) == ([], [])
        assert (await place.outside.stores.responses.load("t", stored.response_id)).waiting_for is None

    run(story())


@pytest.mark.parametrize("is_stored", [True, False])
def test_a_foreground_response_is_handed_over_for_it(is_stored: bool) -> None:
    async def story() -> None:
        place = Readers(say("Ice."))
        stored, heard = await place.foreground(is_stored=is_stored)
        assert [event["type"] for event in heard] == ["response.created", "response.in_progress"]
        assert place.lab.model.requests == []
        await place.machine.run(place.lab.executions.started[stored.response_id])
        events = await place.lab.events(stored)
        assert (await place.ended(stored), place.shown(), events[: len(heard)]) == (WELL, [[READ]], heard)
        if not is_stored:
            place.lab.executions.states[stored.response_id] = "SUCCEEDED"
            await erase(place.outside.stores, stored)
            assert [place.left(word) for word in ("glaciers", "a.pdf", "JVBERi", stored.response_id)] == [[], [], [], []]

    run(story())


class Playing(FakeExecutions):
    """Plays what is started, beside the API."""

    def __init__(self, place: Readers) -> None:
        super().__init__()
        self._place, self._playing = place, set[asyncio.Task[None]]()

    async def start(self, name: str, state: dict[str, Any], trace: Trace | None) -> None:
        await super().start(name, state, trace)
        playing = asyncio.create_task(self._play(name, state))
        self._playing.add(playing)
        playing.add_done_callback(self._playing.discard)

    async def _play(self, name: str, state: dict[str, Any]) -> None:
        await self._place.machine.run(state)
        self.states[name] = "SUCCEEDED"


def served(place: Readers) -> Served:
    """The API, whose responses are handed over to the state machine."""
    executions = cast("Any", Playing(place))
    stores = replace(place.outside.stores, executions=executions)
    place.outside = replace(place.outside, stores=stores, identity=replace(place.outside.identity, api_keys=cast("Any", Keys())))
    return Served(place.lab, create_app(place.outside, ROUTERS))


PART = {"type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBERi0xLjc="}
RESPONSE = {"model": "m", "input": [{"role": "user", "content": [PART]}]}
FILE = {name: PART[name] for name in ("filename", "file_data")}
CHAT = {"model": "m", "messages": [{"role": "user", "content": [{"type": "file", "file": FILE}]}]}


def streamed(answer: httpx.Response) -> list[dict[str, Any]]:
    data = [line.removeprefix("data: ") for line in answer.text.splitlines() if line.startswith("data: {")]
    return [orjson.loads(each) for each in data]


async def plain(api: Served, **more: Any) -> str:
    answer = (await api.post("/responses", {**RESPONSE, **more})).raise_for_status().json()
    return str(answer["output"][0]["content"][0]["text"])


async def in_a_stream(api: Served) -> str:
    events = streamed((await api.post("/responses", {**RESPONSE, "stream": True})).raise_for_status())
    return str(events[-1]["response"]["output"][0]["content"][0]["text"])


async def in_the_background(api: Served) -> str:
    answer = (await api.post("/responses", {**RESPONSE, "background": True})).raise_for_status().json()
    while answer["status"] in ("queued", "in_progress"):
        await asyncio.sleep(1)
        answer = (await api.get(f"/responses/{answer['id']}")).json()
    return str(answer["output"][0]["content"][0]["text"])


async def by_chat(api: Served) -> str:
    answer = (await api.post("/chat/completions", CHAT)).raise_for_status().json()
    return str(answer["choices"][0]["message"]["content"])


async def by_a_chat_stream(api: Served) -> str:
    chunks = streamed((await api.post("/chat/completions", {**CHAT, "stream": True})).raise_for_status())
    return "".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks if chunk["choices"])


async def by_websocket(api: Served) -> str:
    asked, told = asyncio.Queue[dict[str, Any]](), asyncio.Queue[dict[str, Any]]()
    headers = [(b"authorization", b"Bearer key-a"), (b"host", b"api")]
    scope = {"type": "websocket", "path": "/v1/responses", "headers": headers, "query_string": b"", "subprotocols": []}
    asked.put_nowait({"type": "websocket.connect"})
    asked.put_nowait({"type": "websocket.receive", "text": orjson.dumps({"type": "response.create", **RESPONSE}).decode()})
    connection = asyncio.create_task(api.app(scope, asked.get, cast("Any", told.put)))
    while True:
        frame = await told.get()
        event = orjson.loads(frame["text"]) if "text" in frame else {"type": frame["type"]}
        assert event["type"] not in ("error", "websocket.close"), event
        if event["type"] == "response.completed":
            asked.put_nowait({"type": "websocket.disconnect", "code": 1000})
            await connection
            return str(event["response"]["output"][0]["content"][0]["text"])


async def without_storing(api: Served) -> str:
    return await plain(api, store=False)


DOORS = [plain, in_a_stream, in_the_background, by_chat, by_a_chat_stream, by_websocket, without_storing]


@pytest.mark.parametrize("door", DOORS, ids=lambda door: door.__name__)
def test_a_document_reaches_the_model_by_every_door(door: Callable[[Served], Awaitable[str]]) -> None:
    async def story() -> None:
        place = Readers(say("Ice."))
        api = served(place)
        assert (await door(api), place.shown(), place.tasks) == ("Ice.", [[READ]], ["ModelStep", "ParseStep", "ModelStep"])
        assert place.ecs.running == []
        if door is without_storing:
            await asyncio.sleep(2 * limits.TAIL_POLL_SECONDS_MAX)
            await place.outside.aclose()
            assert [place.left(word) for word in ("glaciers", "a.pdf", "JVBERi")] == [[], [], []]

    run(story())


@pytest.mark.parametrize("path", ["/responses", "/chat/completions"])
def test_a_client_hears_in_a_sentence_that_a_document_has_no_text(path: str) -> None:
    async def story() -> None:
        api = served(Readers(program=reads("", 10, "It is empty.")))
        answer = await api.post(path, RESPONSE if path == "/responses" else CHAT)
        message = "This model's server takes no such files, and 'a.pdf' cannot be read here: It is empty."
        error = answer.json()["error"]
        assert (error["code"], error["message"]) == ("invalid_prompt", message)

    run(story())


def test_a_client_hears_that_there_is_no_sandbox_now_as_something_that_passes() -> None:
    async def story() -> None:
        place = Readers()
        place.ecs.refusals = Refusals("ClusterNotFoundException", 1, seconds=1e9)
        answer = await served(place).post("/responses", RESPONSE)
        error = answer.json()["error"]
        assert (answer.status_code, error["code"], error["type"]) == (503, "container_unavailable", "server_error")

    run(story())


def test_in_a_later_turn_the_text_is_there_and_costs_no_step() -> None:
    async def story() -> None:
        place = Readers(say("Ice."), say("Cold."))
        first = await place.background()
        await place.run(first)
        last = (await place.outside.stores.responses.log_of(first).read_from(0))[-1]
        place.tasks.clear()
        more: Item = {"id": "msg_2", "type": "message", "role": "user", "content": [{"type": "input_text", "text": "And?"}]}
        second = await place.background(ancestors=(Ancestor(first.response_id, last.first),), input_items=[more])
        await place.run(second)
        assert (place.shown()[1], place.tasks, len(place.ecs.tasks)) == ([READ, "Ice.", "And?"], ["ModelStep"], 1)

    run(story())


def test_a_document_without_text_ends_the_response_in_a_sentence() -> None:
    async def story() -> None:
        place = Readers(program=reads("", 10, "The PDF has no text. Its pages are pictures, or empty."))
        stored = await place.background()
        assert await place.run(stored) == "Done"
        assert (await place.ended(stored), place.ecs.running) == (
            {
                "status": "failed",
                "error": {
                    "type": "invalid_request_error",
                    "code": "invalid_prompt",
                    "message": "This model's server takes no such files, and 'a.pdf' cannot be read here: The PDF has no text. Its "
                    "pages are pictures, or empty.",
                    "param": "input",
                },
            },
            [],
        )

    run(story())


def test_a_sandbox_that_dies_meanwhile_is_followed_by_another() -> None:
    async def story() -> None:
        place = Readers(say("Ice."))

        def dies(sandbox: FakeSandbox, command: str) -> tuple[int, str]:
            sandbox.is_alive, place.ecs.programs = False, reads(GLACIERS)
            return 0, ""

        place.ecs.programs = dies
        stored = await place.background()
        await place.run(stored)
        assert (await place.ended(stored), place.shown(), place.ecs.running) == (WELL, [[READ]], [])
        assert len(place.ecs.tasks) == 2

    run(story())


def test_without_any_sandbox_the_response_fails_with_an_error_that_passes() -> None:
    async def story() -> None:
        place = Readers()
        place.ecs.refusals = Refusals("ClusterNotFoundException", 1, seconds=1e9)
        stored = await place.background()
        await place.run(stored)
        ended = await place.ended(stored)
        assert (ended["status"], ended["error"]["code"], len(place.tasks)) == ("failed", "container_unavailable", 3)

    run(story())


def test_a_broken_stream_is_asked_for_again_with_the_same_text() -> None:
    async def story() -> None:
        place = Readers(broken("Ic"), say("Ice."))
        stored = await place.background()
        await place.run(stored)
        assert (await place.ended(stored), place.shown(), len(place.ecs.tasks)) == (WELL, [[READ], [READ]], 1)

    run(story())


@pytest.mark.parametrize("is_background", [True, False])
def test_a_death_before_any_write_still_reads_the_document(is_background: bool) -> None:
    async def story(at: int) -> bool:
        place = Readers(say("Ice."), say("Ice."), seed=at)
        stored = await place.background() if is_background else (await place.foreground())[0]
        left = at

        async def before_write(record: Record) -> None:
            nonlocal left
            left -= 1
            if left == 0:
                raise Died

        place.lab.table.before_write = before_write
        assert await place.machine.run(place.lab.executions.started[stored.response_id]) == "Done"
        place.lab.table.before_write = None
        assert (await place.ended(stored), place.shown()[-1]) == (WELL, [READ])
        assert len(place.left(GLACIERS)) == 1, "one text, written over by the same"
        return left > 0

    at = 1
    while not run(story(at)):
        at += 1
    assert at > 10


def test_a_step_that_runs_twice_reads_twice_and_leaves_one_text() -> None:
    async def story() -> None:
        place = Readers(say("Ice."))
        stored = await place.background()
        state = place.lab.executions.started[stored.response_id]
        asked = await place._invoke("ModelStep", state)
        first, second = [await place._invoke("ParseStep", asked) for _ in range(2)]
        assert (asked["next"], first) == ("read", second)
        done = await place._invoke("ModelStep", first)
        assert (done["next"], await place.ended(stored), place.shown()) == ("done", WELL, [[READ]])

    run(story())


def test_the_state_between_the_steps_has_ids_and_words_alone() -> None:
    async def story() -> None:
        place = Readers()
        stored = await place.background()
        state = await place._invoke("ModelStep", place.lab.executions.started[stored.response_id])
        assert {name: value for name, value in state.items() if name not in ("response_id", "tenant_id", "reader_id")} == {
            "container_id": None,
            "step": 0,
            "next": "read",
            "calls": [],
            "from_step": 0,
            "readings": 1,
            "is_read": False,
        }

    run(story())


def test_a_count_of_a_document_that_was_not_read_says_what_to_do() -> None:
    async def story() -> None:
        place = Readers()
        body = {"model": "m", "input": [{"role": "user", "content": message("a.pdf", b"%PDF-1.7 ice", item_id="msg_1")["content"]}]}
        with pytest.raises(ApiError) as caught:
            await input_tokens(place.outside, "t", parse_input_tokens(orjson.dumps(body)))
        assert (caught.value.status, caught.value.code, caught.value.message) == (
            400,
            "invalid_prompt",
            "'a.pdf' is a document that this model's server does not take. Its text is read when a response has the document in its "
            "input, and is not there yet. Create the response first, or send the document's text.",
        )

    run(story())


def test_readings_are_bounded() -> None:
    async def story() -> None:
        place = Readers()
        stored = await place.background()
        state = place.lab.executions.started[stored.response_id]
        for _ in range(limits.ATTACHMENT_READINGS_MAX):
            state = await place._invoke("ModelStep", state)
            assert state["next"] == "read"
        assert (await place._invoke("ModelStep", state))["next"] == "done"
        assert (await place.ended(stored))["error"]["code"] == "container_unavailable"

    run(story())


def test_documents_send_no_more_responses_to_the_loop_than_a_tenant_may_have_there() -> None:
    async def story() -> None:
        place = Readers(say("Ice."))
        place.outside = replace(place.outside, settings=replace(place.outside.settings, running_responses_max=1))
        running = await place.background()
        answer = await served(place).post("/responses", RESPONSE)
        message = (
            "1 responses of yours are running with tools or in the background; 1 may run at once. Retry when one has ended, or cancel "
            "one."
        )
        error = answer.json()["error"]
        assert (answer.status_code, error["code"], error["message"]) == (429, "rate_limit_exceeded", message)
        assert await place.outside.stores.responses.inflight_of("t") == [running.response_id]
        assert place.lab.model.requests == []

    run(story())


@pytest.mark.parametrize("is_stored", [True, False])
def test_whenever_a_response_is_erased_no_step_puts_anything_of_it_back(is_stored: bool) -> None:
    """A function of Lambda's goes on when its execution has been stopped."""

    async def story(at: int) -> bool:
        place = Readers(say("Ice."), seed=at)
        stored = await place.background(is_stored=is_stored)
        left = at

        async def before_write(record: Record) -> None:
            nonlocal left
            left -= 1
            if left == 0:
                place.lab.executions.states[stored.response_id] = "ABORTED"
                await erase(place.outside.stores, stored)

        place.lab.table.before_write = before_write
        with suppress(ApiError, ConditionFailed):
            await place.machine.run(place.lab.executions.started[stored.response_id])
        if left <= 0:
            assert [place.left(word) for word in ("glaciers", "a.pdf", "JVBERi")] == [[], [], []], at
            assert place.left(stored.input_items[0]["id"]) == [], at
        return left > 0

    at = 1
    while not run(story(at)):
        at += 1
    assert at > 10
