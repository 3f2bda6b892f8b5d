"""The scripted model: what it decides from its items alone."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from moorage.errors import UpstreamError
from moorage.model import base
from moorage.model.base import ModelRequest
from moorage.model.demo import INTRODUCTION, Demo, DemoCall, DemoTurn, next_turn, smallest
from moorage.tools.lowering import lower
from moorage.wire.types import Item, Tool

from tests.unit.model.encodings import folded

SHELL: Tool = {"type": "shell", "environment": {"type": "container_auto"}}
WEATHER: Tool = {
    "type": "function",
    "name": "get_weather",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}


def user(text: str) -> Item:
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}


def assistant(text: str) -> Item:
    return {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}


def script(*steps: dict[str, Any]) -> Item:
    return user(f"Please:\n```moorage-script\n{json.dumps(list(steps))}\n```")


def ran(*commands: str, stdout: str = "", call_id: str = "c") -> list[Item]:
    outputs = [{"stdout": stdout, "stderr": "", "outcome": {"type": "exit", "exit_code": 0}} for _ in commands]
    return [
        {"type": "shell_call", "call_id": call_id, "action": {"commands": list(commands)}},
        {"type": "shell_call_output", "call_id": call_id, "output": outputs},
    ]


def request(*items: Item, tools: tuple[Tool, ...] = (SHELL,), **fields: Any) -> ModelRequest:
    lowered = lower(items, tools, fields.pop("tool_choice", "auto"), frozenset({"function"}))
    return ModelRequest("demo", lowered.items, tools=lowered.tools, tool_choice=lowered.tool_choice, **fields)


def shell(*commands: str, **limits: int) -> DemoCall:
    return DemoCall("shell", json.dumps({"commands": list(commands)} | limits, separators=(",", ":")))


# --- scripts ------------------------------------------------------------------------------------------------------------------------


def test_a_script_is_played_one_turn_per_step() -> None:
    played = script({"shell": {"commands": ["ls"]}}, {"say": "Seen: {{output}} ({{n}})"})
    assert next_turn(request(played)).calls == (shell("ls"),)
    assert next_turn(request(played, *ran("ls", stdout="a.txt\n"))).text == "Seen: [exit code 0]\na.txt (1)"


def test_parallel_calls_are_one_turn() -> None:
    played = script({"shells": [{"commands": ["a"]}, {"commands": ["b"], "timeout_ms": 5}]}, {"say": "done"})
    assert next_turn(request(played)).calls == (shell("a"), shell("b", timeout_ms=5))
    first, second = ran("a", call_id="1"), ran("b", call_id="2")
    assert next_turn(request(played, first[0], second[0], second[1], first[1])).text == "done"


def test_a_script_goes_on_over_later_messages_and_a_new_one_replaces_it() -> None:
    played = script({"say": "one"}, {"say": "two"})
    assert next_turn(request(played, assistant("one"), user("go on"))).text == "two"
    assert next_turn(request(played, assistant("one"), script({"say": "new"}))).text == "new"
    assert INTRODUCTION in next_turn(request(played, assistant("one"), user("go on"), assistant("two"), user("and?"))).text


def test_modifiers_belong_to_the_step_after_them() -> None:
    played = script({"sleep_ms": 250}, {"reason": "Hm."}, {"say": "a", "delta_ms": 10}, {"say": "b"})
    turn = next_turn(request(played))
    assert (turn.sleep_seconds, turn.reasoning, turn.text, turn.delta_seconds) == (0.25, "Hm.", "a", 0.01)
    assert next_turn(request(played, assistant("a"))).sleep_seconds == 0


def test_a_step_can_be_repeated_thousands_of_times() -> None:
    played = script({"repeat": {"times": 2_000, "step": {"shell": {"commands": ["echo {{n}}"]}}}}, {"say": "enough"})
    items = [item for n in range(1_999) for item in ran("echo", call_id=str(n))]
    assert next_turn(request(played, *items)).calls == (shell("echo 1999"),)
    assert next_turn(request(played, *items, *ran("echo", call_id="last"))).text == "enough"


def test_python_and_any_function_can_be_called() -> None:
    played = script({"python": "print(1)", "call": {"name": "get_weather", "arguments": {"city": "Oslo"}}})
    tools: tuple[Tool, ...] = (WEATHER, {"type": "code_interpreter", "container": {"type": "auto"}})
    assert next_turn(request(played, tools=tools)).calls == (
        DemoCall("python", '{"code":"print(1)"}'),
        DemoCall("get_weather", '{"city":"Oslo"}'),
    )


@pytest.mark.parametrize("text", ["[", '{"say": "no list"}', '[{"repeat": {}}]', '[{"call": 1}]', '[{"fail": {}, "say": "x"}]'])
def test_a_script_that_cannot_be_read_is_said(text: str) -> None:
    turn = next_turn(request(user(f"```moorage-script\n{text}\n```")))
    assert turn.text.startswith(INTRODUCTION)
    assert "could not be read" in turn.text


async def test_a_failing_step_fails_as_often_as_told() -> None:
    demo = Demo()
    asked = request(script({"fail": {"status": 429, "retry_after": 2}}, {"say": "recovered"}))
    with pytest.raises(UpstreamError) as raised:
        [delta async for delta in demo.stream(asked)]
    assert (raised.value.code, raised.value.is_retryable, raised.value.retry_after_seconds) == ("rate_limit_exceeded", True, 2)
    assert folded([delta async for delta in demo.stream(asked)]).items == (("message", "recovered"),)


async def test_a_step_can_break_off_after_some_deltas() -> None:
    demo = Demo()
    stream = demo.stream(request(script({"fail": {"status": 500, "after_deltas": 2, "times": 0}}, {"say": "one two three"})))
    assert [await anext(stream), await anext(stream)] == [base.MessageStarted(), base.TextDelta("one ")]
    with pytest.raises(UpstreamError):
        await anext(stream)


async def test_a_turn_streams_reasoning_text_calls_usage_and_its_end() -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    asked = request(script({"reason": "Look.", "say": "I look.", "shell": {"commands": ["ls"]}, "sleep_ms": 500, "delta_ms": 2}))
    deltas = [delta async for delta in Demo(sleep=sleep).stream(asked)]
    assert deltas[:5] == [
        base.ReasoningStarted(),
        base.SummaryDelta("Look."),
        base.ItemDone(),
        base.MessageStarted("commentary"),
        base.TextDelta("I "),
    ]
    assert folded(deltas).items == (("reasoning", "Look."), ("message", "I look."), ("call", "shell", "", '{"commands":["ls"]}'))
    assert deltas[-1] == base.StreamFinished("tool_calls")
    assert slept == [0.5] + [0.002] * len(deltas)


async def test_the_budget_of_tokens_is_kept() -> None:
    asked = request(script({"say": "word " * 100}), max_output_tokens=16)
    result = folded([d async for d in Demo().stream(asked) if not isinstance(d, base.StreamFinished)])
    assert len(result.items[0][1]) <= 64
    assert result.usage is not None
    assert result.usage.output_tokens == 16
    assert [d async for d in Demo().stream(asked)][-1] == base.StreamFinished("max_output_tokens")


# --- conversation -------------------------------------------------------------------------------------------------------------------


def test_it_says_that_it_is_no_model() -> None:
    assert next_turn(request(user("Good morning"))).text.startswith(INTRODUCTION)
    assert "Good morning" in next_turn(request(user("Good morning"))).text
    assert INTRODUCTION in next_turn(request()).text


CALLS: dict[str, tuple[str, Any, tuple[DemoCall, ...]]] = {
    "asked by name, with arguments": ('Call get_weather with {"city": "Rome"}', "auto", (DemoCall("get_weather", '{"city":"Rome"}'),)),
    "asked by name": ("call get_weather", "auto", (DemoCall("get_weather", '{"city":"demo"}'),)),
    "asked by a word of its name": ("How is the weather in Oslo?", "auto", (DemoCall("get_weather", '{"city":"demo"}'),)),
    "demanded": ("Hello", "required", (DemoCall("get_weather", '{"city":"demo"}'),)),
    "demanded by name": ("Hello", {"type": "function", "name": "get_weather"}, (DemoCall("get_weather", '{"city":"demo"}'),)),
    "forbidden": ("call get_weather", "none", ()),
    "not asked": ("Hello", "auto", ()),
}


@pytest.mark.parametrize(("text", "choice", "calls"), CALLS.values(), ids=CALLS.keys())
def test_a_function_is_called_when_it_is(text: str, choice: Any, calls: tuple[DemoCall, ...]) -> None:
    assert next_turn(request(user(text), tools=(WEATHER,), tool_choice=choice)).calls == calls


COMMANDS: dict[str, tuple[str, tuple[Tool, ...], Any, tuple[DemoCall, ...]]] = {
    "one": ("How many processors? Run `nproc`.", (SHELL,), "auto", (shell("nproc"),)),
    "two": ("Compare `uname -m` with `arch`.", (SHELL,), "auto", (shell("uname -m", "arch"),)),
    "none": ("How many processors?", (SHELL,), "auto", ()),
    "in a block of code": ("```\nnproc\n```", (SHELL,), "auto", ()),
    "without a shell": ("Run `nproc`.", (), "auto", ()),
    "forbidden": ("Run `nproc`.", (SHELL,), "none", ()),
}


@pytest.mark.parametrize(("text", "tools", "choice", "calls"), COMMANDS.values(), ids=COMMANDS.keys())
def test_commands_between_backticks_are_run(text: str, tools: tuple[Tool, ...], choice: Any, calls: tuple[DemoCall, ...]) -> None:
    assert next_turn(request(user(text), tools=tools, tool_choice=choice)).calls == calls


def test_what_a_command_printed_is_quoted_in_the_answer() -> None:
    turn = next_turn(request(user("Run `nproc`."), *ran("nproc", stdout="8\n")))
    assert (turn.calls, turn.text) == ((), f"{INTRODUCTION} The tool answered: [exit code 0]\n8")


def test_a_functions_output_is_quoted_in_the_answer() -> None:
    call: Item = {"type": "function_call", "call_id": "c", "name": "get_weather", "arguments": "{}"}
    output: Item = {"type": "function_call_output", "call_id": "c", "output": "12 degrees"}
    turn = next_turn(request(user("call get_weather"), call, output, tools=(WEATHER,)))
    assert turn == DemoTurn(text=f"{INTRODUCTION} The tool answered: 12 degrees")


SCHEMAS: dict[str, tuple[dict[str, Any], Any]] = {
    "an object with what is required": (
        {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "string"}}, "required": ["a"]},
        {"a": 0},
    ),
    "choices": (
        {"type": "object", "properties": {"a": {"enum": ["x", "y"]}, "b": {"const": 3}}, "required": ["a", "b"]},
        {"a": "x", "b": 3},
    ),
    "lists": ({"type": "array", "items": {"type": "boolean"}, "minItems": 2}, [True, True]),
    "unions": ({"anyOf": [{"type": "number", "minimum": 4}, {"type": "null"}]}, 4),
    "references": ({"$ref": "#/$defs/n", "$defs": {"n": {"type": ["null", "string"]}}}, None),
    "a schema that refers to itself": ({"$ref": "#"}, None),
    "texts of a length": ({"type": "string", "minLength": 6}, "demo.."),
}


@pytest.mark.parametrize(("schema", "value"), SCHEMAS.values(), ids=SCHEMAS.keys())
def test_a_schema_gets_its_smallest_value(schema: dict[str, Any], value: Any) -> None:
    assert smallest(schema) == value


def test_json_is_answered_where_json_is_wanted() -> None:
    format_ = {"type": "json_schema", "name": "s", "schema": SCHEMAS["choices"][0]}
    assert json.loads(next_turn(request(user("hi"), text={"format": format_})).text) == {"a": "x", "b": 3}
    assert INTRODUCTION in json.loads(next_turn(request(user("hi"), text={"format": {"type": "json_object"}})).text)["answer"]


# --- the demonstration --------------------------------------------------------------------------------------------------------------

QUESTION = user("Which products declined this quarter? The data is in /mnt/data/sales.csv.")
CSV = """date,product,region,units,revenue
2026-04-02,Anchor,North,10,1000.00
2026-05-02,Buoy,North,5,500.00
2026-07-15,Anchor,North,9,900.50
2026-08-15,Buoy,South,7,700.00
"""
_WITHOUT_LIBRARIES = "ModuleNotFoundError"


def played_in(folder: Path) -> list[DemoTurn]:
    """The demonstration's turns, its commands really run (in ``folder`` in place of /mnt/data)."""
    items, turns = [QUESTION], []
    for number in range(9):
        turn = next_turn(request(*items))
        turns.append(turn)
        items.append(assistant(turn.text))
        for call in turn.calls:
            commands = json.loads(call.arguments)["commands"]
            outputs = [_run(command, folder) for command in commands]
            call_id = f"c{number}"
            items.append({"type": "shell_call", "call_id": call_id, "action": {"commands": commands}})
            items.append({"type": "shell_call_output", "call_id": call_id, "output": outputs})
        if not turn.calls:
            return turns
    raise AssertionError("the demonstration does not end")


