"""Compaction: what is written, what stays as it is, and what is lost."""

import asyncio
import re
import threading
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from moorage import limits
from moorage.errors import UpstreamError
from moorage.loop import compact
from moorage.loop.finish import end_from_outside
from moorage.loop.notes import Notes, model_view, reader, visible
from moorage.loop.summary import WANTED, parts_of, transcript
from moorage.model.base import Delta, ModelRequest
from moorage.model.catalog import ModelEntry
from moorage.model.compaction import CompactionSettings
from moorage.model.tokens import estimate_items, estimate_text
from moorage.store.event_log import EventLog
from moorage.store.responses import StoredResponse
from moorage.wire.types import Item

from tests.stack import assert_well_formed
from tests.unit.loop.lab import FUNCTION_ONLY, TENANT, Lab, first_state, say, texts

ENTRY = ModelEntry("m", "chat_completions", "upstream-m", context_window_tokens=10_000)
THRESHOLD = {"type": "compaction", "compact_threshold": 4_000}


def said(text: str, role: str = "user") -> Item:
    kind = "output_text" if role == "assistant" else "input_text"
    return {"type": "message", "role": role, "content": [{"type": kind, "text": text}]}


def called(call_id: str) -> Item:
    return {"type": "function_call", "id": f"fc_{call_id}", "call_id": call_id, "name": "f", "arguments": "{}", "status": "completed"}


def answered(call_id: str, output: str = "done") -> Item:
    return {"type": "function_call_output", "call_id": call_id, "output": output}


def prose(tokens: int) -> str:
    return "and so on it went with nothing of note. " * (tokens // 10)


# --- the transcript -------------------------------------------------------------------------------------------------------------


def test_messages_calls_and_outputs_are_told_in_order() -> None:
    items = [
        {"type": "compaction", "text": "earlier notes"},
        said("hello"),
        {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "Hm."}], "encrypted_content": "secret"},
        called("c"),
        answered("c"),
        {"type": "message", "role": "user", "content": [{"type": "input_image", "image_url": "data:..."}]},
    ]
    assert transcript(items).split("\n\n") == [
        "earlier notes",
        "user: hello",
        'reasoning: {"summary":[{"text":"Hm."}]}',
        'function_call: {"call_id":"c","name":"f","arguments":"{}"}',
        'function_call_output: {"call_id":"c","output":"done"}',
        "user: [input_image]",
    ]


@pytest.mark.parametrize("letter", ["a", "é", "船", "🚢"])
def test_what_is_too_long_at_once_comes_in_parts_and_none_of_it_is_lost(letter: str) -> None:
    told = transcript([said(letter * 900), said("b" * 100), said(letter * 500)])
    parts = parts_of(told, tokens_max=120)
    assert "".join(parts) == told
    assert all(60 <= estimate_text(part) <= 120 for part in parts[:-1])
    assert estimate_text(parts[-1]) <= 120


def test_a_part_ends_between_two_items_where_that_costs_little() -> None:
    told = transcript([said("a" * 300), said("b" * 60), said("c" * 60)])
    assert parts_of(told, tokens_max=100) == [f"user: {'a' * 300}\n\nuser: {'b' * 60}\n\n", f"user: {'c' * 60}"]
    assert parts_of("", tokens_max=100) == [""]


# --- a model that follows instructions ---------------------------------------------------------------------------------------------


