"""Items of responses, as a session shows them."""

from typing import Any

import pytest
from moorage.agents.turn_items import items_of_turn


@pytest.mark.parametrize(
    ("action", "shown"),
    [
        ({"type": "search", "query": "a", "sources": []}, {"type": "search", "query": "a", "queries": None}),
        ({"type": "find_in_page", "url": "u", "pattern": "p"}, {"type": "find_in_page", "url": "u", "pattern": "p"}),
        ({"type": "click", "url": "u"}, {"type": "other"}),
        (None, None),
    ],
)
def test_a_search_shows_its_action_whatever_its_upstream_calls_it(action: Any, shown: Any) -> None:
    call = {"id": "ws_1", "type": "web_search_call", "status": "completed", "action": action}
    item = {"id": "ws_1", "type": "web_search_call", "action": shown, "status": "completed", "turn_id": "turn_1"}
    assert items_of_turn("turn_1", [([], [call], True)], has_ended=True) == [item]


PICTURE: Any = {"type": "computer_screenshot", "image_url": "data:image/jpeg;base64,aa"}
SEEN: Any = {"type": "computer_call_output", "call_id": "c1", "output": PICTURE, "page": {"title": "Shop"}}


@pytest.mark.parametrize(
    ("output", "shown"),
    [
        (SEEN | {"status": "completed"}, ("completed", "Shop", PICTURE)),
        (SEEN | {"status": "failed", "page": None}, ("failed", None, PICTURE)),
        (SEEN | {"status": "completed", "output": PICTURE | {"image_url": None}}, ("completed", "Shop", None)),
        (None, ("in_progress", None, None)),
    ],
    ids=["completed", "failed", "without pictures", "running"],
)
def test_a_call_of_a_browser_shows_its_page_and_its_picture(output: Any, shown: tuple[Any, ...]) -> None:
    call = {"id": "cu_1", "type": "computer_call", "call_id": "c1", "actions": [{"type": "screenshot"}], "status": "completed"}
    status, title, picture = shown
    item = {"id": "cu_1", "type": "computer_use_call", "status": status, "title": title, "output": picture, "turn_id": "turn_1"}
    made = [call] if output is None else [call, output]
    assert items_of_turn("turn_1", [([], made, True)], has_ended=True) == [item]
