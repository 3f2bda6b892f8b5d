"""Tools and items as functions, and calls given back in their own form."""

import json
from typing import Any

import pytest
from moorage.model.openai_responses import NATIVE_TO_OPENAI
from moorage.tools.lowering import LoweredInput, OriginalTool, is_hosted, lower
from moorage.tools.shell.offer import output_text as shell_output_text
from moorage.wire.types import Item, Tool

FUNCTIONS = frozenset({"function"})
HOSTED_SHELL: Tool = {"type": "shell", "environment": {"type": "container_auto"}}


def lowered(*items: Item, tools: list[Tool] | None = None, native: frozenset[str] = FUNCTIONS, choice: Any = "auto") -> LoweredInput:
    return lower(items, tools or [], choice, native)


def exited(stdout: str = "", stderr: str = "", code: int = 0) -> dict[str, Any]:
    return {"stdout": stdout, "stderr": stderr, "outcome": {"type": "exit", "exit_code": code}}


def called(name: str, arguments: Any, call_id: str = "c") -> Item:
    text = json.dumps(arguments, separators=(",", ":"), sort_keys=True, ensure_ascii=False)
    return {"type": "function_call", "call_id": call_id, "name": name, "arguments": text}


def answered(output: Any, call_id: str = "c") -> Item:
    return {"type": "function_call_output", "call_id": call_id, "output": output}


# --- items ------------------------------------------------------------------------------------------------------------------------

SCREENSHOT = {"type": "computer_screenshot", "image_url": "data:image/png;base64,AA"}
PATCH = {"type": "update_file", "path": "a.txt", "diff": "@@\n-a\n+b"}

