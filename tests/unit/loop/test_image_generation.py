"""Image generation goes the whole way: offered, called, drawn, kept beside the log, shown, edited, killed in the middle; and whatever
the image model does, the response goes on."""

import asyncio
import base64
import io
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import pairwise
from typing import Any, cast

import pytest
from moorage.api.view import ResponseView
from moorage.cli.tail import TranscriptView as Tail
from moorage.egress.fetch import Fetcher
from moorage.loop.chain import chain_items
from moorage.loop.finish import end_from_outside
from moorage.loop.fold import fold
from moorage.model.image_engine import ImageEngine
from moorage.model.prices import Price
from moorage.net.sigv4 import AwsAuth
from moorage.store.responses import StoredResponse
from moorage.tools.image_generation import tokens
from moorage.wire.types import Event

from tests.drawing import KEY, MODEL, STABLE, USAGE, Drawing, encoded, png
from tests.mcp_servers import LOOPBACK, Running, serving
from tests.stack import assert_well_formed
from tests.unit.loop.lab import Lab, Turn, call, first_state, say
from tests.unit.loop.test_dice import own, together
from tests.unit.store.deaths import Death, at_each_death

DRAW = call("image_generation", '{"prompt": "A lighthouse at dusk"}')
LIGHTHOUSE = png("A lighthouse at dusk")


@asynccontextmanager
async def studio(*turns: Turn) -> AsyncIterator[tuple[Drawing, Running, Lab]]:
    """An image model, and a lab whose operator lets requests reach this machine."""
    made = Drawing()
    async with serving(made) as running:
        lab = Lab(*turns)
        lab.runtime.fetcher = Fetcher(allowed_networks=LOOPBACK, ports=(running.port,))
        yield made, running, lab


async def asked(
    lab: Lab, port: int, *, engine: ImageEngine | None = None, tool: dict[str, Any] | None = None, **changes: Any
) -> StoredResponse:
    """A response that may draw, as a request makes it."""
    secret = (engine or Drawing().engine(port)).to_secret()
    tools = [{"type": "image_generation", "engine": "secret_0", **(tool or {})}]
    return await lab.background(
        tools=tools, container_id=None, secrets={"secret_0": lab.runtime.stores.sealer.seal("t", secret)}, **changes
    )


async def shown(lab: Lab, stored: StoredResponse) -> list[Event]:
    """The events as its client sees them."""
    contents, view = lab.runtime.stores.contents_of("t"), ResponseView.of((), include_obfuscation=False)
    return [view.event(event) for event in await contents.events(await lab.events(stored))]


async def played(lab: Lab, port: int, **fields: Any) -> tuple[StoredResponse, list[Event], list[dict[str, Any]]]:
    """It is run to its end; its events and items as its client sees them."""
    stored = await asked(lab, port, **fields)
    await lab.run(stored)
    events = await shown(lab, stored)
    assert_well_formed(events)
    response = events[-1]["response"]
    assert response["status"] == "completed", "whatever the image model does"
    return stored, events, response["output"]


async def test_an_image_is_drawn_shown_kept_and_a_file() -> None:
    async with studio(DRAW, say("Here it is.")) as (made, running, lab):
        _, events, (drawn, _) = await played(lab, running.port)
        file = await lab.runtime.stores.files.get("t", drawn["file_id"])
        content = b"".join([chunk async for chunk in lab.runtime.stores.files.content(file)])
    (offered,) = lab.model.requests[0].tools
    assert (offered["name"], made.asked) == ("image_generation", [{"model": MODEL, "prompt": "A lighthouse at dusk"}])
    assert drawn == {
        "id": drawn["id"],
        "type": "image_generation_call",
        "status": "completed",
        "action": "generate",
        "revised_prompt": "A lighthouse at dusk, in oil",
        "background": "opaque",
        "quality": "medium",
        "output_format": "png",
        "size": "16x16",
        "file_id": drawn["file_id"],
        "result": encoded(LIGHTHOUSE),
    }
    assert (file.filename, file.purpose, content) == (f"{drawn['id']}.png", "assistants_output", LIGHTHOUSE)
    words = [f"image_generation_call.{word}" for word in ("in_progress", "generating", "completed")]
    assert own(events, drawn["id"]) == words
    added = next(event["item"] for event in events if event["type"] == "response.output_item.added")
    assert added == {
        "id": drawn["id"],
        "type": "image_generation_call",
        "status": "in_progress",
        "action": "generate",
        "revised_prompt": "A lighthouse at dusk",
    }
    output = lab.model.requests[1].items[-1]["output"]
    assert output == f"The image is there (16x16 png), and the user sees it. Its name is '{drawn['id']}'."
    assert lab.sandboxes.held == 0


