"""Make the pages of docs/reference from the code: ``python -m docs.reference_pages``.

``settings.md`` and ``deployment.md`` have the docstrings of the settings, ``commands.md`` the help of the command line, ``events.md``
the catalogue of events, and ``errors.md`` the codes of errors as they are raised. A test compares the pages with the code
(tests/contract/test_reference.py).
"""

import argparse
import ast
import inspect
import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, fields
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from moorage.cli.main import COMMANDS, command_line
from moorage.settings import VARIABLES, OperatorSettings, Settings, Variable, default_of
from moorage.tools import registry
from moorage.wire import events

from infra.config import CHOICES, Config

ROOT: Final = Path(__file__).resolve().parents[1]
CORE: Final = ROOT / "layers" / "core" / "python" / "moorage"
FOLDER: Final = ROOT / "docs" / "reference"
SETTINGS: Final = ROOT / "docs" / "settings.toml"


def table(heads: list[str], rows: list[list[str]]) -> str:
    return "\n".join(f"| {' | '.join(cells)} |" for cells in [heads, ["---"] * len(heads), *rows])


def cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


# --- Settings --------------------------------------------------------------------------------------------------------------------


def settings_groups() -> list[dict[str, Any]]:
    groups: list[dict[str, Any]] = tomllib.loads(SETTINGS.read_text())["group"]
    return groups


def described(cls: type) -> dict[str, tuple[str, str]]:
    """Each field of a class with the title in the comment above it, and its docstring as Markdown."""
    lines = inspect.getsource(cls).splitlines()
    (tree,) = ast.parse("\n".join(lines)).body
    assert isinstance(tree, ast.ClassDef)
    titles = {number: found[1] for number, line in enumerate(lines, 1) if (found := re.fullmatch(r"    # --- (.+) ---", line))}
    rows = {}
    for field, text in pairwise(tree.body):
        if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr):
            title = next((titles[number] for number in range(field.lineno, 0, -1) if number in titles), "")
            rows[ast.unparse(field.target)] = title, _markdown(ast.literal_eval(text.value))
    return rows


def _markdown(docstring: str) -> str:
    """With links in the place of the pages that it names."""
    return re.sub(r"``docs/([\w-]+\.md)(?:#([\w-]+))?``", _link, docstring).replace("``", "`")


