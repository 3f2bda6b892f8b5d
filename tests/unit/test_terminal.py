"""What a person's terminal is given."""

import io
import json

import pytest
from moorage.terminal import clear_status, inert_json, one_line, printable, say, show_status

SEEN = {
    "words, lines and tabs stay": ("naïve 漢字 👩\u200d💻\n\tx", "naïve 漢字 👩\u200d💻\n\tx"),
    "a title": ("\x1b]0;PWNED\x07", r"\x1b]0;PWNED\x07"),
    "a screen that is cleared by one byte": ("\x9b2J", r"\x9b2J"),
    "an overwritten line": ("safe\rrm -rf /", r"safe\rrm -rf /"),
    "lines as other systems end them": ("a\r\nb", "a\nb"),
    "words rubbed out": ("rm\x08\x08ls\x7f", r"rm\x08\x08ls\x7f"),
    "a name that reads backwards": ("photo\u202egpj.exe", r"photo\u202egpj.exe"),
    "an isolate": ("\u2066x\u2069", r"\u2066x\u2069"),
    "other ends of lines": ("a\u2028b\x0bc\x85d", r"a\u2028b\x0bc\x85d"),
    "letters that nobody sees": ("\U000e0041", r"\U000e0041"),
    "half a letter": ("\ud800", r"\ud800"),
}


@pytest.mark.parametrize(("text", "shown"), SEEN.values(), ids=SEEN.keys())
def test_control_codes_are_shown_and_words_stay(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_a_cell_has_one_line() -> None:
    assert one_line("a\n\tb\x1b") == r"a\n\tb\x1b"


def test_json_means_the_same() -> None:
    value = {"name\x9b": "\u202e\U000e0041\x7f", "plain": "漢\n"}
    text = inert_json(json.dumps(value, ensure_ascii=False))
    assert json.loads(text) == value
    assert printable(text) == text


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_our_own_colours_are_for_terminals_and_those_of_others_for_none() -> None:
    terminal, file = Terminal(), io.StringIO()
    for out in (terminal, file):
        say("\x1b[31mred", colour="green", out=out)
    assert terminal.getvalue() == "\x1b[32m\\x1b[31mred\x1b[0m\n"
    assert file.getvalue() == "\\x1b[31mred\n"


def test_a_word_about_waiting_is_for_terminals_alone() -> None:
    terminal, file = Terminal(), io.StringIO()
    for out in (terminal, file):
        show_status("waiting for\x1b[2J", out)
        clear_status(out)
    assert terminal.getvalue() == "\r\x1b[K\x1b[2mwaiting for\\x1b[2J\x1b[0m\r\x1b[K"
    assert file.getvalue() == ""
