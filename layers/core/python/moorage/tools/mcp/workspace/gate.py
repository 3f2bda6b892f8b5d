"""What the request's shell must not run without a person's word, the workspace does not run either: both act in one container.

A command of ``exec_command`` is judged as one of the shell. What is typed into a session, and JavaScript, is no command that a pattern
could be sure of: it is free only if all is that ``always`` does not name. This comes on top of the server's own approvals
(``require_approval``).
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import orjson

from moorage.tools.mcp.workspace.javascript import NAME as JAVASCRIPT
from moorage.tools.shell import approval
from moorage.wire.types import Item, Tool

_SHELLS: Final = frozenset({"", "sh", "bash", "/bin/sh", "/bin/bash", "/usr/bin/sh", "/usr/bin/bash"})
"""Those that read a command as the patterns do."""
_KEYS: Final = re.compile(r"[\x00-\x1f\x7f]")
_INTERRUPT: Final = "\x03"


def holds(call: Item, tools: Sequence[Tool]) -> bool:
    """Whether the request's shell wants a person asked for this call of the workspace. ``tools`` are all of the request."""
    asked = approval.asked_of(tools)
    if asked == "never":
        return False
    try:
        given = orjson.loads(call["arguments"] or "{}")
    except orjson.JSONDecodeError:
        return False  # The call says what is wrong with it, and runs nothing.
    return isinstance(given, dict) and _needs(asked, call["name"], given)


def _needs(asked: str | Mapping[str, Any], name: str, given: Mapping[str, Any]) -> bool:
    match name:
        case "exec_command":
            command = str(given.get("cmd") or "")
            shell = given.get("shell") or ""
            is_plain = isinstance(shell, str) and shell in _SHELLS and not given.get("login")
            return approval.is_needed(asked, [command]) if is_plain else approval.is_needed_of_text(asked, command)
        case "write_stdin":
            typed = str(given.get("chars") or "")
            return typed.strip(_INTERRUPT) != "" and approval.is_needed_of_text(asked, _KEYS.sub("\n", typed))
        case _ if name == JAVASCRIPT:
            return approval.is_needed_of_text(asked, str(given.get("code") or ""))
        case _:
            return False
