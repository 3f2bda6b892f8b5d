"""Documents made by hand: small ones of each kind, and hostile ones."""

import io
import zipfile


def zip_of(**parts: str | bytes) -> bytes:
    """Parts by name, with ``__`` for a slash and a dot for the last ``_``."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in parts.items():
            archive.writestr(".".join(name.replace("__", "/").rsplit("_", 1)), content)
    return buffer.getvalue()


def docx(*paragraphs: str) -> bytes:
    body = "".join(f"<w:p><w:r><w:t>{text}</w:t></w:r></w:p>" for text in paragraphs)
    return zip_of(word__document_xml=f'<w:document xmlns:w="urn:w" xmlns:mc="urn:mc"><w:body>{body}</w:body></w:document>')


def pptx(*slides: str) -> bytes:
    made = {
        f"ppt__slides__slide{number}_xml": f'<p:sld xmlns:a="urn:a" xmlns:p="urn:p"><a:p><a:r><a:t>{text}</a:t></a:r></a:p></p:sld>'
        for number, text in enumerate(slides, 1)
    }
    return zip_of(**made)


def xlsx(*rows: tuple[str, ...], picture: bytes = b"") -> bytes:
    def cell(text: str) -> str:
        return f'<c t="inlineStr"><is><t>{text}</t></is></c>'

    data = "".join(f"<row>{''.join(map(cell, row))}</row>" for row in rows)
    main, office = "http://schemas.openxmlformats.org/spreadsheetml/2006/main", "http://schemas.openxmlformats.org/officeDocument/2006"
    package = "http://schemas.openxmlformats.org/package/2006"
    sheet = "application/vnd.openxmlformats-officedocument.spreadsheetml"
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(
            "[Content_Types].xml",
            f'<Types xmlns="{package}/content-types"><Default Extension="rels" ContentType="application/vnd.openxmlformats-package.'
            f'relationships+xml"/><Override PartName="/xl/workbook.xml" ContentType="{sheet}.sheet.main+xml"/>'
            f'<Override PartName="/xl/worksheets/sheet1.xml" ContentType="{sheet}.worksheet+xml"/></Types>',
        )
        link = f'<Relationships xmlns="{package}/relationships"><Relationship Id="r1" Type="{office}/relationships/'
        archive.writestr("_rels/.rels", f'{link}officeDocument" Target="xl/workbook.xml"/></Relationships>')
        archive.writestr("xl/_rels/workbook.xml.rels", f'{link}worksheet" Target="worksheets/sheet1.xml"/></Relationships>')
        archive.writestr(
            "xl/workbook.xml",
            f'<workbook xmlns="{main}" xmlns:r="{office}/relationships"><sheets><sheet name="Sales" sheetId="1" r:id="r1"/></sheets>'
            "</workbook>",
        )
        archive.writestr("xl/worksheets/sheet1.xml", f'<worksheet xmlns="{main}"><sheetData>{data}</sheetData></worksheet>')
        if picture:
            archive.writestr("xl/media/image1.png", picture)
    return buffer.getvalue()


def pdf(*pages: str, picture: bytes = b"") -> bytes:
    """With one line of text on each page, and a picture that is on none."""
    return drawn_pdf(*(f"BT /F1 12 Tf 72 720 Td ({text}) Tj ET" for text in pages), picture=picture)


def drawn_pdf(*pages: str, font: str = "/Subtype /Type1 /BaseFont /Helvetica", picture: bytes = b"") -> bytes:
    """With pages that these operators draw."""
    kids = " ".join(f"{4 + 2 * number} 0 R" for number in range(len(pages)))
    objects = [
        "<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {len(pages)} >>",
        f"<< /Type /Font {font} >>",
    ]
    for number, stream in enumerate(pages):
        objects.append(
            f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents {5 + 2 * number} 0 R "
            "/Resources << /Font << /F1 3 0 R >> >> >>"
        )
        objects.append(f"<< /Length {len(stream)} >>\nstream\n{stream}\nendstream")
    if picture:
        shown = picture.decode("latin-1")
        objects.append(f"<< /Type /XObject /Subtype /Image /Length {len(shown)} >>\nstream\n{shown}\nendstream")
    made, places = "%PDF-1.4\n", []
    for number, text in enumerate(objects, 1):
        places.append(len(made))
        made += f"{number} 0 obj\n{text}\nendobj\n"
    table = "".join(f"{place:010d} 00000 n \n" for place in places)
    end = f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n{table}trailer\n<< /Size {len(objects) + 1} /Root 1 0 R >>\n"
    return f"{made}{end}startxref\n{len(made)}\n%%EOF\n".encode("latin-1")


def word_by_word_pdf(*words: str) -> bytes:
    """A line whose words have a place each, in a space that stands on its head, as browsers print."""
    return drawn_pdf(
        "\n".join(
            f"q .75 0 0 -.75 0 792 cm 1 0 0 1 {96 + 60 * number} 96 cm BT /F1 16 Tf 1 0 0 -1 0 .48 Tm 0 -13.2 Td ({word}) Tj ET Q"
            for number, word in enumerate(words)
        )
    )


def japanese_pdf(text: str) -> bytes:
    """Its font is not in the file, and has no map to Unicode but the name of an encoding."""
    info = "/CIDSystemInfo << /Registry (Adobe) /Ordering (Japan1) /Supplement 2 >>"
    shape = "/FontDescriptor << /Type /FontDescriptor /FontName /X /Flags 4 /FontBBox [0 0 1000 1000] /StemV 80 >>"
    below = f"[<< /Type /Font /Subtype /CIDFontType0 /BaseFont /X {info} {shape} >>]"
    font = f"/Subtype /Type0 /BaseFont /X /Encoding /EUC-H /DescendantFonts {below}"
    return drawn_pdf(f"BT /F1 12 Tf 72 720 Td <{text.encode('euc_jp').hex()}> Tj ET", font=font)


# --- Hostile ones --------------------------------------------------------------------------------------------------------------------


def vast_picture_pdf() -> bytes:
    """A page of one line over a picture that claims 2^31 pixels each way; a table of the file's objects is missing, too."""
    drawn = b"q 9 0 0 9 0 0 cm /Im Do Q BT /F1 9 Tf 9 99 Td (Tides) Tj ET"
    side = b"2147483647"
    return b"".join(
        (
            b"%PDF-1.4\n1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj\n2 0 obj<</Type/Pages/Kids[3 0 R]/Count 1>>endobj\n",
            b"3 0 obj<</Type/Page/Parent 2 0 R/MediaBox[0 0 200 200]/Contents 4 0 R",
            b"/Resources<</XObject<</Im 5 0 R>>/Font<</F1 6 0 R>>>>>>endobj\n",
            b"4 0 obj<</Length %d>>stream\n%s\nendstream endobj\n" % (len(drawn), drawn),
            b"5 0 obj<</Type/XObject/Subtype/Image/Width %s/Height %s/ColorSpace/DeviceRGB/BitsPerComponent 8/Length 3>>"
            % (side, side),
            b"stream\nabc\nendstream endobj\n6 0 obj<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>endobj\n",
            b"trailer<</Root 1 0 R>>\n%%EOF\n",
        )
    )