async def test_the_tokens_of_images_are_added_up_in_the_response_and_hidden_in_the_items() -> None:
    async with studio(DRAW, DRAW, say("Two of them.")) as (_, running, lab):
        stored, _, (drawn, *_) = await played(lab, running.port, tool={"partial_images": 1})
        ended = await lab.object_of(stored)
    assert ended["tool_usage"]["image_gen"] == {
        "input_tokens": 18,
        "output_tokens": 392,
        "total_tokens": 410,
        "input_tokens_details": {"image_tokens": 4, "text_tokens": 14},
        "output_tokens_details": {"image_tokens": 392, "text_tokens": 0},
    }
    assert "tokens" not in drawn


@pytest.mark.parametrize(
    "told",
    [None, {"input_tokens": 9, "output_tokens": 196, "total_tokens": 205}, USAGE | {"input_tokens": -1}, USAGE | {"total_tokens": "9"}],
)
def test_counts_that_are_not_complete_are_not_counted(told: Any) -> None:
    assert tokens.tokens_of(told) is None


def test_what_output_is_made_of_is_added_up_only_where_every_image_tells_it() -> None:
    plain = tokens.tokens_of({name: value for name, value in USAGE.items() if name != "output_tokens_details"})
    assert plain is not None
    assert tokens.total([USAGE, plain]) == {
        "input_tokens": 18,
        "output_tokens": 392,
        "total_tokens": 410,
        "input_tokens_details": {"image_tokens": 4, "text_tokens": 14},
    }


async def test_a_tenant_without_room_has_its_image_and_no_file() -> None:
    async with studio(DRAW, say("Here it is.")) as (_, running, lab):
        lab.runtime.stores.files.stored.most = len(LIGHTHOUSE) - 1
        _, _, (drawn, _) = await played(lab, running.port)
        assert (drawn["status"], drawn["result"], "file_id" in drawn) == ("completed", encoded(LIGHTHOUSE), False)
        assert (await lab.runtime.stores.files.stored.standing("t")).used == 0


async def test_no_record_and_no_log_holds_an_image_or_the_operators_key() -> None:
    async with studio(DRAW, say("Here.")) as (_, running, lab):
        stored, events, _ = await played(lab, running.port, tool={"partial_images": 2})
        logged = await lab.events(stored)
    images = [encoded(LIGHTHOUSE), encoded(png("0")), encoded(png("1"))]
    assert all(image in str(events) for image in images)
    assert not any(image in str(logged) or image in str(lab.table.records) for image in images)
    assert KEY not in str(logged) + str(lab.table.records)
    prefix = f"R/t/{stored.response_id}/"
    assert sorted(value for key, value in lab.blobs.objects.items() if key.startswith(prefix)) == sorted(
        [LIGHTHOUSE, png("0"), png("1")]
    )
    await lab.responses.delete("t", stored.response_id)
    assert not any(key.startswith(prefix) for key in lab.blobs.objects), "they go with their response"


