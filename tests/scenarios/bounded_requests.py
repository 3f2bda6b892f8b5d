"""Requests for a response at their bounds. Each takes its sizes from ``at``, which is ``moorage.limits``, or a share of it.

``tests/contract/test_bounds.py`` holds that each bound of an input is taken by a case, here or in ``bounded_stories.py``, or stands in
its list with a reason.
"""

import base64
import io
import json
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from moorage import limits
from moorage.tools.programmatic_tool_calling.javascript import fingerprint_of

from tests.mcp_servers import PIXEL

Json = dict[str, Any]
Items = list[Json]


class Bounds(Protocol):
    """The names of ``moorage.limits``."""

    def __getattr__(self, name: str) -> int: ...


@dataclass(frozen=True)
class Share:
    """So much of each limit."""

    part: float = 1.0

    def __getattr__(self, name: str) -> int:
        return max(1, int(getattr(limits, name) * self.part))


NETWORK_DOMAIN = "example.com"
LINE = "x " * 100
HI: Items = [{"role": "user", "content": "hi"}]
IMAGE = f"data:image/png;base64,{base64.b64encode(PIXEL).decode()}"

# --- 10,000 items of each kind -------------------------------------------------------------------------------------------------------


def paired(call: Json, output: Json, key: str = "call_id") -> Callable[[int], Items]:
    return lambda number: [call | {key: f"call_{number}"}, output | {key: f"call_{number}"}]


def alone(item: Json, **numbered: str) -> Callable[[int], Items]:
    return lambda number: [item | {name: f"{prefix}_{number}" for name, prefix in numbered.items()}]


_RAN: Json = {"stdout": "a", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}
_TOOL: Json = {"type": "function", "name": "f", "parameters": {"type": "object", "properties": {}}}
_SCREEN: Json = {"type": "computer_screenshot", "image_url": IMAGE}

_ELEMENT: Json = {"ref": 1, "role": "button", "name": "a", "value": "", "states": [], "x": 1, "y": 1}
_PAGE: Json = {"url": "http://localhost/", "title": "a", "width": 1280, "height": 800, "tabs": [], "downloads": [], "refused": []}
_WHOLE_PAGE: Json = _PAGE | {"notes": [], "elements": [_ELEMENT] * 10, "text": LINE}


