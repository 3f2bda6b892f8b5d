"""Tools that are looked for, from outside: deferred, found here, called, and answered by the next request."""

import json
from typing import Any

from openai import OpenAI

from tests.stack import say, script

WEATHER: Any = {
    "type": "function",
    "name": "get_weather",
    "description": "The weather of a city.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    "defer_loading": True,
}
OTHER: Any = WEATHER | {"name": "send_mail", "description": "Send a message to somebody."}
TOOLS: Any = [{"type": "tool_search"}, WEATHER, OTHER]


def test_a_deferred_tool_is_found_called_and_answered(client: OpenAI) -> None:
    steps = (
        {"call": {"name": "tool_search", "arguments": {"query": "weather of Bergen"}}},
        {"call": {"name": "get_weather", "arguments": {"city": "Bergen"}}},
        say("It says: {{output}}"),
    )
    first: Any = client.responses.create(model="demo", input=script(*steps), tools=TOOLS)
    searched, found, asked = first.output
    assert (searched.type, searched.execution, searched.status) == ("tool_search_call", "server", "completed")
    assert (found.type, found.call_id) == ("tool_search_output", searched.call_id)
    assert [tool.name for tool in found.tools] == ["get_weather"]
    assert (asked.type, json.loads(asked.arguments)) == ("function_call", {"city": "Bergen"})
    answer: Any = {"type": "function_call_output", "call_id": asked.call_id, "output": "Rain."}
    second = client.responses.create(model="demo", input=[answer], tools=TOOLS, previous_response_id=first.id)
    assert second.output_text == "It says: Rain."


def test_a_history_that_its_client_keeps_offers_what_was_found(client: OpenAI) -> None:
    search = {"call": {"name": "tool_search", "arguments": {"query": "weather"}}}
    first = client.responses.create(model="demo", input=script(search, say("found")), tools=TOOLS, store=False)
    history: Any = [item.model_dump(exclude_none=True) for item in first.output]
    call = script({"call": {"name": "get_weather", "arguments": {}}})
    second = client.responses.create(model="demo", input=[*history, {"role": "user", "content": call}], tools=TOOLS, store=False)
    assert [(item.type, getattr(item, "name", "")) for item in second.output] == [("function_call", "get_weather")]