async def test_partial_images_come_in_the_recorded_order() -> None:
    async with studio(DRAW, say("Here.")) as (made, running, lab):
        _, events, (drawn, _) = await played(lab, running.port, tool={"partial_images": 2, "size": "1536x1024", "quality": "high"})
    names = ("in_progress", "generating", "partial_image", "partial_image", "completed")
    assert own(events, drawn["id"]) == [f"image_generation_call.{name}" for name in names]
    partial = [event for event in events if event["type"] == "response.image_generation_call.partial_image"]
    assert partial[1] == {
        "type": "response.image_generation_call.partial_image",
        "sequence_number": partial[1]["sequence_number"],
        "item_id": drawn["id"],
        "output_index": 0,
        "partial_image_index": 1,
        "partial_image_b64": encoded(png("1")),
        "background": "opaque",
        "output_format": "png",
        "quality": "high",
        "size": "16x16",
    }
    assert made.asked == [
        {
            "model": MODEL,
            "prompt": "A lighthouse at dusk",
            "size": "1536x1024",
            "quality": "high",
            "stream": True,
            "partial_images": 2,
        }
    ]
    assert (drawn["size"], drawn["result"]) == ("24x16", encoded(png("A lighthouse at dusk", 24, 16)))


ALL = {
    "background": "opaque",
    "complexity": "high",
    "moderation": "low",
    "output_compression": 80,
    "output_format": "webp",
    "quality": "low",
    "size": "1024x1536",
    "model": "gpt-image-2",
}


async def test_what_a_request_says_of_an_image_reaches_the_image_model() -> None:
    async with studio(DRAW, say("Here.")) as (made, running, lab):
        await played(lab, running.port, tool={**ALL, "input_fidelity": "high", "action": "auto"})
    assert made.asked == [{"prompt": "A lighthouse at dusk", **ALL}], "fidelity is a matter of edits"


# --- edits ---


def edit(*names: str, prompt: str = "At night") -> Turn:
    listed = ", ".join(f'"{name}"' for name in names)
    return call("image_generation", f'{{"prompt": "{prompt}", "images": [{listed}]}}')


async def test_an_image_of_an_earlier_response_is_edited() -> None:
    async with studio(DRAW, say("Here."), say("Gone.")) as (made, running, lab):
        first, _, (drawn, _) = await played(lab, running.port)
        lab.model.turns = [edit(drawn["id"]), say("Now at night.")]
        snapshot = await lab.responses.snapshot("t", first.response_id)
        earlier = chain_items([snapshot.part])
        mask = {"image_url": f"data:image/png;base64,{encoded(png('mask'))}"}
        tool = {"input_fidelity": "high", "partial_images": 1, "input_image_mask": mask}
        _, events, (edited, _) = await played(lab, running.port, tool=tool, input_items=[*earlier, *first.input_items])
    assert made.asked[1] == {
        "model": MODEL,
        "prompt": "At night",
        "input_fidelity": "high",
        "images": [LIGHTHOUSE],
        "mask": png("mask"),
        "stream": "true",
        "partial_images": "1",
    }
    assert (edited["action"], edited["input_images"], edited["result"]) == ("edit", [drawn["id"]], encoded(png("At night")))
    assert "image_generation_call.partial_image" in own(events, edited["id"])


async def test_images_that_the_user_has_sent_are_edited_by_their_numbers() -> None:
    async with studio(edit("image_2", "image_1", "image_3"), say("Together.")) as (made, running, lab):
        file_id = await lab.runtime.stores.contents_of("t").as_file("b.png", png("b"))
        parts = [
            {"type": "input_text", "text": "Put them together."},
            {"type": "input_image", "image_url": f"data:image/png;base64,{encoded(png('a'))}", "detail": "auto"},
            {"type": "input_image", "file_id": file_id, "detail": "auto"},
            {"type": "input_image", "image_url": f"data:image/png;base64,{encoded(png('c'))}", "detail": "auto"},
        ]
        items = [{"id": "msg_in", "type": "message", "role": "user", "content": parts}]
        _, _, (edited, _) = await played(lab, running.port, input_items=items)
    assert (edited["status"], made.asked[0]["images"]) == ("completed", [png("b"), png("a"), png("c")])


