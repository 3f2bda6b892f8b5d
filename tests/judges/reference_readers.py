"""The text of a document as other programs read it, for ``tests/judges/files.py``.

``python reference_readers.py READER PATH`` prints it in UTF-8. It runs in an environment of its own (``tests/judges/files.in``)."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any


def pdfium(path: str) -> Iterator[str]:
    import pypdfium2

    for page in pypdfium2.PdfDocument(path):
        yield page.get_textpage().get_text_range()


def pdfminer(path: str) -> Iterator[str]:
    from pdfminer.high_level import extract_text

    yield extract_text(path)


def pypdf(path: str) -> Iterator[str]:
    from pypdf import PdfReader

    reader = PdfReader(path)
    if reader.is_encrypted:
        reader.decrypt("")
    for page in reader.pages:
        yield page.extract_text()


def docx(path: str) -> Iterator[str]:
    """Paragraphs and tables of the body: python-docx has no other text in one call."""
    from docx import Document
    from docx.table import Table

    def blocks(parent: Any) -> Iterator[str]:
        for block in parent.iter_inner_content():
            if isinstance(block, Table):
                for row in block.rows:
                    for cell in row.cells:
                        yield from blocks(cell)
            else:
                yield block.text

    yield from blocks(Document(path))


def pptx(path: str) -> Iterator[str]:
    from pptx import Presentation

    def shapes(parent: Any) -> Iterator[str]:
        for shape in parent:
            if hasattr(shape, "shapes"):
                yield from shapes(shape.shapes)
            elif shape.has_text_frame:
                yield shape.text_frame.text
            elif getattr(shape, "has_table", False):
                yield from (cell.text for row in shape.table.rows for cell in row.cells)

    for slide in Presentation(path).slides:
        yield from shapes(slide.shapes)
        if slide.has_notes_slide and slide.notes_slide.notes_text_frame is not None:
            yield slide.notes_slide.notes_text_frame.text


def xlsx(path: str) -> Iterator[str]:
    import openpyxl

    for sheet in openpyxl.load_workbook(path, data_only=True).worksheets:
        yield sheet.title
        yield from (str(cell) for row in sheet.iter_rows(values_only=True) for cell in row if cell is not None)


def html(path: str) -> Iterator[str]:
    from bs4 import BeautifulSoup

    page = BeautifulSoup(Path(path).read_bytes(), "html.parser")
    for silent in page.find_all(["script", "style", "noscript", "template", "svg"]):
        silent.decompose()
    yield page.get_text(" ")


def text(path: str) -> Iterator[str]:
    yield Path(path).read_text("utf-8-sig")


READERS: dict[str, Callable[[str], Iterator[str]]] = {
    each.__name__: each for each in (pdfium, pdfminer, pypdf, docx, pptx, xlsx, html, text)
}


def main(reader: str, path: str) -> None:
    sys.stdout.reconfigure(encoding="utf-8", errors="replace")  # type: ignore[union-attr]
    for piece in READERS[reader](path):
        sys.stdout.write(piece + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
