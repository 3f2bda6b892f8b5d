"""Everything that is shown to a person: text goes to a terminal through here, and nowhere else.

What a model, a command, a name or an upstream says is hostile: a terminal obeys control codes, which set its title, clear it, write the
clipboard, or turn the order of letters round so that one thing reads as another. So each of them is shown instead, as Python would
write it (``\\x1b``). That is done whether or not a terminal is there, because what is written to a file is shown later. Only a terminal
in a container, which a person has opened as one, is passed on.
"""

import re
import sys
from typing import Final, TextIO

_BIDIRECTIONAL: Final = "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
"""Unicode 15, UAX #9: marks, embeddings, overrides and isolates."""
_SEPARATORS: Final = "\u2028\u2029"
_TAGS: Final = "\U000e0000-\U000e007f"
"""Letters that nobody sees."""
_HOSTILE: Final = re.compile(rf"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff{_BIDIRECTIONAL}{_SEPARATORS}{_TAGS}]")
"""C0 without tab and line feed, DEL, C1, lone surrogates, and what changes the order or number of what is seen."""
_COLOURS: Final = {"dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36", "bold": "1"}


def printable(text: str) -> str:
    """The text with every control code in a form that can be seen; lines and tabs stay."""
    return _HOSTILE.sub(_visible, text.replace("\r\n", "\n"))


def one_line(text: str) -> str:
    """The same for a cell or a name without lines."""
    return re.sub(r"[\n\t]", _visible, printable(text))


def inert_json(text: str) -> str:
    """JSON without control codes. They stand in its strings alone, and their escapes mean the same there."""
    return _HOSTILE.sub(_escaped, text)


def say(text: str = "", *, colour: str = "", out: TextIO | None = None, end: str = "\n") -> None:
    """Show a text at once, in a colour if somebody sees it."""
    shown = sys.stdout if out is None else out
    shown.write(paint(printable(text), colour, shown) + end)
    shown.flush()


def paint(text: str, colour: str, out: TextIO) -> str:
    """The text in a colour on a terminal, plain in files and pipes, or if no colour is named."""
    return f"\x1b[{_COLOURS[colour]}m{text}\x1b[0m" if colour and out.isatty() else text


def pass_on(text: str) -> None:
    """A container's terminal output, as it is: its reader looks at its screen, and control codes draw it."""
    sys.stdout.write(text)
    sys.stdout.flush()


def show_status(text: str, out: TextIO | None = None) -> None:
    """A word about a wait, on a terminal alone: the last line, until :func:`clear_status`."""
    shown = sys.stderr if out is None else out
    if shown.isatty():
        shown.write(f"\r\x1b[K{paint(one_line(text), 'dim', shown)}")
        shown.flush()


def clear_screen(out: TextIO | None = None) -> None:
    """Begin again at the top, on a terminal."""
    shown = sys.stdout if out is None else out
    if shown.isatty():
        shown.write("\x1b[H\x1b[2J")
        shown.flush()


def clear_status(out: TextIO | None = None) -> None:
    shown = sys.stderr if out is None else out
    if shown.isatty():
        shown.write("\r\x1b[K")
        shown.flush()


def _visible(found: "re.Match[str]") -> str:
    return repr(found[0])[1:-1]


def _escaped(found: "re.Match[str]") -> str:
    units = found[0].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))