ITEMS: dict[str, Callable[[int], Items]] = {
    "messages": alone({"type": "message", "role": "user", "content": LINE}),
    "turns": lambda n: [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}],
    "functions": paired(
        {"type": "function_call", "name": "f", "arguments": '{"a": 1}'},
        {"type": "function_call_output", "output": "x" * 60},
    ),
    "custom tools": paired(
        {"type": "custom_tool_call", "name": "f", "input": "a"},
        {"type": "custom_tool_call_output", "output": "b"},
    ),
    "programs": paired(
        {"type": "program", "code": "return 1", "fingerprint": fingerprint_of("return 1")},
        {"type": "program_output", "result": "1", "status": "completed"},
    ),
    "calls of a team": paired(
        {"type": "multi_agent_call", "action": "list_agents", "arguments": "{}"},
        {"type": "multi_agent_call_output", "action": "list_agents", "output": [{"type": "output_text", "text": "a"}]},
    ),
    "messages of agents": alone(
        {
            "type": "agent_message",
            "author": "/root/a",
            "recipient": "/root",
            "content": [{"type": "input_text", "text": "a"}],
        }
    ),
    "shells": paired(
        {"type": "shell_call", "action": {"commands": ["ls"]}, "status": "completed"},
        {"type": "shell_call_output", "output": [_RAN]},
    ),
    "local shells": lambda n: [
        {"type": "local_shell_call", "call_id": f"call_{n}", "action": {"type": "exec", "command": ["ls"], "env": {}}},
        {"type": "local_shell_call_output", "id": f"call_{n}", "output": "a"},
    ],
    "patches": paired(
        {"type": "apply_patch_call", "status": "completed", "operation": {"type": "delete_file", "path": "a"}},
        {"type": "apply_patch_call_output", "status": "completed"},
    ),
    "computers": paired(
        {"type": "computer_call", "status": "completed", "action": {"type": "screenshot"}, "pending_safety_checks": []},
        {"type": "computer_call_output", "output": _SCREEN},
    ),
    "hosted computers": lambda n: [
        {"type": "computer_call", "call_id": f"call_{n}", "actions": [{"type": "wait"}], "with_elements": True},
        {"type": "computer_call_output", "call_id": f"call_{n}", "output": _SCREEN, "actions": [{"ok": True}], "page": _WHOLE_PAGE},
    ],
    "searches of tools": paired(
        {"type": "tool_search_call", "arguments": {}, "execution": "client"},
        {"type": "tool_search_output", "tools": [], "execution": "client"},
    ),
    "thoughts": alone({"type": "reasoning", "summary": [{"type": "summary_text", "text": "t"}]}, id="rs"),
    "runs of code": alone(
        {"type": "code_interpreter_call", "container_id": "cntr_1", "code": "1", "outputs": [{"type": "logs", "logs": "1"}]}, id="ci"
    ),
    "searches of files": alone({"type": "file_search_call", "queries": ["a"], "status": "completed", "results": []}, id="fs"),
    "searches of the web": alone({"type": "web_search_call", "action": {"type": "search"}, "status": "completed"}, id="ws"),
    "images": alone({"type": "image_generation_call", "status": "completed", "result": base64.b64encode(PIXEL).decode()}, id="ig"),
    "calls of servers": alone(
        {"type": "mcp_call", "server_label": "s", "name": "f", "arguments": "{}", "status": "completed", "output": "a"}, id="mcp"
    ),
    "calls of automations": alone(
        {"type": "automation_call", "arguments": '{"action":"list"}', "status": "completed", "output": "a"}, id="ac"
    ),
    "lists of servers": alone(
        {"type": "mcp_list_tools", "server_label": "s", "tools": [{"name": "f", "input_schema": {"type": "object"}}]}, id="mcpl"
    ),
    "approvals": lambda n: [
        {"type": "mcp_approval_request", "id": f"mcpr_{n}", "server_label": "s", "name": "f", "arguments": "{}"},
        {"type": "mcp_approval_response", "approval_request_id": f"mcpr_{n}", "approve": False},
    ],
    "tools that come on the way": lambda n: [{"type": "additional_tools", "role": "developer", "tools": [_TOOL | {"name": f"f{n}"}]}],
    "references": alone({"type": "item_reference"}, id="msg"),
    "compactions": alone({"type": "compaction", "encrypted_content": "a" * 40}, id="cmp"),
    "triggers of compaction": alone({"type": "compaction_trigger"}, id="ct"),
}
REFUSED_KINDS = {"configuration_update"}
"""By their names alone."""


