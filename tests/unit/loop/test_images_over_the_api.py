"""Drawn images as clients see them: read in every way, sent back, forked, and refused by name."""

from typing import Any, cast

import pytest
from moorage.model.image_engine import ImageEngine, ImageKind
from moorage.model.remote_servers import RemoteServers

from tests.drawing import Drawing, encoded
from tests.unit.api.served import Served
from tests.unit.loop.lab import Lab, say
from tests.unit.loop.test_image_generation import DRAW, LIGHTHOUSE, edit, studio


def named(lab: Lab, engine: ImageEngine) -> None:
    """The operator has named this image model in models.toml."""
    cast("Any", lab.runtime.models.catalog).remote_servers = RemoteServers(images=engine)


BODY: dict[str, Any] = {"model": "m", "input": "Draw.", "tools": [{"type": "image_generation"}], "background": True}


async def ended(lab: Lab, served: Served, response_id: str) -> dict[str, Any]:
    """A response in the background that is run to its end, as its client gets it."""
    await lab.run((await lab.responses.snapshot("t", response_id)).stored)
    answer = await served.get(f"/responses/{response_id}")
    assert answer.status_code == 200
    return dict(answer.json())


async def test_every_way_to_read_a_response_shows_the_image() -> None:
    async with studio(DRAW, say("Here.")) as (made, running, lab):
        served = Served.of(lab)
        named(lab, made.engine(running.port))
        conversation = (await served.post("/conversations", {})).json()["id"]
        first = (await served.post("/responses", BODY | {"conversation": conversation})).json()
        response = await ended(lab, served, first["id"])
        whole = encoded(LIGHTHOUSE)
        assert response["tools"] == [
            {
                "type": "image_generation",
                "action": "auto",
                "background": "auto",
                "moderation": "auto",
                "n": 1,
                "output_compression": 100,
                "output_format": "png",
                "partial_images": 0,
                "quality": "auto",
                "size": "auto",
            }
        ]
        drawn = response["output"][0]
        assert (drawn["result"], "kept" in str(response)) == (whole, False)
        listed = (await served.get(f"/conversations/{conversation}/items")).json()["data"]
        assert [item["result"] for item in listed if item["type"] == "image_generation_call"] == [whole]
        one = (await served.get(f"/conversations/{conversation}/items/{drawn['id']}")).json()
        assert one["result"] == whole
        streamed = (await served.get(f"/responses/{first['id']}", stream="true")).text
        assert streamed.count(whole) == 2, "with the item, and with the whole response"
        logged = (await served.get(f"/responses/{first['id']}/events", limit="100")).json()["data"]
        assert str(logged).count(whole) == 2
        as_of = (await served.get(f"/responses/{first['id']}", at=str(logged[-1]["id"]))).json()
        assert as_of["output"][0]["result"] == whole
        await lab.responses.delete("t", first["id"])
        kept = (await served.get(f"/conversations/{conversation}/items/{drawn['id']}")).json()
        assert kept["result"] == whole, "from its file, once its response is gone"
        await lab.runtime.stores.files.delete("t", drawn["file_id"])
        gone = (await served.get(f"/conversations/{conversation}/items/{drawn['id']}")).json()
        assert (gone["result"], gone["status"]) == (None, "completed")


async def test_an_image_comes_back_by_its_id_alone_or_whole_and_is_stored_once() -> None:
    async with studio(DRAW, say("Here.")) as (made, running, lab):
        served = Served.of(lab)
        named(lab, made.engine(running.port))
        first = (await served.post("/responses", BODY)).json()
        drawn = (await ended(lab, served, first["id"]))["output"][0]
        question = {"role": "user", "content": "At night, please."}
        for sent in ({"type": "image_generation_call", "id": drawn["id"]}, drawn):
            lab.model.turns = [edit(drawn["id"]), say("Here.")]
            second = (await served.post("/responses", BODY | {"input": [sent, question]})).json()
            edited = (await ended(lab, served, second["id"]))["output"][0]
            assert (edited["action"], made.asked[-1]["images"]) == ("edit", [LIGHTHOUSE])
            record = (await lab.responses.snapshot("t", second["id"])).stored
            assert encoded(LIGHTHOUSE) not in str(record.input_items), "the handle of the first one"
            listed = (await served.get(f"/responses/{second['id']}/input_items")).json()["data"]
            assert [item["result"] for item in listed if item["type"] == "image_generation_call"] == [encoded(LIGHTHOUSE)]


