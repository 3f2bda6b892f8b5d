#!/usr/bin/env python3
"""Build a workbook from a plan: make.py PLAN.json WORKBOOK.xlsx (SKILL.md says what a plan holds)."""

import argparse
import csv
import json
import re
import sqlite3
import sys
from collections.abc import Sequence
from datetime import date, datetime
from pathlib import Path
from typing import Any

from openpyxl import Workbook
from openpyxl.chart import BarChart, LineChart, PieChart, Reference, ScatterChart, Series
from openpyxl.styles import Alignment, Border, Font, PatternFill, Side
from openpyxl.utils import get_column_letter
from openpyxl.worksheet.worksheet import Worksheet

WIDTH_MAX = 60
SAMPLE_ROWS = 500
TOTALS = {"sum": "SUM", "average": "AVERAGE", "min": "MIN", "max": "MAX", "count": "COUNTA"}
_HEADER = PatternFill("solid", fgColor="DDE6F0")
_LINE = Border(top=Side(style="thin"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("plan", type=Path)
    parser.add_argument("workbook", type=Path)
    options = parser.parse_args()
    plan = json.loads(options.plan.read_text())
    book = Workbook()
    book.remove(book.active)
    for sheet in plan["sheets"]:
        build(book.create_sheet(sheet_name(sheet["name"])), sheet)
    book.save(options.workbook)
    print(f"{options.workbook}: " + ", ".join(f"{sheet.title} ({sheet.max_row} rows)" for sheet in book.worksheets))


def sheet_name(name: str) -> str:
    if not name or len(name) > 31 or re.search(r"[\[\]:*?/\\]", name):
        sys.exit(f"'{name}' is no name of a sheet: 1 to 31 characters, none of []:*?/\\")
    return name


def build(sheet: Worksheet, plan: dict[str, Any]) -> None:
    header, rows = source(plan["source"])
    columns = plan.get("columns") or [{"title": title} for title in header]
    sheet.append([column["title"] for column in columns])
    for number, row in enumerate(rows, 2):
        values = iter(row)
        formulas = [column.get("formula", "").replace("{row}", str(number)) for column in columns]
        sheet.append([formula or value(next(values, None)) for formula in formulas])
        for cell, formula in zip(sheet[number], formulas, strict=True):
            if cell.data_type == "f" and not formula:
                cell.data_type = "s"  # a text of the data that looks like a formula: nobody asked for one
    last = sheet.max_row
    for index, column in enumerate(columns, 1):
        for (cell,) in sheet.iter_rows(min_row=2, min_col=index, max_col=index):
            if "format" in column:
                cell.number_format = column["format"]
        sheet.column_dimensions[get_column_letter(index)].width = column.get("width") or width(sheet, index)
    style(sheet, len(columns))
    titles = [column["title"] for column in columns]
    if plan.get("totals"):
        add_totals(sheet, titles, plan["totals"], last)
    if plan.get("chart"):
        add_chart(sheet, titles, plan["chart"], last)


def source(plan: dict[str, Any]) -> tuple[list[str], list[Sequence[Any]]]:
    if "rows" in plan:
        return list(plan.get("header", [])), plan["rows"]
    if "csv" in plan:
        with open(plan["csv"], encoding="utf-8-sig", newline="") as file:
            header, *rows = csv.reader(file)
        return header, [[number(cell) for cell in row] for row in rows]
    database = sqlite3.connect(f"file:{plan['database']}?mode=ro", uri=True)
    cursor = database.execute(plan["sql"])
    return [column[0] for column in cursor.description], cursor.fetchall()


def number(text: str) -> str | int | float:
    if re.fullmatch(r"[+-]?(0|[1-9]\d{0,14})", text):
        return int(text)
    return float(text) if re.fullmatch(r"[+-]?\d+\.\d+", text) else text


def value(cell: Any) -> Any:
    """Dates as dates."""
    if isinstance(cell, str):
        if re.fullmatch(r"\d{4}-\d\d-\d\d", cell):
            return date.fromisoformat(cell)
        if re.fullmatch(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d(:\d\d)?", cell):
            return datetime.fromisoformat(cell)
    return cell


def width(sheet: Worksheet, index: int) -> float:
    cells = sheet.iter_rows(min_row=1, max_row=min(SAMPLE_ROWS, sheet.max_row), min_col=index, max_col=index, values_only=True)
    return min(WIDTH_MAX, 3 + max(len(str(cell)) if not str(cell).startswith("=") else 10 for (cell,) in cells))


def style(sheet: Worksheet, columns: int) -> None:
    for cell in sheet[1]:
        cell.font, cell.fill, cell.alignment = Font(bold=True), _HEADER, Alignment(vertical="center")
    sheet.freeze_panes = "A2"
    sheet.auto_filter.ref = f"A1:{get_column_letter(columns)}{max(sheet.max_row, 2)}"


def add_totals(sheet: Worksheet, titles: list[str], totals: dict[str, str], last: int) -> None:
    row = last + 1
    for title, kind in totals.items():
        letter = get_column_letter(titles.index(title) + 1)
        cell = sheet[f"{letter}{row}"]
        cell.value = f"={TOTALS[kind]}({letter}2:{letter}{last})"
        cell.number_format = sheet[f"{letter}{last}"].number_format
    if sheet.cell(row, 1).value is None:
        sheet.cell(row, 1).value = "Total"
    for cell in sheet[row]:
        cell.font, cell.border = Font(bold=True), _LINE


def add_chart(sheet: Worksheet, titles: list[str], plan: dict[str, Any], last: int) -> None:
    kind = plan.get("type", "column")
    chart = {"line": LineChart, "pie": PieChart, "scatter": ScatterChart}.get(kind, BarChart)()
    if kind in ("bar", "column"):
        chart.type = "bar" if kind == "bar" else "col"
    chart.title, chart.height, chart.width = plan.get("title"), plan.get("height", 9), plan.get("width", 18)
    categories = column(sheet, titles, plan["categories"], last, from_row=2)
    for name in plan["series"]:
        if kind == "scatter":
            chart.series.append(Series(column(sheet, titles, name, last, from_row=2), categories, title=name))
        else:
            chart.add_data(column(sheet, titles, name, last, from_row=1), titles_from_data=True)
    if kind != "scatter":
        chart.set_categories(categories)
    if kind != "pie":
        # Excel hides axes that do not say that they are there.
        chart.x_axis.delete = chart.y_axis.delete = False
    sheet.add_chart(chart, plan.get("at") or f"{get_column_letter(len(titles) + 2)}2")


def column(sheet: Worksheet, titles: list[str], title: str, last: int, *, from_row: int) -> Reference:
    if title not in titles:
        sys.exit(f"the chart names a column '{title}' that the sheet '{sheet.title}' does not have")
    index = titles.index(title) + 1
    return Reference(sheet, min_col=index, max_col=index, min_row=from_row, max_row=last)


if __name__ == "__main__":
    main()
