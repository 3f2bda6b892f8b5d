"""The functions that stand for tools which a model was not trained on: what it is told about each, in few words."""

from typing import Any

from moorage.model.base import Tool


def function(name: str, description: str, properties: dict[str, Any], required: list[str]) -> Tool:
    """A function tool. ``strict`` is off: optional parameters stay optional."""
    parameters = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
    return {"type": "function", "name": name, "description": description, "parameters": parameters, "strict": False}


def shell(name: str, tool: Tool) -> Tool:
    return function(name, _SHELL_DESCRIPTION, _SHELL_PROPERTIES, ["commands"])


_SHELL_DESCRIPTION = """\
Run shell commands (bash) in a Linux container and read what they print.
- The commands of one call run concurrently, each in its own shell of the same container. Ordered work is one command: `a && b`.
- They start in /mnt/data. Files there are kept between calls and can be downloaded by the user: put results there.
- There is no terminal and no sudo, and no network unless the user was granted some.
- Long output is cut: head and tail are kept, and a marker between them names the file that holds all of it.
- A command that runs longer than timeout_ms is killed; what it printed until then is returned.
- Start services and jobs that take long with `setsid nohup ... >log 2>&1 &`; they live on between calls, and a later call reads the \
log."""

_SHELL_PROPERTIES: dict[str, Any] = {
    "commands": {
        "type": "array",
        "items": {"type": "string"},
        "minItems": 1,
        "description": "Commands to run concurrently.",
    },
    "timeout_ms": {"type": "integer", "description": "Time limit of each command in milliseconds; 120000 if left out."},
    "max_output_length": {
        "type": "integer",
        "description": "Characters of stdout and stderr to return per command; 16000 if left out.",
    },
}


def shell_of_client(name: str, tool: Tool) -> Tool:
    text = "Run shell commands on the user's computer and read what they print. Ordered work is one command: `a && b`."
    skills = (tool.get("environment") or {}).get("skills") or []
    if skills:
        text += "\nSkills there, each a folder whose SKILL.md says how to do something; read it before you do that:"
        text += "".join(f"\n- {skill['name']} ({skill['path']}): {skill.get('description', '')}" for skill in skills)
    return function(name, text, _SHELL_PROPERTIES_OF_CLIENT, ["commands"])


_SHELL_PROPERTIES_OF_CLIENT: dict[str, Any] = {
    "commands": {"type": "array", "items": {"type": "string"}, "minItems": 1, "description": "Commands to run."},
    "timeout_ms": {"type": "integer", "description": "Time limit of each command in milliseconds."},
    "max_output_length": {"type": "integer", "description": "Characters of stdout and stderr to return per command."},
}


def python(name: str, tool: Tool) -> Tool:
    return function(name, _PYTHON_DESCRIPTION, {"code": {"type": "string", "description": "Python source code."}}, ["code"])


_PYTHON_DESCRIPTION = """\
Run Python code in a Linux container and read what it prints, and the value of a last expression.
- Variables and imports are kept from call to call; you are told when they are gone.
- It starts in /mnt/data. Files there are kept; the user can download those that you name in your answer.
- matplotlib figures that are left open are saved there, and shown to the user.
- Code that runs for minutes is stopped, and its variables are lost. No network unless the user was granted some."""


def local_shell(name: str, tool: Tool) -> Tool:
    properties = {
        "command": {"type": "array", "items": {"type": "string"}, "description": 'Program and arguments: ["bash", "-lc", "ls"].'},
        "env": {"type": "object", "additionalProperties": {"type": "string"}},
        "timeout_ms": {"type": "integer"},
        "user": {"type": "string"},
        "working_directory": {"type": "string"},
    }
    return function(name, "Run a command on the user's computer and read what it prints.", properties, ["command"])


def apply_patch(name: str, tool: Tool) -> Tool:
    properties = {
        "type": {"type": "string", "enum": ["create_file", "update_file", "delete_file"]},
        "path": {"type": "string", "description": "Path relative to the workspace."},
        "diff": {
            "type": "string",
            "description": "V4A diff; every line of a new file begins with +. Left out for delete_file.",
        },
    }
    return function(name, _APPLY_PATCH_DESCRIPTION, properties, ["type", "path"])


_APPLY_PATCH_DESCRIPTION = """\
Create, change or delete one file of the user's workspace. The diff of update_file is V4A: sections that begin with `@@` and
optionally a line such as `@@ def name():` to say where, then about three lines of context before and after (each after one
space), removed lines with `-` and added ones with `+`. There are no line numbers."""


def computer(name: str, tool: Tool) -> Tool:
    kinds = ["click", "double_click", "drag", "keypress", "move", "screenshot", "scroll", "type", "wait"]
    action = {
        "type": "object",
        "properties": {
            "type": {"type": "string", "enum": kinds},
            "x": {"type": "integer"},
            "y": {"type": "integer"},
            "button": {"type": "string", "enum": ["left", "right", "wheel", "back", "forward"]},
            "keys": {"type": "array", "items": {"type": "string"}},
            "path": {
                "type": "array",
                "items": {"type": "object", "properties": {"x": {"type": "integer"}, "y": {"type": "integer"}}},
            },
            "scroll_x": {"type": "integer"},
            "scroll_y": {"type": "integer"},
            "text": {"type": "string"},
        },
        "required": ["type"],
    }
    text = "Act on the user's computer screen; the answer is a screenshot. Begin with a screenshot action."
    if tool["type"] == "computer_use_preview":
        text += f" It shows {tool['environment']}, {tool['display_width']} by {tool['display_height']} pixels."
    return function(name, text, {"actions": {"type": "array", "items": action, "minItems": 1}}, ["actions"])


def custom(name: str, tool: Tool) -> Tool:
    """Free text as one string parameter; the upstream cannot enforce a grammar, so the model reads it."""
    description = tool.get("description") or ""
    form = tool.get("format") or {"type": "text"}
    if form["type"] == "grammar":
        description += f"\n\nThe input must match this {form['syntax']} grammar:\n{form['definition']}"
    return function(name, description.strip(), {"input": {"type": "string", "description": "The tool's raw input."}}, ["input"])


def tool_search(name: str, tool: Tool) -> Tool:
    text = tool.get("description") or "Search for further tools by what they should do. Tools that are found can be called afterwards."
    made = function(name, text, {"query": {"type": "string"}}, ["query"])
    parameters = tool.get("parameters")
    return made | {"parameters": parameters} if parameters else made
