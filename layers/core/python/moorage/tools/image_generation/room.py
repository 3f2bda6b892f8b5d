"""Images, drawn by the model that the operator has named, outside of the sandboxes' network.

    {"type": "image_generation_call", "id", "status", "action", "revised_prompt", "result", "size", ..., "file_id", "error"}

The item says what is drawn from its beginning: no event does, and whoever takes over from a dead process reads the log alone. A run
that comes after one that died draws nothing, because an image costs money: it says that there may have been one. Images are objects
beside the log (``store/item_contents.py``), and files of the tenant's, unless the response is not stored.

Every model gets it as a function, also one whose upstream draws by itself: by what, and who pays, is said here.
"""

from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import aclosing
from types import MappingProxyType
from typing import Any, Final

from moorage import errors, limits
from moorage.errors import STORAGE_LIMIT
from moorage.model.image_engine import ImageEngine
from moorage.model.remote_servers import RemoteServers
from moorage.store.item_contents import KEPT
from moorage.tools import service_tool
from moorage.tools.calls import CallEnd, CallEvent, CallFinished, CallOpening, ItemPosition, KnownCall, Piece
from moorage.tools.capabilities import HidesField, HoldsSecrets, ReportsUsage
from moorage.tools.function_items import without
from moorage.tools.image_generation import engines, shapes, sources, tokens, words
from moorage.tools.image_generation.engines import DrawingFailed, DrawnImage, ImageOrder
from moorage.tools.room import CallLimits, RerunPolicy
from moorage.tools.run import Run
from moorage.tools.service_tool import ServiceTool
from moorage.wire.types import Event, Item, Tool

_CALL: Final = "image_generation_call"
_ENGINE: Final = "engine"
"""Where the handle of the image model stands in a tool."""
_TOKENS: Final = "tokens"
"""What an image took, in its item as it is stored; clients read the sum in ``tool_usage`` of the response."""

UNCONFIGURED: Final = (
    "This deployment draws no images: its operator has named no image model. Leave the tool out, or give the model a shell or a code "
    "interpreter to draw with."
)

WORDS: Final = MappingProxyType(
    service_tool.WORDS
    | {
        CallEnd.REFUSED: "The image was not made: too many calls were made.",
        CallEnd.LOST: "The image may have been made, and is lost.",
        CallEnd.GAVE_UP: "The image could not be made.",
        CallEnd.TIME_OVER: "The image model gave no image in time.",
        CallEnd.TOO_LARGE: "The image model said too much.",
    }
)

