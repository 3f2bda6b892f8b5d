#!/usr/bin/env python3
"""Say what a SQLite database holds: describe.py DATABASE [TABLE ...]."""

import argparse
import sqlite3

SAMPLE_ROWS = 3
CELL_CHARS_MAX = 60


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("database")
    parser.add_argument("tables", nargs="*")
    options = parser.parse_args()
    database = sqlite3.connect(f"file:{options.database}?mode=ro", uri=True)
    found = database.execute("select name, type from sqlite_master where type in ('table', 'view') order by 1")
    for name, kind in found.fetchall():
        if name.startswith("sqlite_"):
            continue
        if not options.tables or name in options.tables:
            describe(database, name, kind)


def describe(database: sqlite3.Connection, name: str, kind: str) -> None:
    (count,) = database.execute(f"select count(*) from [{name}]").fetchone()
    print(f"{kind} {name}: {count} rows")
    for _, column, declared, *_ in database.execute(f"pragma table_info([{name}])").fetchall():
        missing, different, low, high = database.execute(
            f"select count(*) - count([{column}]), count(distinct [{column}]), min([{column}]), max([{column}]) from [{name}]"
        ).fetchone()
        print(f"  {column} {declared or 'ANY'}: {missing} missing, {different} distinct, {shown(low)} ... {shown(high)}")
    for row in database.execute(f"select * from [{name}] limit {SAMPLE_ROWS}"):
        print("  row: " + " | ".join(shown(cell) for cell in row))


def shown(cell: object) -> str:
    text = "NULL" if cell is None else str(cell).replace("\n", "\\n")
    return text if len(text) <= CELL_CHARS_MAX else text[: CELL_CHARS_MAX - 1] + "…"


if __name__ == "__main__":
    main()