ITEMS: dict[str, tuple[Item, list[Item]]] = {
    "a shell call": (
        {
            "id": "sh_1",
            "type": "shell_call",
            "call_id": "c",
            "status": "completed",
            "action": {"commands": ["ls", "pwd"], "timeout_ms": 5, "max_output_length": None},
            "environment": {"type": "container_reference", "container_id": "cntr_1"},
        },
        [called("shell", {"commands": ["ls", "pwd"], "timeout_ms": 5})],
    ),
    "a shell output": (
        {"type": "shell_call_output", "call_id": "c", "output": [exited("a\n")]},
        [answered("[exit code 0]\na")],
    ),
    "an apply_patch call": (
        {"type": "apply_patch_call", "call_id": "c", "status": "completed", "operation": PATCH},
        [called("apply_patch", PATCH)],
    ),
    "an apply_patch output": (
        {"type": "apply_patch_call_output", "call_id": "c", "status": "failed", "output": "no such file"},
        [answered("failed\nno such file")],
    ),
    "a custom call": (
        {"type": "custom_tool_call", "call_id": "c", "name": "exec", "input": "é\n"},
        [called("exec", {"input": "é\n"})],
    ),
    "a local shell call": (
        {"type": "local_shell_call", "id": "l", "call_id": "c", "action": {"type": "exec", "command": ["ls"], "env": {}}},
        [called("local_shell", {"command": ["ls"], "env": {}})],
    ),
    "a local shell output, which names its call by id": (
        {"type": "local_shell_call_output", "id": "c", "output": "a"},
        [answered("a")],
    ),
    "a code interpreter call with its outputs": (
        {
            "type": "code_interpreter_call",
            "id": "ci_1",
            "code": "print(1)",
            "container_id": "cntr_1",
            "outputs": [{"type": "logs", "logs": "1\n"}, {"type": "image", "url": "data:,"}],
        },
        [called("python", {"code": "print(1)"}, "ci_1"), answered("1\n[image]", "ci_1")],
    ),
    "a code interpreter call that printed nothing": (
        {"type": "code_interpreter_call", "id": "ci_1", "call_id": "c", "code": "x = 1", "outputs": []},
        [called("python", {"code": "x = 1"}), answered("(no output)")],
    ),
    "a code interpreter call whose outputs a client has not sent back": (
        {"type": "code_interpreter_call", "id": "ci_1", "call_id": "c", "code": "x = 1", "outputs": None},
        [called("python", {"code": "x = 1"}), answered("(the output was not sent back)")],
    ),
    "a computer call": (
        {"type": "computer_call", "call_id": "c", "actions": [{"type": "screenshot"}], "pending_safety_checks": []},
        [called("computer", {"actions": [{"type": "screenshot"}]})],
    ),
    "a screenshot": (
        {"type": "computer_call_output", "call_id": "c", "output": SCREENSHOT},
        [answered([{"type": "input_image", "detail": "auto", "image_url": "data:image/png;base64,AA"}])],
    ),
    "a call within a namespace": (
        {"type": "function_call", "call_id": "c", "name": "get", "namespace": "crm", "arguments": "{}"},
        [called("crm__get", {})],
    ),
    "a client's tool search": (
        {"type": "tool_search_call", "call_id": "c", "execution": "client", "arguments": {"query": "mail"}},
        [called("tool_search", {"query": "mail"})],
    ),
    "what the search found": (
        {"type": "tool_search_output", "call_id": "c", "execution": "client", "tools": [{"type": "function", "name": "send_mail"}]},
        [answered("Tools found: send_mail")],
    ),
    "a server's tool search": ({"type": "tool_search_call", "call_id": None, "execution": "server", "arguments": {}}, []),
    "a made picture, without its data": (
        {"type": "image_generation_call", "id": "ig_1", "status": "completed", "result": "A" * 100, "revised_prompt": "a boat"},
        [
            {"type": "function_call", "call_id": "ig_1", "name": "image_generation", "arguments": '{"prompt":"a boat"}'},
            {
                "type": "function_call_output",
                "call_id": "ig_1",
                "output": "The image is there, and the user sees it. Its name is 'ig_1'.",
            },
        ],
    ),
    "a file that only we can find": (
        {
            "type": "message",
            "role": "user",
            "content": [{"type": "input_text", "text": "Look:"}, {"type": "input_file", "file_id": "file-1", "filename": "a.csv"}],
        },
        [
            {
                "type": "message",
                "role": "user",
                "content": [{"type": "input_text", "text": "Look:"}, {"type": "input_text", "text": "[file a.csv]"}],
            }
        ],
    ),
    "a compaction that nobody can open": ({"type": "compaction", "encrypted_content": "?"}, []),
    "what speaks to the platform": ({"type": "configuration_update", "reasoning": {"effort": "high"}}, []),
}


@pytest.mark.parametrize(("item", "result"), ITEMS.values(), ids=ITEMS.keys())
def test_an_item_that_few_models_know_becomes_one_that_all_know(item: Item, result: list[Item]) -> None:
    assert list(lowered(item).items) == result


def test_a_custom_output_in_parts_follows_its_call() -> None:
    call: Item = {"type": "custom_tool_call", "call_id": "c", "name": "exec", "input": ""}
    parts = [{"type": "input_text", "text": "t"}]
    output: Item = {"type": "custom_tool_call_output", "call_id": "c", "output": parts}
    assert list(lowered(call, output).items) == [called("exec", {"input": ""}), answered(parts)]


def test_a_call_that_stays_open_is_answered_at_once_and_its_output_is_a_message() -> None:
    call: Item = {"type": "function_call", "call_id": "c", "name": "look", "arguments": "{}", "async": True}
    output: Item = {"type": "function_call_output", "call_id": "c", "output": "rain"}
    pending, late = "This call is open. Its output comes later, in a message: go on without it, and do not invent it.", "rain"
    head = {"type": "input_text", "text": "Output of the earlier call c of look:"}
    assert list(lowered(call, output).items) == [
        {"type": "function_call", "call_id": "c", "name": "look", "arguments": "{}"},
        answered(pending),
        {"type": "message", "role": "user", "content": [head, {"type": "input_text", "text": late}]},
    ]
    (left_out,) = lowered(output).items
    assert left_out["content"][0]["text"] == "Output of the earlier call c of a tool:"


