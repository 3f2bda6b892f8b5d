"""What the rooms of the tools say on the wire: the shapes of their tools, items and choices, and their events.

A tool is declared whole in its own folder (``tools/<name>/``), which stands above this one. ``tools/registry.py`` hands in here what
the rooms declare, before anything is parsed, and the types of the wire read it. What belongs to no tool, or to function calling itself,
stands in the modules beside this one.
"""

from collections.abc import Mapping
from typing import Any, Final

TOOLS: Final[dict[str, Any]] = {}
"""A tool in ``tools`` of a request, by its type."""

BROUGHT: Final[dict[str, Any]] = {}
"""A tool that an item of the conversation brings along."""

CHOICES: Final[dict[str, Any]] = {}
"""A tool in ``tool_choice``."""

ITEMS: Final[dict[str, Any]] = {}
"""An item in ``input``, by its type."""

EVENTS: Final[dict[str, frozenset[str]]] = {}
"""The fields that an event always has, by its type; ``type`` aside."""

OBFUSCATED: Final[dict[str, None]] = {}
"""Events whose length would give the model's words away."""

TABLES: Final[tuple[dict[str, Any], ...]] = (TOOLS, BROUGHT, CHOICES, ITEMS, EVENTS, OBFUSCATED)


def admit_events(events: Mapping[str, tuple[str, ...]], obfuscated: frozenset[str]) -> None:
    """Names without ``response.``, as rooms have them."""
    EVENTS.update({f"response.{name}": frozenset(("sequence_number", *fields)) for name, fields in events.items()})
    OBFUSCATED.update(dict.fromkeys(f"response.{name}" for name in obfuscated))
