"""computer: a browser in the response's container, or a screen that the client acts on. The preview's tool is another one to the wire,
and the same to a model.

A hosted call says its container, and so it is known to run here. Its items are OpenAI's, with fields beside them that its clients pass
over (``tools/computer/shapes.py``).
"""

from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from moorage import errors, limits
from moorage.model.anthropic_computer import HOSTED_COMPUTER
from moorage.model.catalog import ModelEntry
from moorage.settings import Settings
from moorage.store.item_contents import KEPT
from moorage.tools.approval_tool import ApprovalTool
from moorage.tools.calls import CallEnd, CallLogNote, CallOpening, ItemPosition, KnownCall, Piece
from moorage.tools.capabilities import (
    AdaptsToModel,
    HidesField,
    MayBeUnavailable,
    RunsInContainer,
    TrimsContext,
)
from moorage.tools.computer import actions, availability, batches, offer, reading, shapes
from moorage.tools.computer.actions import View, ViewMode
from moorage.tools.computer.batches import ScreenSize, actions_of
from moorage.tools.function_items import function_call, function_output, message, parsed, with_visible_parts, without, without_url
from moorage.tools.room import CallLimits, CallRunner, InputWriter, RerunPolicy
from moorage.tools.run import Run, StoppingPlace
from moorage.wire.types import Event, Item, Tool

_IMAGE: Final = "computer_call_output.output.image_url"
_OURS: Final = (KEPT, "container", "actions", "page", batches.WITH_ELEMENTS)
"""Fields of hosted items that no upstream knows. A call's own actions are another field of the same name."""


