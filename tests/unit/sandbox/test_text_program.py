"""``moorage-text``, the program that reads documents in a sandbox: what it makes of good ones, and of others."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from moorage.local.environments import environment

from tests.unit.sandbox import documents
from tests.unit.sandbox.support import EXEC_SERVER

PROGRAM = EXEC_SERVER.parent / "bin" / "moorage-text"
MEMORY = 768 * 1024 * 1024


def read(folder: Path, kind: str, content: bytes, *, text_bytes: int = 10_000_000, seconds: int = 20) -> tuple[int, str, str]:
    """Exit code, what it said, and the text."""
    source, target = folder / "document", folder / "text"
    source.write_bytes(content)
    bounds = map(str, (text_bytes, MEMORY, seconds))
    command = [str(environment("toolbox").python), str(PROGRAM), kind, str(source), str(target), *bounds]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    return ran.returncode, ran.stdout.strip(), target.read_text() if target.exists() else ""


PAGE = (
    "<html><head><title>Tides</title><style>p {}</style><script>var a = '<p>no</p>'</script></head>"
    "<body><h1>High &amp; low</h1><p>Twice a\n   day.</p><table><tr><td>a</td><td>b</td></tr></table></body></html>"
)

GOOD: dict[str, tuple[str, bytes, str]] = {
    "a PDF": ("pdf", documents.pdf("First page.", "Second page."), "First page.\n\nSecond page."),
    "a Word document": ("docx", documents.docx("One.", "Two &amp; three."), "One.\nTwo & three."),
    "a presentation": ("pptx", documents.pptx("Opening", "End"), "Opening\n\nEnd"),
    "a workbook": ("xlsx", documents.xlsx(("region", "sum"), ("north", "3")), "Sales\nregion\tsum\nnorth\t3"),
    "a page": ("html", PAGE.encode(), "Tides\n\nHigh & low\n\nTwice a day.\n\n\n\ta\tb"),
    "a page that says its encoding": ("html", b'<meta charset="windows-1251"><p>' + "Привет, мир".encode("cp1251"), "Привет, мир"),
    "UTF-16 without a mark": ("text", "Grüße aus Köln".encode("utf-16-le"), "Grüße aus Köln"),
    "Western European text": ("text", ("Les élèves ont été reçus à l'école. " * 9).encode("cp1252"), "Les élèves ont été reçus"),
    "Japanese text": ("text", ("東京は日本の首都です。人口は多いです。" * 20).encode("shift_jis"), "東京は日本の首都です。"),
}


@pytest.mark.parametrize("what", GOOD)
def test_the_text_of_a_document(what: str, tmp_path: Path) -> None:
    kind, content, expected = GOOD[what]
    code, said, text = read(tmp_path, kind, content)
    assert (code, said) == (0, "")
    assert text.strip().startswith(expected)


def test_the_macros_of_a_document_are_no_text(tmp_path: Path) -> None:
    assert read(tmp_path, "docx", documents.with_macros("One.")) == (0, "", "One.\n\n")


BAD: dict[str, tuple[str, bytes | Callable[[], bytes], int, str]] = {
    "a zip bomb": ("docx", documents.bomb, 11, ""),
    "a thousand million spaces": ("docx", documents.spaces, 11, ""),
    "entities of entities": ("docx", documents.laughs(), 10, "The document declares XML entities of its own"),
    "an entity that reads a file": ("docx", documents.thief(), 10, "The document declares XML entities of its own"),
    "half a Word document": ("docx", documents.docx("x" * 5000)[:150], 10, "The file is damaged: it is no zip archive"),
    "another archive": ("docx", documents.zip_of(a_txt="x"), 10, "The file is no Word document"),
    "a presentation without slides": ("pptx", documents.zip_of(a_txt="x"), 10, "The file is no presentation"),
    "a workbook that is none": ("xlsx", documents.zip_of(a_txt="x"), 10, "The workbook is damaged"),
    "half a PDF": ("pdf", documents.pdf("x" * 500)[:200], 10, "The PDF is damaged"),
    "a PDF whose pages contain themselves": ("pdf", documents.deep_pdf(), 10, ""),
    "a PDF that is nested without end": ("pdf", documents.nested_pdf(), 10, ""),
    "a PDF without text": ("pdf", documents.pdf(""), 10, "The file has no text. If it holds scanned pages"),
    "bytes without a meaning": ("text", bytes(range(256)) * 40, 10, "The file is no text"),
}


@pytest.mark.parametrize("what", BAD)
def test_what_has_no_text_is_refused_within_bounds(what: str, tmp_path: Path) -> None:
    kind, content, expected, words = BAD[what]
    code, said, _ = read(tmp_path, kind, content() if callable(content) else content)
    assert (code, said.startswith(words)) == (expected, True), said
    assert "Traceback" not in said


def test_a_program_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    """A page of unclosed brackets takes time that grows with the square of its length: the kernel ends it."""
    code, _, _ = read(tmp_path, "html", b"<![" * 3_000_000, seconds=1)
    assert code != 0
