"""A call's batch: the desk does its actions once, and what it shows then is the output.

    {"type": "computer_call_output", "id", "call_id", "status", "output": {"type": "computer_screenshot", "image_url"},
     "actions": [{"ok", "error"}], "page": {"url", "title", ...}}

The picture is an object beside the log (``store/item_contents.py``), which belongs to the response.
"""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from moorage import limits
from moorage.dataclass import dataclass
from moorage.errors import STORAGE_LIMIT, ApiError, DeskUnavailable, SandboxError, SandboxGone, SandboxUnreachable
from moorage.sandbox.desk_client import BatchResult, DeskClient, DeskState, PictureFormat
from moorage.store.item_contents import KEPT
from moorage.tools.calls import NOT_ALLOWED, CallEnd, CallFinished, KnownCall, Piece
from moorage.tools.computer.actions import DeskBatch
from moorage.tools.computer.pages import page_of
from moorage.tools.execs import REVIVED, SandboxLost, exec_id
from moorage.tools.run import Run, StoppingPlace
from moorage.wire.types import Item, Tool

PICTURE: Final = "output.image_url"
"""The field whose content lies beside the log."""
WITH_ELEMENTS: Final = "with_elements"
"""Of a call whose model reads pages by their elements."""
_SHOT: Final = "computer_screenshot"
_UNSTORED: Final = "The picture could not be stored: there is no room left for files. The user can delete some."

WORDS: Final[Mapping[CallEnd, str]] = {
    CallEnd.DENIED: NOT_ALLOWED,
    CallEnd.REFUSED: "This call was not run: the limit of tool calls is reached, or another call of the computer came with it. Put all "
    "actions into one call, or answer with what you have.",
    CallEnd.LOST: "The browser ended during this call. Its actions may have been done, and were not repeated: look at the page first.",
    CallEnd.GAVE_UP: "This call could not be run.",
    CallEnd.CANCELLED: "The response ended before this call did.",
}


@dataclass(frozen=True, slots=True)
class ScreenSize:
    width: int = limits.COMPUTER_WIDTH_DEFAULT
    height: int = limits.COMPUTER_HEIGHT_DEFAULT

    @classmethod
    def of(cls, tool: Tool) -> "ScreenSize":
        """Of the screen that a tool asks for."""
        if "display_width" not in tool:
            return cls()
        return cls(tool["display_width"], tool["display_height"])


def actions_of(call: Item) -> list[dict[str, Any]]:
    return call.get("actions") or ([call["action"]] if call.get("action") else [])


@dataclass(frozen=True, slots=True)
class _Shown:
    state: DeskState
    result: BatchResult
    is_lost: bool


async def run(run: Run) -> AsyncGenerator[Piece, None]:
    """Running twice is harmless: a second run attaches to the batch, and where the desk does not know it, it says so."""
    known = run.known
    actions = actions_of(known.item)
    run.counts["actions"] = len(actions)
    if len(actions) > limits.COMPUTER_ACTIONS_MAX:
        yield ended(
            known, CallEnd.GAVE_UP, f"A call has at most {limits.COMPUTER_ACTIONS_MAX} actions, and this one has {len(actions)}."
        )
        return
    batch = DeskBatch.of(actions)
    notes = [REVIVED] if await run.workplace.is_news() and not run.workplace.is_lost else []
    try:
        shown = await _shown(run, batch)
    except SandboxLost:
        yield ended(known, CallEnd.LOST)
        return
    except (DeskUnavailable, SandboxError) as error:
        yield ended(known, CallEnd.GAVE_UP, error.message)
        return
    left = await run.workplace.leave()
    yield CallFinished(await _finished(run, batch, shown, [*notes, *left.notes]))


async def stop(place: StoppingPlace, known: KnownCall) -> None:
    """Do no further action of a call: its response is being cancelled."""
    with suppress(SandboxError):
        async with place.desk() as desk:
            await desk.cancel(exec_id(known.response_id, known.call_id, 0))


