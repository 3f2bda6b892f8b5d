#!/usr/bin/env python3
"""Look a workbook over: check.py WORKBOOK.xlsx. Exit code 1 if something is wrong in it."""

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from openpyxl import load_workbook

ERRORS = ("#REF!", "#NAME?", "#VALUE!", "#DIV/0!", "#N/A", "#NUM!", "#NULL!")
_SHEET = re.compile(r"(?:'((?:[^']|'')+)'|([A-Za-z_][\w.]*))!")
_TEXT = re.compile(r'"(?:[^"]|"")*"')


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    path = Path(sys.argv[1])
    problems = inspect(path) + recalculated(path)
    if problems:
        sys.exit("\n".join(problems))
    print("nothing wrong was found")


def inspect(path: Path) -> list[str]:
    book = load_workbook(path)
    problems = []
    for sheet in book.worksheets:
        formulas = [cell for row in sheet.iter_rows() for cell in row if cell.data_type == "f"]
        print(f"{sheet.title}: {sheet.dimensions}, {len(formulas)} formulas, {len(sheet._charts)} charts")
        for row in sheet.iter_rows():
            problems += [f"{sheet.title}!{cell.coordinate}: {cell.value}" for cell in row if cell.value in ERRORS]
        for cell in formulas:
            problems += [f"{sheet.title}!{cell.coordinate}: {problem}" for problem in wrong(str(cell.value), book.sheetnames)]
    return problems


def wrong(formula: str, sheets: list[str]) -> list[str]:
    bare = _TEXT.sub("", formula)
    found = [f"{formula} has unbalanced brackets"] if bare.count("(") != bare.count(")") else []
    found += [f"{formula} refers to {error}" for error in ERRORS if error in bare]
    for error in ERRORS:
        bare = bare.replace(error, "")
    for quoted, plain in _SHEET.findall(bare):
        name = quoted.replace("''", "'") or plain
        if name not in sheets:
            found.append(f"{formula} refers to a sheet '{name}' that does not exist")
    return found


def recalculated(path: Path) -> list[str]:
    """What LibreOffice gets when it calculates the formulas; nothing if it is not installed."""
    office = shutil.which("soffice") or shutil.which("libreoffice")
    if office is None:
        return []
    with tempfile.TemporaryDirectory() as folder:
        command = [office, f"-env:UserInstallation=file://{folder}/profile", "--headless", "--convert-to", "xlsx", "--outdir", folder]
        done = subprocess.run([*command, str(path)], capture_output=True, text=True, timeout=120, check=False)
        made = Path(folder) / f"{path.stem}.xlsx"
        if done.returncode or not made.exists():
            return [f"LibreOffice cannot open it: {done.stderr.strip() or done.stdout.strip()}"]
        book = load_workbook(made, data_only=True)
        cells = [(sheet.title, cell) for sheet in book.worksheets for row in sheet.iter_rows() for cell in row]
        return [f"{title}!{cell.coordinate} is calculated as {cell.value}" for title, cell in cells if cell.value in ERRORS]


if __name__ == "__main__":
    main()