@dataclass
class Secretary:
    """Writes notes as it is told, and nothing more: the sentences of the kind that it is asked to keep, up to so many words. Notes of
    before are carried over only because it is told to. Otherwise it answers with what it can still read of the facts."""

    takes_tokens: int = 10**9
    """A longer conversation it refuses, by a count of its own."""
    native_tools: frozenset[str] = FUNCTION_ONLY
    requests: list[ModelRequest] = field(default_factory=list)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        self.requests.append(request)
        if not self.is_asked_for_notes(request) and estimate_items(request.items) > self.takes_tokens:
            raise UpstreamError("too long", code="context_length_exceeded", status=400, param="input", is_retryable=False)
        instructions = request.instructions or ""
        told = "\n\n".join(part["text"] for item in request.items for part in item.get("content") or ())
        for delta in say(self._notes(instructions, told) if self.is_asked_for_notes(request) else _facts(told)):
            yield cast("Delta", delta)

    @staticmethod
    def is_asked_for_notes(request: ModelRequest) -> bool:
        return "the notes from which the assistant will go on" in (request.instructions or "")

    @property
    def notes_asked(self) -> list[ModelRequest]:
        return [request for request in self.requests if self.is_asked_for_notes(request)]

    def _notes(self, instructions: str, told: str) -> str:
        words_max = int(re.search(r"in at most (\d+) words", instructions)[1])  # type: ignore[index]
        asked = re.search(r"Keep every sentence with '(\w+)'", instructions)
        wanted = re.compile(asked[1] if asked else r"\d|/")
        carries = "carry over all in them that still holds" in instructions
        earlier = re.split(r"^(?:user|assistant|function_call\w*): ", told, maxsplit=1, flags=re.MULTILINE)[0]
        lines = [line.strip() for line in re.split(r"(?<=\.)\s", told if carries else told.removeprefix(earlier))]
        kept = dict.fromkeys(re.split(r":\s+", line)[-1] for line in lines if wanted.search(line))
        return " ".join(" ".join(kept).split()[:words_max]) or "Nothing."


def _facts(told: str) -> str:
    return " ".join(dict.fromkeys(re.findall(r"F\d+=\S+?(?=\.\s|\.$|\s|$)", told))) or "none"


class Office:
    """A lab whose model is a secretary; its catalogue has a second one."""

    def __init__(self, model: Any = None, *, entry: ModelEntry = ENTRY) -> None:
        self.lab = Lab()
        self.model = model or Secretary()
        self.writer = Secretary()
        small = ModelEntry("small", "chat_completions", "upstream-small", context_window_tokens=4_000)
        self.lab.runtime.models = replace(
            self.lab.runtime.models,
            catalog=cast(
                "Any",
                SimpleNamespace(
                    resolve=lambda name: small if name == "small" else entry,
                    provider=lambda found, http: self.writer if found.name == "small" else self.model,
                    price_of=lambda name: None,
                ),
            ),
        )

    async def answer(self, items: list[Item], *, instructions: str = "Be brief.", **entry: Any) -> dict[str, Any]:
        """The response object for these items, with compaction at 4,000 tokens unless the entry says otherwise."""
        management = {"context_management": (THRESHOLD | entry,)} if entry != {"off": True} else {}
        stored = await self.lab.background(tools=[], container_id=None, input_items=items, parameters=management)
        await self.lab.run(stored)
        return await self.lab.object_of(stored)

    def seen(self, items: list[Item]) -> list[Item]:
        return visible(items, reader(self.lab.runtime.stores, TENANT))

    def notes(self, item: Item) -> Notes:
        found = reader(self.lab.runtime.stores, TENANT)(item)
        assert found is not None
        return found

    def item(self, notes: str) -> Item:
        """A compaction item with this content."""
        return {"type": "compaction", "encrypted_content": self.lab.runtime.stores.sealer.seal(TENANT, notes)}


# --- facts ---------------------------------------------------------------------------------------------------------------------

FACTS = [f"F{n}={value}" for n, value in enumerate(["/mnt/data/q3.csv", "cntr_77", "4711", "ada@ship.example", "v2.14", "17:45"], 1)]


@pytest.mark.parametrize("is_pruned", [False, True], ids=["the whole history sent", "only what follows the compaction sent"])
async def test_facts_of_the_first_turn_survive_five_compactions_and_the_notes_stay_short(is_pruned: bool) -> None:
    office = Office()
    first = said(prose(300) + " ".join(f"We settled that {fact}." for fact in FACTS) + " " + prose(300))
    history: list[Item] = [first]
    lengths = []
    for number in range(1, 6):
        history += [said(prose(3_500) + f"Step {number} took {number}0 minutes.", "assistant"), said(prose(400) + f"Go on, {number}.")]
        response = await office.answer(history)
        assert [item["type"] for item in response["output"]] == ["compaction", "message"], number
        lengths.append(estimate_text(office.notes(response["output"][0]).text))
        history = (response["output"] if is_pruned else [*history, *response["output"]]).copy()
    assert first not in office.seen(history), "it is the notes that remember"
    assert texts(response["output"][1:]) == [" ".join(FACTS)]
    assert [item["type"] for item in office.seen(history)].count("compaction") == 1
    assert max(lengths) <= 300, lengths
    assert lengths[-1] - lengths[0] <= 4 * 20, "each compaction adds its own fact, and repeats none"