async def _shown(run: Run, batch: DeskBatch) -> _Shown:
    """The result of the batch; of one that was lost, how the browser looks now. Raises :class:`SandboxLost`, or
    :class:`SandboxError` if nothing was begun."""
    known, size = run.known, ScreenSize.of(next(iter(run.tools), {}))
    batch_id, has_elements = exec_id(known.response_id, known.call_id, 0), bool(known.item.get(WITH_ELEMENTS))
    if run.workplace.is_lost:
        raise SandboxLost
    is_attaching, begun_on = run.is_resumed, ""
    broken: SandboxError = SandboxGone("The browser does not answer.")
    for _ in range(limits.CALL_ATTEMPTS_MAX):
        try:
            async with run.workplace.desk() as desk:
                state = await desk.start(width=size.width, height=size.height)
                if begun_on not in ("", state.desk_id):
                    return await _anew(desk, state, batch_id, has_elements)
                if is_attaching:
                    result = await _known(desk, batch_id)
                    if result is None:
                        return await _anew(desk, state, batch_id, has_elements)
                else:
                    begun_on = state.desk_id
                    result = await desk.run(batch_id, batch.actions, picture=_PICTURE, has_tree=has_elements)
                return _Shown(state, result, result.is_lost)
        except (SandboxGone, SandboxUnreachable) as error:
            broken = error
            if not await run.workplace.is_alive():
                break
        except SandboxError:
            if is_attaching or begun_on:
                raise SandboxLost from None  # Nothing says how far it came, and no other run may do it again.
            raise
    if not is_attaching and not begun_on:
        raise broken
    raise SandboxLost


async def _known(desk: DeskClient, batch_id: str) -> BatchResult | None:
    """What came of a batch that an earlier run has begun; None if the desk does not know it."""
    try:
        return await desk.attach(batch_id)
    except SandboxGone:
        return None


async def _anew(desk: DeskClient, state: DeskState, batch_id: str, has_elements: bool) -> _Shown:
    """How the browser looks after a batch was lost."""
    look = await desk.run(f"{batch_id}-look", [{"type": "screenshot"}], picture=_PICTURE, has_tree=has_elements)
    return _Shown(state, look, is_lost=True)


_PICTURE: Final = PictureFormat("jpeg", limits.COMPUTER_QUALITY)


async def _finished(run: Run, batch: DeskBatch, shown: _Shown, notes: Sequence[str]) -> Item:
    known, result = run.known, shown.result
    outcomes = [{"ok": True} if each.ok else {"ok": False, "error": _bounded(each.error)} for each in result.actions]
    results = [failure(CallEnd.LOST)] if shown.is_lost else batch.results(outcomes)
    kept: dict[str, Any] = {}
    if result.picture is not None:
        try:
            handle = await run.workplace.contents.keep_counted(known.response_id, known.output_item_id, result.picture)
            kept = {KEPT: {PICTURE: handle}}
        except ApiError as error:
            if error.code != STORAGE_LIMIT:
                raise
            notes = [*notes, _UNSTORED]
    return announced(known.item, known.output_item_id) | {
        "status": "completed" if kept else "failed",
        "actions": results,
        "page": page_of(shown.state, result, notes),
        **kept,
    }


def announced(call: Item, output_item_id: str) -> Item:
    checks = call.get("pending_safety_checks") or []
    return {
        "id": output_item_id,
        "type": "computer_call_output",
        "call_id": call["call_id"],
        "status": "in_progress",
        "output": {"type": _SHOT},
        # A call with checks runs once a person has allowed it.
        **({"acknowledged_safety_checks": checks} if checks else {}),
    }


def ended(known: KnownCall, how: CallEnd, detail: str = "") -> CallFinished:
    return CallFinished(failed(known.item, known.output_item_id, failure(how, detail)))


def failure(how: CallEnd, detail: str = "") -> dict[str, Any]:
    return {"ok": False, "error": _bounded(f"{WORDS[how]} {detail}".strip())}


def failed(call: Item, output_item_id: str, result: Mapping[str, Any], status: str = "failed") -> Item:
    """An output without a picture."""
    item = announced(call, output_item_id) | {"status": status, "actions": [dict(result)]}
    item.pop("acknowledged_safety_checks", None)
    return item


def _bounded(words: str) -> str:
    return words[: limits.COMPUTER_WORDS_CHARS_MAX]
