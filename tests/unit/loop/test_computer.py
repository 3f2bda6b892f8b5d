"""A computer in the container: its calls run once, their pictures lie beside the log, and each model reads them in its own way."""

import base64
import itertools
import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from moorage.agents.session_start import check_settings
from moorage.api.view import ResponseView
from moorage.errors import ApiError, SandboxGone, SandboxHostAway
from moorage.files.store import FileStore
from moorage.loop.finish import forget
from moorage.loop.prepare import check_tools
from moorage.model.base import ItemRelayed, StreamFinished, UsageReported
from moorage.model.catalog import ModelEntry
from moorage.model.models_file import ComputerMode
from moorage.recount import recount_due
from moorage.sandbox.desk_client import BatchResult, DeskDialog, DeskState
from moorage.settings import ProvisionerKind, Settings
from moorage.store import object_keys
from moorage.store.responses import StoredResponse
from moorage.store.stored_bytes import Holder, StoredBytes
from moorage.tools.computer.room import Computer
from openai.types.responses.response_computer_tool_call import ResponseComputerToolCall
from openai.types.responses.response_computer_tool_call_output_item import ResponseComputerToolCallOutputItem

from tests.drawing import png
from tests.fake_desk import FakeDesk
from tests.stack import assert_well_formed
from tests.unit.loop.lab import CONTAINER, Lab, Turn, call, first_state, say
from tests.unit.store.deaths import Death, at_each_death

TOOL: dict[str, Any] = {"type": "computer", "container": {"type": "container_auto"}}
REFERENCE = {"type": "container_reference", "container_id": CONTAINER}
CLICK = {"type": "click", "x": 10, "y": 20}
CLICKED = {"type": "click", "button": "left", "x": 10, "y": 20}
SHOT = {"type": "screenshot"}
INCLUDE = frozenset({"computer_call_output.output.image_url"})


def acts(*actions: dict[str, Any], call_id: str = "call_1") -> Turn:
    return call("computer", json.dumps({"actions": actions}), call_id)


def natively(*actions: dict[str, Any], call_id: str = "call_1", checks: list[dict[str, Any]] | None = None) -> Turn:
    item = {"type": "computer_call", "id": "cu_theirs", "call_id": call_id, "status": "completed", "actions": list(actions)}
    return [ItemRelayed(item | {"pending_safety_checks": checks or []}), UsageReported(10, 2), StreamFinished("tool_calls")]


async def shown(lab: Lab, stored: StoredResponse, include: frozenset[str] = frozenset()) -> dict[str, Any]:
    """The response as its client sees it."""
    events = await lab.runtime.stores.contents_of("t", include).events(await lab.events(stored))
    assert_well_formed(events)
    view = ResponseView.of(include, include_obfuscation=False)
    response: dict[str, Any] = view.event(events[-1])["response"]
    return response


async def ran(lab: Lab, include: frozenset[str] = frozenset(), **changes: Any) -> dict[str, Any]:
    stored = await lab.background(**{"tools": [TOOL], **changes})
    await lab.run(stored)
    return await shown(lab, stored, include)


def url_of(title: str) -> str:
    return f"data:image/png;base64,{base64.b64encode(png(title)).decode()}"


async def test_a_call_runs_in_the_container_and_its_items_are_those_of_openai() -> None:
    lab = Lab(acts(CLICK, {"type": "type", "text": "tea"}, SHOT), say("Done."))
    made, output, _ = (await ran(lab, INCLUDE))["output"]
    assert made == {
        "id": made["id"],
        "type": "computer_call",
        "status": "completed",
        "call_id": "call_1",
        "actions": [CLICKED, {"type": "type", "text": "tea"}, SHOT],
        "pending_safety_checks": [],
        "container": REFERENCE,
    }
    assert output == {
        "id": output["id"],
        "type": "computer_call_output",
        "status": "completed",
        "call_id": "call_1",
        "output": {"type": "computer_screenshot", "image_url": url_of("3")},
        "actions": [{"ok": True}] * 3,
        "page": {
            "url": "about:blank",
            "title": "Shop",
            "width": 1280,
            "height": 800,
            "tabs": [{"number": 1, "url": "about:blank", "title": "Shop", "is_shown": True}],
            "downloads": [],
            "refused": [],
            "notes": [],
        },
    }
    assert lab.sandboxes.browser.done == made["actions"]
    ResponseComputerToolCall.model_validate(made)
    ResponseComputerToolCallOutputItem.model_validate(output)


