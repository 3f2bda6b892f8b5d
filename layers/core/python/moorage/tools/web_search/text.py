"""The text of a page. What is read is hostile: it is gone through once, from its beginning to its end, and no step looks twice at it.

The standard library's parser was left aside, because what it does with markup that never ends depends on its version, and took time
that grew with the square of the length. What no browser would show is left out: scripts, styles, comments, and a tag that has no end.
"""

import codecs
import html
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import field
from typing import Final

from moorage.dataclass import dataclass

_TAG: Final = re.compile(r"<(/?)([a-zA-Z][^\s/>]*+)((?:[^>=]++|=\s*+(?:\"[^\"]*+\"|'[^']*+')?+)*+)>")
"""A quote belongs to a value only behind its equals sign; one that is never closed ends with the tag."""

_NO_TAGS: Final = re.compile(r"(?:<(?![a-zA-Z/!?])[^<]*+)++")

_RAW: Final = frozenset({"script", "style", "template", "iframe", "noembed", "noframes", "object", "svg", "math", "canvas", "textarea"})
"""Elements of which nothing is text."""
_RAW_ENDS: Final = {name: re.compile(f"</{name}[\\s/>]", re.IGNORECASE) for name in (*_RAW, "title")}

_AROUND: Final = frozenset({"nav", "footer", "aside", "menu", "dialog"})
"""Elements that stand around what a page says."""

_BREAKS: Final = frozenset(
    {
        "address",
        "article",
        "blockquote",
        "body",
        "br",
        "caption",
        "center",
        "dd",
        "details",
        "dir",
        "div",
        "dl",
        "dt",
        "fieldset",
        "figcaption",
        "figure",
        "form",
        "header",
        "hr",
        "html",
        "legend",
        "main",
        "option",
        "ol",
        "p",
        "pre",
        "section",
        "select",
        "summary",
        "table",
        "tbody",
        "tfoot",
        "thead",
        "tr",
        "ul",
    }
)
_HEADINGS: Final = {f"h{level}": "#" * level + " " for level in range(1, 7)}

_ENOUGH_CHARS: Final = 200
"""A page that says less without what stands around it is shown with that: it may be made of nothing else."""

_UNSEEN: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff\U000e0000-\U000e0fff]+")
"""Characters that a reader would not see and a model would: controls, marks of direction, tags."""

_CHARSETS: Final = re.compile(
    r"utf-8|utf-16(-[bl]e)?|ascii|iso8859-\d+|cp\d+|koi8-[rut]|mac-\w+|gb\w+|big5\w*|euc_\w+|shift_jis\w*|hz|johab"
)
"""Python knows more, among them codecs that take the square of the length."""
_META: Final = re.compile(rb"<meta[^>]{0,200}?charset\s*=\s*[\"']?([\w:.-]{1,40})", re.IGNORECASE)
_META_BYTES: Final = 1024
"""Where a page has to name its encoding (HTML, section 4.2.5.4)."""


@dataclass(frozen=True, slots=True)
class ReadablePage:
    title: str
    text: str


def page_of(content: bytes, media_type: str, charset: str) -> ReadablePage:
    """The text for a reader."""
    decoded = _decoded(content, charset)
    if media_type in ("text/html", "application/xhtml+xml") or (not media_type and "<html" in decoded[:1_000].lower()):
        return _read(decoded)
    return ReadablePage("", _tidied(_UNSEEN.sub("", decoded.replace("\r\n", "\n"))))


def plain(markup: str) -> str:
    """A line of text that may have tags and references in it."""
    return " ".join(page_of(markup.encode(), "text/html", "utf-8").text.split())


def _decoded(content: bytes, charset: str) -> str:
    for mark, name in ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be")):
        if content.startswith(mark):
            return content[len(mark) :].decode(name, "replace")
    named = _META.search(content[:_META_BYTES])
    for name in (charset, named[1].decode("ascii", "replace") if named else "", "utf-8"):
        known = _codec(name)
        if known is not None:
            return content.decode(known, "replace")
    raise AssertionError("utf-8 is always known")


def _codec(name: str) -> str | None:
    try:
        known = codecs.lookup(name).name if name else ""
    except (LookupError, ValueError):
        return None
    # Browsers read these two as their superset.
    known = {"iso8859-1": "cp1252", "ascii": "cp1252"}.get(known, known)
    return known if _CHARSETS.fullmatch(known) else None


