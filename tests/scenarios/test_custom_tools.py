"""Custom tools: free text, by a grammar where there is one, although the model behind enforces none."""

from typing import Any

from openai import OpenAI

from tests.stack import SHELL, Stack, assert_well_formed, outputs, raw_events, say, script, shell

DATE: Any = {
    "type": "custom",
    "name": "book",
    "description": "Book a day.",
    "format": {"type": "grammar", "syntax": "regex", "definition": r"\d{4}-\d{2}-\d{2}"},
}
SUM: Any = {
    "type": "custom",
    "name": "add",
    "format": {"type": "grammar", "syntax": "lark", "definition": 'start: NUMBER ("+" NUMBER)*\nNUMBER: /[0-9]+/'},
}
FREE: Any = {"type": "custom", "name": "note"}


def call(name: str, text: str) -> dict[str, Any]:
    return {"call": {"name": name, "arguments": {"input": text}}}


def calls(response: Any) -> list[tuple[str, str]]:
    return [(item.name, item.input) for item in response.output if item.type == "custom_tool_call"]


def ask(client: OpenAI, *steps: dict[str, Any], tools: Any = (DATE, SUM, FREE), **fields: Any) -> Any:
    return client.responses.create(model="demo", input=script(*steps), tools=list(tools), **fields)


def test_an_input_by_the_grammar_goes_to_the_client_at_once(client: OpenAI) -> None:
    response = ask(client, call("book", "2026-11-21"))
    assert calls(response) == [("book", "2026-11-21")]
    assert [item.type for item in response.output] == ["custom_tool_call"]


def test_the_model_is_told_what_is_wrong_and_the_client_sees_only_what_is_right(stack: Stack) -> None:
    body = {
        "model": "demo",
        "input": script(call("book", "tomorrow"), call("book", "2026-11-22")),
        "tools": [DATE],
        "stream": True,
    }
    with stack.http() as http, http.stream("POST", "/responses", json=body) as answer:
        events = raw_events(answer.iter_lines())
    assert_well_formed(events)
    (item,) = events[-1]["response"]["output"]
    assert (item["type"], item["status"], item["name"], item["input"]) == ("custom_tool_call", "completed", "book", "2026-11-22")
    assert "tomorrow" not in str([event for event in events if "response" not in event])
    assert [event["type"].removeprefix("response.") for event in events[2:-1]] == [
        "output_item.added",
        "custom_tool_call_input.delta",
        "custom_tool_call_input.done",
        "output_item.done",
    ]


def test_what_is_still_wrong_at_the_second_try_goes_to_the_client(client: OpenAI) -> None:
    response = ask(client, call("add", "1+two"), call("add", "I read: {{output}}"))
    ((name, text),) = calls(response)
    assert name == "add"
    assert text.startswith("I read: The input does not match the tool's grammar at line 1, column 3")


def test_words_before_a_wrong_call_are_kept(client: OpenAI) -> None:
    response = ask(client, {"say": "Let me see.", **call("book", "soon")}, call("book", "2026-11-23"))
    assert response.output_text == "Let me see."
    assert calls(response) == [("book", "2026-11-23")]
    assert response.status == "completed"


def test_a_wrong_call_beside_a_clients_call_goes_to_the_client(client: OpenAI) -> None:
    step = {"calls": [call("book", "soon")["call"], call("note", "anything")["call"]]}
    assert sorted(calls(ask(client, step))) == [("book", "soon"), ("note", "anything")]


def test_a_wrong_call_after_the_shell_has_run_is_repaired_too(client: OpenAI) -> None:
    response = ask(client, shell("echo 2026-11-24"), call("book", "soon"), call("book", "2026-11-24"), tools=[SHELL, DATE])
    assert outputs(response.output) == [[("2026-11-24\n", "", 0)]]
    assert calls(response) == [("book", "2026-11-24")]


def test_a_tool_of_a_namespace_has_its_grammar(client: OpenAI) -> None:
    namespace = {"type": "namespace", "name": "diary", "description": "Days.", "tools": [DATE]}
    response = ask(client, call("diary__book", "soon"), call("diary__book", "2026-11-25"), tools=[namespace])
    assert calls(response) == [("book", "2026-11-25")]
    assert response.output[0].namespace == "diary"


def test_the_conversation_goes_on_after_a_repair(client: OpenAI) -> None:
    first = ask(client, call("book", "soon"), call("book", "2026-11-26"), say("The answer was: {{output}}"))
    answer = {"type": "custom_tool_call_output", "call_id": first.output[0].call_id, "output": "booked"}
    going_on: Any = [answer, {"role": "user", "content": script(say("Fine."))}]
    second = client.responses.create(model="demo", previous_response_id=first.id, input=going_on, tools=[DATE])
    assert (second.status, second.output_text) == ("completed", "Fine.")


def test_text_without_a_grammar_is_never_judged(client: OpenAI) -> None:
    assert calls(ask(client, call("note", "~~ anything ~~"))) == [("note", "~~ anything ~~")]


def test_usage_counts_both_tries(client: OpenAI) -> None:
    once = ask(client, call("book", "2026-11-21"))
    twice = ask(client, call("book", "2026-11-2x"), call("book", "2026-11-21"))
    assert twice.usage.output_tokens > once.usage.output_tokens
