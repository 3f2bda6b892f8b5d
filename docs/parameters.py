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
    "agent": "Bodies of the Agents API",
}

INTRODUCTION = """\
# What a request may hold

These tables list the parameters of `POST /v1/responses`, the tools with their fields, the input items and the content parts. The column
*fate* has three values:

- *honoured*: the parameter has its effect.
- *informational*: the parameter is accepted, and its row describes the rest.
- *refused*: the answer is a 400 that names the field.

The code `unknown_parameter` or `invalid_value` refuses everything else. A row also covers the fields below it, unless they have
their own row. `[]` stands for the entries of a list, and `<type>` for a variant. A table lists the routes of the openai SDK for
these resources. The last one has the bodies of the [Agents API](agents.md): a name begins with the body.

`docs/parameters.py` makes this page from `docs/parameters.toml`. Tests compare the tables with the newest openai SDK, check the
effect of each row over HTTP, and compare each error word by word.
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