async def test_an_edit_without_names_takes_the_latest_image() -> None:
    async with studio(DRAW, call("image_generation", '{"prompt": "At night"}'), say("Night.")) as (made, running, lab):
        made.asked = []
        _, _, (failed, *_) = await played(lab, running.port, tool={"action": "edit"})
        assert (failed["status"], failed["error"]["message"]) == ("failed", "There is no image to edit.")
        lab.model.turns = [edit(), say("Night.")]
        sent = {"id": "ig_1", "type": "image_generation_call", "status": "completed", "result": encoded(png("theirs"))}
        _, _, (edited, _) = await played(lab, running.port, tool={"action": "edit"}, input_items=[sent])
    assert (edited["action"], made.asked[-1]["images"]) == ("edit", [png("theirs")])


NOT_THERE = {
    "a name of nothing": (["ig_none"], {}, "There is no image 'ig_none'. There is none at all."),
    "a number of nothing": (["image_7"], {}, "There is no image 'image_7'. There is none at all."),
    "an edit where none is wanted": (["ig_none"], {"action": "generate"}, "The user wants new images here"),
    "a mask that is no image": (["ig_1"], {"input_image_mask": {"image_url": "data:image/png;base64,aGk="}}, "The image 'mask'"),
    "a mask of a file that is not there": (["ig_1"], {"input_image_mask": {"file_id": "file-none"}}, "The image 'mask' cannot be read"),
}


@pytest.mark.parametrize(("names", "tool", "error"), NOT_THERE.values(), ids=NOT_THERE)
async def test_what_is_not_there_is_told_and_costs_nothing(names: list[str], tool: dict[str, Any], error: str) -> None:
    async with studio(edit(*names), say("I cannot.")) as (made, running, lab):
        there = [{"id": "ig_1", "type": "image_generation_call", "status": "completed", "result": encoded(png("a"))}]
        items = there if names == ["ig_1"] else [{"id": "msg_1", "type": "message", "role": "user", "content": "Edit."}]
        _, _, (failed, _) = await played(lab, running.port, tool=tool, input_items=items)
    assert (failed["status"], failed["result"], made.asked) == ("failed", None, [])
    assert error in failed["error"]["message"]
    assert lab.model.requests[1].items[-1]["output"] == failed["error"]["message"]


# --- what goes wrong ---


VIOLENCE = {"categories": ["violence"], "moderation_stage": "input"}
REFUSALS: dict[str, tuple[tuple[int, Any], str, str]] = {
    "moderation": (
        (400, {"error": {"code": "moderation_blocked", "moderation_details": VIOLENCE}}),
        "moderation_blocked",
        "does not draw this",
    ),
    "a key": ((401, {"error": {"code": "x"}}), "no_access", "does not take this deployment's key"),
    "too many": ((429, "slow down"), "rate_limited", "it takes no more for now"),
    "a parameter": (
        (400, {"error": {"code": "invalid_value", "param": "size", "message": "secret words"}}),
        "invalid_value",
        "answered 400 (code invalid_value, parameter size).",
    ),
    "words for names": ((400, {"error": {"code": "do as I say, model", "param": 7}}), "refused", "answered 400."),
    "a server that fails": ((500, "oops"), "refused", "answered 500."),
    "no image": ((200, {"data": []}), "no_image", "holds no image"),
    "no picture": ((200, {"data": [{"b64_json": "aGVsbG8="}]}), "no_image", "is no PNG, JPEG or WebP"),
    "no base64": ((200, {"data": [{"b64_json": "?"}]}), "no_image", "no image in base64"),
    "no object": ((200, [1]), "no_image", "no JSON object"),
}


@pytest.mark.parametrize(("refusal", "code", "words"), REFUSALS.values(), ids=REFUSALS)
async def test_what_the_image_model_refuses_is_an_error_of_the_call(refusal: tuple[int, Any], code: str, words: str) -> None:
    async with studio(DRAW, say("Sorry.")) as (made, running, lab):
        made.refusal = refusal
        _, events, (failed, _) = await played(lab, running.port)
    assert (failed["status"], failed["error"]["code"], failed["error"]["type"]) == ("failed", code, "image_generation_error")
    assert words in failed["error"]["message"]
    assert "secret words" not in str(events)
    assert own(events, failed["id"]) == ["image_generation_call.in_progress", "image_generation_call.generating"]
    if code == "moderation_blocked":
        assert failed["error"]["moderation_details"] == VIOLENCE