async def test_an_image_that_nobody_knows_is_a_404_and_another_tenants_too() -> None:
    async with studio(DRAW, say("Here."), say("Who knows.")) as (made, running, lab):
        served = Served.of(lab)
        named(lab, made.engine(running.port))
        first = (await served.post("/responses", BODY)).json()
        drawn = (await ended(lab, served, first["id"]))["output"][0]
        by_id: dict[str, Any] = {"model": "m", "input": [{"type": "image_generation_call", "id": drawn["id"]}], "store": False}
        refused = await served.post("/responses", by_id, by="key-b")
        assert (refused.status_code, refused.json()["error"]["param"]) == (404, "input")
        assert (await served.get(f"/responses/{first['id']}", by="key-b")).status_code == 404
        with_handle = {**by_id, "input": [{**by_id["input"][0], "kept": {"result": f"{first['id']}/{drawn['id']}"}}]}
        answer = await served.post("/responses", with_handle)
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "unknown_parameter")


async def test_a_fork_begins_with_the_image() -> None:
    async with studio(DRAW, say("Here."), say("Again.")) as (made, running, lab):
        served = Served.of(lab)
        named(lab, made.engine(running.port))
        first = (await served.post("/responses", BODY)).json()
        await ended(lab, served, first["id"])
        last = len(await lab.events((await lab.responses.snapshot("t", first["id"])).stored)) - 1
        fork = (await served.post(f"/responses/{first['id']}/fork", {"at": last, "input": "Again?", "background": True})).json()
        await ended(lab, served, fork["id"])
        listed = (await served.get(f"/responses/{fork['id']}/input_items")).json()["data"]
    assert [item["result"] for item in listed if item["type"] == "image_generation_call"] == [encoded(LIGHTHOUSE)]


UNSERVED: dict[str, tuple[ImageKind, dict[str, Any], str]] = {
    "another model": ("openai", {"model": "dall-e-3"}, "draws with 'gpt-image-1.5', and not with 'dall-e-3'"),
    "another model on Bedrock": ("bedrock", {"model": "amazon.nova-canvas-v1:0"}, "and not with 'amazon.nova-canvas-v1:0'"),
    "a mask": ("bedrock", {"input_image_mask": {"file_id": "file-1"}}, "does not know 'input_image_mask'"),
    "fidelity": ("bedrock", {"input_fidelity": "high"}, "does not know 'input_fidelity'"),
    "a quality": ("bedrock", {"quality": "high"}, "takes 'auto' for 'quality'"),
    "a background": ("bedrock", {"background": "transparent"}, "takes 'auto' or 'opaque' for 'background'"),
    "a format": ("bedrock", {"output_format": "webp"}, "takes 'png' or 'jpeg' for 'output_format'"),
    "partial images": ("bedrock", {"partial_images": 1}, "takes 0 for 'partial_images'"),
    "a ratio": ("bedrock", {"size": "1000x300"}, "draws in these ratios"),
    "an edit by Core": ("bedrock", {"model": "stability.stable-image-core-v1:1", "action": "edit"}, "edits no images"),
}


@pytest.mark.parametrize(("kind", "tool", "words"), UNSERVED.values(), ids=UNSERVED)
async def test_what_the_operators_image_model_cannot_do_is_refused_by_name(kind: ImageKind, tool: dict[str, Any], words: str) -> None:
    async with studio() as (made, running, lab):
        named(lab, made.engine(running.port, kind))
        answer = await Served.of(lab).post("/responses", BODY | {"tools": [{"type": "image_generation", **tool}]})
    assert (answer.status_code, answer.json()["error"]["code"], answer.json()["error"]["param"]) == (400, "unsupported_value", "tools")
    assert words in answer.json()["error"]["message"]


async def test_without_an_image_model_the_tool_is_refused_by_name() -> None:
    async with studio() as (_, _, lab):
        answer = await Served.of(lab).post("/responses", BODY)
        named(lab, Drawing().engine(1))
        twice = await Served.of(lab).post("/responses", BODY | {"tools": BODY["tools"] * 2})
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "unsupported_value")
    assert "its operator has named no image model" in answer.json()["error"]["message"]
    assert "more than one image generation" in twice.json()["error"]["message"]
