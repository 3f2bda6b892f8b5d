"""Checks a custom tool's input against its grammar, for upstreams that cannot enforce one.

Grammars come from the caller and can take for ever: a regular expression that backtracks holds the whole interpreter, and no
thread can stop it. So the check runs in a process of its own (``python -m moorage.wire.grammar``) with bounds on CPU, memory and
time, and costs about 0.1 s. A text that could not be judged in time, or a grammar that is not understood (OpenAI's dialects
differ from Python's in places), is *unchecked*, never wrong.
"""

import asyncio
import contextlib
import json
import os
import re
import resource
import sys
from typing import Any, Final, Literal

from moorage import limits
from moorage.dataclass import dataclass

Outcome = Literal["valid", "invalid", "unchecked"]


@dataclass(frozen=True, slots=True)
class GrammarVerdict:
    outcome: Outcome
    message: str = ""
    """For ``invalid``, what the model should read before it tries again; for ``unchecked``, the reason."""


async def check(grammar: dict[str, Any], text: str, *, seconds_max: float = limits.GRAMMAR_CHECK_SECONDS_MAX) -> GrammarVerdict:
    """Judge ``text`` by a custom tool's ``format`` (``{"type": "grammar", "syntax": "lark" | "regex", "definition": ...}``).

    Never raises for what is in the grammar or in the text.
    """
    if len(text) > limits.GRAMMAR_INPUT_CHARS_MAX:
        return GrammarVerdict("unchecked", f"The input has more than {limits.GRAMMAR_INPUT_CHARS_MAX} characters.")
    question = json.dumps({"syntax": grammar["syntax"], "definition": grammar["definition"], "text": text, "seconds": seconds_max})
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        __name__,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        cwd="/",
        env={"PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)},
    )
    try:
        answer, _ = await asyncio.wait_for(process.communicate(question.encode()), seconds_max + limits.GRAMMAR_START_SECONDS_MAX)
    except TimeoutError:
        answer = b""
    finally:
        # A cancelled caller leaves the child running otherwise; it may also be gone already.
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    if not answer:
        return GrammarVerdict("unchecked", "The grammar took too long to check, or too much memory.")
    return GrammarVerdict(**json.loads(answer))


# --- In the child ---------------------------------------------------------------------------------------------------------


def judge(syntax: str, definition: str, text: str) -> GrammarVerdict:
    """The same without bounds; only the child calls it."""
    return _judge_regex(definition, text) if syntax == "regex" else _judge_lark(definition, text)


def _judge_regex(definition: str, text: str) -> GrammarVerdict:
    try:
        matches = re.fullmatch(definition, text) is not None
    except re.error as error:
        return GrammarVerdict("unchecked", f"The regular expression is not understood: {error}.")
    return (
        GrammarVerdict("valid") if matches else GrammarVerdict("invalid", f"The input must match the regular expression {definition}")
    )


_FOREIGN_IMPORT: Final = re.compile(r"^\s*%import\s+(?!common\b)", re.MULTILINE)


def _judge_lark(definition: str, text: str) -> GrammarVerdict:
    """LALR first, because it is fast and says best what it expected. What it cannot take, Earley decides."""
    from lark.exceptions import LarkError, UnexpectedInput

    if _FOREIGN_IMPORT.search(definition):
        return GrammarVerdict("unchecked", "The grammar imports something else than 'common'.")
    definition = _without_empty_terminals(definition)
    complaint = None
    try:
        parser = _parser(definition, "lalr")
        parser.parse(text)
    except UnexpectedInput as error:
        complaint = _complaint(error, text, parser)
    except LarkError:
        complaint = None
    else:
        return GrammarVerdict("valid")
    if complaint is not None and len(text) > limits.GRAMMAR_EARLEY_CHARS_MAX:
        return GrammarVerdict("invalid", complaint)
    try:
        parser = _parser(definition, "earley")
        parser.parse(text)
    except UnexpectedInput as error:
        return GrammarVerdict("invalid", complaint or _complaint(error, text, parser))
    except LarkError as error:
        return GrammarVerdict("unchecked", f"The grammar is not understood: {str(error).splitlines()[0]}")
    return GrammarVerdict("valid")


_LITERAL: Final = re.compile(r'"(?:\\.|[^"\\])*"|//[^\n]*|/(?!/)(?P<pattern>(?:\\.|[^/\\])*?)/(?P<flags>[imslux]*)', re.DOTALL)
_REPEATED: Final = re.compile(r"(?P<open>\(?(?:\?:)?)(?P<atom>\\?.|\[[^\]]*\])\*(?P<lazy>\??)(?P<close>\)?)", re.DOTALL)


def _without_empty_terminals(definition: str) -> str:
    """Lark takes no terminal that can be empty, but OpenAI's dialect does, and ``/(.*)/`` is common: read it as ``(/(.+)/)?``."""

    def rewritten(literal: re.Match[str]) -> str:
        repeated = _REPEATED.fullmatch(literal["pattern"] or "")
        if repeated is None:
            return literal[0]
        pattern = f"{repeated['open']}{repeated['atom']}+{repeated['lazy']}{repeated['close']}"
        return f"(/{pattern}/{literal['flags']})?"

    return _LITERAL.sub(rewritten, definition)


def _parser(definition: str, kind: Literal["lalr", "earley"]) -> Any:
    from lark import Lark

    return Lark(definition, parser=kind, regex=False, keep_all_tokens=False, maybe_placeholders=False)


def _complaint(error: Any, text: str, parser: Any) -> str:
    """Where the text leaves the grammar, and what could have stood there, in words that a model can act on."""
    shown = {terminal.name: _shown(terminal.pattern) for terminal in parser.terminals}
    names = getattr(error, "expected", None) or getattr(error, "allowed", None) or ()
    expected = sorted(shown.get(str(name), str(name)) for name in names)
    wanted = f"; expected one of {', '.join(expected[: limits.GRAMMAR_EXPECTED_MAX])}" if expected else ""
    line, column = getattr(error, "line", -1), getattr(error, "column", -1)
    if not isinstance(line, int) or line < 1:
        return f"The input does not match the tool's grammar: it ends too early{wanted}."
    found = text.splitlines()[line - 1 : line] or [""]
    return f"The input does not match the tool's grammar at line {line}, column {column} ({found[0][:80]!r}){wanted}."


def _shown(pattern: Any) -> str:
    return repr(pattern.value) if pattern.type == "str" else f"/{pattern.value}/"


def main() -> None:
    question = json.load(sys.stdin)
    seconds = int(question["seconds"]) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    resource.setrlimit(resource.RLIMIT_AS, (limits.GRAMMAR_MEMORY_BYTES_MAX, limits.GRAMMAR_MEMORY_BYTES_MAX))
    verdict = judge(question["syntax"], question["definition"], question["text"])
    json.dump({"outcome": verdict.outcome, "message": verdict.message}, sys.stdout)


if __name__ == "__main__":
    main()