def _run(command: str, folder: Path) -> dict[str, Any]:
    local = command.replace("/mnt/data", str(folder)).replace("python3 -", f"{sys.executable} -")
    done = subprocess.run(["bash", "-c", local], capture_output=True, text=True, timeout=60)
    if _WITHOUT_LIBRARIES in done.stderr:
        # openpyxl and matplotlib belong to the sandboxes, not to this environment.
        return {"stdout": "-rw-r--r-- report.xlsx chart.png\n", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}
    return {"stdout": done.stdout, "stderr": done.stderr, "outcome": {"type": "exit", "exit_code": done.returncode}}


def test_the_demonstration_answers_with_the_figures_that_its_commands_found(tmp_path: Path) -> None:
    (tmp_path / "sales.csv").write_text(CSV)
    turns = played_in(tmp_path)
    assert [len(json.loads(turn.calls[0].arguments)["commands"]) for turn in turns[:-1]] == [2, 1, 2, 1]
    assert turns[-1].text == (
        "In 2026 Q3, 1 of 2 products declined against 2026 Q2:\n"
        "- Anchor: 1,000.00 → 900.50 (-10.0 %)\n\n"
        "The workbook is /mnt/data/report.xlsx, the chart /mnt/data/chart.png.\n\n"
        f"({INTRODUCTION} The commands and their figures are real.)"
    )