def _read(markup: str) -> ReadablePage:
    whole = _HtmlReader(markup, _AROUND)
    text = whole.text()
    if len(text) < _ENOUGH_CHARS:
        text = _HtmlReader(markup, frozenset()).text()
    return ReadablePage(whole.title, text)


@dataclass(slots=True)
class _HtmlReader:
    markup: str
    around: frozenset[str]
    title: str = ""
    opened: Counter[str] = field(default_factory=Counter)
    """Elements that are left out, and those whose spaces count."""
    is_spaced: bool = True
    """What was said last ends with a space or a line."""

    def text(self) -> str:
        said: list[str] = []
        for piece in self._pieces():
            if piece:
                said.append(piece)
                self.is_spaced = piece[-1] in " \n"
        return _tidied("".join(said))

    def _pieces(self) -> Iterator[str]:
        at, end = 0, len(self.markup)
        while at < end:
            opening = self.markup.find("<", at)
            if opening != at:
                yield self._said(self.markup[at : opening if opening >= 0 else end])
                if opening < 0:
                    return
            tag = _TAG.match(self.markup, opening)
            if tag is not None:
                yield self._tag(tag[2].lower(), is_end=bool(tag[1]))
                at = self._behind(tag)
            else:
                at, piece = self._other(opening)
                yield self._said(piece)

    def _other(self, at: int) -> tuple[int, str]:
        """Text that begins like a tag and is none: a comment, a declaration, or a plain character."""
        following = self.markup[at + 1 : at + 2]
        if self.markup.startswith("<!--", at):
            return self._after("-->", at + 4), ""
        if following in ("!", "?"):
            return self._after(">", at), ""
        if following == "/" or (following.isascii() and following.isalpha()):
            # A tag without an end: the rest of the page is inside of it. An end tag without a name is nothing.
            return (self._after(">", at) if following == "/" and not self.markup[at + 2 : at + 3].isalpha() else len(self.markup)), ""
        plain_text = _NO_TAGS.match(self.markup, at)
        assert plain_text is not None, self.markup[at : at + 20]
        return plain_text.end(), plain_text[0]

    def _after(self, mark: str, at: int) -> int:
        found = self.markup.find(mark, at)
        return len(self.markup) if found < 0 else found + len(mark)

    def _behind(self, tag: re.Match[str]) -> int:
        """The start of the next text: behind the whole element, if nothing of it is text."""
        name = tag[2].lower()
        if tag[1] or name not in _RAW_ENDS or tag[3].endswith("/"):
            return tag.end()
        ending = _RAW_ENDS[name].search(self.markup, tag.end())
        if name == "title" and not self.title:
            inner = self.markup[tag.end() : ending.start() if ending else tag.end()]
            self.title = " ".join(_unescaped(inner).split())
        return ending.start() if ending else len(self.markup)

    def _tag(self, name: str, *, is_end: bool) -> str:
        if name in self.around or name == "pre":
            self.opened[name] = max(0, self.opened[name] + (-1 if is_end else 1))
        if self._is_around():
            return ""
        if name in _HEADINGS:
            return "\n\n" if is_end else f"\n\n{_HEADINGS[name]}"
        if name == "li":
            return "" if is_end else "\n- "
        if name in ("td", "th"):
            return " | " if is_end else ""
        return "\n\n" if name in ("p", "pre", "table", "ul", "ol") else "\n" if name in _BREAKS else ""

    def _is_around(self) -> bool:
        return any(self.opened[name] for name in self.around)

    def _said(self, text: str) -> str:
        if not text or self._is_around():
            return ""
        seen = _UNSEEN.sub("", _unescaped(text))
        if self.opened["pre"]:
            return seen
        single = re.sub(r"\s+", " ", seen)
        return single.lstrip() if self.is_spaced else single


def _unescaped(text: str) -> str:
    try:
        return html.unescape(text)
    except ValueError:  # A number of more digits than Python reads.
        return text


def _tidied(text: str) -> str:
    """Without spaces at the ends of lines, and with one empty line between paragraphs."""
    lines = "\n".join(line.rstrip() for line in text.split("\n"))
    return re.sub(r"\n{3,}", "\n\n", lines).strip()