async def test_a_picture_is_left_out_unless_its_client_asks_for_it() -> None:
    (_, output, _) = (await ran(Lab(acts(SHOT), say("Done."))))["output"]
    assert (output["output"], "kept" in output) == ({"type": "computer_screenshot", "image_url": None}, False)


async def test_without_a_container_the_client_acts_as_before() -> None:
    lab = Lab(acts(CLICKED))
    (made,) = (await ran(lab, tools=[{"type": "computer"}]))["output"]
    assert made["actions"] == [CLICKED]
    assert ("container" in made, lab.sandboxes.browser.done) == (False, [])


async def test_a_failed_action_stops_the_others_and_the_model_reads_which() -> None:
    lab = Lab(acts(CLICK, {"type": "move", "x": 1, "y": 1}, SHOT), say("Done."))
    lab.sandboxes.browser.fails_at = {"move": "The page does not answer."}
    (_, output, _) = (await ran(lab))["output"]
    assert output["actions"] == [{"ok": True}, {"ok": False, "error": "The page does not answer."}]
    words, picture = lab.model.requests[1].items[-1]["output"]
    assert words["text"].splitlines() == [
        "Action 2 failed: The page does not answer.",
        'Page: about:blank "Shop" (1280 by 800 pixels)',
    ]
    assert picture == {"type": "input_image", "detail": "auto", "image_url": url_of("1")}


async def test_an_address_is_typed_in_the_items_and_opened_by_the_desk() -> None:
    lab = Lab(acts({"type": "navigate", "url": "http://localhost:3000/"}, SHOT), say("Done."))
    lab.sandboxes.browser.fails_at = {"screenshot": "No."}
    made, output, _ = (await ran(lab))["output"]
    assert made["actions"] == [
        {"type": "keypress", "keys": ["CTRL", "L"]},
        {"type": "type", "text": "http://localhost:3000/"},
        {"type": "keypress", "keys": ["ENTER"]},
        SHOT,
    ]
    assert lab.sandboxes.browser.done == [{"type": "navigate", "url": "http://localhost:3000/"}]
    assert output["actions"] == [{"ok": True}] * 3 + [{"ok": False, "error": "No."}]
    (asked,) = [item for item in lab.model.requests[1].items if item["type"] == "function_call"]
    assert json.loads(asked["arguments"]) == {"actions": [{"type": "navigate", "url": "http://localhost:3000/"}, SHOT]}


@at_each_death
async def test_whenever_a_process_dies_each_action_is_done_once(death: Death) -> None:
    lab = Lab(*[turn for _ in range(3) for turn in (acts(CLICK, SHOT), say("Done."))])
    stored = await lab.background(tools=[TOOL])
    await lab.run_with_deaths(stored, death)
    response = await shown(lab, stored)
    assert response["status"] == "completed"
    whole = [item for item in response["output"] if item["type"] == "computer_call_output" and item["status"] == "completed"]
    assert len(lab.sandboxes.browser.done) == 2 * len(whole)
    assert all(item["actions"] == [{"ok": True}] * 2 for item in whole)


class RestartingDesk(FakeDesk):
    """Its browser ends behind the first batch, and so does the process that asked."""

    async def run(self, *arguments: Any, **options: Any) -> BatchResult:
        is_first = self.life == 1
        result = await super().run(*arguments, **options)
        if is_first:
            self.restart()
            raise RuntimeError("the process is gone")
        return result


async def test_a_batch_that_the_browser_forgot_is_not_done_again() -> None:
    lab = Lab(acts(CLICK, SHOT), say("Done."))
    desk = lab.sandboxes.browser = RestartingDesk()
    stored = await lab.background(tools=[TOOL])
    state = await lab.step(first_state(stored))
    with pytest.raises(RuntimeError):
        await lab.tools(state)
    await lab.run(stored, state)
    (_, output, _) = (await shown(lab, stored))["output"]
    assert [action["type"] for action in desk.done] == ["click", "screenshot", "screenshot"], "a look, and no second click"
    (result,) = output["actions"]
    assert result["error"].startswith("The browser ended during this call. Its actions may have been done")
    assert output["status"] == "completed", "with a picture of how it is now"


class DyingDesk(FakeDesk):
    """Its machine begins to end behind the first batch, and what starts the next one is not back yet."""

    async def start(self, **options: Any) -> DeskState:
        if self.life > 1:
            raise SandboxHostAway
        return await super().start(**options)

    async def run(self, *arguments: Any, **options: Any) -> BatchResult:
        await super().run(*arguments, **options)
        self.restart()
        raise SandboxGone("The container does not answer.")


