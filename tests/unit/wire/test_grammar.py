"""Inputs of custom tools, judged by their grammars."""

from typing import Any

import pytest
from moorage import limits
from moorage.wire.grammar import GrammarVerdict, check, judge

PATCH = """
start: begin hunk+ end
begin: "*** Begin" LF
end: "*** End" LF?
hunk: add | delete
add: "*** Add File: " filename LF line+
delete: "*** Delete File: " filename LF
filename: /(.+)/
line: "+" /(.*)/ LF -> line
%import common.LF
"""

ARITHMETIC = """
start: expression
expression: expression "+" expression | NUMBER
NUMBER: /[0-9]+/
"""


def lark(definition: str) -> dict[str, Any]:
    return {"type": "grammar", "syntax": "lark", "definition": definition}


def regex(definition: str) -> dict[str, Any]:
    return {"type": "grammar", "syntax": "regex", "definition": definition}


JUDGED: dict[str, tuple[dict[str, Any], str, str]] = {
    "a patch": (lark(PATCH), "*** Begin\n*** Add File: a.txt\n+hello\n+\n*** End\n", "valid"),
    "two files": (lark(PATCH), "*** Begin\n*** Add File: a\n+x\n*** Delete File: b\n*** End", "valid"),
    "a patch without a hunk": (lark(PATCH), "*** Begin\n*** End\n", "invalid"),
    "a patch that ends too early": (lark(PATCH), "*** Begin\n*** Add File: a\n", "invalid"),
    "text beside the lines of a file": (lark(PATCH), "*** Begin\n*** Add File: a\nhello\n*** End\n", "invalid"),
    "words": (lark(PATCH), "Sure, here is the patch", "invalid"),
    "nothing": (lark(PATCH), "", "invalid"),
    "an ambiguous grammar that LALR cannot take": (lark(ARITHMETIC), "1+2+3", "valid"),
    "the same with a wrong input": (lark(ARITHMETIC), "1+", "invalid"),
    "a grammar that is none": (lark("start: (((("), "x", "unchecked"),
    "a grammar that reads files": (lark("%import .secrets.X\nstart: X"), "x", "unchecked"),
    "a date": (regex(r"\d{4}-\d{2}-\d{2}"), "2026-11-21", "valid"),
    "a date with more": (regex(r"\d{4}-\d{2}-\d{2}"), "2026-11-21 or so", "invalid"),
    "a pattern that is none": (regex("("), "x", "unchecked"),
}


@pytest.mark.parametrize(("grammar", "text", "outcome"), JUDGED.values(), ids=JUDGED.keys())
def test_an_input_is_judged_by_its_grammar(grammar: dict[str, Any], text: str, outcome: str) -> None:
    verdict = judge(grammar["syntax"], grammar["definition"], text)
    assert verdict.outcome == outcome
    assert (verdict.message == "") == (outcome == "valid")


def test_the_model_is_told_where_and_what_was_expected() -> None:
    verdict = judge("lark", PATCH, "*** Begin\n*** Change File: a\n*** End\n")
    assert verdict == GrammarVerdict(
        "invalid",
        "The input does not match the tool's grammar at line 2, column 1 ('*** Change File: a'); "
        "expected one of '*** Add File: ', '*** Delete File: '.",
    )


async def test_a_check_runs_in_a_process_of_its_own() -> None:
    assert await check(lark(PATCH), "*** Begin\n*** Delete File: a\n*** End\n") == GrammarVerdict("valid")
    assert (await check(regex("[ab]+"), "abc")).outcome == "invalid"


async def test_a_pattern_that_never_ends_is_stopped() -> None:
    verdict = await check(regex("(a+)+b"), "a" * 60, seconds_max=0.5)
    assert verdict == GrammarVerdict("unchecked", "The grammar took too long to check, or too much memory.")


async def test_an_input_beyond_the_limit_is_not_checked() -> None:
    assert (await check(regex("a"), "a" * (limits.GRAMMAR_INPUT_CHARS_MAX + 1))).outcome == "unchecked"
