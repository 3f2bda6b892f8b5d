"""Programs in the loop: their calls, their ends, and processes that die anywhere. What Node makes of a program is told by the test."""

import json
import re
from typing import Any

import pytest
from moorage.errors import ApiError
from moorage.loop.chain import chain_items
from moorage.loop.finish import end_from_outside
from moorage.loop.programs import check, open_programs
from moorage.state import Next
from moorage.store.responses import StoredResponse

from tests.stack import assert_well_formed
from tests.unit.loop.lab import SHELL_TOOL, Lab, Turn, call, first_state, say, shell
from tests.unit.loop.test_dice import together
from tests.unit.store.deaths import Death, at_each_death

PROGRAMS: dict[str, Any] = {"type": "programmatic_tool_calling"}
SHELL: dict[str, Any] = SHELL_TOOL | {"allowed_callers": ["direct", "programmatic"]}
LOOK: dict[str, Any] = {"type": "function", "name": "look", "parameters": {"type": "object"}, "allowed_callers": ["programmatic"]}
PROGRAM = call("run_program", '{"code": "..."}', "call_program")


def calls(name: str, *arguments: Any) -> list[dict[str, str]]:
    return [{"name": name, "arguments": json.dumps(each)} for each in arguments]


class Node:
    """A program that makes these rounds of calls, and then says what it has read."""

    def __init__(self, *rounds: list[dict[str, str]]) -> None:
        self.rounds = rounds
        self.runs: list[list[str]] = []
        """What each run was given."""

    def prints(self, code: str) -> str:
        given = re.search(r"const given = (.*);", code)
        assert given is not None
        recorded = [json.loads(each) for each in json.loads(json.loads(given[1])["given"])["recorded"]]
        self.runs.append(recorded)
        made: list[dict[str, str]] = []
        for each in self.rounds:
            made += each
            if len(made) > len(recorded):
                return self._told({"made": made, "is_waiting": True})
        return self._told({"made": made, "result": "".join(recorded), "error": None})

    @staticmethod
    def _told(state: dict[str, Any]) -> str:
        return f"\nmoorage-program:{json.dumps(state)}\n"


def lab_with(node: Node, *turns: Turn) -> Lab:
    lab = Lab(*turns)
    lab.sandboxes.session_prints = node.prints
    return lab


async def begun(lab: Lab, *tools: dict[str, Any], **changes: Any) -> StoredResponse:
    return await lab.background(tools=[PROGRAMS, *tools], **changes)


def kinds(response: dict[str, Any]) -> list[str]:
    return [item["type"] for item in response["output"]]


AB_THEN_C = (calls("shell", {"commands": ["a"]}, {"commands": ["b"]}), calls("shell", {"commands": ["c"]}))


@at_each_death
async def test_whenever_a_process_dies_a_program_goes_on_and_no_call_is_made_twice(death: Death) -> None:
    node = Node(*AB_THEN_C)
    lab = lab_with(node, *[turn for _ in range(3) for turn in (PROGRAM, say("Done."))])
    stored = await begun(lab, SHELL)
    await lab.run_with_deaths(stored, death)
    events, response = await lab.events(stored), await lab.object_of(stored)
    assert_well_formed(events)
    assert response["status"] == "completed"
    whole = [item for item in response["output"] if item.get("status") != "incomplete"]
    programs = sum(item["type"] == "program" for item in whole)
    assert [item["type"] for item in whole].count("program_output") == programs
    outputs = [item["output"][0]["stdout"] for item in whole if item["type"] == "shell_call_output"]
    assert outputs == ["a\n", "b\n", "c\n"] * programs
    commands = [identity for identity in lab.sandboxes.executed if "-program-" not in identity]
    assert len(commands) == len(lab.sandboxes.begun) == 3 * programs
    assert [len(each) for each in node.runs if len(each) in (0, 2, 3)] == [len(each) for each in node.runs]


async def test_the_model_is_asked_before_and_after_a_program_and_reads_nothing_between() -> None:
    lab = lab_with(Node(*AB_THEN_C), PROGRAM, say("Done."))
    stored = await begun(lab, SHELL)
    await lab.run(stored)
    response = await lab.object_of(stored)
    side_by_side = ["shell_call", "shell_call", "shell_call_output", "shell_call_output"]
    assert kinds(response) == ["program", *side_by_side, "shell_call", "shell_call_output", "program_output", "message"]
    assert {item["caller"]["caller_id"] for item in response["output"] if "caller" in item} == {"call_program"}
    before, after = lab.model.requests
    assert list(after.items[: len(before.items)]) == list(before.items)
    assert [item["type"] for item in after.items[len(before.items) :]] == ["function_call", "function_call_output"]
    assert response["usage"]["total_tokens"] == 24


