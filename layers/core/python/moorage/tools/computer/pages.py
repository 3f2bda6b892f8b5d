"""What a hosted call's output tells beside its picture, from what the desk has found. A page chooses the words, so each is bounded."""

from collections.abc import Sequence
from typing import Any, Final

from moorage import limits
from moorage.sandbox.desk_client import BatchResult, DeskPage, DeskState, TreeNode

_MORE: Final = "and {} more"


def page_of(state: DeskState, result: BatchResult, notes: Sequence[str]) -> dict[str, Any]:
    """``page`` of an output. ``notes`` are sentences of the container's, after those of the desk's."""
    page = result.page
    told: dict[str, Any] = {
        "url": _words(page.url),
        "title": _name(page.title),
        "width": state.width,
        "height": state.height,
        "tabs": [_tab(page, number) for number in range(min(len(page.tabs), limits.COMPUTER_PLACES_MAX))],
        "downloads": [_download(page, number) for number in range(min(len(page.downloads), limits.COMPUTER_PLACES_MAX))],
        "refused": [{"host": _name(each.host), "reason": _words(each.reason)} for each in page.refused[: limits.COMPUTER_PLACES_MAX]],
        "notes": [_words(note) for note in _first((*page.notes, *notes))],
    }
    if page.dialog is not None:
        said = page.dialog
        told["dialog"] = {"kind": said.kind, "message": _words(said.message), "default": _words(said.default)}
    if result.tree is not None:
        told["elements"] = _elements(result.tree)
        told["text"] = result.text[: limits.COMPUTER_TEXT_CHARS_MAX]
    return told


def _tab(page: DeskPage, number: int) -> dict[str, Any]:
    tab = page.tabs[number]
    return {"number": tab.number, "url": _words(tab.url), "title": _name(tab.title), "is_shown": tab.is_shown}


def _download(page: DeskPage, number: int) -> dict[str, Any]:
    file = page.downloads[number]
    how = {"error": _words(file.error)} if file.error else {"path": _words(file.path), "size": file.size}
    return {"url": _words(file.url), **how}


def _elements(tree: Sequence[TreeNode]) -> list[dict[str, Any]]:
    """Those that there is room for, in the order of the page."""
    told: list[dict[str, Any]] = []
    room = limits.COMPUTER_ELEMENTS_CHARS_MAX
    for node in tree[: limits.COMPUTER_ELEMENTS_MAX]:
        element = {
            "ref": node.ref,
            "role": _name(node.role),
            "name": _name(node.name),
            "value": _name(node.value),
            "states": [_name(state) for state in node.states[: limits.COMPUTER_PLACES_MAX]],
            "x": node.x,
            "y": node.y,
        }
        room -= len(line_of(element)) + 1
        if room < 0:
            break
        told.append(element)
    return told


def line_of(element: dict[str, Any]) -> str:
    """An element as a model reads it."""
    value = f" = {_quoted(element['value'])}" if element["value"] else ""
    states = f" ({', '.join(element['states'])})" if element["states"] else ""
    return f"[{element['ref']}] {element['role']} {_quoted(element['name'])}{value}{states}"


def _quoted(text: str) -> str:
    return f'"{" ".join(text.split())}"'


def _first(notes: Sequence[str]) -> list[str]:
    most = limits.COMPUTER_PLACES_MAX
    return list(notes) if len(notes) <= most else [*notes[: most - 1], _MORE.format(len(notes) - most + 1)]


def _words(text: str) -> str:
    return text[: limits.COMPUTER_WORDS_CHARS_MAX]


def _name(text: str) -> str:
    return text[: limits.COMPUTER_NAME_CHARS_MAX]