def test_an_upstream_is_not_told_that_calls_stay_open() -> None:
    look: Tool = {"type": "function", "name": "look", "async": True}
    note: Tool = {"type": "custom", "name": "note", "async": True}
    space: Tool = {"type": "namespace", "name": "crm", "description": "", "tools": [look, {"type": "function", "name": "find"}]}
    for native in (frozenset[str](), frozenset({"custom", "namespace", "programmatic_tool_calling"})):
        told = lower((), [look, note, space], "auto", native)
        assert "async" not in str(told.tools)
        assert told.asynchronous == {("function", None, "look"), ("custom", None, "note"), ("function", "crm", "look")}


def test_a_compaction_is_opened_by_the_caller() -> None:
    result = lower([{"type": "compaction", "text": "So far: …"}], [], "auto", FUNCTIONS)
    assert result.items == ({"type": "message", "role": "user", "content": [{"type": "input_text", "text": "So far: …"}]},)


SHELL_OUTPUTS: dict[str, tuple[list[dict[str, Any]], str]] = {
    "nothing printed": ([exited()], "[exit code 0]"),
    "both streams": ([exited("out\n", "err\n", 2)], "[exit code 2]\nout\n[stderr]\nerr"),
    "a time-out": ([{"stdout": "half", "stderr": "", "outcome": {"type": "timeout"}}], "[timed out]\nhalf"),
    "two commands": (
        [exited("a\n"), exited(stderr="b", code=1)],
        "# command 1 of 2\n[exit code 0]\na\n\n# command 2 of 2\n[exit code 1]\n[stderr]\nb",
    ),
}


@pytest.mark.parametrize(("outputs", "text"), SHELL_OUTPUTS.values(), ids=SHELL_OUTPUTS.keys())
def test_a_shell_output_is_told_in_few_words(outputs: list[dict[str, Any]], text: str) -> None:
    assert shell_output_text(outputs) == text


def test_an_upstream_with_a_shell_of_its_own_is_given_it_in_local_mode() -> None:
    call: Item = {"type": "shell_call", "call_id": "c", "action": {"commands": ["ls"]}, "environment": {"type": "container_reference"}}
    output: Item = {"type": "shell_call_output", "call_id": "c", "output": [exited("a")]}
    result = lowered(call, output, tools=[HOSTED_SHELL], native=NATIVE_TO_OPENAI)
    assert result.tools == ({"type": "shell", "environment": {"type": "local"}},)
    assert result.items == (call | {"environment": {"type": "local"}}, output)


def test_what_an_upstream_knows_is_left_alone() -> None:
    tools: list[Tool] = [
        {"type": "custom", "name": "exec", "format": {"type": "text"}},
        {"type": "namespace", "name": "crm", "description": "d", "tools": [{"type": "function", "name": "get"}]},
        {"type": "apply_patch"},
        {"type": "tool_search", "execution": "client"},
    ]
    items: list[Item] = [
        {"type": "additional_tools", "role": "developer", "tools": [{"type": "apply_patch"}]},
        {"type": "custom_tool_call", "call_id": "c", "name": "exec", "input": "x", "namespace": "crm"},
        {"type": "function_call", "call_id": "d", "name": "get", "namespace": "crm", "arguments": "{}"},
    ]
    result = lowered(*items, tools=tools, native=NATIVE_TO_OPENAI)
    assert (list(result.items), list(result.tools)) == (items, tools)


def test_the_platforms_own_interpreter_is_never_left_to_an_upstream() -> None:
    tool: Tool = {"type": "code_interpreter", "container": {"type": "auto"}}
    result = lowered(tools=[tool], native=NATIVE_TO_OPENAI | {"code_interpreter"})
    assert [t["name"] for t in result.tools] == ["python"]


# --- names ------------------------------------------------------------------------------------------------------------------------