class Computer(
    ApprovalTool,
    AdaptsToModel,
    HidesField,
    MayBeUnavailable,
    RunsInContainer,
    TrimsContext,
):
    types = ("computer", "computer_use_preview", "computer_use")
    call_type = "computer_call"
    output_type = "computer_call_output"
    id_prefixes = shapes.PREFIXES
    tool_shapes = MappingProxyType({"computer": shapes.ComputerTool, "computer_use_preview": shapes.ComputerUsePreviewTool})
    item_shapes = MappingProxyType({"computer_call": shapes.ComputerCall, "computer_call_output": shapes.ComputerCallOutput})
    listing_defaults = MappingProxyType(
        {
            "computer_call": {"status": "completed", "pending_safety_checks": []},
            "computer_call_output": {"status": "completed"},
        }
    )
    function_name = "computer"
    rerun_policy = RerunPolicy.ATTACH
    call_limits = CallLimits(calls_per_round=1)
    end_messages = batches.WORDS
    hidden_field = KEPT
    allowed_by = "call_id"
    not_offered = "The hosted computer of this call is not among 'tools'."
    no_call = "what was asked for is no call of a computer."

    def call_runner(self, thing: Tool | Item) -> CallRunner:
        return CallRunner.SANDBOX if thing.get("container") else CallRunner.CLIENT

    def unavailable(self, tools: Sequence[Tool], entry: ModelEntry, settings: Settings) -> str | None:
        if all(self.call_runner(tool) is CallRunner.CLIENT for tool in tools):
            return None
        why = availability.refusal(entry, settings)
        return f"{why} Or leave 'container' out, and run the calls yourself." if why else None

    # --- a person's word ---

    def is_gated(self, call: Item, tools: Sequence[Tool]) -> bool:
        """Whether a person must allow it: the request wants that, or the model's upstream has doubts about it."""
        hosted = [tool for tool in tools if tool["type"] in self.types and self.call_runner(tool) is CallRunner.SANDBOX]
        is_asked = any(tool.get("require_approval") == "always" for tool in hosted)
        return bool(hosted) and (is_asked or bool(call.get("pending_safety_checks")))

    def arguments_of(self, call: Item) -> Mapping[str, Any]:
        checks = {name: call[name] for name in ("pending_safety_checks", batches.WITH_ELEMENTS) if call.get(name)}
        return {"actions": actions_of(call), **checks}

    def call_of(self, request: Item) -> Item | None:
        value = parsed(request["arguments"])
        found = value.get("actions") if isinstance(value, dict) else None
        if not isinstance(found, list) or not found or not all(isinstance(action, dict) and "type" in action for action in found):
            return None
        checks = value.get("pending_safety_checks") or []
        wants = {batches.WITH_ELEMENTS: True} if value.get(batches.WITH_ELEMENTS) else {}
        return {"type": self.call_type, "status": "completed", "pending_safety_checks": checks, "actions": found, **wants}

    def validate_items(self, items: Sequence[Item], chain: Sequence[Item], tools: Sequence[Tool]) -> None:
        """A call that is allowed must be one that can run; a container has one screen."""
        hosted = [tool for tool in tools if self.call_runner(tool) is CallRunner.SANDBOX]
        if hosted and len(tools) > 1:
            raise errors.bad_request("There is more than one computer in 'tools', and a container has one screen.", param="tools")
        for place, item in enumerate(items):
            if item["type"] == self.output_type and not _has_picture(item) and not reading.is_ours(item):
                raise errors.invalid_value(f"input[{place}].output", shapes.ONE_SOURCE)
        super().validate_items(items, chain, tools)

    def read_denied(self, request: Item, words: str, reader: InputWriter) -> list[Item]:
        call = self.call_of(request)
        if call is None:
            return []
        call |= {"call_id": request["id"][: limits.CALL_ID_CHARS_MAX], "container": {}}
        output = without(batches.failed(call, "", {"ok": False, "error": words}), "id")
        return [*self.input_items(call, reader), *self.input_items(output, reader)]

    def restore_hidden(self, item: Item, stored: Item) -> Item:
        """An output that was sent back without the picture that its client had not asked for."""
        return item if _has_picture(item) or not reading.is_ours(stored) else stored

    # --- what models read ---

    def native_tool(self, tool: Tool, reader: InputWriter) -> tuple[str, Tool]:
        return super().native_tool(without(tool, "container", "require_approval"), reader)

    def adapt_tool(self, tool: Tool, reader: InputWriter) -> Tool:
        if self.call_runner(tool) is CallRunner.CLIENT:
            return tool
        return tool | {"view": _view(reader, ScreenSize.of(tool))}

    def function_tool(self, name: str, tool: Tool) -> Tool:
        return offer.hosted(name, tool["view"]) if "view" in tool else offer.of_client(name, tool)

    def parse_call(self, value: Any, arguments: str, type_: str) -> Item | None:
        if not isinstance(value, dict):
            return None
        said = value.get("actions", [value.get("action", value)])
        if not isinstance(said, list) or not all(isinstance(a, dict) and "type" in a for a in said) or not said:
            return None
        shape: Item = {"actions": said} if type_ == "computer" else {"action": said[0]}
        return {"type": self.call_type, "status": "completed", "pending_safety_checks": []} | shape

    def adapt_call(self, call: Item, tool: Tool, reader: InputWriter) -> Item | None:
        if self.call_runner(tool) is CallRunner.CLIENT:
            return call
        view = _view(reader, ScreenSize.of(tool))
        found = actions.stored(actions_of(call), view)
        if found is None:
            return None
        wants = {batches.WITH_ELEMENTS: True} if view.mode.has_elements else {}
        return without(call, "action") | {"actions": found, **wants}

    def input_items(self, item: Item, reader: InputWriter) -> list[Item]:
        is_output = item["type"] == self.output_type
        is_native = bool(reader.native & set(self.types))
        if reading.is_ours(item) if is_output else "container" in item:
            if (is_native or HOSTED_COMPUTER in reader.native) and reader.offered(self.types) is None:
                return _native_output(item) if is_output else [_native_call(item)]
            return [_function_output(item, reader) if is_output else self._function_call(item, reader)]
        if is_native:
            return [item]
        if is_output:
            return [with_visible_parts(function_output(item, [_screenshot(item["output"])]), "output")]
        return [function_call(item, self._name(reader), {"actions": actions_of(item)})]

    def _function_call(self, call: Item, reader: InputWriter) -> Item:
        return function_call(call, self._name(reader), {"actions": actions.said(actions_of(call), _view(reader))})

    def _name(self, reader: InputWriter) -> str:
        return reader.name(reader.offered(self.types) or "computer", self.function_name)

    def trim_context(self, items: Sequence[Item]) -> Sequence[Item]:
        """The latest outputs whole. The others lose picture and page, some at a time, so that prompts begin alike in between."""
        places = [place for place, item in enumerate(items) if item["type"] == self.output_type and reading.is_ours(item)]
        steps = max(0, len(places) - limits.COMPUTER_OUTPUTS_SENT) // limits.COMPUTER_OUTPUTS_SENT
        old = frozenset(places[: steps * limits.COMPUTER_OUTPUTS_SENT])
        return [reading.without_page(item) if place in old else item for place, item in enumerate(items)] if old else items

    # --- the call ---

    def open_call(self, call: Item, place: ItemPosition) -> CallOpening:
        item = call | {"id": place.item_id}
        if place.is_hosted and place.container_id is not None:
            item["container"] = {"type": "container_reference", "container_id": place.container_id}
            item.setdefault("pending_safety_checks", [])
        return CallOpening(item, (), item)

    def empty_output(self, call: Item, output_item_id: str) -> Item:
        return batches.announced(call, output_item_id)

    def run(self, run: Run) -> AsyncGenerator[Piece, None]:
        return batches.run(run)

    async def stop(self, place: StoppingPlace, known: KnownCall) -> None:
        await batches.stop(place, known)

    def end(self, known: KnownCall, end: CallEnd, detail: str = "") -> Iterable[Piece]:
        yield batches.ended(known, end, detail)

    def apply_event(self, item: Item, name: str, event: Event) -> None:
        """It has no events of its own."""

    def missing_output(self, call: Item) -> Item | None:
        if self.call_runner(call) is CallRunner.CLIENT:
            return None
        return without(batches.failed(call, "", batches.failure(CallEnd.CANCELLED), status="incomplete"), "id")

    # --- who looks at it ---

    def response_tool(self, tool: Tool, container_id: str | None) -> Tool:
        """A hosted computer as a reference to its container."""
        container = tool.get("container")
        if container is None:
            return tool
        return {**tool, "container": {"type": "container_reference", "container_id": container.get("container_id", container_id)}}

    def visible_item(self, item: Item, include: frozenset[str]) -> Item:
        if item["type"] != self.output_type:
            return item
        item = without(item, KEPT)
        return item if _IMAGE in include else item | {"output": without_url(item["output"])}

    def container_id(self, item: Item) -> str | None:
        found: str | None = (item.get("container") or {}).get("container_id")
        return found

    def with_container(self, item: Item, container_id: str) -> Item:
        return item | {"container": {**item["container"], "container_id": container_id}} if "container" in item else item

    def title(self, item: Item) -> str | None:
        if item["type"] == self.output_type:
            return None if not reading.is_ours(item) else "computer: done"
        return f"computer: {', '.join(str(action.get('type')) for action in actions_of(item))}"

    def log_notes(self, name: str, event: Event) -> Iterable[CallLogNote]:
        return ()


