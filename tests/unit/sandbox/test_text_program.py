"""``moorage-text``, the program that reads documents in a sandbox: what it makes of good ones, and of others."""

import re
import subprocess
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from moorage.local.environments import environment

from tests.drawing import VAST
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
    "a PDF whose words are placed one by one": (
        "pdf",
        documents.word_by_word_pdf("Introduction", "to", "tides"),
        "Introduction to tides",
    ),
    "a PDF whose font has no map": ("pdf", documents.japanese_pdf("東京の潮"), "東京の潮"),
    "a Word document": ("docx", documents.docx("One.", "Two &amp; three."), "One.\nTwo & three."),
    "a presentation": ("pptx", documents.pptx("Opening", "End"), "Opening\n\nEnd"),
    "a workbook": ("xlsx", documents.xlsx(("region", "sum"), ("north", "3")), "Sales\nregion\tsum\nnorth\t3"),
    "a page": ("html", PAGE.encode(), "Tides\n\nHigh & low\n\nTwice a day.\n\n\n\ta\tb"),
    "a page that says its encoding": ("html", b'<meta charset="windows-1251"><p>' + "Привет, мир".encode("cp1251"), "Привет, мир"),
    "UTF-16 without a mark": ("text", "Grüße aus Köln".encode("utf-16-le"), "Grüße aus Köln"),
    "Western European text": (
        "text",
        ("Les élèves ont été reçus à l'école. " * 9).encode("cp1252"),
        "[The file does not say its encoding. It was read as cp1252, which is a guess.]\n\nLes élèves ont été reçus",
    ),
    "XML that says its encoding": (
        "text",
        '<?xml version="1.0" encoding="Shift_JIS"?><title>ブログで大金持ち</title>'.encode("shift_jis"),
        '<?xml version="1.0" encoding="Shift_JIS"?><title>ブログで大金持ち</title>',
    ),
    "a program that says its encoding": (
        "text",
        "# -*- coding: iso-8859-9 -*-\nprint('ışık, ağaç')".encode("iso-8859-9"),
        "# -*- coding: iso-8859-9 -*-\nprint('ışık, ağaç')",
    ),
    "ISO-2022-JP": ("text", "東京は日本の首都です。".encode("iso2022_jp"), "東京は日本の首都です。"),
    "ISO-2022-KR": ("text", "서울은 수도이다.".encode("iso2022_kr"), "서울은 수도이다."),
    "an e-mail": (
        "eml",
        b"From: Ann <ann@example.org>\nSubject: =?utf-8?q?Gr=C3=BC=C3=9Fe?=\nMIME-Version: 1.0\nContent-Type: multipart/mixed; "
        b'boundary="b"\n\n--b\nContent-Type: text/plain; charset=utf-8\nContent-Transfer-Encoding: base64\n\nVGlkZXMgw7x0Lg==\n'
        b'--b\nContent-Type: image/png; name="tide.png"\n\nx\n--b--\n',
        "From: Ann <ann@example.org>\nSubject: Grüße\n\nTides üt.\n\n[Attachment: tide.png]",
    ),
    "Japanese text": (
        "text",
        ("東京は日本の首都です。人口は多いです。" * 20).encode("shift_jis"),
        "[The file does not say its encoding. It was read as cp932, which is a guess.]\n\n東京は日本の首都です。",
    ),
    "a PDF without a table, and with a vast picture": ("pdf", documents.vast_picture_pdf(), "Tides"),
    "a Word document with a vast picture": (
        "docx",
        documents.zip_of(
            word__document_xml='<w:document xmlns:w="urn:w"><w:body><w:p><w:r><w:t>Tides</w:t></w:r></w:p></w:body></w:document>',
            word__media__image1_png=VAST["png"],
        ),
        "Tides",
    ),
    "a Word document with a header and a chart alone": (
        "docx",
        documents.zip_of(
            word__document_xml='<w:document xmlns:w="urn:w"><w:body/></w:document>',
            word__header1_xml='<w:hdr xmlns:w="urn:w"><w:p><w:r><w:t>Draft</w:t></w:r></w:p></w:hdr>',
            word__header2_xml='<w:hdr xmlns:w="urn:w"><w:p><w:r><w:t>Draft</w:t></w:r></w:p></w:hdr>',
            word__charts__chart1_xml='<c:chart xmlns:c="urn:c" xmlns:a="urn:a"><a:p><a:t>Tides</a:t></a:p>'
            "<c:val><c:v>4.1</c:v></c:val></c:chart>",
        ),
        "Draft\n\nTides\n4.1",
    ),
    "a presentation of a chart and a group of shapes": (
        "pptx",
        documents.zip_of(
            ppt__slides__slide1_xml='<p:sld xmlns:p="urn:p" xmlns:a="urn:a"><p:grpSp><p:sp><a:p><a:t>Moon</a:t></a:p></p:sp>'
            "</p:grpSp></p:sld>",
            ppt__charts__chart1_xml='<c:chart xmlns:c="urn:c"><c:cat><c:v>high</c:v></c:cat><c:val><c:v>4.1</c:v></c:val></c:chart>',
        ),
        "Moon\n\nhigh\t\n4.1",
    ),
    "Rich Text": (
        "rtf",
        rb"{\rtf1\ansi\ansicpg1252\uc1{\fonttbl{\f0 Arial;}}{\*\generator Word;}{\pict\bin3 }}x}\f0\b Gr\'fc\'dfe\b0\par "
        rb"{\shp{\*\shpinst\shptop1{\shptxt box\par}}}a\tab \u26481?\u20140?\par \u-10179?\u-8704? \{x\}}",
        "Grüße\nbox\na\t東京\n😀 {x}",
    ),
    "Rich Text of two bytes": ("rtf", rb"{\rtf1\ansi\ansicpg932 \'93\'8c\'8b\'9e}", "東京"),
}