def test_names_are_unique_legal_and_lead_back() -> None:
    long = "n" * 90
    tools: list[Tool] = [
        HOSTED_SHELL,
        {"type": "function", "name": "shell"},
        {"type": "function", "name": "crm__get"},
        {"type": "namespace", "name": "crm", "tools": [{"type": "function", "name": "get"}, {"type": "custom", "name": "say"}]},
        {"type": "namespace", "name": long, "tools": [{"type": "function", "name": "a"}, {"type": "function", "name": "b"}]},
        {"type": "function", "name": long},
    ]
    result = lowered(tools=tools)
    names = [tool["name"] for tool in result.tools]
    assert len(set(names)) == len(names) == 8
    assert all(len(name) <= 64 and name.replace("_", "a").replace("-", "a").isalnum() for name in names)
    assert {result.restore(name) for name in names} == {
        OriginalTool("shell", names[0]),
        OriginalTool("function", "shell"),
        OriginalTool("function", "crm__get"),
        OriginalTool("function", "get", "crm"),
        OriginalTool("custom", "say", "crm"),
        OriginalTool("function", "a", long),
        OriginalTool("function", "b", long),
        OriginalTool("function", long),
    }
    assert "shell" in names
    assert result.restore("shell") == OriginalTool("function", "shell")


def test_what_runs_in_a_container_is_described_with_the_programs_that_are_there() -> None:
    tools: list[Tool] = [HOSTED_SHELL, {"type": "code_interpreter", "container": {"type": "auto"}}, {"type": "apply_patch"}]
    told = lower((), tools, "auto", FUNCTIONS, programs="python 3.11, go 1.19").tools
    plain = lower((), tools, "auto", FUNCTIONS).tools
    line = "\n- Installed there, beside the usual small programs: python 3.11, go 1.19."
    assert [tool["description"] for tool in told] == [
        *(tool["description"] + line for tool in plain[:2]),
        plain[2]["description"],
    ]
    given = lower((), tools, "auto", FUNCTIONS, given="/mnt/data/a.csv").tools
    assert [tool["description"].endswith("\n- Files that the user gave: /mnt/data/a.csv") for tool in given] == [True, True, False]
    on_the_clients_computer: list[Tool] = [{"type": "shell", "environment": {"type": "local"}}]
    assert lower((), on_the_clients_computer, "auto", FUNCTIONS, programs="go").tools == lowered(tools=on_the_clients_computer).tools


def test_a_name_never_offered_is_unknown_unless_the_upstream_searches_tools() -> None:
    assert lowered().restore("made up!") == OriginalTool("not_offered", "made_up_")
    finding = lower((), (), "auto", FUNCTIONS | {"tool_search"})
    assert finding.restore("made_up") == OriginalTool("function", "made_up")


def test_only_what_is_allowed_can_be_called() -> None:
    tools: list[Tool] = [{"type": "function", "name": name} for name in ("read", "write")]
    choice = {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "read"}]}
    result = lower((), tools, choice, FUNCTIONS)
    assert [result.restore(name) for name in ("read", "write")] == [
        OriginalTool("function", "read"),
        OriginalTool("not_offered", "write"),
    ]


def test_tools_that_join_on_the_way_come_after_those_before_them() -> None:
    added: Item = {
        "type": "additional_tools",
        "role": "developer",
        "tools": [{"type": "namespace", "name": "functions", "description": "", "tools": [{"type": "custom", "name": "exec"}]}],
    }
    call: Item = {"type": "custom_tool_call", "call_id": "c", "name": "exec", "namespace": "functions", "input": "ls"}
    result = lowered(added, call, tools=[HOSTED_SHELL])
    assert [tool["name"] for tool in result.tools] == ["shell", "functions__exec"]
    assert result.items == (called("functions__exec", {"input": "ls"}),)
    assert result.restore("functions__exec") == OriginalTool("custom", "exec", "functions")