async def test_a_program_and_a_command_of_the_models_own_run_in_one_round() -> None:
    lab = lab_with(Node(AB_THEN_C[1]), together(PROGRAM, shell("ls")), say("Done."))
    stored = await begun(lab, SHELL)
    await lab.run(stored)
    response = await lab.object_of(stored)
    own = ["program", "shell_call", "shell_call_output"]
    assert kinds(response) == [*own, "shell_call", "shell_call_output", "program_output", "message"]
    assert ["caller" in item for item in response["output"]] == [False, False, False, True, True, False, False]


async def test_a_program_beside_a_call_for_the_client_begins_in_the_next_response() -> None:
    direct = {"type": "function", "name": "ask", "parameters": {"type": "object"}}
    node = Node(AB_THEN_C[1])
    lab = lab_with(node, together(PROGRAM, call("ask", "{}", "call_ask")), say("Done."))
    first = await begun(lab, SHELL, direct)
    await lab.run(first)
    ended = await lab.object_of(first)
    assert (kinds(ended), node.runs) == (["program", "function_call"], [])
    chain = chain_items([(await lab.responses.snapshot("t", first.response_id)).part])
    answer = {"type": "function_call_output", "id": "fco_1", "call_id": "call_ask", "output": "yes"}
    assert [program.call_id for program in open_programs([*chain, answer])] == ["call_program"]
    second = await begun(lab, SHELL, direct, input_items=[*chain, answer])
    await lab.run(second)
    assert kinds(await lab.object_of(second)) == ["shell_call", "shell_call_output", "program_output", "message"]


async def test_calls_over_the_limit_are_refused_and_the_program_reads_so() -> None:
    lab = lab_with(Node(*AB_THEN_C), PROGRAM, say("Done."))
    stored = await begun(lab, SHELL, parameters={"max_tool_calls": 1})
    await lab.run(stored)
    response = await lab.object_of(stored)
    (ended,) = [item for item in response["output"] if item["type"] == "program_output"]
    assert (response["status"], len(lab.sandboxes.begun)) == ("completed", 1)
    assert ended["result"].count("the limit of tool calls is reached") == 2


async def test_the_program_of_a_cancelled_response_ends_with_it() -> None:
    lab = lab_with(Node(*AB_THEN_C), PROGRAM)
    stored = await begun(lab, SHELL)
    state = await lab.step(first_state(stored))
    await lab.tools(state)
    state = await lab.step(state)
    assert (state.next, len(state.calls)) == (Next.TOOLS, 2)
    ended = await end_from_outside(lab.runtime, stored, status="cancelled")
    assert [item["type"] for item in ended["output"]][:2] == ["program", "shell_call"]
    chain = chain_items([(await lab.responses.snapshot("t", stored.response_id)).part])
    assert open_programs(chain) == []
    (output,) = [item for item in chain if item["type"] == "program_output"]
    assert (output["status"], output["result"]) == ("incomplete", "The response ended before this program did.")


async def test_a_program_that_does_not_repeat_itself_fails() -> None:
    class Fickle(Node):
        def prints(self, code: str) -> str:
            self.rounds = (calls("look", {"at": f"{len(self.runs)}"}), calls("look", {}))
            return super().prints(code)

    lab = lab_with(Fickle(), PROGRAM, say("Done."))
    first = await begun(lab, LOOK)
    await lab.run(first)
    (program, made) = (await lab.object_of(first))["output"]
    answer = {"type": "function_call_output", "id": "fco_1", "call_id": made["call_id"], "output": "sea"}
    second = await begun(lab, LOOK, input_items=[*first.input_items, program, made, answer])
    await lab.run(second)
    ended, _ = (await lab.object_of(second))["output"]
    assert ended["result"].startswith("The program failed. It did not repeat its earlier calls")


def test_what_a_server_lists_is_none_of_the_tools_that_an_item_brings() -> None:
    """A client sends the list back with its next request, where the entries have no type."""
    listed = {"type": "mcp_list_tools", "server_label": "s", "tools": [{"name": "f", "input_schema": {"type": "object"}}]}
    check([listed], [], [])
    function = {"type": "function", "name": "f", "parameters": {}, "allowed_callers": ["programmatic"]}
    with pytest.raises(ApiError, match="stands in 'tools' of the request"):
        check([{"type": "additional_tools", "role": "developer", "tools": [function]}], [], [])
