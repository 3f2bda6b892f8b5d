#!/usr/bin/env python3
"""Load tables from files into a SQLite database: load.py DATABASE FILE [FILE ...] [--table NAME]."""

import argparse
import csv
import json
import re
import sqlite3
import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from pathlib import Path

Cell = str | int | float | None
SAMPLE_ROWS = 20_000
"""Types are judged by so many rows; a later value that does not fit is stored as it is, which SQLite allows."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("database")
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--table", help="the table's name, for a single file with a single table")
    options = parser.parse_args()
    if options.table and len(options.files) > 1:
        parser.error("--table goes with a single file")
    with sqlite3.connect(options.database) as database:
        for path in options.files:
            for name, header, rows in tables(path):
                table = identifier(options.table or name)
                print(f"{table}: {load(database, table, header, rows)} rows, {len(header)} columns, from {path.name}")


def tables(path: Path) -> Iterator[tuple[str, list[str], Iterable[Sequence[Cell]]]]:
    """Name, column names and rows of each table in a file."""
    match path.suffix.lower():
        case ".csv" | ".tsv" | ".txt":
            yield path.stem, *from_text(path)
        case ".json" | ".jsonl" | ".ndjson":
            yield path.stem, *from_objects(objects(path))
        case ".xlsx" | ".xlsm":
            yield from from_workbook(path)
        case other:
            sys.exit(f"{path.name}: files that end in '{other}' cannot be loaded; use csv, tsv, json, jsonl or xlsx")


def from_text(path: Path) -> tuple[list[str], Iterator[Sequence[Cell]]]:
    with path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
        sample = file.read(65_536)
    delimiter = "\t" if path.suffix.lower() == ".tsv" else max(",;\t|", key=sample.partition("\n")[0].count)
    rows = lines(path, delimiter)
    return next(rows, []), rows


def lines(path: Path, delimiter: str) -> Iterator[list[str]]:
    csv.field_size_limit(sys.maxsize)
    with path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
        yield from csv.reader(file, delimiter=delimiter)


def objects(path: Path) -> Iterator[dict[str, object]]:
    with path.open(encoding="utf-8-sig") as file:
        first = next((line for line in file if line.strip()), "")
        file.seek(0)
        if first.lstrip().startswith("["):
            yield from json.load(file)
        else:
            yield from (json.loads(line) for line in file if line.strip())


def from_objects(found: Iterator[dict[str, object]]) -> tuple[list[str], Iterator[Sequence[Cell]]]:
    sample = list(islice(found, SAMPLE_ROWS))
    header = list(dict.fromkeys(key for record in sample for key in record))
    return header, ([plain(record.get(key)) for key in header] for record in chain(sample, found))


def plain(value: object) -> Cell:
    return value if value is None or isinstance(value, str | int | float) else json.dumps(value, ensure_ascii=False)


def from_workbook(path: Path) -> Iterator[tuple[str, list[str], Iterable[Sequence[Cell]]]]:
    from openpyxl import load_workbook

    book = load_workbook(path, read_only=True, data_only=True)
    for sheet in book.worksheets:
        rows = sheet.iter_rows(values_only=True)
        header = [str(cell) if cell is not None else f"column_{number}" for number, cell in enumerate(next(rows, ()), 1)]
        if header:
            name = path.stem if len(book.worksheets) == 1 else f"{path.stem}_{sheet.title}"
            yield name, header, ([cell if isinstance(cell, int | float | None) else str(cell) for cell in row] for row in rows)


def load(database: sqlite3.Connection, table: str, header: Sequence[str], rows: Iterable[Sequence[Cell]]) -> int:
    columns = distinct(identifier(name) for name in header)
    iterator = iter(rows)
    sample = [fitted(row, len(columns)) for row in islice(iterator, SAMPLE_ROWS)]
    kinds = [kind(row[index] for row in sample) for index in range(len(columns))]
    database.execute(f'drop table if exists "{table}"')
    database.execute(f'create table "{table}" ({", ".join(f"[{name}] {kind}" for name, kind in zip(columns, kinds, strict=True))})')
    places = ", ".join("?" * len(columns))
    everything = chain(sample, (fitted(row, len(columns)) for row in iterator))
    typed = ([typed_value(cell, kind) for cell, kind in zip(row, kinds, strict=True)] for row in everything)
    return database.executemany(f'insert into "{table}" values ({places})', typed).rowcount


def fitted(row: Sequence[Cell], length: int) -> list[Cell]:
    return [*row[:length], *([None] * (length - len(row)))]


def kind(values: Iterable[Cell]) -> str:
    found = {judged(value) for value in values if value not in (None, "")}
    if not found:
        return "TEXT"
    return "TEXT" if "TEXT" in found else "REAL" if "REAL" in found else "INTEGER"


def judged(value: Cell) -> str:
    if isinstance(value, float):
        return "REAL"
    if isinstance(value, int) or re.fullmatch(r"[+-]?(0|[1-9]\d{0,17})", str(value).strip()):
        return "INTEGER"  # what begins with a zero is a code, and stays as it is
    return "REAL" if re.fullmatch(r"[+-]?(\d+\.\d*|\.\d+)([eE][+-]?\d+)?", str(value).strip()) else "TEXT"


def typed_value(value: Cell, kind: str) -> Cell:
    if value in (None, ""):
        return None
    if kind == "TEXT" or not isinstance(value, str):
        return value
    try:
        return int(value) if kind == "INTEGER" else float(value)
    except ValueError:
        return value


def identifier(name: str) -> str:
    cleaned = re.sub(r"\W+", "_", name.strip().lower()).strip("_") or "column"
    return f"t_{cleaned}" if cleaned[0].isdigit() else cleaned


def distinct(names: Iterable[str]) -> list[str]:
    seen: list[str] = []
    for name in names:
        candidate, number = name, 1
        while candidate in seen:
            number += 1
            candidate = f"{name}_{number}"
        seen.append(candidate)
    return seen


if __name__ == "__main__":
    main()
