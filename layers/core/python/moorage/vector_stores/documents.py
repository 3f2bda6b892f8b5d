"""What kind of document a file is, and the text of those that are text already.

Text in UTF-8, or with a mark that says its encoding, is read here: to decode is not to interpret. All else that has a text (documents
of offices, PDF, HTML, e-mail, Rich Text, text in another encoding) is read by a program inside of a sandbox
(``functions/sandbox/bin/moorage-text``), which may be misled, swamped or brought down without harm to anybody.
"""

import codecs
import re
from collections.abc import AsyncIterator
from typing import Final, Literal

from moorage import limits
from moorage.dataclass import dataclass
from moorage.model.tokens import weight
from moorage.vector_stores.records import ErrorCode

Kind = Literal["pdf", "docx", "pptx", "xlsx", "eml", "rtf", "html", "text"]

HEAD_BYTES: Final = 4096
_ZIPPED: Final[dict[str, Kind]] = {"docx": "docx", "docm": "docx", "pptx": "pptx", "pptm": "pptx", "xlsx": "xlsx", "xlsm": "xlsx"}
_NAMED: Final[dict[str, Kind]] = {"pdf": "pdf", "html": "html", "htm": "html", "xhtml": "html", "eml": "eml", **_ZIPPED}
_OTHERS: Final = (
    *(b"\x89PNG", b"\xff\xd8\xff", b"GIF8", b"II*\x00", b"MM\x00*", b"RIFF", b"OggS", b"fLaC", b"ID3\x03", b"ID3\x04"),
    *(b"\x00\x00\x01\x00", b"\x00\x00\x00 ftyp", b"\x00\x00\x00\x18ftyp", b"\x00\x00\x00\x1cftyp", b"\x1aE\xdf\xa3"),
    *(b"PK\x03\x04", b"PK\x05\x06", b"\x1f\x8b", b"BZh", b"\xfd7zXZ", b"7z\xbc\xaf", b"Rar!", b"(\xb5/\xfd"),
    *(b"\x7fELF", b"MZ\x90", b"\xca\xfe\xba\xbe", b"\xcf\xfa\xed\xfe", b"\xd0\xcf\x11\xe0"),
    *(b"SQLite format 3", b"PAR1", b"wOF", b"\x00asm"),
    *(b"DDS \x7c\x00\x00\x00", b"8BPS\x00", b"\x00\x00\x00\x0cjP  ", b"\x00\x00\x00\x0cJXL ", b"\xff\x4f\xff\x51", b"\xff\x0a"),
    *(b"icns\x00", b"\x00\x00\x02\x00", b"gimp xcf ", b"qoif\x00", b"v/1\x01", b"\x01\xda", b"\x59\xa6\x6a\x95", b"\xd7\xcd\xc6\x9a"),
    *(b"FORM\x00", b"MThd\x00", b"FLV\x01", b"\x30\x26\xb2\x75", b"\x00\x00\x01\xba", b"\xff\xfb", b"AT&TFORM"),
    *(b"\x00\x01\x00\x00\x00", b"OTTO\x00", b"\x1f\x9d", b"!<arch>\n", b"\xed\xab\xee\xdb", b"\x93NUMPY", b"\x89HDF", b"Obj\x01"),
)
"""How files begin that have no text, or none that is read here: pictures, sounds, archives, programs, databases, and the documents of
Office before 2007."""
_OTHERS_INSIDE: Final = re.compile(
    rb"BM.{4}\x00\x00\x00\x00.{2}\x00\x00"  # BMP: its size, two fields that are zero, and where the pixels begin
    rb"|\x00\x00.{2}ftyp"  # ISO base media: MP4, HEIC, AVIF
    rb"|.{4}(?:\x11\xaf|\x12\xaf)"  # FLI, FLC
    rb"|\x0a[\x00-\x05][\x00\x01][\x01\x02\x04\x08]"  # PCX
    rb"|.{257}ustar[\x00 ]",  # tar
    re.DOTALL,
)
_ESCAPES: Final = re.compile("\x1b(?:\\$[@AB)(]|\\([IJ])")
"""ISO-2022 is written in seven bits and would pass for UTF-8."""
_MARKS: Final = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
"""UTF-32's mark begins with UTF-16's."""


class UnreadableDocument(Exception):
    """There is no text to be had of a file; ``message`` says why, to its owner."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class NotPlainText(Exception):
    """It is no text of an encoding that it says."""


@dataclass(frozen=True, slots=True)
class DocumentProbe:
    kind: Kind
    encoding: str | None
    """Of text that may be read at once."""


def look(filename: str, head: bytes) -> DocumentProbe:
    """By its first bytes, and by its name if these leave it open. Raises :class:`UnreadableDocument`."""
    named = _NAMED.get(filename.rpartition(".")[2].lower())
    if b"%PDF-" in head[:1024]:
        return DocumentProbe("pdf", None)
    if head.startswith(b"{\\rtf"):
        return DocumentProbe("rtf", None)
    if named is not None and named not in ("html", "eml"):
        return DocumentProbe(named, None)
    if (head.startswith(_OTHERS) or _OTHERS_INSIDE.match(head)) and not head.startswith(codecs.BOM_UTF16_LE):
        raise UnreadableDocument("unsupported_file", f"'{filename}' is of a kind that has no text, or none that can be read here.")
    if named is not None:
        return DocumentProbe(named, None)
    return DocumentProbe("text", next((encoding for mark, encoding in _MARKS if head.startswith(mark)), "utf-8"))


async def plain_text(chunks: AsyncIterator[bytes], encoding: str) -> str:
    """Text as it stands, with lines that end alike. Memory stays within the longest text that is taken, however long the file is.
    Raises :class:`NotPlainText`, and :class:`UnreadableDocument` for what is too long or empty."""
    decoder = codecs.getincrementaldecoder(encoding)()
    text = BoundedText()
    try:
        async for chunk in chunks:
            text.add(decoder.decode(chunk))
        text.add(decoder.decode(b"", True))
    except UnicodeDecodeError as error:
        raise NotPlainText from error
    return text.whole()


class BoundedText:
    """A text within bounds, from its pieces."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._tokens = 0.0

    def add(self, piece: str) -> None:
        if "\x00" in piece or ("\x1b" in piece and _ESCAPES.search(piece)):
            raise NotPlainText
        self._tokens += weight(piece)
        if self._tokens > limits.DOCUMENT_TOKENS_MAX:
            raise too_long()
        self._pieces.append(piece)

    def whole(self) -> str:
        text = "".join(self._pieces).replace("\r\n", "\n").replace("\r", "\n")
        if not text.strip():
            raise UnreadableDocument("invalid_file", "The file has no text.")
        return text


def too_long() -> UnreadableDocument:
    return UnreadableDocument(
        "invalid_file", f"The file has more than {limits.DOCUMENT_TOKENS_MAX} tokens, the most that one file may have."
    )