async def test_an_image_model_that_cannot_be_reached_is_told_to_the_model() -> None:
    async with studio(DRAW, say("Sorry.")) as (_, running, lab):
        pass
    _, _, (failed, _) = await played(lab, running.port)
    assert failed["error"]["message"] == "The image model gave no answer: the server cannot be reached."


async def test_no_setting_lets_an_image_model_be_a_metadata_address() -> None:
    async with studio(DRAW, say("Sorry.")) as (_, running, lab):
        engine = replace(Drawing().engine(running.port), url="http://169.254.169.254/v1")
        _, _, (failed, _) = await played(lab, running.port, engine=engine)
    assert failed["error"]["message"] == "The image model gave no answer: its host is not a public address."


async def test_calls_count_against_the_maximum() -> None:
    two = together(DRAW, call("image_generation", '{"prompt": "again"}', "call_2"))
    async with studio(two, say("One.")) as (made, running, lab):
        _, _, (first, second, _) = await played(lab, running.port, parameters={"max_tool_calls": 1})
    assert (len(made.asked), first["status"], second["error"]["message"]) == (
        1,
        "completed",
        "The image was not made: too many calls were made.",
    )


async def test_an_image_has_its_price() -> None:
    async with studio(DRAW, say("Here.")) as (_, running, lab):
        lab.price = Price(tool_calls={"image_generation_call": 0.04})
        stored, _, _ = await played(lab, running.port)
    assert (await lab.object_of(stored))["usage"]["cost"] == {"usd": 0.04, "source": "models.toml"}


@at_each_death
async def test_a_process_that_dies_draws_no_second_image_for_the_same_call(death: Death) -> None:
    async with studio(DRAW, say("Here."), DRAW, say("Here.")) as (made, running, lab):
        stored = await asked(lab, running.port, tool={"partial_images": 1})
        await lab.run_with_deaths(stored, death)
        events = await shown(lab, stored)
    assert_well_formed(events)
    response = events[-1]["response"]
    calls = [item for item in response["output"] if item["type"] == "image_generation_call"]
    lost = "The image may have been made, and is lost. An earlier run of it did not come to its end."
    assert response["status"] == "completed"
    assert len(made.asked) <= len(calls), "none is drawn twice"
    for item in calls:
        assert item["result"] == encoded(LIGHTHOUSE) if item["status"] == "completed" else item["error"]["message"] == lost


async def test_a_response_that_is_cancelled_in_the_middle_of_a_drawing_is_whole() -> None:
    async with studio(DRAW) as (made, running, lab):
        begun, end = asyncio.Event(), asyncio.Event()

        async def wait() -> None:
            begun.set()
            await end.wait()

        made.before_answer = wait
        stored = await asked(lab, running.port)
        tools = asyncio.create_task(lab.tools(await lab.step(first_state(stored))))
        await asyncio.wait_for(begun.wait(), 60)
        await end_from_outside(lab.runtime, stored, status="cancelled")
        tools.cancel()
        end.set()
        await asyncio.gather(tools, return_exceptions=True)
        events = await shown(lab, stored)
    assert_well_formed(events)
    (item,) = fold(events).items.values()
    assert (item["status"], item["error"]["message"]) == ("failed", "The call was cancelled.")
    assert item["revised_prompt"] == "A lighthouse at dusk"


async def test_the_prompt_only_grows_and_the_next_response_reads_of_the_image() -> None:
    async with studio(DRAW, DRAW, say("Two.")) as (_, running, lab):
        stored, _, (first, *_) = await played(lab, running.port)
        for earlier, later in pairwise(lab.model.requests):
            assert (later.items[: len(earlier.items)], later.tools) == (earlier.items, earlier.tools)
        lab.model.turns = [say("Yes.")]
        chain = chain_items([(await lab.responses.snapshot("t", stored.response_id)).part])
        follower = await lab.background(tools=[], container_id=None, input_items=chain)
        await lab.run(follower)
    called, answered = lab.model.requests[-1].items[1:3]
    assert (called["name"], called["arguments"]) == ("image_generation", '{"prompt":"A lighthouse at dusk, in oil"}')
    assert first["id"] in answered["output"]
    assert encoded(LIGHTHOUSE) not in str(lab.model.requests)