def _link(named: re.Match[str]) -> str:
    page, anchor = named.groups()
    headings = re.findall(r"^#+ (.+)$", (ROOT / "docs" / page).read_text(), re.MULTILINE)
    by_anchor = {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-"): heading for heading in headings}
    return f"[{by_anchor[anchor]}](../{page}#{anchor})" if anchor else f"[{headings[0]}](../{page})"


def _written(variable: Variable, default: object) -> str:
    return "" if default in (MISSING, None, "", (), {}) else f"`{variable.write(default)}`"


_SETTINGS: Final = """\
# Settings

Environment variables of the API, the loop and the command line. An unknown `MOORAGE_*` name is reported at the start, with the nearest
known one. An AWS deployment has the keys of `cdk.json` instead ([Settings of a deployment](deployment.md)).

`docs/reference_pages.py` makes this page from `settings.py` and `docs/settings.toml`.
"""


def settings_page() -> str:
    about = described(OperatorSettings) | described(Settings)
    defaults = {setting.name: default_of(setting) for setting in fields(Settings)}
    parts = [_SETTINGS]
    for group in settings_groups():
        told = {name: (each, *about[each.field]) for name, each in VARIABLES.items()}
        rows = [
            [f"`{name}`", _written(variable, defaults[variable.field]), cell(text)]
            for name, (variable, title, text) in told.items()
            if title == group["title"]
        ]
        rows += [[f"`{name}`", "", cell(text)] for name, text in group.get("settings", {}).items()]
        parts.append(f"## {group['title']}\n\n{group['about']}\n\n{table(['variable', 'default', 'meaning'], rows)}\n")
    return "\n".join(parts)


_DEPLOYMENT: Final = """\
# Settings of a deployment

The keys of `moorage` in `cdk.json` ([Deploy to AWS](../aws.md#settings)). `-c moorage:<name>=<value>` overrides a key for one call.

`docs/reference_pages.py` makes this page from `infra/config.py` and `settings.py`.

## The deployment

These keys are about stacks, networks, functions and alarms.
"""
_CHOICES: Final = """
## The API and the sandboxes

These keys are [environment variables](settings.md) of the same name on one machine. In `cdk.json` a list or an object may stand in the
place of words with commas. A key of `oidc` stands in the object `oidc`, such as `{"oidc": {"issuer": ...}}`.
"""


def deployment_page() -> str:
    heads, choices = ["key", "default", "meaning"], described(OperatorSettings)
    keys = {name: info.get_default(call_default_factory=True) for name, info in Config.model_fields.items() if name != "settings"}
    own = [[f"`{name}`", _json(keys[name]), cell(text)] for name, (_, text) in described(Config).items() if name in keys]
    defaults = {name: getattr(Config().settings, variable.field) for name, variable in CHOICES.items()}
    shared = [[f"`{name}`", _json(defaults[name]), cell(choices[variable.field][1])] for name, variable in CHOICES.items()]
    return f"{_DEPLOYMENT}\n{table(heads, own)}\n{_CHOICES}\n{table(heads, shared)}\n"


def _json(default: object) -> str:
    return "" if default in (None, "", (), {}) else f"`{json.dumps(default)}`"


# --- Commands --------------------------------------------------------------------------------------------------------------------


def _arguments(parser: argparse.ArgumentParser) -> Iterator[list[str]]:
    for action in parser._actions:
        if not isinstance(action, argparse._SubParsersAction | argparse._HelpAction) and action.help != argparse.SUPPRESS:
            name = ", ".join(action.option_strings) or str(action.metavar or action.dest)
            value = "" if action.nargs == 0 or not action.option_strings else f" {action.metavar or action.dest.upper()}"
            help_text = (action.help or "") % {"default": action.default, "prog": parser.prog}
            yield [f"`{name}{value}`", cell(help_text)]


def _command(parser: argparse.ArgumentParser, about: str, level: int) -> Iterator[str]:
    usage = " ".join(parser.format_usage().removeprefix("usage: ").split())
    yield f"{'#' * level} {parser.prog}\n\n{about}\n\n```text\n{usage}\n```\n"
    if rows := list(_arguments(parser)):
        yield table(["argument", "meaning"], rows) + "\n"
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            helps = {choice.dest: choice.help or "" for choice in action._choices_actions}
            for name, below in action.choices.items():
                yield from _command(below, _sentence(helps.get(name, "")), level + 1)


def _sentence(text: str) -> str:
    words = cell(text)
    return f"{words[:1].upper()}{words[1:]}." if words and not words.endswith(".") else words[:1].upper() + words[1:]


_COMMANDS: Final = """\
# Commands

`moorage` is the operator's command line. In a checkout it is `.venv/bin/moorage`. Exit codes: 0 done, 1 refused or failed, 2 wrong
usage, 130 interrupted.

`docs/reference_pages.py` makes this page from the commands' own help.
"""


def commands_page() -> str:
    parts = [_COMMANDS]
    for name, summary in COMMANDS.items():
        (subparsers,) = (each for each in command_line(name)._actions if isinstance(each, argparse._SubParsersAction))
        parts += _command(subparsers.choices[name], _sentence(summary), 2)
    return "\n".join(parts)


# --- Events ----------------------------------------------------------------------------------------------------------------------


_EVENTS: Final = """\
# Events

The events of a response's stream, over server-sent events and WebSocket. Every event also has its `type`. `sequence_number` counts from
0 without gaps. A stream resumes after any number (`starting_after`).

A final event ends the stream. A cancelled response ends with `response.incomplete`, and its status is `cancelled`. Deltas may carry
`obfuscation`: random characters that hide the length of the text from observers of the encrypted stream.

`docs/reference_pages.py` makes this page from `wire/events.py` and the tools.
"""


def events_page() -> str:
    assert registry.ROOMS, "the registry brings the events of the tools"
    rows = [
        [f"`{name}`", "yes" if name in events.FINAL else "", ", ".join(f"`{field}`" for field in sorted(events.CATALOGUE[name]))]
        for name in sorted(events.CATALOGUE)
    ]
    return f"{_EVENTS}\n{table(['event', 'final', 'fields'], rows)}\n"


# --- Errors ----------------------------------------------------------------------------------------------------------------------

_ERRORS: Final = """\
# Error codes

Every error has OpenAI's envelope: `{"error": {"message", "type", "param", "code"}}`. The message says how to correct the request, and
`param` names the field. `…` stands for a value. An error without a code is explained by its message alone.

| status | meaning | do the SDKs retry? |
|---|---|---|
| 400 | the request can never work as it is | no |
| 401 | no key, or an unknown or revoked one | no |
| 403 | the key may not do this | no |
| 404 | unknown, deleted, or another tenant's | no |
| 409 | another request is changing the same object | yes, unless `x-should-retry: false` |
| 413 | the body is too large | no |
| 429 | a rate, a count or a budget is used up | yes, unless `x-should-retry: false` |
| 500 | a failure of the deployment | yes, unless `x-should-retry: false` |
| 503 | a dependency is busy or away | yes |
| 507 | the disk is full | yes |

A response that has begun does not change its HTTP status. It ends with `response.failed` or `response.incomplete`, and its `error` has
one of the same codes ([Answers that end badly](../endings.md)).

`docs/reference_pages.py` makes this page from the sources.
"""
_STATUS_OF: Final = {"bad_request": "400", "not_found": "404", "UpstreamError": "ends the response"}


def _text_of(node: ast.expr, names: Mapping[str, ast.expr]) -> str:
    """A message as far as the code spells it; ``…`` stands for the rest. ``names`` are the function's own."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(_text_of(part, {}) if isinstance(part, ast.Constant) else "…" for part in parts)
        case ast.BinOp(left=left, right=right):
            return _text_of(left, names) + _text_of(right, names)
        case ast.Name(id=name) if name in names:
            return _text_of(names[name], {})
        case _:
            return "…"


def _error_of(call: ast.Call, names: Mapping[str, ast.expr]) -> tuple[str, str, str] | None:
    """Code, status and message of a call that makes an error with a literal code."""
    code = next((word.value.value for word in call.keywords if word.arg == "code" and isinstance(word.value, ast.Constant)), None)
    name = ast.unparse(call.func).rpartition(".")[2]
    arguments = list(call.args)
    if not isinstance(code, str):
        return None
    if name in _STATUS_OF:
        return (code, _STATUS_OF[name], _text_of(arguments[0], names)) if arguments else None
    if name in ("ApiError", "__init__") and len(arguments) > 1 and isinstance(arguments[0], ast.Constant):
        return code, str(arguments[0].value), _text_of(arguments[1], names)
    return None


def errors() -> list[tuple[str, str, str]]:
    """Each code with its status and messages, as the sources raise them."""
    found = set()
    for path in sorted(CORE.rglob("*.py")):
        functions = (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
        for inside in map(list, map(ast.walk, functions)):
            assigned = [node for node in inside if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)]
            names = {target.id: node.value for node in assigned for target in node.targets if isinstance(target, ast.Name)}
            found |= {error for node in inside if isinstance(node, ast.Call) and (error := _error_of(node, names)) is not None}
    return sorted(found)


def errors_page() -> str:
    rows: dict[tuple[str, str], list[str]] = {}
    for code, status, message in errors():
        spelled = rows.setdefault((code, status), [])
        if re.search(r"[A-Za-z]{3}", message):
            spelled.append(cell(message))
    lines = [[f"`{code}`", status, "<br>".join(messages)] for (code, status), messages in rows.items()]
    return f"{_ERRORS}\n{table(['code', 'status', 'message'], lines)}\n"


PAGES: Final = {
    "commands.md": commands_page,
    "deployment.md": deployment_page,
    "errors.md": errors_page,
    "events.md": events_page,
    "settings.md": settings_page,
}

if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for page, make in PAGES.items():
        (FOLDER / page).write_text(make())
