"""Make docs/parameters.md from docs/parameters.toml: ``python docs/parameters.py``."""

import tomllib
from pathlib import Path
from typing import Any

TABLE = Path(__file__).with_suffix(".toml")
PAGE = Path(__file__).with_suffix(".md")

HEADINGS = {
    "parameter": "Parameters",
    "tool": "Tools and their fields",
    "tool_choice": "Objects for `tool_choice`",
    "item": "Input items",
    "item_field": "Fields of items that are treated specially",
    "part": "Content parts",
    "frame": "Frames of the WebSocket",
    "route": "Routes",
}

INTRODUCTION = """\
# What a request may hold

Every parameter of `POST /v1/responses`, every tool with its fields, every input item and content part: *honoured*,
*informational* (accepted; the note says what becomes of it) or *refused* with a 400 that names the field. Nothing is accepted
silently. Anything that is not in these tables is refused with the code `unknown_parameter` or `invalid_value`.

A row covers what lies below it, unless that has a row of its own. `[]` stands for the entries of a list, `<type>` for a variant.
The last table holds the routes that the openai SDK has for these resources.

This page is made from `docs/parameters.toml` by `docs/parameters.py`. Tests compare the table with the newest openai SDK, drive each
row over HTTP and look at its effect, and compare the error of every refused request word by word.
"""


def page(table: dict[str, list[dict[str, Any]]]) -> str:
    """The page's Markdown."""
    return "\n".join([INTRODUCTION, *(_section(heading, table[group]) for group, heading in HEADINGS.items())])


def _section(heading: str, rows: list[dict[str, Any]]) -> str:
    lines = [f"## {heading}", "", "| name | fate | what it means | refused with |", "|---|---|---|---|"]
    return "\n".join([*lines, *(_line(row) for row in rows), ""])


def _line(row: dict[str, Any]) -> str:
    refusals = "<br>".join(_refusal(refusal) for refusal in row.get("refusals", ()))
    return f"| `{row['name']}` | {row['status']} | {_cell(row['note'])} | {refusals} |"


def _refusal(refusal: dict[str, str]) -> str:
    code = f"`{refusal['code']}`" if refusal["code"] else "no code"
    return f"`{_cell(refusal['request'])}`: {code} at `{refusal['param']}`"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def load() -> dict[str, list[dict[str, Any]]]:
    return tomllib.loads(TABLE.read_text())


if __name__ == "__main__":
    PAGE.write_text(page(load()))