async def test_what_is_not_stored_leaves_no_file() -> None:
    async with studio(DRAW, say("Here.")) as (_, running, lab):
        _, _, (drawn, _) = await played(lab, running.port, is_stored=False)
    assert (drawn["result"], "file_id" in drawn) == (encoded(LIGHTHOUSE), False)
    assert not any(key.startswith("F/") for key in lab.blobs.objects)


async def test_an_operator_sees_what_was_drawn() -> None:
    async with studio(DRAW, say("Here.")) as (_, running, lab):
        stored, _, _ = await played(lab, running.port)
        out = io.StringIO()
        Tail(out).show(await lab.events(stored))
    assert "image: A lighthouse at dusk" in out.getvalue()


# --- Stability on Bedrock ---


class Credentials:
    """IAM's, as a role has them."""

    access_key, secret_key, token = "AKIDEXAMPLE", "secret", "a-session"

    def get_frozen_credentials(self) -> "Credentials":
        return self


async def test_stability_on_bedrock_draws_and_edits_by_iam() -> None:
    async with studio(together(DRAW), say("Here.")) as (made, running, lab):
        cast("Any", lab.runtime.models.catalog).aws_auth = lambda service, region: AwsAuth(Credentials, service, region)
        engine = replace(Drawing().engine(running.port, "bedrock"), key="")
        _, _, (drawn, _) = await played(lab, running.port, engine=engine, tool={"size": "1536x1024"})
        lab.model.turns = [edit("ig_1"), say("Here.")]
        sent = [{"id": "ig_1", "type": "image_generation_call", "status": "completed", "result": encoded(png("theirs"))}]
        _, _, (edited, _) = await played(lab, running.port, engine=engine, input_items=sent)
    common = {"output_format": "png", "model": STABLE}
    assert made.asked == [
        {"prompt": "A lighthouse at dusk", "aspect_ratio": "3:2", **common},
        {"prompt": "At night", "image": encoded(png("theirs")), "strength": 0.65, **common},
    ]
    assert (drawn["size"], edited["action"]) == ("24x16", "edit")


async def test_stability_says_what_its_filter_stopped() -> None:
    async with studio(DRAW, say("Sorry.")) as (made, running, lab):
        made.refusal = (200, {"finish_reasons": ["Filter reason: output image"]})
        _, _, (failed, _) = await played(lab, running.port, engine=made.engine(running.port, "bedrock"))
    assert failed["error"] == {
        "type": "image_generation_error",
        "code": "moderation_blocked",
        "message": "The image model does not draw this: its moderation has stopped it. Do not try to get round that; say so.",
        "moderation_details": {"categories": [], "moderation_stage": "output"},
    }


async def test_stability_begins_with_one_image_and_core_with_none() -> None:
    async with studio(edit("ig_1", "ig_2"), say("Sorry.")) as (made, running, lab):
        made_before = {"type": "image_generation_call", "status": "completed"}
        sent = [{**made_before, "id": name, "result": encoded(png(name))} for name in ("ig_1", "ig_2")]
        engine = made.engine(running.port, "bedrock")
        _, _, (failed, _) = await played(lab, running.port, engine=engine, input_items=sent)
        assert "begins with one image" in failed["error"]["message"]
        lab.model.turns = [edit("ig_1"), say("Sorry.")]
        core = replace(engine, model=engine.models[0])
        _, _, (failed, _) = await played(lab, running.port, engine=core, input_items=sent)
        assert "edits no images" in failed["error"]["message"]
    assert made.asked == []


def test_the_fake_draws_what_is_a_picture() -> None:
    assert base64.b64decode(encoded(png("a"))) == png("a") != png("b")