def test_a_long_description_is_not_copied_for_each_function() -> None:
    """A namespace with thousands of characters tells them with each function; one with millions, with the first."""
    members = [{"type": "function", "name": f"f{number}", "description": "Own."} for number in range(500)]
    listed = [{"name": f"f{number}", "description": "Own.", "input_schema": {}} for number in range(500)]
    short, long = "s" * 8_000, "l" * 2_000_000
    tools: list[Tool] = [
        {"type": "namespace", "name": "short", "description": short, "tools": members},
        {"type": "namespace", "name": "long", "description": long, "tools": members},
        {"type": "mcp", "server_label": "depot", "server_description": long},
    ]
    offered = lowered({"type": "mcp_list_tools", "id": "mcpl_1", "server_label": "depot", "tools": listed}, tools=tools).tools
    told = [tool["description"] for tool in offered]
    assert told == [
        *[f"{short}\nOwn."] * 500,
        f"{long}\nOwn.",
        *["Own."] * 499,
        f"{long}\nOwn.",
        *["Own."] * 499,
    ]


class Looked(dict[str, Any]):
    """A tool that counts how often it is looked at."""

    times = 0

    def __getitem__(self, name: str) -> Any:
        self.times += 1
        return super().__getitem__(name)


@pytest.mark.parametrize("count", [1, 200])
def test_the_functions_of_programs_are_written_once(count: int) -> None:
    function = Looked(type="function", name="f", parameters={"type": "object"}, allowed_callers=["programmatic"])
    programs: list[Tool] = [{"type": "programmatic_tool_calling"}] * count
    (offered,) = lowered(tools=[*programs, function]).tools
    assert offered["name"] == "run_program"
    assert "f(" in offered["description"]
    assert function.times < 20


class Hashed(str):
    """A name that counts how often it is looked up."""

    times = 0

    def __hash__(self) -> int:
        Hashed.times += 1
        return super().__hash__()


def test_a_list_of_a_server_replaces_the_latest_one_alone() -> None:
    def looks(count: int) -> int:
        """At the names of so many lists, each with another tool."""
        Hashed.times = 0
        lists: list[Item] = [
            {"type": "mcp_list_tools", "id": f"mcpl_{n}", "server_label": "s", "tools": [{"name": Hashed(f"f{n}"), "input_schema": {}}]}
            for n in range(count)
        ]
        (offered,) = lowered(*lists, tools=[{"type": "mcp", "server_label": "s"}]).tools
        assert offered["name"] == f"s__f{count - 1}"
        return Hashed.times

    assert looks(400) < 3 * looks(200)


class Compared(str):
    """A label that counts how often it is compared."""

    times = 0

    def __eq__(self, other: object) -> bool:
        Compared.times += 1
        return str(self) == other

    __hash__ = str.__hash__


def test_a_server_that_is_found_looks_at_its_own_functions_alone() -> None:
    label = Compared("a")
    tools: list[Tool] = [
        {"type": "tool_search", "execution": "client"},
        {"type": "mcp", "server_label": label, "defer_loading": True},
        {"type": "mcp", "server_label": "b", "defer_loading": True},
    ]
    listed = [{"name": f"f{n}", "input_schema": {}} for n in range(100)]
    items: list[Item] = [{"type": "mcp_list_tools", "id": "mcpl_a", "server_label": label, "tools": listed}]
    for number in range(100):
        call = {"type": "tool_search_call", "call_id": f"c{number}", "execution": "client", "arguments": {}}
        found = {"type": "tool_search_output", "call_id": call["call_id"], "execution": "client"}
        items += [call, found | {"tools": [{"type": "mcp", "server_label": "b"}]}]
    Compared.times = 0
    assert [tool["name"] for tool in lowered(*items, tools=tools).tools] == ["tool_search"]
    assert Compared.times < 2_000


def test_deferred_tools_are_hidden_until_the_client_finds_them() -> None:
    deferred: Tool = {"type": "function", "name": "send_mail", "parameters": {}, "defer_loading": True}
    tools: list[Tool] = [deferred, {"type": "tool_search", "execution": "client", "description": "Find tools."}]
    found: Item = {"type": "tool_search_output", "call_id": "c", "tools": [deferred]}
    assert [tool["name"] for tool in lowered(tools=tools).tools] == ["tool_search"]
    assert [tool["name"] for tool in lowered(found, tools=tools).tools] == ["tool_search", "send_mail"]