def test_the_demonstration_stops_when_a_command_fails(tmp_path: Path) -> None:
    turns = played_in(tmp_path)
    assert len(turns) == 2
    assert turns[-1].text.startswith("A command failed, so I stop here.")
    assert "No such file" in turns[-1].text


def test_the_demonstration_needs_a_shell() -> None:
    assert next_turn(request(QUESTION, tools=())).text.startswith(INTRODUCTION)


BUILD = user("Write a page with a button, and look at it in the browser.")
OPENS_ADDRESSES = {"type": "object", "properties": {"type": {"type": "string", "enum": ["click", "navigate"]}}}
HOSTED = {
    "type": "function",
    "name": "computer",
    "parameters": {"properties": {"actions": {"type": "array", "items": OPENS_ADDRESSES}}},
}
SHELL_TOOL = {"type": "function", "name": "shell", "parameters": {"properties": {"commands": {"type": "array"}}}}


def shown(title: str) -> str:
    return f'Page: http://localhost:8000/ "{title}" (1280 by 800 pixels)'


def building(*outputs: str) -> DemoTurn:
    """The turn after these outputs of the demonstration's calls."""
    items = [BUILD]
    for number, output in enumerate(outputs):
        items.append({"type": "function_call", "call_id": f"c{number}", "name": "x", "arguments": "{}"})
        items.append({"type": "function_call_output", "call_id": f"c{number}", "output": output})
    return next_turn(request(*items, tools=(SHELL_TOOL, HOSTED)))


