"""What is known of a tool is known in its room: no other module names it."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest
from moorage.tools import capabilities
from moorage.tools.registry import ROOMS
from moorage.tools.room import HostedTool, RerunPolicy, Room

from tests.contract.test_architecture import ROOT, core_files, modules, nodes, programs

BASE = {"function", "custom", "tool_search"}
"""The words of function calling itself, which every part of the loop speaks."""

SPEAKERS = {
    "moorage.model.openai_responses": "which of them OpenAI's models were trained on, and OpenAI's form of their items",
    "moorage.model.anthropic_computer": "Anthropic's form of its calls",
    "moorage.model.demo": "a scripted model's own words for its calls",
    "moorage.store.lanes": "the item that a message between agents is",
    "moorage.cli.checks.deployment": "a client of the API that asks a deployment for a shell",
    "moorage.cli.checks.new_account": "a setting of a deployment, of that name",
    "moorage.local.demo": "a client of the API that shows what it gets",
    "moorage.local.demonstrations": "its questions, and the tools that answer them",
    "moorage.cli.demo": "the names of its questions",
    "moorage.containers.cli": "a client of the API that runs a command in a container",
    "moorage.tools.approval_items": "OpenAI's form of a question to a person, which other tools ask in too",
    "moorage.tools.mcp.workspace.files": "the command that applies patches in a container",
    "moorage.tools.mcp.workspace.toolset": "the names of tools, as models were trained on them",
    "moorage.tools.mcp.workspace.terminals": "the name of an argument, which models were trained on",
    "moorage.automations.by_agents": "the resource of that name",
    "moorage.automations.store": "the same",
    "moorage.agents.shapes": "the Agents API's own form of tools",
    "moorage.agents.settings": "the same, said in the form of ``/v1/responses``",
    "moorage.agents.turn_items": "items of responses, as the Agents API shows them",
    "moorage.agents.turn_events": "their events, likewise",
    "moorage.agents.team_items": "what agents ask of each other, likewise",
    "moorage.agents.team_events": "the agents of a turn, as the Agents API tells of them",
    "moorage.agents.session_vaults": "the tools whose servers take a token of a vault",
    "moorage.agents.session_start": "whether a session has a place for a browser",
    "moorage.agents.turns": "what an environment brings to an agent",
    "moorage.agents.session_objects": "the one form in which the Agents API asks a person",
    "moorage.approvals.waiting": "the same, as a webhook says it",
    "moorage.model.search_engine": "a kind of search engine that is a server of this protocol",
    "moorage.tools.web_search.engines": "the same",
    "moorage.cli.main": "a command of its own of that name",
    "moorage.tools.mcp.workspace.gate": "the name of an argument, which models were trained on",
    "moorage.cli.completion": "the word for the user's own shell",
    "moorage.sandbox.exec_client": "the exec server's word for the shell of a session",
    "functions/sandbox/server/sessions.py": "the same",
    "infra/config.py": "a section and a field of models.toml",
}
"""Who may name tools besides, and why."""

IN_THE_CONSOLE = {
    "model/fold.js": "the events of calls, which it adds up as the server does",
    "model/run.js": "which items a client answers",
    "model/request.js": "a request by switches",
    "model/agents.js": "tools of a saved agent, to be filled in",
    "pages/agents.js": "the pages of the resource of that name",
    "pages/automations.js": "the same",
    "pages/session.js": "the same",
    "pages/session_details.js": "the same",
    "pages/all.js": "the same",
    "ui/palette.js": "the same",
    "pages/playground.js": "its switches",
    "pages/doctor.js": "a sandbox to try",
    "pages/welcome.js": "a first request",
    "pages/approvals.js": "an example of a request that waits for approval",
    "pages/skills.js": "how a skill is given to a shell",
    "pages/store.js": "how a store is given to a search",
    "ui/offered.js": "what a server offers",
}
"""The console is a client of the API; these of its modules name tools, and all others show what they are given."""


def named_rooms() -> list[Room]:
    return [room for room in ROOMS if not BASE & set(room.types)]


def names_of(room: Room) -> set[str]:
    own = room.events if isinstance(room, HostedTool) else {}
    events = {f"response.{name}" for name in own} | set(own)
    return {*room.types, *room.id_prefixes, *events}


@cache
def all_names() -> set[str]:
    return {word for room in named_rooms() for word in names_of(room)}


@cache
def literals(path: Path) -> set[str]:
    """The strings of a program; of one that has none of the tools' words, none."""
    if path.suffix == ".js":
        return {text for _, text in re.findall(r"""(["'`])((?:(?!\1)[^\\\n])*)\1""", path.read_text())}
    return {node.value for node in nodes(path, *all_names()) if isinstance(node, ast.Constant) and isinstance(node.value, str)}


def home(room: Room) -> str:
    return type(room).__module__.rpartition(".")[0]


