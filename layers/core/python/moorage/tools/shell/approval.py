"""Which commands need a person's word, by the request's ``require_approval``.

As with remote tools, a command that stands in no filter, or in both, needs it. A pattern is text in which ``*`` stands for anything.
Bash is no language that a pattern understands, so each filter errs on the side of asking:

* ``never`` lets a command run only if it is plain, one or several simple commands joined by ``;``, ``&&``, ``||``, ``|`` or new lines,
  and each of them matches. One with substitutions, redirections, groups, variables or an open quote is never plain. Only the pattern
  ``*`` says that all that ``always`` does not name may run.
* ``always`` is compared with every piece that could be a command: pieces end at operators, brackets and quotes, wherever these stand,
  and begin behind assignments and words such as ``sudo`` or ``then``.

What hides its name from ``always`` (``g=git; $g push``, a script that it writes first) is not found: that filter is a net for what a
model does openly, and the list of ``never`` is the wall.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from moorage.wire.types import Tool

HOSTED: Final = frozenset({"container_auto", "container_reference"})
"""Environments of a shell that runs here."""
_EVERYTHING: Final = "*"
_SPECIAL: Final = frozenset("$`\\(){}<>#&")
"""What makes of an unquoted word more than a word; ``&&`` aside."""
_PIECES: Final = re.compile(r"[;&|\n\r(){}`\"'<>]|\$\(")
_WORD: Final = re.compile(
    r"(?:[A-Za-z_][A-Za-z0-9_]*=\S*|!|if|then|elif|else|while|until|do|time|exec|eval|command|builtin|env|nohup|sudo|xargs)(?=\s|$)"
)
"""What may stand before a command, and leaves it one."""
_WORDS_MAX: Final = 32
"""Of these before one command. Each is looked behind, and the rest of a long command is read once for each; behind more of them may
stand anything."""


def asked_of(tools: Sequence[Tool]) -> str | Mapping[str, Any]:
    """The approval rule of the hosted shell among a request's tools; ``never`` without one."""
    for tool in tools:
        if tool["type"] == "shell" and (tool.get("environment") or {}).get("type") in HOSTED:
            asked: str | Mapping[str, Any] = tool.get("require_approval", "never")
            return asked
    return "never"


def is_needed(require_approval: str | Mapping[str, Any], commands: Iterable[str]) -> bool:
    """Whether a call of these commands needs a person's word."""
    if isinstance(require_approval, str):
        return require_approval != "never"
    always, never = (require_approval.get(name, {}).get("commands", ()) for name in ("always", "never"))
    return any(not _is_free(command, never) or _is_named(command, always) for command in commands)


def is_needed_of_text(require_approval: str | Mapping[str, Any], text: str) -> bool:
    """The same of text that is no command of bash, though it may come to one: code, or what is typed into a program. It is free only
    if all is that ``always`` does not name."""
    if isinstance(require_approval, str):
        return require_approval != "never"
    always, never = (require_approval.get(name, {}).get("commands", ()) for name in ("always", "never"))
    return _EVERYTHING not in never or _is_named(text, always)


def _is_free(command: str, patterns: Iterable[str]) -> bool:
    patterns = list(patterns)
    if _EVERYTHING in patterns:
        return True
    simple = _simple(command)
    return simple is not None and all(any(matches(pattern, each) for pattern in patterns) for each in simple)


def _is_named(command: str, patterns: Iterable[str]) -> bool:
    patterns = list(patterns)
    return any(piece is None or matches(pattern, piece) for piece in _pieces(command) for pattern in patterns)


def matches(pattern: str, text: str) -> bool:
    """In time that grows with the product of the lengths, for any text: no regular expression promises that."""
    first, *others = pattern.split(_EVERYTHING)
    if not others:
        return pattern == text
    *middle, last = others
    if not text.startswith(first) or not text.endswith(last) or len(text) < len(first) + len(last):
        return False
    at, end = len(first), len(text) - len(last)
    for part in middle:
        found = text.find(part, at, end)
        if found < 0:
            return False
        at = found + len(part)
    return True


def _simple(command: str) -> list[str] | None:
    """The simple commands of a plain one; None for any other."""
    found: list[str] = []
    text, quote, position = "", "", 0
    while position < len(command):
        letter = command[position]
        if letter == "\0" or (letter < " " and letter not in "\t\n"):
            return None
        if quote:
            if letter == quote:
                quote = ""
            elif quote == '"' and letter in "$`\\!":
                return None
        elif letter in "'\"":
            quote = letter
        elif letter in ";|\n" or command.startswith("&&", position):
            found.append(text)
            text, position = "", position + (2 if letter == "&" or command.startswith("||", position) else 1)
            continue
        elif letter in _SPECIAL:
            return None
        text += letter
        position += 1
    return None if quote else [each.strip() for each in (*found, text) if each.strip()]


def _pieces(command: str) -> Iterator[str | None]:
    """Everything in it that could be a command, and the whole; None if nobody can say."""
    for part in (command, *_PIECES.split(command)):
        piece = part.strip()
        yield piece
        for _ in range(_WORDS_MAX):
            word = _WORD.match(piece)
            if word is None:
                break
            piece = piece[word.end() :].strip()
            yield piece
        else:
            yield None