async def test_a_batch_whose_machine_is_away_may_have_been_done() -> None:
    lab = Lab(acts(CLICK, SHOT), say("Done."))
    lab.sandboxes.is_gone = False  # It still answers for a moment.
    desk = lab.sandboxes.browser = DyingDesk()
    (_, output, _) = (await ran(lab))["output"]
    assert [action["type"] for action in desk.done] == ["click", "screenshot"]
    (result,) = output["actions"]
    assert result["error"].startswith("The browser ended during this call. Its actions may have been done")


async def test_a_machine_without_a_browser_is_told_to_the_model() -> None:
    lab = Lab(acts(SHOT), say("No browser."))
    lab.sandboxes.browser.why_not = "There is no Chromium here."
    (_, output, _) = (await ran(lab))["output"]
    assert output["status"] == "failed"
    assert output["actions"] == [{"ok": False, "error": "This call could not be run. There is no Chromium here."}]


async def test_of_two_calls_in_one_turn_one_runs() -> None:
    both: Turn = [*acts(CLICK)[:2], *acts(SHOT, call_id="call_2")]
    lab = Lab(both, say("Done."))
    outputs = [item for item in (await ran(lab))["output"] if item["type"] == "computer_call_output"]
    assert {item["call_id"]: item["status"] for item in outputs} == {"call_1": "completed", "call_2": "failed"}
    assert lab.sandboxes.browser.done == [CLICKED]


async def test_more_actions_than_the_desk_takes_are_refused_in_words() -> None:
    lab = Lab(acts(*[SHOT] * 26), say("Done."))
    (_, output, _) = (await ran(lab))["output"]
    assert output["actions"][0]["error"] == "This call could not be run. A call has at most 25 actions, and this one has 26."


# --- pictures belong to the response ----------------------------------------------------------------------------------------------


async def test_pictures_are_counted_and_go_with_the_response() -> None:
    lab = Lab(acts(SHOT), say("Done."))
    stored = await lab.background(tools=[TOOL])
    await lab.run(stored)
    size = len(png("1"))
    assert (await lab.runtime.stores.files.stored.standing("t")).used == size
    prefix = object_keys.response_blobs("t", stored.response_id)
    assert await lab.blobs.bytes_under(f"{prefix}counted/") == size
    await forget(lab.runtime.stores, replace(stored))
    assert (await lab.runtime.stores.files.stored.standing("t")).used == 0
    assert await lab.blobs.bytes_under(prefix) == 0


async def test_pictures_that_were_counted_twice_are_counted_anew() -> None:
    lab = Lab(acts(SHOT), say("Done."))
    stored = await lab.background(tools=[TOOL])
    await lab.run(stored)
    counted = lab.runtime.stores.files.stored
    await counted.correct(Holder.response("t", stored.response_id), 5)
    await counted.standing("t")
    for _ in range(5):
        await recount_due(lab.runtime.stores, lab.runtime.computers.containers, lab.now)
    assert (await counted.standing("t")).used == len(png("1"))


async def test_a_tenant_without_room_gets_words_in_place_of_the_picture() -> None:
    lab = Lab(acts(SHOT), say("Done."))
    lab.runtime.stores = replace(
        lab.runtime.stores,
        files=FileStore(lab.table, lab.blobs, clock=lambda: lab.now, stored=StoredBytes(lab.table, clock=lambda: lab.now, most=1)),
    )
    (_, output, _) = (await ran(lab, INCLUDE))["output"]
    assert (output["status"], output["output"]) == ("failed", {"type": "computer_screenshot"})
    assert output["page"]["notes"] == ["The picture could not be stored: there is no room left for files. The user can delete some."]


# --- what models read -------------------------------------------------------------------------------------------------------------


async def test_a_native_model_gets_openais_items_and_none_of_ours() -> None:
    native = frozenset({"function", "computer"})
    lab = Lab(natively(CLICKED), natively(SHOT, call_id="call_2"), say("Done."), native_tools=native)
    lab.sandboxes.browser.page = {"notes": ("A tab was opened.",)}
    await ran(lab)
    assert lab.model.requests[0].tools == ({"type": "computer"},)
    made, output, remark = lab.model.requests[1].items[1:]
    assert made.keys() == {"id", "type", "call_id", "status", "actions", "pending_safety_checks"}
    assert output == {
        "id": output["id"],
        "type": "computer_call_output",
        "status": "completed",
        "call_id": "call_1",
        "output": {"type": "computer_screenshot", "image_url": url_of("1")},
    }
    assert remark["content"][0]["text"].splitlines()[-1] == "A tab was opened."


