"""What a page says is cut before it is kept, and actions keep their meaning on the way from models to items and the desk."""

from typing import Any

import pytest
from moorage import limits
from moorage.sandbox.desk_client import (
    ActionOutcome,
    BatchResult,
    DeskDialog,
    DeskDownload,
    DeskPage,
    DeskRefusal,
    DeskState,
    DeskTab,
    TreeNode,
)
from moorage.tools.computer import actions
from moorage.tools.computer.actions import DeskBatch, View, ViewMode
from moorage.tools.computer.pages import page_of
from moorage.tools.computer.shapes import ComputerCallOutput
from moorage.wire.validation import JsonValidator

STATE = DeskState("desk_1", "Chrome/1.2", True, True, 1280, 800)
LONG = "x" * 100_000


def test_whatever_a_page_says_its_output_can_be_sent_back() -> None:
    many = range(1_000)
    page = DeskPage(
        url=LONG,
        title=LONG,
        tabs=tuple(DeskTab(number, LONG, LONG, is_shown=False) for number in many),
        dialog=DeskDialog("prompt", LONG, LONG),
        downloads=(*tuple(DeskDownload(LONG, LONG, 1, "") for _ in many), DeskDownload(LONG, "", 0, LONG)),
        refused=tuple(DeskRefusal(LONG, LONG) for _ in many),
        notes=tuple(LONG for _ in many),
    )
    tree = tuple(TreeNode(number, LONG, LONG, LONG, (LONG,) * 1_000, 1, 1) for number in many)
    told = page_of(STATE, BatchResult((ActionOutcome(True),), b"", "image/jpeg", page, tree, LONG, False), ["of the container"])
    output: dict[str, Any] = {"type": "computer_call_output", "call_id": "c", "output": {"type": "computer_screenshot"}}
    JsonValidator[Any](ComputerCallOutput)(output | {"actions": [{"ok": True}], "page": told})
    assert told["notes"][-1] == "and 982 more"
    assert len(str(told["elements"])) < 3 * limits.COMPUTER_ELEMENTS_CHARS_MAX


GRID = View(ViewMode.GRID, 1280, 800, {})
PIXELS = View(ViewMode.PIXELS, 1280, 800, {})


@pytest.mark.parametrize("value", range(0, 1001, 7))
def test_a_model_on_a_grid_reads_the_coordinates_that_it_said(value: int) -> None:
    said = {"type": "move", "x": value, "y": 0}
    stored = actions.stored([said], GRID)
    assert stored is not None
    assert 0 <= stored[0]["x"] < 1280
    assert actions.said(stored, GRID)[0]["x"] in (value, 999), "the last pixel is the screen's edge"


@pytest.mark.parametrize(
    ("said", "stored"),
    {
        "a button that is not said": ({"type": "click", "x": 1.6, "y": 2}, {"type": "click", "button": "left", "x": 2, "y": 2}),
        "another name of the wheel": (
            {"type": "click", "x": 1, "y": 2, "button": "middle"},
            {"type": "click", "button": "wheel", "x": 1, "y": 2},
        ),
        "keys as one word": ({"type": "keypress", "keys": "ctrl+s"}, {"type": "keypress", "keys": ["CTRL", "s"]}),
        "a scroll without a place": (
            {"type": "scroll", "scroll_y": 300},
            {"type": "scroll", "x": 640, "y": 400, "scroll_x": 0, "scroll_y": 300},
        ),
        "keys that are held": (
            {"type": "click", "x": 1, "y": 2, "keys": ["shift"]},
            {"type": "click", "button": "left", "x": 1, "y": 2, "keys": ["SHIFT"]},
        ),
    }.values(),
)
def test_small_slips_of_models_are_understood(said: dict[str, Any], stored: dict[str, Any]) -> None:
    assert actions.stored([said], PIXELS) == [stored]


@pytest.mark.parametrize(
    "said",
    [
        {"type": "fly"},
        {"type": "click"},
        {"type": "click", "x": "1", "y": 2},
        {"type": "click", "x": 1, "y": 2, "button": "fourth"},
        {"type": "type"},
        {"type": "keypress", "keys": []},
        {"type": "drag", "path": [{"x": 1, "y": 1}]},
        {"type": "drag", "path": [{"x": 1, "y": 1}, {"x": 1}]},
        {"type": "navigate"},
        "click",
    ],
)
def test_what_is_no_action_is_for_the_model_to_mend(said: Any) -> None:
    assert actions.stored([said], PIXELS) is None


def test_a_native_model_opens_an_address_as_a_person_does() -> None:
    typed: list[dict[str, Any]] = [
        {"type": "keypress", "keys": ["ctrl", "l"]},
        {"type": "type", "text": " http://localhost:3000 "},
        {"type": "keypress", "keys": ["Return"]},
    ]
    batch = DeskBatch.of([*typed, {"type": "wait"}])
    assert batch.actions == ({"type": "navigate", "url": "http://localhost:3000"}, {"type": "wait"})
    failed = {"ok": False, "error": "No."}
    assert batch.results([failed]) == [{"ok": True}, {"ok": True}, failed]
    assert DeskBatch.of(typed[:2]).actions == tuple(typed[:2]), "half of it is what it is"