def test_deferred_tools_are_shown_to_a_model_that_cannot_search() -> None:
    tools: list[Tool] = [{"type": "function", "name": "f", "defer_loading": True}]
    assert lowered(tools=tools).tools == ({"type": "function", "name": "f"},)


CHOICES: dict[str, tuple[Any, frozenset[str], Any]] = {
    "a word": ("required", FUNCTIONS, "required"),
    "a function": ({"type": "function", "name": "f"}, FUNCTIONS, {"type": "function", "name": "f"}),
    "a function of a namespace": (
        {"type": "function", "name": "get", "namespace": "crm"},
        FUNCTIONS,
        {"type": "function", "name": "crm__get"},
    ),
    "the shell": ({"type": "shell"}, FUNCTIONS, {"type": "function", "name": "shell"}),
    "the shell, natively": ({"type": "shell"}, NATIVE_TO_OPENAI, {"type": "shell"}),
    "the interpreter, which is never native": (
        {"type": "code_interpreter"},
        NATIVE_TO_OPENAI | {"code_interpreter"},
        {"type": "function", "name": "python"},
    ),
    "some tools": (
        {"type": "allowed_tools", "mode": "required", "tools": [{"type": "shell"}, {"type": "custom", "name": "exec"}]},
        FUNCTIONS,
        {
            "type": "allowed_tools",
            "mode": "required",
            "tools": [{"type": "function", "name": "shell"}, {"type": "function", "name": "exec"}],
        },
    ),
    "a tool that is not there": ({"type": "apply_patch"}, FUNCTIONS, "auto"),
}


@pytest.mark.parametrize(("choice", "native", "result"), CHOICES.values(), ids=CHOICES.keys())
def test_the_tool_choice_speaks_of_the_same_tool(choice: Any, native: frozenset[str], result: Any) -> None:
    tools: list[Tool] = [
        {"type": "function", "name": "f"},
        HOSTED_SHELL,
        {"type": "code_interpreter", "container": {"type": "auto"}},
        {"type": "custom", "name": "exec"},
        {"type": "namespace", "name": "crm", "tools": [{"type": "function", "name": "get"}]},
    ]
    assert lowered(tools=tools, native=native, choice=choice).tool_choice == result


def test_a_grammar_is_told_to_a_model_that_cannot_be_held_to_it() -> None:
    form = {"type": "grammar", "syntax": "lark", "definition": "start: /[a-z]+/"}
    (tool,) = lowered(tools=[{"type": "custom", "name": "word", "description": "One word.", "format": form}]).tools
    assert tool["description"] == "One word.\n\nThe input must match this lark grammar:\nstart: /[a-z]+/"


def test_every_tool_that_can_be_lowered_is() -> None:
    also = ("tool_search", "web_search", "image_generation")
    for type_ in ("shell", "local_shell", "code_interpreter", "apply_patch", "computer", *also):
        tool: Tool = {"type": type_, "execution": "client"}
        assert [t["type"] for t in lowered(tools=[tool]).tools] == ["function"]


def test_no_upstream_draws_in_our_place() -> None:
    (tool,) = lowered(tools=[{"type": "image_generation"}], native=NATIVE_TO_OPENAI).tools
    assert (tool["type"], tool["name"]) == ("function", "image_generation")


def test_only_what_runs_here_is_hosted() -> None:
    assert is_hosted(HOSTED_SHELL)
    assert is_hosted({"type": "shell", "environment": {"type": "container_reference", "container_id": "cntr_1"}})
    assert is_hosted({"type": "code_interpreter"})
    assert not is_hosted({"type": "shell", "environment": {"type": "local"}})
    assert not is_hosted({"type": "shell", "environment": None})
    assert not is_hosted({"type": "function", "name": "f"})


