"""The check of the documentation's English, and what it counts."""

import pytest

from docs.site import prose
from docs.site.prose import Prose


def test_every_page_passes() -> None:
    assert len(prose.pages()) > 60
    assert prose.faults() == []


def test_code_tables_and_headings_are_no_prose() -> None:
    page = "# What nobody knows\n\nOne two three. Four five `which` seven eight.\n\n```sh\nwhat\n```\n\n| who | what |\n|---|---|\n"
    assert prose.measure(page) == Prose(sentence_words=4, relative=0, negated=0, words=8)


def test_entries_of_lists_are_sentences() -> None:
    assert prose.measure("Three words here:\n- one two three four five\n- six seven [eight](x.md) nine ten\n") == Prose(5, 0, 0, 13)


@pytest.mark.parametrize(
    ("text", "faults"),
    [
        ("Nobody moves. Which one is it? Who knows that? Where is it?", []),
        ("a b c d. " * 10 + "Nothing is here. None is there.", ["2.0 of nobody, nothing and none in 1,000, at most 1"]),
        ("a b which d. " * 4, ["1.3 relative and question words in 100, at most 1"]),
        ("one " * 17 + ".", ["18.0 words in the median sentence, at most 16"]),
    ],
)
def test_a_page_is_told_its_faults(text: str, faults: list[str]) -> None:
    assert prose.measure(text).faults == faults