async def test_what_does_not_fit_into_the_notes_is_lost_from_the_end() -> None:
    office = Office(entry=replace(ENTRY, context_window_tokens=2_000))
    planted = " ".join(f"We settled that F{n}=value-{n}." for n in range(1, 301))
    response = await office.answer([said(planted, "assistant"), said("Go on.")], compact_threshold=1_000)
    kept = re.findall(r"F\d+", office.notes(response["output"][0]).text)
    assert kept[:37] == [f"F{n}" for n in range(1, 38)], "a tenth of the window is 150 words; a sentence has four"
    assert len(kept) <= 38


# --- what is asked for ----------------------------------------------------------------------------------------------------------


async def test_a_prompt_says_what_the_notes_hold() -> None:
    office = Office()
    items = [said("The code is 1234. The RULE is to ask first. " + prose(4_500), "assistant"), said("Go on.")]
    response = await office.answer(items, prompt="Keep every sentence with 'RULE'.")
    assert office.notes(response["output"][0]).text == "The RULE is to ask first."
    told = office.model.notes_asked[0].instructions or ""
    assert WANTED not in told
    assert "Be brief." in told


async def test_another_model_writes_the_notes_where_the_operator_says_so() -> None:
    office = Office(entry=replace(ENTRY, compaction=CompactionSettings(model="small", prompt="Keep every sentence with 'RULE'.")))
    response = await office.answer([said("The RULE is to ask first. " + prose(4_500), "assistant"), said("Go on.")])
    assert [request.model for request in office.writer.requests] == ["upstream-small"] * len(office.writer.requests)
    assert [request.model for request in office.model.requests] == ["upstream-m"]
    assert len(office.writer.requests) == 3, "its window is smaller, so it reads in parts"
    assert response["usage"]["input_tokens"] == 10 * 4
    assert office.notes(response["output"][0]).text == "The RULE is to ask first."


@pytest.mark.parametrize("count", [1, 2, 3])
async def test_the_latest_items_stay_as_they_are_a_call_with_its_output(count: int) -> None:
    office = Office()
    latest = [said("Look again.", "assistant"), called("c2"), answered("c2")]
    items = [said("Begin."), said(prose(4_500), "assistant"), called("c1"), answered("c1"), *latest]
    response = await office.answer(items, keep_recent_items=count)
    compaction = response["output"][0]
    kept = latest[1:] if count < 3 else latest
    assert list(office.notes(compaction).recent) == kept
    assert office.seen([*items, compaction])[-len(kept) :] == kept
    assert office.seen([compaction])[1:] == kept, "also for a client that drops what came before"
    assert office.seen([*items, compaction])[0] == said("Begin.")


async def test_a_message_among_the_latest_items_is_there_once() -> None:
    office = Office()
    items = [said("yes"), said(prose(4_500), "assistant"), said("yes"), said("Which one?", "assistant"), said("the second")]
    response = await office.answer(items, keep_recent_items=3)
    (compaction, *_) = response["output"]
    again = [item | {"id": f"msg_{n}"} for n, item in enumerate(items)]
    shown = [text for item in office.seen([*again, compaction]) if item["type"] == "message" for text in texts([item])]
    assert shown == ["yes", "yes", "Which one?", "the second"]


async def test_items_that_take_too_much_room_do_not_stay() -> None:
    office = Office()
    items = [said("Begin."), called("c1"), answered("c1", "x" * 9_000), called("c2"), answered("c2", "y" * 9_000)]
    response = await office.answer(items, keep_recent_items=4)
    assert office.notes(response["output"][0]).recent == ()
    short = [said("Begin."), called("c1"), answered("c1", "x" * 12_000), called("c2"), answered("c2", "y" * 4_000)]
    response = await office.answer(short, keep_recent_items=4)
    assert list(office.notes(response["output"][0]).recent) == short[3:]


