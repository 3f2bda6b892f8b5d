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
    assert items_of_turn("turn_1", [([], [call], True)]) == [item]
