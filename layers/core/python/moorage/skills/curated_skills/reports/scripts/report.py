#!/usr/bin/env python3
"""Make a report from a plan: report.py PLAN.json REPORT.pdf|REPORT.html, or look one over: report.py --check REPORT."""

import base64
import csv
import html
import io
import json
import re
import sqlite3
import sys
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.backends.backend_pdf import PdfPages
from matplotlib.figure import Figure

PAGE = (8.27, 11.69)
"""A4, in inches."""
LINE_CHARS = 92
LINES_A_PAGE = 52
ROWS_MAX = 40
CELL_CHARS_MAX = 40
_STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:52rem;margin:2rem auto;padding:0 1rem;color:#1a1a1a}"
    "h1{margin-bottom:0}h2{margin-top:2rem;border-bottom:1px solid #ccc}p.subtitle{color:#666;margin-top:0}"
    "table{border-collapse:collapse;font-variant-numeric:tabular-nums}td,th{padding:.25rem .75rem;border-bottom:1px solid #e5e5e5}"
    "td.number,th.number{text-align:right}th{text-align:left;background:#f4f6f8}img{max-width:100%}"
)


def main() -> None:
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    if sys.argv[1] == "--check":
        check(Path(sys.argv[2]))
        return
    plan, target = json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2])
    match target.suffix.lower():
        case ".html":
            target.write_text(page(plan), encoding="utf-8")
        case ".pdf":
            write_pdf(plan, target)
        case _:
            sys.exit("a report ends in .pdf or .html")
    check(target)


def check(path: Path) -> None:
    data = path.read_bytes()
    if path.suffix.lower() == ".pdf":
        pages = len(re.findall(rb"/Type\s*/Page\b", data))
        if not data.startswith(b"%PDF-") or b"%%EOF" not in data[-1024:] or not pages:
            sys.exit(f"{path} is no whole PDF")
        print(f"{path}: {pages} pages, {len(data)} bytes")
    else:
        text = re.sub(r"<[^>]+>", " ", re.sub(r"<(style|script).*?</\1>", "", data.decode(), flags=re.DOTALL))
        print(f"{path}: {len(text.split())} words, {data.count(b'<table')} tables, {data.count(b'<img')} charts, {len(data)} bytes")


def rows_of(source: dict[str, Any]) -> tuple[list[str], list[Sequence[Any]]]:
    if "rows" in source:
        return list(source["header"]), source["rows"]
    if "csv" in source:
        with open(source["csv"], encoding="utf-8-sig", newline="") as file:
            header, *rows = csv.reader(file)
        return header, [[number(cell) for cell in row] for row in rows]
    cursor = sqlite3.connect(f"file:{source['database']}?mode=ro", uri=True).execute(source["sql"])
    return [column[0] for column in cursor.description], cursor.fetchall()


def number(text: str) -> str | int | float:
    try:
        return int(text) if re.fullmatch(r"[+-]?\d{1,15}", text) else float(text)
    except ValueError:
        return text


def cells_of(table: dict[str, Any]) -> tuple[list[str], list[list[str]], list[bool], int]:
    """Column names, cells as text, which columns hold numbers, and how many rows there are in all."""
    header, rows = rows_of(table["source"])
    formats = table.get("formats", {})
    shown = rows[: table.get("rows_max", ROWS_MAX)]
    numeric = [all(isinstance(row[i], int | float | None) for row in rows) for i in range(len(header))]
    texts = [[formatted(cell, formats.get(name)) for name, cell in zip(header, row, strict=True)] for row in shown]
    return header, texts, numeric, len(rows)


def formatted(cell: Any, form: str | None) -> str:
    if cell is None:
        return ""
    return format(cell, form) if form and isinstance(cell, int | float) else str(cell)


def chart_of(plan: dict[str, Any]) -> Figure:
    header, rows = rows_of(plan["source"])
    columns = {name: [row[index] for row in rows] for index, name in enumerate(header)}
    missing = [name for name in (plan["x"], *plan["y"]) if name not in columns]
    if missing:
        sys.exit(f"the chart names {', '.join(missing)}; the columns are {', '.join(header)}")
    figure, axes = plt.subplots(figsize=(7.2, 3.8))
    for position, name in enumerate(plan["y"]):
        match plan.get("type", "line"):
            case "bar":
                size = 0.8 / len(plan["y"])
                places = range(len(rows))
                axes.bar([place + position * size for place in places], columns[name], size, label=name)
                middles = [place + 0.4 - size / 2 for place in places]
                axes.set_xticks(middles, [str(x) for x in columns[plan["x"]]], rotation=30, ha="right")
            case "barh":
                axes.barh([str(x) for x in columns[plan["x"]]], columns[name], label=name)
            case "scatter":
                axes.scatter(columns[plan["x"]], columns[name], label=name, s=12)
            case _:
                axes.plot([str(x) for x in columns[plan["x"]]], columns[name], label=name, marker="o", markersize=3)
                axes.tick_params(axis="x", rotation=30)
    axes.set_title(plan.get("title", ""))
    axes.spines[["top", "right"]].set_visible(False)
    if len(plan["y"]) > 1:
        axes.legend(frameon=False)
    figure.tight_layout()
    return figure