_DEFAULTS: Final[Mapping[str, Any]] = MappingProxyType(
    {
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
)


class ImageGeneration(ServiceTool, HoldsSecrets, HidesField, ReportsUsage):
    types = ("image_generation",)
    call_type = _CALL
    id_prefixes = shapes.PREFIXES
    tool_shapes = shapes.TOOLS
    item_shapes = MappingProxyType({_CALL: shapes.ImageGenerationCall})
    listing_defaults = MappingProxyType({_CALL: {"status": "completed"}})
    events = shapes.EVENTS
    function_name = "image_generation"
    rerun_policy = RerunPolicy.ONCE
    call_limits = CallLimits(limits.IMAGE_CALL_SECONDS_MAX, limits.IMAGE_CALL_BYTES_MAX, limits.IMAGES_PER_ROUND_MAX)
    end_messages = WORDS
    one_tool_only = "There is more than one image generation in 'tools': send one."
    hidden_field = KEPT

    # --- a request ---

    def extract_secrets(self, tool: Tool, handle: str, configured: RemoteServers) -> tuple[Tool, Mapping[str, str]]:
        engine = configured.images
        why = UNCONFIGURED if engine is None else engines.unserved(engine, tool)
        if engine is None or why is not None:
            raise errors.bad_request(str(why), param="tools", code="unsupported_value")
        return tool | {_ENGINE: handle}, {handle: engine.to_secret()}

    def validate_items(self, items: Sequence[Item], chain: Sequence[Item], tools: Sequence[Tool]) -> None:
        super().validate_items(items, chain, tools)
        for item in items:
            if item["type"] == _CALL and not (item.keys() & {"result", "error", KEPT}) and item.get("status") != "failed":
                raise errors.ApiError(
                    404,
                    f"Item with id '{item['id']}' not found. Items are not persisted when `store` is set to false: send its 'result' "
                    "along, or remove this item from your input.",
                    param="input",
                )

    def restore_hidden(self, item: Item, stored: Item) -> Item:
        """The stored image replaces the client's: it is the same image, and need not be stored again."""
        return stored

    # --- what models read ---

    def function_tool(self, name: str, tool: Tool) -> Tool:
        return words.offered(name, tool)

    def parse_call(self, value: Any, arguments: str, type_: str) -> Item | None:
        call = words.call_of(value)
        return None if call is None else {"type": _CALL, **call}

    def arguments_of(self, call: Item) -> Mapping[str, Any]:
        return words.arguments_of(call)

    def result_for_model(self, item: Item) -> Any:
        return words.read(item)

    # --- the call ---

    def open_call(self, call: Item, place: ItemPosition) -> CallOpening:
        if not place.is_hosted:  # An upstream draws by itself: it has drawn.
            item = {"status": "completed", **call, "id": place.item_id}
            return CallOpening(item, (), item)
        said = {name: value for name, value in call.items() if name in ("action", "revised_prompt", "input_images")}
        added: Item = {"id": place.item_id, "type": _CALL, "status": "in_progress", **said, **self.allowance(call)}
        return CallOpening(added, (place.event("image_generation_call.in_progress"),), dict(added), is_whole=False)

    async def run(self, run: Run) -> AsyncGenerator[Piece, None]:
        known = run.known
        yield CallEvent(known.event("image_generation_call.generating"))
        try:
            async with aclosing(_drawn(run)) as images:
                number = 0
                async for image in images:
                    if image.is_partial:
                        yield CallEvent(await _partial(run, image, number))
                        number += 1
                        continue
                    yield CallFinished(await _done(run, image), (known.event("image_generation_call.completed"),))
                    return
        except DrawingFailed as failure:
            details = {"moderation_details": failure.moderation}
            yield _failed(known, failure.code, str(failure), **(details if failure.moderation is not None else {}))

    def end(self, known: KnownCall, end: CallEnd, detail: str = "") -> Iterable[Piece]:
        yield _failed(known, str(end), f"{WORDS[end]} {detail}".strip())

    def apply_event(self, item: Item, name: str, event: Event) -> None:
        match name.removeprefix("image_generation_call."):
            case "in_progress" | "generating" | "completed" as status:
                item["status"] = status

    def incomplete_item(self, item: Item) -> Item:
        """Clients know no ``incomplete`` here."""
        return _failed_item(item, str(CallEnd.CANCELLED), WORDS[CallEnd.CANCELLED])

    # --- who looks at it ---

    def response_tool(self, tool: Tool, container_id: str | None) -> Tool:
        return {**_DEFAULTS, **without(tool, _ENGINE)}

    def usage(self, items: Sequence[Item]) -> Mapping[str, Any]:
        return {"image_gen": tokens.total([item[_TOKENS] for item in items if item["type"] == _CALL and _TOKENS in item])}

    def visible_item(self, item: Item, include: frozenset[str]) -> Item:
        shown = without(item, KEPT, _TOKENS)
        return shown if shown.get("status") in ("in_progress", "generating") else {"result": None, **shown}

    def title(self, item: Item) -> str | None:
        return f"image: {item.get('revised_prompt', '')}"


def _failed(known: KnownCall, code: str, message: str, **details: Any) -> CallFinished:
    return CallFinished(_failed_item(known.item, code, message, **details))


def _failed_item(item: Item, code: str, message: str, **details: Any) -> Item:
    error = {"type": "image_generation_error", "code": code, "message": message, **details}
    return item | {"status": "failed", "error": error}


# --- one image ----------------------------------------------------------------------------------------------------------------


async def _drawn(run: Run) -> AsyncGenerator[DrawnImage, None]:
    """Raises :class:`DrawingFailed`."""
    item = run.known.item
    tool = next(iter(run.tools), None)
    secret = None if tool is None else run.outside.secret(tool.get(_ENGINE, ""))
    if tool is None or secret is None:
        raise DrawingFailed("unsupported", "There is no image generation any more.")
    images = await sources.images_of(run, tool, item.get("input_images", ()))
    mask = await sources.mask_of(run, tool)
    run.counts["images_drawn"] = 1
    wanted = ImageOrder(item["revised_prompt"], tool, images, mask)
    async with aclosing(engines.drawn(run.outside, ImageEngine.from_secret(secret), wanted)) as found:
        async for image in found:
            yield image


async def _partial(run: Run, image: DrawnImage, number: int) -> Event:
    known = run.known
    handle = await run.outside.contents.keep(known.response_id, f"{known.output_item_id}-{number}", image.picture.content)
    event = known.event("image_generation_call.partial_image", partial_image_index=number, **_facts(run, image))
    return event | {KEPT: {"partial_image_b64": handle}}


async def _done(run: Run, image: DrawnImage) -> Item:
    known, contents, picture = run.known, run.outside.contents, image.picture
    handle = await contents.keep(known.response_id, known.output_item_id, picture.content)
    item = known.item | {"status": "completed", **_facts(run, image), KEPT: {"result": handle}}
    if "input_image_mask" in run.tools[0] or run.tools[0].get("action") == "edit":
        item["action"] = "edit"
    if image.tokens is not None:
        item[_TOKENS] = image.tokens
    if image.revised_prompt is not None:
        item["revised_prompt"] = image.revised_prompt
    if run.outside.is_stored:
        try:
            item["file_id"] = await contents.as_file(f"{known.output_item_id}.{picture.format}", picture.content)
        except errors.ApiError as error:
            # The image is paid for and stands in the response; a tenant without room goes without the file.
            if error.code != STORAGE_LIMIT:
                raise
    return item


def _facts(run: Run, image: DrawnImage) -> dict[str, Any]:
    """The facts of an image: from the server, or from the request."""
    asked = {name: run.tools[0].get(name, "auto") for name in ("background", "quality")}
    return {**asked, **image.told, "output_format": image.picture.format, "size": image.picture.size}
