"""The whole question to a person about a call: nobody decides on the beginning of a command."""

from collections.abc import Mapping
from typing import Any, Final

from moorage.tools.function_items import compact_json

_ABOUT: Final = frozenset(
    {"id", "type", "status", "call_id", "container_id", "approval_request_id", "results", "outputs", "output", "error"}
)
"""What an item says besides that."""


def asked(call: Mapping[str, Any]) -> list[str]:
    """Its commands, its code, or its other effects, each for itself."""
    action = call.get("action")
    if isinstance(action, dict) and "commands" in action:
        return list(action["commands"])
    if "server_label" in call:
        return [f"{call['server_label']}.{call.get('name', '')} {call.get('arguments', '')}".strip()]
    if isinstance(call.get("code"), str):
        return [call["code"]]
    return [compact_json({name: value for name, value in call.items() if name not in _ABOUT})]