async def test_truncate_asks_no_model_and_leaves_out_what_is_oldest() -> None:
    office = Office()
    items = [said("Begin."), said("F1=gone. " + prose(4_500), "assistant"), said("F2=here.", "assistant"), said("Go on.")]
    response = await office.answer(items, strategy="truncate")
    assert [item["type"] for item in response["output"]] == ["compaction", "message"]
    (only,) = office.model.requests
    assert texts(list(only.items)) == ["Begin.", "[An earlier part of this conversation has been left out.]", "F2=here.", "Go on."]


async def test_notes_outlive_a_compaction_that_writes_none() -> None:
    office = Office()
    first = await office.answer([said("The port is 8461. " + prose(4_500), "assistant"), said("Go on.")])
    items = [*first["output"], said(prose(4_500), "assistant"), said("And on.")]
    second = await office.answer(items, strategy="truncate", keep_recent_items=1)
    (notes, *_) = [text for text in texts(list(office.model.requests[-1].items)) if "8461" in text]
    assert notes.endswith("The port is 8461.\n\n[An earlier part of this conversation has been left out.]")
    assert texts(list(office.notes(second["output"][0]).recent)) == ["And on."]


def test_what_the_version_before_has_sealed_is_read() -> None:
    office = Office()
    (opened,) = office.seen([office.item("the port is 8461")])
    assert opened["text"].endswith("earlier part:\n\nthe port is 8461")


# --- over the window --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("share", [1.02, 1.4, 1.9])
async def test_an_input_over_the_window_is_compacted_and_not_refused(share: float) -> None:
    office = Office(Secretary(takes_tokens=10_000))
    items = [said("F1=kept. " + prose(round(share * 10_000)), "user"), said("Go on.")]
    response = await office.answer(items)
    assert (response["status"], texts(response["output"][1:])) == ("completed", ["F1=kept"])
    assert max(estimate_items(request.items) for request in office.model.notes_asked) <= 5_000


async def test_without_context_management_it_is_refused() -> None:
    response = await Office().answer([said(prose(15_000))], off=True)
    assert (response["status"], response["error"]["code"]) == ("failed", "context_length_exceeded")
    assert "context_management" in response["error"]["message"]


async def test_a_provider_that_counts_more_than_the_estimate_gets_a_compacted_prompt() -> None:
    office = Office(Secretary(takes_tokens=2_500))
    response = await office.answer([said("F1=kept. " + prose(3_000), "assistant"), said(prose(60) + "Go on.")], compact_threshold=9_000)
    assert (response["status"], texts(response["output"][1:])) == ("completed", ["F1=kept"])
    assert [office.model.is_asked_for_notes(request) for request in office.model.requests] == [False, True, False]


class Stubborn(Secretary):
    """Refuses every conversation, however short."""

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        if not self.is_asked_for_notes(request):
            self.requests.append(request)
            raise UpstreamError("too long", code="context_length_exceeded", status=400, is_retryable=False)
        async for delta in super().stream(request):
            yield delta


async def test_it_is_compacted_once_and_then_refused() -> None:
    office = Office(Stubborn())
    response = await office.answer([said(prose(1_500), "assistant"), said("Go on.")], compact_threshold=9_000)
    assert (response["status"], response["error"]["code"]) == ("failed", "context_length_exceeded")
    assert len(office.model.notes_asked) == 1


async def test_what_is_too_long_for_notes_is_refused_when_it_is_triggered() -> None:
    office = Office()
    long = said(prose(2 * 10_000 + 4_000), "assistant")
    response = await office.answer([long, {"type": "compaction_trigger"}], off=True)
    assert (response["status"], response["error"]["code"]) == ("failed", "context_length_exceeded")
    assert "about 20000 tokens" in response["error"]["message"]
    assert office.model.requests == []


async def test_a_trigger_takes_what_the_request_says_of_compaction() -> None:
    office = Office()
    items = [said("The RULE is 1.", "assistant"), said("Go on."), {"type": "compaction_trigger"}]
    response = await office.answer(items, prompt="Keep every sentence with 'RULE'.", keep_recent_items=1)
    notes = office.notes(response["output"][0])
    assert (notes.text, texts(list(notes.recent))) == ("The RULE is 1.", ["Go on."])