def test_the_page_is_built_looked_at_mended_and_looked_at_again() -> None:
    outputs = ["", shown("Cart: 0"), "17:    count += 1", shown("Cart: 2")]
    turns = [building(*outputs[:number]) for number in range(5)]
    assert [[call.name for call in turn.calls] for turn in turns] == [["shell"], ["computer"], ["shell"], ["computer"], []]
    kinds = [action["type"] for action in json.loads(turns[3].calls[0].arguments)["actions"]]
    assert kinds == ["navigate", "click", "click"]
    assert "Now it does: after two presses the title is 'Cart: 2'." in turns[4].text
    assert "does not count yet" in building(*outputs[:3], shown("Cart: 0")).text


def test_the_page_is_given_up_where_a_step_fails() -> None:
    for output in ("Action 1 failed: net::ERR_FAILED", "no such file\n[exit code 1]"):
        assert building("", output).text.startswith("A step failed, so I stop here.")


def test_the_page_needs_a_shell_and_a_hosted_computer() -> None:
    clicks_only = {"properties": {"actions": {"type": "array", "items": {"properties": {"type": {"enum": ["click"]}}}}}}
    for tools in ((SHELL_TOOL,), (HOSTED,), (SHELL_TOOL, HOSTED | {"parameters": clicks_only})):
        turn = next_turn(request(BUILD, tools=tools))
        assert (turn.calls, INTRODUCTION in turn.text) == ((), True)