@pytest.mark.parametrize("what", GOOD)
def test_the_text_of_a_document(what: str, tmp_path: Path) -> None:
    kind, content, expected = GOOD[what]
    code, said, text = read(tmp_path, kind, content)
    assert (code, said) == (0, "")
    assert text.strip().startswith(expected)


def test_a_pdf_that_only_its_owner_may_change_is_read_without_a_password(tmp_path: Path) -> None:
    program = (
        "import sys, pypdf; writer = pypdf.PdfWriter(clone_from=sys.argv[1]); "
        "writer.encrypt(sys.argv[3], 'owner', algorithm='AES-256'); writer.write(sys.argv[2])"
    )
    plain, locked = tmp_path / "plain.pdf", tmp_path / "locked.pdf"
    plain.write_bytes(documents.pdf("First page."))
    found = []
    for password in ("", "user"):
        command = [str(environment("toolbox").python), "-c", program, str(plain), str(locked), password]
        subprocess.run(command, check=True, timeout=120)
        found.append(read(tmp_path, "pdf", locked.read_bytes()))
    assert found == [(0, "", "First page.\n\n"), (10, "The PDF is encrypted with a password.", "")]


def test_an_impossible_date_is_its_own_text_and_costs_no_other_cell(tmp_path: Path) -> None:
    program = (
        "import sys, openpyxl; book = openpyxl.Workbook(); sheet = book.active; sheet.append(['tide', 'x', 'end']); "
        "sheet['B1'] = 1; sheet['B1'].number_format = 'yyyy-mm-dd'; book.save(sys.argv[1])"
    )
    path = tmp_path / "book.xlsx"
    subprocess.run([str(environment("toolbox").python), "-c", program, str(path)], check=True, timeout=120)
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    sheet = "xl/worksheets/sheet1.xml"
    impossible = re.sub(rb'<c r="B1"([^>]*?)( t="n")?><v>1</v>', rb'<c r="B1"\1 t="d"><v>no day</v>', parts[sheet])
    assert impossible != parts[sheet]
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in (parts | {sheet: impossible}).items():
            archive.writestr(name, content)
    assert read(tmp_path, "xlsx", path.read_bytes()) == (0, "", "Sheet\ntide\tno day\tend\n\n")


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
    "a PDF without text": (
        "pdf",
        documents.pdf(""),
        10,
        "The PDF has no text. Its pages are pictures, or empty: recognize their text first.",
    ),
    "a Word document of another age": (
        "docx",
        b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(99),
        10,
        "The file is of an Office before 2007",
    ),
    "a presentation of nothing": ("pptx", documents.pptx(""), 10, "The presentation has no text."),
    "a picture with zeros in it": ("text", b"DDS |\x00\x00\x00\x07\x10\x0a\x00" * 40, 10, "The file is no text"),
    "Rich Text without text": ("rtf", rb"{\rtf1{\fonttbl{\f0 Arial;}}}", 10, "The Rich Text has no text."),
    "Rich Text of open braces": ("rtf", rb"{\rtf1 " + b"{" * 10_001, 10, "The Rich Text is nested deeper"),
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