def many(make: Callable[[int], Items], count: int) -> Items:
    size = len(make(0))
    return [item for number in range(count // size) for item in make(number)]


def zipped(files: dict[str, bytes]) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return made.getvalue()


# --- requests for a response ---------------------------------------------------------------------------------------------------------


def function(name: str, parameters: Json, **more: Any) -> Json:
    return {"type": "function", "name": name, "parameters": parameters, **more}


def properties(count: int, words: int) -> Json:
    return {f"p{n}": {"type": "string", "enum": [f"e{k}" for k in range(words)]} for n in range(count)}


def nested(depth: int) -> Json:
    made: Json = {"type": "string"}
    for _ in range((depth - 3) // 2):
        made = {"type": "object", "properties": {"a": made}}
    return made


def schema(parameters: Json) -> Json:
    return {"format": {"type": "json_schema", "name": "s", "schema": parameters}}


def said_text(text: str) -> Json:
    return {"type": "input_text", "text": text}


def left_out(at: Bounds) -> Json:
    return {"input": [{"role": "user", "content": LINE}] * at.INPUT_ITEMS_MAX, "truncation": "auto"}


def kept(at: Bounds) -> Json:
    half = at.INPUT_ITEMS_MAX // 2
    kept_items = [{"role": "developer", "content": "a"}] * half
    return {"input": kept_items + [{"role": "user", "content": LINE}] * (half - 1), "truncation": "auto"}


def calls_left_out(at: Bounds) -> Json:
    return {"input": many(ITEMS["functions"], at.INPUT_ITEMS_MAX - 2) + HI, "truncation": "auto"}


def a_long_text(at: Bounds) -> Json:
    return {"input": "word " * (at.TEXT_CHARS_MAX // 5)}


def an_escaped_text(at: Bounds) -> Json:
    """Each character takes two bytes of JSON."""
    return {"input": "\n" * at.TEXT_CHARS_MAX}


def a_text_of_symbols(at: Bounds) -> Json:
    """Each character takes four bytes."""
    text = "\N{GRINNING FACE}" * (at.REQUEST_BODY_BYTES_MAX // 12 - 10_000)
    return {"input": [{"role": "user", "content": text}], "truncation": "auto"}


def control_characters(at: Bounds) -> Json:
    """Each takes six bytes of JSON."""
    return {"input": [{"role": "user", "content": "\1" * (at.REQUEST_BODY_BYTES_MAX // 6 - 10_000)}]}


def a_whole_body(at: Bounds) -> Json:
    texts = (at.REQUEST_BODY_BYTES_MAX - 10_000) // 4
    return {"input": [{"role": "user", "content": [said_text("é" * (texts // 6)) for _ in range(4)]}]}


def parts(at: Bounds) -> Json:
    return {"input": [{"role": "user", "content": [said_text("a")] * at.INPUT_ITEMS_MAX}]}


def values(at: Bounds) -> Json:
    each = at.REQUEST_VALUES_MAX // 10_000 // 3 - 2
    return {"input": [{"role": "user", "content": [said_text("a")] * each}] * 9_900}


def tools(at: Bounds) -> Json:
    look = {"type": "object", "properties": properties(8, 10)}
    return {"input": "hi", "tools": [function(f"f{n}", look) for n in range(at.TOOLS_MAX)]}


def strict_tools(at: Bounds) -> Json:
    look = {"type": "object", "properties": properties(8, 10), "required": [f"p{n}" for n in range(8)], "additionalProperties": False}
    return {"input": "hi", "tools": [function(f"f{n}", look, strict=True) for n in range(at.TOOLS_MAX)]}


def large_tools(at: Bounds) -> Json:
    """Some 15 MB of schemas."""
    look = {"type": "object", "properties": properties(at.TOOLS_MAX // 17, 20)}
    return {"input": "hi", "tools": [function(f"f{n}", look) for n in range(128)]}


def deferred_tools(at: Bounds) -> Json:
    offered = [function(f"f{n}", {"type": "object", "properties": {}}, defer_loading=True) for n in range(at.TOOLS_MAX - 1)]
    return {"input": "hi", "tools": [{"type": "tool_search"}, *offered]}


def namespaces(at: Bounds) -> Json:
    name = "n" * (at.NAMESPACE_NAME_CHARS_MAX - 4)
    spaces = [
        {
            "type": "namespace",
            "name": f"{name}{n}",
            "description": "d",
            "tools": [function(f"f{k}", {"type": "object", "properties": {}}) for k in range(at.TOOLS_MAX)],
        }
        for n in range(20)
    ]
    return {"input": "hi", "tools": spaces}


def chosen_tools(at: Bounds) -> Json:
    names = [f"f{n}" for n in range(at.TOOLS_MAX)]
    choice = {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": name} for name in names]}
    return {"input": "hi", "tools": [function(name, {"type": "object", "properties": {}}) for name in names], "tool_choice": choice}


def a_deep_schema(at: Bounds) -> Json:
    return {"input": "hi", "text": schema(nested(at.JSON_DEPTH_MAX - 4)), "tools": [function("f", nested(at.JSON_DEPTH_MAX - 4))]}


def a_large_schema(at: Bounds) -> Json:
    return {"input": "hi", "text": schema({"type": "object", "properties": properties(at.REQUEST_VALUES_MAX // 50, 20)})}


def metadata(at: Bounds) -> Json:
    key = "k" * (at.METADATA_KEY_CHARS_MAX - 2)
    return {"input": "hi", "metadata": {f"{key}{n:02}": "v" * at.METADATA_VALUE_CHARS_MAX for n in range(at.METADATA_PAIRS_MAX)}}


def long_names(at: Bounds) -> Json:
    call = "c" * at.CALL_ID_CHARS_MAX
    name = "f" * at.NAME_CHARS_MAX
    return {
        "input": [
            {"role": "user", "content": "hi", "id": "m" * at.ITEM_ID_CHARS_MAX},
            {"type": "function_call", "call_id": call, "name": name, "arguments": "{}"},
            {"type": "function_call_output", "call_id": call, "output": "a"},
        ],
        "tools": [function(name, {"type": "object", "properties": {}})],
        "text": {"format": {"type": "json_schema", "name": "s" * at.SCHEMA_NAME_CHARS_MAX, "schema": {"type": "object"}}},
        "user": "u" * at.IDENTIFIER_CHARS_MAX,
        "prompt_cache_key": "p" * at.IDENTIFIER_CHARS_MAX,
        "safety_identifier": "s" * at.IDENTIFIER_CHARS_MAX,
    }


def a_long_model(at: Bounds) -> Json:
    return {"model": "m" * at.MODEL_NAME_CHARS_MAX, "input": "hi"}


def unknown_fields(at: Bounds) -> Json:
    return {"input": "hi", **{"u" * at.PARAM_NAME_CHARS_MAX + str(n): 1 for n in range(20 * at.FAULTS_MAX)}}


def faults(at: Bounds) -> Json:
    wrong = {"role": "user", "content": "a", **{f"u{n}": 1 for n in range(at.FIELDS_TOLD_MAX // 10)}}
    return {"input": [wrong] * (10 * at.FAULTS_MAX)}


def an_image(at: Bounds) -> Json:
    head = "data:image/png;base64,"
    content = base64.b64encode(PIXEL + bytes((at.IMAGE_URL_CHARS_MAX - len(head)) // 4 * 3 - len(PIXEL) - 3)).decode()
    return {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": head + content}]}]}


def a_file(at: Bounds) -> Json:
    size = at.REQUEST_BODY_BYTES_MAX // 4 * 3 - 100_000
    data = "data:text/plain;base64," + base64.b64encode(b"word " * (size // 5)).decode()
    part = {"type": "input_file", "filename": "n" * at.INPUT_FILE_NAME_CHARS_MAX, "file_data": data}
    return {"input": [{"role": "user", "content": [part]}], "truncation": "auto"}


def a_file_by_address(at: Bounds) -> Json:
    address = "http://127.0.0.1:9/".ljust(at.FILE_URL_CHARS_MAX, "a")
    return {"input": [{"role": "user", "content": [{"type": "input_file", "file_url": address}]}]}


def a_long_thought(at: Bounds) -> Json:
    thought = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "a" * at.ENCRYPTED_CONTENT_CHARS_MAX}
    return {"input": [thought, *HI]}


def a_far_agent(at: Bounds) -> Json:
    name = "/root".ljust(at.TEAM_NAME_CHARS_MAX, "a")
    return {"input": [{"role": "assistant", "content": "a", "agent": {"agent_name": name}}, *HI]}


def commands(at: Bounds) -> Json:
    count = at.COMMANDS_PER_CALL_MAX
    text = "a" * at.COMMAND_CHARS_MAX
    call = {"type": "shell_call", "call_id": "c", "action": {"commands": [text] * count}, "status": "completed"}
    file = {"file_id": "cfile_1", "path": "/mnt/data/a", "bytes": 1}
    ran = _RAN | {"stdout": "o" * (at.OUTPUT_CHARS_MAX // 2)}
    files = [file] * at.OUTPUT_FILES_MAX
    output = {"type": "shell_call_output", "call_id": "c", "output": [ran] * count, "output_files": files}
    return {"input": [call, output, *HI]}


def a_long_path(at: Bounds) -> Json:
    operation = {"type": "delete_file", "path": "p" * at.PATCH_PATH_CHARS_MAX}
    call = {"type": "apply_patch_call", "call_id": "c", "status": "completed", "operation": operation}
    return {"input": [call, {"type": "apply_patch_call_output", "call_id": "c", "status": "completed"}, *HI]}


def approved_commands(at: Bounds) -> Json:
    """The most patterns, asked for each command of a call that the model makes."""
    words = ["*a" * (at.APPROVAL_PATTERN_CHARS_MAX // 2 - 3) + f"{n}" for n in range(at.APPROVAL_PATTERNS_MAX)]
    asks = {"always": {"commands": words}, "never": {"commands": words}}
    command = "a " * (at.COMMAND_CHARS_MAX // 20) + ";a" * (at.COMMAND_CHARS_MAX // 20)
    step = {"shell": {"commands": [command]}}
    script = f"```moorage-script\n{json.dumps([step])}\n```"
    return {"input": script, "tools": [{"type": "shell", "environment": {"type": "container_auto"}, "require_approval": asks}]}


def a_network(at: Bounds) -> Json:
    domains = [f"h{n}.{NETWORK_DOMAIN}" for n in range(at.ALLOWED_DOMAINS_MAX)]
    each = min(at.DOMAIN_SECRET_CHARS_MAX, at.DOMAIN_SECRETS_CHARS_MAX // at.DOMAIN_SECRETS_MAX - 60)
    secrets = [{"domain": domains[n], "name": f"S{n}", "value": "v" * each} for n in range(at.DOMAIN_SECRETS_MAX)]
    policy = {"type": "allowlist", "allowed_domains": domains, "domain_secrets": secrets}
    return {"input": "hi", "tools": [{"type": "shell", "environment": {"type": "container_auto", "network_policy": policy}}]}


def a_full_environment(at: Bounds) -> Json:
    skills = [{"type": "skill_reference", "skill_id": "s" * at.NAME_CHARS_MAX} for _ in range(at.SKILLS_ATTACHED_MAX)]
    environment = {
        "type": "container_auto",
        "file_ids": [f"file-{n}" for n in range(at.CONTAINER_FILE_IDS_MAX)],
        "skills": skills,
        "agents_md": "/mnt/data/".ljust(at.NAME_CHARS_MAX, "a"),
        "expires_after": {"anchor": "last_active_at", "minutes": at.CONTAINER_IDLE_MINUTES_MAX},
    }
    return {"input": "hi", "tools": [{"type": "shell", "environment": environment}]}


def inline_skills(at: Bounds) -> Json:
    """As many as a body holds of the largest front matter."""
    skills = []
    for n in range(at.SKILLS_ATTACHED_MAX):
        more = "m" * (at.SKILL_FRONT_MATTER_CHARS_MAX // 2)
        front = f"name: skill-{n}\ndescription: {'d' * at.SKILL_DESCRIPTION_CHARS_MAX}\nmetadata:\n  a: {more}\n"
        data = base64.b64encode(zipped({f"skill-{n}/SKILL.md": f"---\n{front}---\n".encode()})).decode()
        source = {"type": "base64", "media_type": "application/zip", "data": data}
        skills.append({"type": "inline", "name": f"skill-{n}", "description": "d" * at.SKILL_DESCRIPTION_CHARS_MAX, "source": source})
    return {"input": "hi", "tools": [{"type": "shell", "environment": {"type": "container_auto", "skills": skills}}]}


def a_large_inline_skill(at: Bounds) -> Json:
    source = {"type": "base64", "media_type": "application/zip", "data": "A" * (at.REQUEST_BODY_BYTES_MAX - 10_000)}
    skill = {"type": "inline", "name": "large", "description": "d", "source": source}
    return {"input": "hi", "tools": [{"type": "shell", "environment": {"type": "container_auto", "skills": [skill]}}]}


def a_grammar(at: Bounds) -> Json:
    rules = "\n".join(f'r{n}: "a{n}"' for n in range(at.GRAMMAR_CHARS_MAX // 20))
    grammar = {"type": "grammar", "syntax": "lark", "definition": f"start: r0\n{rules}\n"}
    step = {"call": {"name": "g", "arguments": {"input": "a" * at.GRAMMAR_INPUT_CHARS_MAX}}}
    script = f"```moorage-script\n{json.dumps([step])}\n```"
    return {"input": script, "tools": [{"type": "custom", "name": "g", "format": grammar}]}


def a_grammar_that_is_slow(at: Bounds) -> Json:
    grammar = {"type": "grammar", "syntax": "lark", "definition": 'start: "a" start? "a"?\n'}
    step = {"call": {"name": "g", "arguments": {"input": "a" * at.GRAMMAR_EARLEY_CHARS_MAX}}}
    script = f"```moorage-script\n{json.dumps([step])}\n```"
    return {"input": script, "tools": [{"type": "custom", "name": "g", "format": grammar}]}


def compacted(at: Bounds) -> Json:
    entry = {
        "type": "compaction",
        "compact_threshold": 10**9,
        "prompt": "p" * at.COMPACTION_PROMPT_CHARS_MAX,
        "keep_recent_items": at.COMPACTION_RECENT_ITEMS_MAX,
    }
    return {"input": many(ITEMS["turns"], at.INPUT_ITEMS_MAX), "context_management": [entry]}


def a_filter(at: Bounds) -> Json:
    one = {"type": "in", "key": "k" * at.ATTRIBUTE_KEY_CHARS_MAX, "value": ["v" * at.ATTRIBUTE_TEXT_CHARS_MAX] * at.FILTER_VALUES_MAX}
    made: Json = {"type": "and", "filters": [one] * min(60, at.FILTER_PARTS_MAX - at.FILTER_DEPTH_MAX)}
    for _ in range(at.FILTER_DEPTH_MAX - 2):
        made = {"type": "or", "filters": [made]}
    tool = {
        "type": "file_search",
        "vector_store_ids": [f"vs_{n}" for n in range(at.SEARCH_STORES_MAX)],
        "max_num_results": at.SEARCH_RESULTS_MAX,
        "filters": made,
    }
    return {"input": "hi", "tools": [tool]}


def domains_of_the_web(at: Bounds) -> Json:
    domains = [f"h{n}.example.com" for n in range(at.WEB_DOMAINS_MAX)]
    return {"input": "hi", "tools": [{"type": "web_search", "filters": {"allowed_domains": domains, "blocked_domains": domains}}]}


def drawn_on(at: Bounds) -> Json:
    head = "data:image/png;base64,"
    mask = head + base64.b64encode(PIXEL.ljust((at.IMAGE_MASK_CHARS_MAX - len(head)) // 4 * 3, b"\0")).decode()
    call = {
        "type": "image_generation_call",
        "id": "ig_1",
        "status": "completed",
        "result": "a" * (at.IMAGE_EVENT_BYTES_MAX // 4 * 4),
        "input_images": ["file-1"] * at.IMAGES_DRAWN_ON_MAX,
    }
    tool = {"type": "image_generation", "input_image_mask": {"image_url": mask}, "partial_images": at.IMAGE_PARTS_MAX}
    return {"input": [call, *HI], "tools": [tool]}


def a_list_of_tools(at: Bounds) -> Json:
    listed = [{"name": f"t{n}", "input_schema": {"type": "object", "properties": properties(2, 10)}} for n in range(at.MCP_TOOLS_MAX)]
    lists = [{"type": "mcp_list_tools", "id": f"mcpl_{n}", "server_label": "s", "tools": listed} for n in range(10)]
    return {"input": [*lists, *HI]}


def headers_for_a_server(at: Bounds) -> Json:
    tool = {
        "type": "mcp",
        "server_label": "s" * at.NAMESPACE_NAME_CHARS_MAX,
        "server_url": "http://127.0.0.1:9/".ljust(at.MCP_URL_CHARS_MAX, "a"),
        "headers": {f"x-{n}": "h" * at.MCP_HEADER_CHARS_MAX for n in range(at.MCP_HEADERS_MAX)},
        "allowed_tools": [f"t{n}" for n in range(at.INPUT_ITEMS_MAX)],
    }
    return {"input": "hi", "tools": [tool]}


def of_items(make: Callable[[int], Items], at: Bounds) -> Json:
    return {"input": many(make, at.INPUT_ITEMS_MAX - 2) + HI}


REQUESTS: dict[str, Callable[[Bounds], Json]] = {
    "messages that are left out": left_out,
    "messages that stay": kept,
    "calls that are left out": calls_left_out,
    "a long text": a_long_text,
    "an escaped text": an_escaped_text,
    "a text of symbols": a_text_of_symbols,
    "control characters": control_characters,
    "a whole body": a_whole_body,
    "parts": parts,
    "values": values,
    "tools": tools,
    "strict tools": strict_tools,
    "large tools": large_tools,
    "deferred tools": deferred_tools,
    "namespaces": namespaces,
    "chosen tools": chosen_tools,
    "a deep schema": a_deep_schema,
    "a large schema": a_large_schema,
    "metadata": metadata,
    "long names": long_names,
    "a long model": a_long_model,
    "unknown fields": unknown_fields,
    "faults": faults,
    "an image": an_image,
    "a file": a_file,
    "a file by its address": a_file_by_address,
    "a long thought": a_long_thought,
    "an agent far below": a_far_agent,
    "commands": commands,
    "a long path": a_long_path,
    "approved commands": approved_commands,
    "a network": a_network,
    "a full environment": a_full_environment,
    "inline skills": inline_skills,
    "a large inline skill": a_large_inline_skill,
    "a grammar": a_grammar,
    "a grammar that is slow": a_grammar_that_is_slow,
    "compacted": compacted,
    "a filter": a_filter,
    "domains of the web": domains_of_the_web,
    "drawn on": drawn_on,
    "a list of tools": a_list_of_tools,
    "headers for a server": headers_for_a_server,
    **{f"{name} (items)": partial(of_items, make) for name, make in ITEMS.items()},
}