def _doubling(depth: int) -> dict[str, Any]:
    """Each definition asks twice for the next."""
    twice = {
        f"d{n}": {
            "type": "object",
            "properties": {"a": {"$ref": f"#/$defs/d{n + 1}"}, "b": {"$ref": f"#/$defs/d{n + 1}"}},
            "required": ["a", "b"],
        }
        for n in range(depth)
    }
    return {"$ref": "#/$defs/d0", "$defs": twice | {f"d{depth}": {"type": "string"}}}


ENDLESS: dict[str, dict[str, Any]] = {
    "itself three times": {
        "type": "object",
        "properties": {name: {"$ref": "#"} for name in "abc"},
        "required": ["a", "b", "c"],
    },
    "26 doublings": _doubling(26),
    "a long list": {"type": "array", "minItems": 10**9, "items": {"type": "integer"}},
    "a long list of long lists": {"type": "array", "minItems": 10**6, "items": {"type": "array", "minItems": 10**6}},
    "a long string": {"type": "string", "minLength": 10**9},
    "many long strings": {"type": "array", "minItems": 1000, "items": {"type": "string", "minLength": 10**5}},
    "a long constant, often": {"type": "array", "minItems": 1000, "items": {"const": "c" * 10**4}},
    "many names": {"type": "object", "required": [f"n{n}" for n in range(10**5)]},
    "a circle of references": {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}},
    "no schema": {"type": "object", "properties": {"a": True}, "required": ["a"], "minLength": "x"},
}


@pytest.mark.parametrize("schema", ENDLESS.values(), ids=ENDLESS.keys())
def test_a_schema_that_asks_for_too_much_gets_a_bounded_answer(schema: dict[str, Any]) -> None:
    assert len(json.dumps(smallest(schema))) < 250_000


async def test_parameters_that_ask_for_too_much_get_a_bounded_call() -> None:
    tool = {"type": "function", "name": "endless", "parameters": ENDLESS["itself three times"]}
    turn = next_turn(ModelRequest("demo", ({"role": "user", "content": "call endless"},), tools=(tool,)))
    assert len(turn.calls[0].arguments) < 250_000
