#!/usr/bin/env python3
"""Ask a SQLite database, read-only: query.py DATABASE SQL [--format table|csv|json] [--output FILE] [--limit N]."""

import argparse
import csv
import json
import sqlite3
import sys
from collections.abc import Sequence
from typing import TextIO

PRINTED_ROWS_MAX = 200
CELL_CHARS_MAX = 80


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("database")
    parser.add_argument("sql")
    parser.add_argument("--format", choices=("table", "csv", "json"), default="table")
    parser.add_argument("--output", help="a file for the whole result")
    parser.add_argument("--limit", type=int, default=PRINTED_ROWS_MAX, help="rows that are printed")
    options = parser.parse_args()
    database = sqlite3.connect(f"file:{options.database}?mode=ro", uri=True)
    try:
        cursor = database.execute(options.sql)
        rows = cursor.fetchall()
    except sqlite3.Error as error:
        sys.exit(f"{error}. describe.py shows tables and columns.")
    header = [column[0] for column in cursor.description or ()]
    if options.output:
        with open(options.output, "w", newline="", encoding="utf-8") as file:
            write(file, options.format, header, rows)
        print(f"{len(rows)} rows in {options.output}")
        return
    write(sys.stdout, options.format, header, rows[: options.limit])
    if len(rows) > options.limit:
        print(f"... {options.limit} of {len(rows)} rows; --output FILE writes them all")


def write(file: TextIO, form: str, header: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    match form:
        case "csv":
            csv.writer(file).writerows([header, *rows])
        case "json":
            json.dump([dict(zip(header, row, strict=True)) for row in rows], file, ensure_ascii=False, indent=1, default=repr)
            file.write("\n")
        case _:
            table(file, header, rows)


def table(file: TextIO, header: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    cells = [[shown(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(header, *cells, strict=True)]
    for line in [list(header), ["-" * width for width in widths], *cells]:
        file.write("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() + "\n")


def shown(cell: object) -> str:
    text = "" if cell is None else f"{cell:.10g}" if isinstance(cell, float) else str(cell).replace("\n", "\\n")
    return text if len(text) <= CELL_CHARS_MAX else text[: CELL_CHARS_MAX - 1] + "…"


if __name__ == "__main__":
    main()