@pytest.mark.parametrize(
    ("mode", "said", "stored"),
    [
        ("pixels", {"type": "click", "x": 640, "y": 400}, {"type": "click", "button": "left", "x": 640, "y": 400}),
        ("grid1000", {"type": "click", "x": 500, "y": 500}, {"type": "click", "button": "left", "x": 640, "y": 400}),
        ("refs", {"type": "click", "ref": 7}, {"type": "click", "button": "left", "x": 100, "y": 50, "ref": 7}),
        ("text", {"type": "click", "ref": "7"}, {"type": "click", "button": "left", "x": 100, "y": 50, "ref": 7}),
    ],
)
async def test_each_model_points_in_its_own_way_and_items_hold_pixels(mode: str, said: Any, stored: Any) -> None:
    lab = Lab(acts(SHOT), acts(said, call_id="call_2"), say("Done."))
    lab.entry = replace(lab.entry, computer=cast("ComputerMode", mode))
    items = (await ran(lab))["output"]
    assert items[2]["actions"] == [stored]
    heard = [json.loads(item["arguments"])["actions"] for item in lab.model.requests[2].items if item["type"] == "function_call"]
    expected = {"button": "left", **said} | ({"ref": 7} if "ref" in said else {})
    assert heard == [[SHOT], [expected]], "it reads its own words"
    has_picture = any(part["type"] == "input_image" for part in lab.model.requests[1].items[-1]["output"])
    assert has_picture is (mode != "text")
    words = lab.model.requests[1].items[-1]["output"][0]["text"]
    assert ('[7] button "Add to cart"' in words) is (mode in ("refs", "text"))
    done = lab.sandboxes.browser.done[-1]
    assert done == ({"type": "click", "button": "left", "ref": 7} if "ref" in said else stored)


QUESTION = "The page asks for a file: type its path, below /mnt/data or /workspace, and keypress ENTER. ESC gives none."


@pytest.mark.parametrize("mode", ["pixels", "grid1000", "refs", "text", "native"])
async def test_every_model_reads_that_a_page_asks_for_a_file(mode: str) -> None:
    native = frozenset({"function", "computer"} if mode == "native" else {"function"})
    lab = Lab(natively(CLICKED) if mode == "native" else acts({"type": "type", "text": "x"}), say("Done."), native_tools=native)
    lab.entry = replace(lab.entry, computer=cast("ComputerMode", mode))
    lab.sandboxes.browser.page = {"dialog": DeskDialog("file", QUESTION, "")}
    _, output, _ = (await ran(lab))["output"]
    assert output["page"]["dialog"] == {"kind": "file", "message": QUESTION, "default": ""}
    heard = lab.model.requests[1].items[-1]
    words = heard["content"][0]["text"] if mode == "native" else heard["output"][0]["text"]
    assert QUESTION in words.splitlines()
    assert mode == "native" or "keypress ENTER" in lab.model.requests[0].tools[0]["description"]


async def test_old_pictures_are_left_out_in_steps_so_that_prompts_begin_alike() -> None:
    lab = Lab(*[acts(SHOT, call_id=f"call_{number}") for number in range(10)], say("Done."))
    await ran(lab)
    pictures = [str(request.items).count("input_image") for request in lab.model.requests]
    assert pictures == [0, 1, 2, 3, 4, 5, 3, 4, 5, 3, 4]
    prompts = [request.items for request in lab.model.requests]
    grown = [later[: len(earlier)] == earlier for earlier, later in itertools.pairwise(prompts)]
    assert grown == [True, True, True, True, True, False, True, True, False, True]
    oldest = prompts[-1][2]["output"]
    assert oldest == [
        {"type": "input_text", "text": 'Page: about:blank "Shop" (1280 by 800 pixels)\n[The picture is not shown any more.]'}
    ]


# --- a person's word --------------------------------------------------------------------------------------------------------------

CHECK = {"id": "check_1", "code": "malicious_instructions", "message": "The page gives orders."}


async def test_safety_checks_of_the_upstream_are_a_question_to_a_person() -> None:
    native = frozenset({"function", "computer"})
    lab = Lab(natively(CLICKED, checks=[CHECK]), native_tools=native)
    stored = await lab.background(tools=[TOOL], parameters={"approvals": {"park": False}})
    await lab.run(stored)
    (question,) = (await shown(lab, stored))["output"]
    assert (question["type"], question["server_label"], question["name"]) == ("mcp_approval_request", "moorage://computer", "computer")
    assert json.loads(question["arguments"]) == {"actions": [CLICKED], "pending_safety_checks": [CHECK]}
    assert lab.sandboxes.browser.done == []
    answer = {"id": "mcpa_1", "type": "mcp_approval_response", "approval_request_id": question["id"], "approve": True}
    lab.model.turns = [say("Done.")]
    again = await lab.background(tools=[TOOL], input_items=[*stored.input_items, question, answer])
    await lab.run(again)
    made, output, _ = (await shown(lab, again))["output"]
    assert (made["call_id"], made["pending_safety_checks"]) == (question["id"], [CHECK])
    assert output["acknowledged_safety_checks"] == [CHECK]
    assert lab.sandboxes.browser.done == [CLICKED]