def places() -> dict[str, Path]:
    """The modules of the library, and the programs beside it."""
    beside = {str(path.relative_to(ROOT)): path for path in programs()}
    return modules() | {name: path for name, path in beside.items() if name.startswith(("functions/", "infra/", "localstack/"))}


def strangers() -> dict[str, set[str]]:
    """Modules outside of ``wire/`` and of a tool's own folder, with the tools' words that they hold."""
    found: dict[str, set[str]] = {}
    everywhere = places()
    for room in named_rooms():
        words = names_of(room)
        for name, path in everywhere.items():
            if not name.startswith((f"{home(room)}.", "moorage.wire.")) and words & literals(path):
                found.setdefault(name, set()).update(words & literals(path))
    return found


def test_a_tool_is_named_in_its_own_folder_and_in_the_protocol_alone() -> None:
    assert {name: words for name, words in strangers().items() if name not in SPEAKERS} == {}


def test_the_console_names_tools_where_it_asks_for_them_alone() -> None:
    (console,) = {path.parent / "console" for path in core_files() if path.parts[-2:] == ("moorage", "runtime.py")}
    assert {str(path.relative_to(console)) for path in console.rglob("*.js") if all_names() & literals(path)} == IN_THE_CONSOLE.keys()


IN_THE_PROTOCOL = {
    "moorage.wire.environments": "shell and code interpreter of a request share one container",
    "moorage.wire.item": "a call says which program has made it",
    "moorage.wire.tools": "a web search is left out or refused where the operator has named no engine, whatever else is asked",
    "moorage.wire.choices": "three names for one computer",
    "moorage.wire.items": "a local shell's call and output may share an id",
    "moorage.wire.chat": "the tools that the older protocol takes besides functions",
    "moorage.wire.chat_answers": "their calls, which the older protocol has no words for",
}
"""Modules of ``wire/`` that name a tool, and why. What its definition, items and events look like is said in its folder."""


def test_the_protocol_leaves_the_shapes_of_tools_to_their_folders() -> None:
    named = {
        name
        for name, path in modules().items()
        if name.startswith("moorage.wire.")
        for room in named_rooms()
        if names_of(room) & literals(path)
    }
    assert named == IN_THE_PROTOCOL.keys()


def test_whoever_else_may_name_tools_does() -> None:
    assert SPEAKERS.keys() - strangers().keys() == set()


def members(of: type) -> set[str]:
    return {name for name in {**vars(of), **vars(of).get("__annotations__", {})} if not name.startswith("_")}


CAPABILITIES = [HostedTool, *(each for each in vars(capabilities).values() if isinstance(each, type) and each.__base__ is Room)]


def test_the_page_on_tools_has_all_that_a_room_says() -> None:
    page = (ROOT / "docs" / "tools.md").read_text()
    named = set(re.findall(r"\w+", " ".join(re.findall(r"`([^`\n]+)`", page))))
    assert set().union(*map(members, (Room, *CAPABILITIES))) - named == set()
    assert {each.__name__ for each in CAPABILITIES} - named == set()


def test_a_room_has_few_members_and_each_capability_has_users() -> None:
    assert len(members(Room)) <= 21
    assert len(CAPABILITIES) > 10
    assert {each.__name__ for each in CAPABILITIES if not any(isinstance(room, each) for room in ROOMS)} == set()


def test_each_folder_is_a_room_and_each_room_a_folder() -> None:
    (tools,) = {path.parent for path in core_files() if path.parts[-2:] == ("tools", "registry.py")}
    folders = {f"moorage.tools.{path.name}" for path in tools.iterdir() if (path / "__init__.py").exists()}
    assert {home(room) for room in ROOMS} == folders


@pytest.mark.parametrize("room", named_rooms(), ids=lambda room: room.call_type)
def test_what_a_tool_looks_like_is_said_in_its_folder(room: Room) -> None:
    declared = [*room.tool_shapes.values(), *room.item_shapes.values()]
    assert {shape.__module__ for shape in declared} == {f"{home(room)}.shapes"}
    assert set(room.item_shapes) == set(room.id_prefixes)
    assert set(room.tool_shapes) <= set(room.types)


@pytest.mark.parametrize("room", [room for room in ROOMS if isinstance(room, HostedTool)], ids=lambda room: room.call_type)
def test_a_hosted_tool_is_whole(room: HostedTool) -> None:
    assert room.obfuscated_events <= room.events.keys()
    made = {"run", "end", "apply_event", "open_call", "input_items", "function_tool", "parse_call", "call_runner"} | (
        {"empty_output"} if room.output_type else set()
    )
    assert {name for name in made if getattr(type(room), name) is getattr(HostedTool, name)} == set()
    assert {room.call_type, room.result_type} <= room.id_prefixes.keys()
    assert room.rerun_policy is RerunPolicy.ATTACH or room.call_limits.seconds is not None, (
        "what is not followed over many runs needs a bound of time"
    )