def _has_picture(output: Item) -> bool:
    return any(output["output"].get(name) for name in shapes.SOURCES)


def _view(reader: InputWriter, size: ScreenSize | None = None) -> View:
    """What a model has in front of it: the page of the last output, or an empty screen."""
    mode = ViewMode(reader.view) if reader.view in set(ViewMode) else ViewMode.PIXELS
    page: Mapping[str, Any] = (reader.latest(Computer.output_type) or {}).get("page") or {}
    size = size or ScreenSize()
    elements = {element["ref"]: (element["x"], element["y"]) for element in page.get("elements") or ()}
    return View(mode, page.get("width", size.width), page.get("height", size.height), elements)


def _native_call(call: Item) -> Item:
    plain = without(call, "container", batches.WITH_ELEMENTS)
    return plain | {"actions": [actions.without_ref(action) for action in plain["actions"]]} if plain.get("actions") else plain


def _native_output(output: Item) -> list[Item]:
    """The protocol has a picture and no words: what else the model must know follows as a message."""
    shot = output["output"]
    shown = without(output, *_OURS) | {"output": shot if shot.get("image_url") else {**shot, "image_url": reading.GREY}}
    words = reading.remark(output)
    return [shown, message("user", f"[computer] {words}")] if words else [shown]


def _function_output(output: Item, reader: InputWriter) -> Item:
    return function_output(output, reading.parts(output, has_picture=_view(reader).mode is not ViewMode.TEXT))


def _screenshot(output: dict[str, Any]) -> dict[str, Any]:
    return {"type": "input_image", "detail": "auto"} | {k: output[k] for k in ("image_url", "file_id") if output.get(k)}