def bomb() -> bytes:
    """200 MB of text in 200 KB."""
    return zip_of(word__document_xml=b'<w:document xmlns:w="urn:w"><w:t>' + b"a" * 200_000_000 + b"</w:t></w:document>")


def spaces() -> bytes:
    """1 GB of nothing but spaces, in 4 MB."""
    buffer, piece = io.BytesIO(), b" " * 10_000_000
    archive = zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=1)
    with archive, archive.open("word/document.xml", "w") as part:
        part.write(b'<w:document xmlns:w="urn:w"><w:t>')
        for _ in range(100):
            part.write(piece)
        part.write(b"</w:t></w:document>")
    return buffer.getvalue()


def with_macros(*paragraphs: str) -> bytes:
    """A Word document that brings a program along."""
    buffer = io.BytesIO(docx(*paragraphs))
    with zipfile.ZipFile(buffer, "a") as archive:
        archive.writestr("word/vbaProject.bin", b'\xd0\xcf\x11\xe0 Sub AutoOpen() Shell "touch /tmp/owned"')
    return buffer.getvalue()


def laughs() -> bytes:
    """Entities of entities: a thousand million of the last."""
    entities = "".join(f'<!ENTITY a{n} "{f"&a{n - 1};" * 10}">' for n in range(1, 10))
    head = f'<!DOCTYPE w [<!ENTITY a0 "ha">{entities}]>'
    return zip_of(word__document_xml=f'{head}<w:document xmlns:w="urn:w"><w:t>&a9;</w:t></w:document>')


def thief() -> bytes:
    head = '<!DOCTYPE w [<!ENTITY a SYSTEM "file:///etc/passwd">]>'
    return zip_of(word__document_xml=f'{head}<w:document xmlns:w="urn:w"><w:t>&a;</w:t></w:document>')


def deep_pdf() -> bytes:
    """Pages of pages of pages, and a catalogue that is its own page tree."""
    return pdf("x").replace(b"/Kids [4 0 R]", b"/Kids [2 0 R]")


def nested_pdf() -> bytes:
    return pdf("x").replace(b"/MediaBox [0 0 612 792]", b"/MediaBox " + b"[" * 100_000)