async def test_a_call_that_a_person_did_not_allow_is_read_as_failed() -> None:
    lab = Lab(acts(CLICK))
    stored = await lab.background(tools=[TOOL | {"require_approval": "always"}], parameters={"approvals": {"park": False}})
    await lab.run(stored)
    (question,) = (await shown(lab, stored))["output"]
    answer = {"id": "mcpa_1", "type": "mcp_approval_response", "approval_request_id": question["id"], "approve": False}
    lab.model.turns = [say("As you wish.")]
    await lab.run(await lab.background(tools=[TOOL], input_items=[*stored.input_items, question, answer]))
    (words,) = lab.model.requests[-1].items[-1]["output"]
    assert words["text"].startswith("Action 1 failed: The user did not allow this call")
    assert lab.sandboxes.browser.done == []


def test_two_computers_are_refused() -> None:
    preview = {"type": "computer_use_preview", "display_width": 800, "display_height": 600, "environment": "browser"}
    with pytest.raises(ApiError, match="a container has one screen"):
        Computer().validate_items([], [], [TOOL, preview])


async def test_a_toolset_of_the_upstream_is_for_a_hosted_computer_alone() -> None:
    native = frozenset({"function", "computer.hosted"})
    lab = Lab(natively(CLICKED), say("Done."), native_tools=native)
    await ran(lab)
    assert lab.model.requests[0].tools == ({"type": "computer"},)
    assert [item["type"] for item in lab.model.requests[1].items[1:]] == ["computer_call", "computer_call_output"]
    lab = Lab(acts(CLICKED), native_tools=native)
    await ran(lab, tools=[{"type": "computer"}])
    (tool,) = lab.model.requests[0].tools
    assert (tool["type"], tool["name"]) == ("function", "computer")


OTHERWISE = "Or leave 'container' out, and run the calls yourself."
WHAT_TO_BUILD: dict[ProvisionerKind, list[str]] = {
    "launcher": ["the package 'chromium'", "'docker compose build --build-arg COMPUTER=1'"],
    "docker": ["'moorage sandbox-image build --desk'"],
    "fargate": ["'computer' to true in cdk.json", "functions/sandbox/Dockerfile.desk"],
    "lambda_microvm": ["are MicroVMs", "a browser would have no walls against commands", "provisioner 'fargate'"],
    "by_tier": ["are MicroVMs", "a browser would have no walls against commands", "provisioner 'fargate' alone"],
}


@pytest.mark.parametrize("kind", WHAT_TO_BUILD)
async def test_a_deployment_without_browsers_names_what_has_to_be_built(kind: ProvisionerKind) -> None:
    lab = Lab(say("Never."))
    # MicroVMs have none, whatever is set.
    runtime = replace(
        lab.runtime, settings=replace(lab.runtime.settings, provisioner=kind, sandbox_browser=kind in ("lambda_microvm", "by_tier"))
    )
    said = cast("Any", SimpleNamespace(entry=lab.entry, input_items=(), chain=()))
    with pytest.raises(ApiError) as refused:
        await check_tools(runtime, "t", said, [TOOL])
    assert (refused.value.status, refused.value.param, refused.value.code) == (400, "tools", "unsupported_value")
    words = [*WHAT_TO_BUILD[kind], OTHERWISE]
    assert [each for each in words if each not in str(refused.value)] == []
    await check_tools(runtime, "t", said, [{"type": "computer"}])
    tools = [{"type": "computer_use"}]
    with pytest.raises(ApiError) as refused:
        await check_settings(runtime, "t", {"model": "m", "tools": tools}, 100)
    assert (refused.value.status, refused.value.param) == (400, "tools[0].type")
    assert [each for each in WHAT_TO_BUILD[kind] if each not in str(refused.value)] == []
    assert OTHERWISE not in str(refused.value)


@pytest.mark.parametrize("kind", ["launcher", "docker", "fargate", "elsewhere"])
async def test_a_deployment_with_browsers_takes_a_computer(kind: ProvisionerKind) -> None:
    settings = Settings("t", "b", provisioner=kind, sandbox_browser=True)
    assert Computer().unavailable([TOOL], ModelEntry("m", "demo", "m"), settings) is None
