"""How the agents of a team stand, read from the items of a conversation."""

import json
import threading
from typing import Any

import pytest
from moorage import limits
from moorage.loop.team_items import agents_in, agents_of, forked
from moorage.wire.types import Item

USER: Item = {"type": "message", "role": "user", "content": "Go."}


def spawned(number: int) -> list[Item]:
    """A call of ``/root`` and its output: an agent has begun with all before it."""
    call = {"type": "multi_agent_call", "call_id": f"call_{number}", "action": "spawn_agent", "arguments": "{}"}
    said = json.dumps({"task_name": f"/root/a{number}", "forked_items": 2 * number + 1})
    output = {"type": "multi_agent_call_output", "call_id": call["call_id"], "action": "spawn_agent"}
    return [call, output | {"output": [{"type": "output_text", "text": said}]}]


def test_agents_beyond_the_bound_of_a_team_copy_no_items() -> None:
    """A request with so many is refused; thousands of them would copy all items thousands of times."""
    most = limits.TEAM_AGENTS_MAX
    agents = agents_of([USER, *(item for number in range(most + 2) for item in spawned(number))])
    copied = [len(agent.items) for agent in list(agents.values())[1:]]
    assert copied == [*(2 * number + 2 for number in range(most)), 1, 1]


class WatchedItem(dict[str, Any]):
    """Notes the threads of its readers."""

    def __init__(self, item: Item) -> None:
        super().__init__(item)
        self.threads: set[int] = set()

    def __getitem__(self, name: str) -> Any:
        self.threads.add(threading.get_ident())
        return super().__getitem__(name)


@pytest.mark.parametrize("count", [1, limits.LOWERED_HERE_MAX + 1])
async def test_many_items_are_read_on_a_thread(count: int) -> None:
    item = WatchedItem(USER)
    assert list(await agents_in([item] * count)) == ["/root"]
    assert (item.threads == {threading.get_ident()}) is (count == 1)
    assert len(item.threads) == 1


def test_the_latest_turns_are_those_that_users_begin() -> None:
    said: list[Item] = [USER, {"type": "reasoning"}, USER, {"type": "reasoning"}]
    assert [forked(said, turns) for turns in ("all", "none", "1", 2, "3")] == [said, [], said[2:], said, said]


@pytest.mark.parametrize("turns", ["", "0", "-1", "few", None, 1.5, "9" * 5_000])
def test_a_number_of_turns_that_is_none_says_nothing(turns: object) -> None:
    assert forked([USER], turns) is None