def page(plan: dict[str, Any]) -> str:
    parts = [f"<h1>{html.escape(plan['title'])}</h1>"]
    if plan.get("subtitle"):
        parts.append(f'<p class="subtitle">{html.escape(plan["subtitle"])}</p>')
    for section in plan["sections"]:
        parts += [f"<h2>{html.escape(section['heading'])}</h2>"] if section.get("heading") else []
        parts += list(paragraphs(section.get("text", "")))
        if section.get("table"):
            parts.append(html_table(section["table"]))
        if section.get("chart"):
            parts.append(html_chart(section["chart"]))
    head = f'<meta charset="utf-8"><title>{html.escape(plan["title"])}</title><style>{_STYLE}</style>'
    return f'<!doctype html><html lang="en"><head>{head}</head><body>{"".join(parts)}</body></html>'


def paragraphs(text: str) -> Iterator[str]:
    for block in re.split(r"\n\s*\n", text.strip()):
        lines = block.splitlines()
        if lines and all(line.startswith("- ") for line in lines):
            yield "<ul>" + "".join(f"<li>{html.escape(line[2:])}</li>" for line in lines) + "</ul>"
        elif block:
            yield f"<p>{html.escape(block)}</p>"


def html_table(table: dict[str, Any]) -> str:
    header, rows, numeric, count = cells_of(table)
    classes = [' class="number"' if is_number else "" for is_number in numeric]
    head = "".join(f"<th{kind}>{html.escape(name)}</th>" for name, kind in zip(header, classes, strict=True))
    cells = ["".join(f"<td{kind}>{html.escape(cell)}</td>" for cell, kind in zip(row, classes, strict=True)) for row in rows]
    body = "".join(f"<tr>{row}</tr>" for row in cells)
    note = f"<p>{len(rows)} of {count} rows</p>" if count > len(rows) else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{note}"


def html_chart(plan: dict[str, Any]) -> str:
    buffer = io.BytesIO()
    figure = chart_of(plan)
    figure.savefig(buffer, dpi=140)
    plt.close(figure)
    image = base64.b64encode(buffer.getvalue()).decode()
    return f'<img alt="{html.escape(plan.get("title", "chart"))}" src="data:image/png;base64,{image}">'


def write_pdf(plan: dict[str, Any], target: Path) -> None:
    with PdfPages(target, metadata={"Title": plan["title"]}) as pdf:
        lines = [("title", plan["title"])] + ([("subtitle", plan["subtitle"])] if plan.get("subtitle") else [])
        for section in plan["sections"]:
            stands_alone = section.get("chart") and not (section.get("text") or section.get("table"))
            lines += [("heading", section["heading"])] if section.get("heading") and not stands_alone else []
            lines += [("text", line) for line in wrapped(section.get("text", ""))]
            lines += [("table", line) for line in table_lines(section["table"])] if section.get("table") else []
            if section.get("chart"):
                write_pages(pdf, lines)
                figure = chart_of(section["chart"])
                if section.get("heading") and stands_alone:
                    figure.suptitle(section["heading"], fontweight="bold", x=0.06, ha="left")
                    figure.tight_layout()
                pdf.savefig(figure)
                plt.close(figure)
                lines = []
        write_pages(pdf, lines)


def wrapped(text: str) -> Iterator[str]:
    for line in text.strip().splitlines():
        yield from textwrap.wrap(line, LINE_CHARS, subsequent_indent="  " if line.startswith("- ") else "") or [""]
    if text.strip():
        yield ""


def table_lines(table: dict[str, Any]) -> Iterator[str]:
    header, rows, numeric, count = cells_of(table)
    cut = [[cell[:CELL_CHARS_MAX] for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(header, *cut, strict=True)]

    def line(cells: list[str]) -> str:
        placed = [cell.rjust(w) if is_number else cell.ljust(w) for cell, w, is_number in zip(cells, widths, numeric, strict=True)]
        return "  ".join(placed)[:LINE_CHARS]

    yield line(header)
    yield "  ".join("-" * width for width in widths)[:LINE_CHARS]
    yield from (line(row) for row in cut)
    if count > len(rows):
        yield f"{len(rows)} of {count} rows"
    yield ""


SIZES = {"title": 20, "subtitle": 11, "heading": 14, "text": 10, "table": 8.5}
HEIGHTS = {"title": 2.4, "subtitle": 2.0, "heading": 2.0, "text": 1.0, "table": 0.9}
"""In lines of text."""


def write_pages(pdf: PdfPages, lines: list[tuple[str, str]]) -> None:
    left = list(lines)
    while left:
        figure, used = plt.figure(figsize=PAGE), 0.0
        while left and used + HEIGHTS[left[0][0]] <= LINES_A_PAGE:
            kind, text = left.pop(0)
            used += HEIGHTS[kind]
            figure.text(
                0.09, 0.95 - 0.0172 * used, text.replace("$", r"\$"), fontsize=SIZES[kind],
                fontfamily="monospace" if kind == "table" else "sans-serif",
                fontweight="bold" if kind in ("title", "heading") else "normal",
            )  # fmt: skip
        pdf.savefig(figure)
        plt.close(figure)


if __name__ == "__main__":
    main()