# --- calls back ---------------------------------------------------------------------------------------------------------------------

RESTORED: dict[str, tuple[OriginalTool, str, Item | None]] = {
    "shell": (
        OriginalTool("shell", "shell"),
        '{"commands": ["ls"], "timeout_ms": 1000, "max_output_length": null}',
        {"type": "shell_call", "call_id": "c", "action": {"commands": ["ls"], "timeout_ms": 1000}},
    ),
    "shell as small models write it": (
        OriginalTool("shell", "shell"),
        '{"command": "ls"}',
        {"type": "shell_call", "call_id": "c", "action": {"commands": ["ls"]}},
    ),
    "shell, quoted twice": (
        OriginalTool("shell", "shell"),
        json.dumps('{"commands": ["ls"]}'),
        {"type": "shell_call", "call_id": "c", "action": {"commands": ["ls"]}},
    ),
    "shell with nonsense": (
        OriginalTool("shell", "shell"),
        '{"commands": []}',
        None,
    ),
    "shell with half of the JSON": (
        OriginalTool("shell", "shell"),
        '{"commands": ["l',
        None,
    ),
    "python": (
        OriginalTool("code_interpreter", "python"),
        '{"code": "print(1)"}',
        {"type": "code_interpreter_call", "call_id": "c", "code": "print(1)"},
    ),
    "python without a wrapper": (
        OriginalTool("code_interpreter", "python"),
        "print(1)",
        {"type": "code_interpreter_call", "call_id": "c", "code": "print(1)"},
    ),
    "local shell": (
        OriginalTool("local_shell", "local_shell"),
        '{"command": ["ls"], "working_directory": "/tmp"}',
        {
            "type": "local_shell_call",
            "status": "completed",
            "call_id": "c",
            "action": {"type": "exec", "command": ["ls"], "env": {}, "working_directory": "/tmp"},
        },
    ),
    "apply_patch": (
        OriginalTool("apply_patch", "apply_patch"),
        json.dumps(PATCH),
        {"type": "apply_patch_call", "call_id": "c", "operation": PATCH},
    ),
    "apply_patch within an operation": (
        OriginalTool("apply_patch", "apply_patch"),
        '{"operation": {"type": "delete_file", "path": "a", "diff": ""}}',
        {"type": "apply_patch_call", "call_id": "c", "operation": {"type": "delete_file", "path": "a"}},
    ),
    "apply_patch without a path": (
        OriginalTool("apply_patch", "apply_patch"),
        '{"type": "create_file"}',
        None,
    ),
    "computer": (
        OriginalTool("computer", "computer"),
        '{"actions": [{"type": "screenshot"}]}',
        {
            "type": "computer_call",
            "status": "completed",
            "call_id": "c",
            "actions": [{"type": "screenshot"}],
            "pending_safety_checks": [],
        },
    ),
    "computer preview": (
        OriginalTool("computer_use_preview", "computer"),
        '{"actions": [{"type": "screenshot"}]}',
        {"type": "computer_call", "status": "completed", "call_id": "c", "action": {"type": "screenshot"}, "pending_safety_checks": []},
    ),
    "tool search": (
        OriginalTool("tool_search", "tool_search"),
        '{"query": "mail"}',
        {"type": "tool_search_call", "status": "completed", "call_id": "c", "execution": "client", "arguments": {"query": "mail"}},
    ),
}


@pytest.mark.parametrize(("original", "arguments", "item"), RESTORED.values(), ids=RESTORED.keys())
def test_a_call_is_given_back_in_its_own_form(original: OriginalTool, arguments: str, item: Item | None) -> None:
    assert original.call_item(arguments, "c") == item


@pytest.mark.parametrize("arguments", ['{"input": "ls -l"}', "ls -l", '"ls -l"', '"{\\"input\\": \\"ls -l\\"}"'])
def test_the_input_of_a_custom_tool_is_taken_out_of_its_wrapper(arguments: str) -> None:
    assert OriginalTool("custom", "exec").custom_input(arguments) == "ls -l"
