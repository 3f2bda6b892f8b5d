"""The function that replaces the shell, and the model's view of its calls."""

from typing import Any, Final

from moorage import limits
from moorage.skills.bundle import SKILLS
from moorage.tools.function_items import function
from moorage.wire.types import Item, Tool

NAME: Final = "shell"


def hosted(name: str, tool: Tool) -> Tool:
    return function(name, _DESCRIPTION + _told(skills_of(tool)), _PROPERTIES, ["commands"])


def skills_of(tool: Tool) -> list[dict[str, str]]:
    """Name, description and path of each of a container's skills, in the request's order; of very many the first, and where the others
    are."""
    told: list[dict[str, str]] = []
    left = limits.SKILL_CONTEXT_CHARS_MAX
    skills = (tool.get("environment") or {}).get("skills") or []
    for index, skill in enumerate(skills):
        shown = {key: skill[key] for key in ("name", "description", "path")}
        left -= sum(map(len, shown.values()))
        if left < 0:
            rest = f"{len(skills) - index} more skills lie in this folder, each with a SKILL.md; list them with ls and head."
            return [*told, {"name": "more-skills", "description": rest, "path": SKILLS}]
        told.append(shown)
    return told


def _told(skills: list[dict[str, Any]]) -> str:
    if not skills:
        return ""
    lines = [f"\n- {skill['name']} ({skill['path']}): {skill.get('description', '')}" for skill in skills]
    return "\nSkills there, each a folder whose SKILL.md says how to do something; read it before you do that:" + "".join(lines)


_DESCRIPTION: Final = """\
Run shell commands (bash) in a Linux container and read what they print.
- The commands of one call run concurrently, each in its own shell of the same container. Ordered work is one command: `a && b`.
- They start in /mnt/data. Files there are kept between calls and can be downloaded by the user: put results there.
- There is no terminal and no sudo, and no network unless the user was granted some.
- Long output is cut: head and tail are kept, and a marker between them names the file that holds all of it.
- A command that runs longer than timeout_ms is killed; what it printed until then is returned.
- Start services and jobs that take long with `setsid nohup ... >log 2>&1 &`; they live on between calls, and a later call reads the \
log."""

_PROPERTIES: Final[dict[str, Any]] = {
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


def of_client(name: str, tool: Tool) -> Tool:
    text = "Run shell commands on the user's computer and read what they print. Ordered work is one command: `a && b`."
    return function(name, text + _told((tool.get("environment") or {}).get("skills") or []), _PROPERTIES_OF_CLIENT, ["commands"])


_PROPERTIES_OF_CLIENT: Final[dict[str, Any]] = {
    "commands": {"type": "array", "items": {"type": "string"}, "minItems": 1, "description": "Commands to run."},
    "timeout_ms": {"type": "integer", "description": "Time limit of each command in milliseconds."},
    "max_output_length": {"type": "integer", "description": "Characters of stdout and stderr to return per command."},
}


def action_of(value: dict[str, Any]) -> dict[str, Any] | None:
    """Small models write ``command`` or one string; both are understood."""
    commands = value.get("commands", value.get("command", value.get("cmd")))
    if isinstance(commands, str):
        commands = [commands]
    if not isinstance(commands, list) or not commands or not all(isinstance(c, str) for c in commands):
        return None
    action: dict[str, Any] = {"commands": commands}
    for key in ("timeout_ms", "max_output_length"):
        number = _positive(value.get(key))
        if number is not None:
            action[key] = number
    return action


def _positive(value: Any) -> int | None:
    return int(value) if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < 2**53 else None


def output_text(outputs: list[dict[str, Any]]) -> str:
    """The model's view of an output: exit code or time-out, stdout and stderr of each command."""
    blocks = [_command_text(output) for output in outputs]
    if len(blocks) == 1:
        return blocks[0]
    return "\n\n".join(f"# command {number} of {len(blocks)}\n{block}" for number, block in enumerate(blocks, 1))


def _command_text(output: Item) -> str:
    outcome = output["outcome"]
    head = "timed out" if outcome["type"] == "timeout" else f"exit code {outcome['exit_code']}"
    stdout, stderr = (output.get(stream, "").rstrip("\n") for stream in ("stdout", "stderr"))
    lines = [f"[{head}]"]
    if stdout:
        lines.append(stdout)
    if stderr:
        lines.append(f"[stderr]\n{stderr}")
    return "\n".join(lines)