class Mortal(Secretary):
    """Its process dies once, when the log tells that notes are being written."""

    log: EventLog | None = None

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        log, self.log = self.log, None
        while log is not None:
            if (await log.read_all())[-1]["type"] == "response.compaction.compacting":
                raise ProcessDied
            await asyncio.sleep(0.001)
        async for delta in super().stream(request):
            yield delta


class ProcessDied(Exception):
    pass


async def killed_at_its_notes(items: list[Item]) -> tuple[Office, StoredResponse]:
    """A response to these items whose process has died while notes were written."""
    model = Mortal()
    office = Office(model)
    stored = await office.lab.background(tools=[], container_id=None, input_items=items)
    model.log = office.lab.responses.log_of(stored)
    with pytest.raises(ProcessDied):
        await office.lab.step(first_state(stored))
    return office, stored


async def test_a_trigger_that_is_killed_while_notes_are_written_fills_the_same_item() -> None:
    office, stored = await killed_at_its_notes([said("The RULE is 1.", "assistant"), {"type": "compaction_trigger"}])
    await office.lab.run(stored)
    events = await office.lab.events(stored)
    assert_well_formed(events)
    (item,) = events[-1]["response"]["output"]
    assert [event["type"].removeprefix("response.") for event in events[3:-1]] == [
        "output_item.added",
        "compaction.compacting",
        "compaction.compacting",
        "output_item.done",
    ]
    assert [event.get("item_id", item["id"]) for event in events[3:-1]] == [item["id"]] * 4
    assert office.notes(item).text


async def test_a_trigger_that_is_cancelled_while_notes_are_written_leaves_no_compaction() -> None:
    office, stored = await killed_at_its_notes([said("The RULE is 1.", "assistant"), {"type": "compaction_trigger"}])
    ended = await end_from_outside(office.lab.runtime, stored, status="cancelled")
    assert (ended["status"], ended["output"]) == ("cancelled", [])


async def test_a_compaction_without_notes_is_told_as_a_whole() -> None:
    office = Office()
    items = [said("The RULE is 1.", "assistant"), said("Go on."), {"type": "compaction_trigger"}]
    management: Any = {"context_management": (THRESHOLD | {"strategy": "truncate"},)}
    stored = await office.lab.background(tools=[], container_id=None, input_items=items, parameters=management)
    await office.lab.run(stored)
    types = [event["type"] for event in await office.lab.events(stored)]
    assert types[3:-1] == ["response.output_item.added", "response.output_item.done"]


async def test_a_request_for_a_compaction_takes_what_the_operator_says() -> None:
    entry = replace(ENTRY, compaction=CompactionSettings(prompt="Keep every sentence with 'RULE'.", keep_recent_items=1))
    office = Office(entry=entry)
    items = [said("Begin."), said("The RULE is 1. And so on.", "assistant"), said("Go on.")]
    _, output, _ = await compact.compact(office.lab.runtime, TENANT, entry, items, None)
    assert texts(output) == ["Begin."]
    notes = office.notes(output[-1])
    assert (notes.text, notes.recent) == ("The RULE is 1.", (said("Go on."),))


def test_a_model_with_a_small_window_has_room_left_after_a_compaction() -> None:
    share = limits.COMPACTION_RECENT_SHARE + 0.25 + limits.COMPACTION_NOTES_SHARE
    assert share <= 0.9


def test_a_part_leaves_room_for_the_notes_so_far_and_the_answer() -> None:
    assert limits.COMPACTION_PART_SHARE * 1.25 + limits.COMPACTION_NOTES_SHARE + 0.25 < 1
    assert limits.COMPACTION_PART_SHARE * limits.COMPACTION_PARTS_MAX == 2


@pytest.mark.parametrize(("more", "is_here"), [(0, True), (1, False)])
async def test_a_long_conversation_is_looked_at_beside_the_loop(more: int, is_here: bool) -> None:
    readers: list[int] = []

    def read(item: Item) -> Notes | None:
        readers.append(threading.get_ident())
        return Notes("so far")

    compaction = {"type": "compaction", "id": "cmp_1", "encrypted_content": "x"}
    messages: list[Item] = [{"type": "message", "role": "user", "content": "hi"}] * (limits.LOWERED_HERE_MAX - 1 + more)
    seen = await model_view([compaction, *messages], read)
    assert seen == visible([compaction, *messages], read)
    assert (readers[0] == readers[1]) is is_here
