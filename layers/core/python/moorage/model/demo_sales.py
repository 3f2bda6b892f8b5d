"""The demonstration that the ``demo`` provider can play: which products declined this quarter?

Five model turns over ``sales.csv`` (columns ``date, product, region, units, revenue``): look, load into SQLite, query, write a
workbook and a chart, answer. The figures in the answer are those that the commands printed. If the shell has the skills ``sqlite``
and ``spreadsheets``, it reads them and works as they say.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

import orjson

from moorage.dataclass import dataclass

_QUESTION: Final = re.compile(r"\bdeclin", re.IGNORECASE)
_CSV: Final = re.compile(r"/mnt/data/[\w./-]+\.csv")

_SKILL: Final = re.compile(r"\((/home/oai/skills/([a-z-]+)-[0-9a-f]{32})\)")
_VIEW: Final = (
    "create view if not exists quarters as select product, substr(date, 1, 4) || ' Q' || ((substr(date, 6, 2) + 2) / 3) as quarter,"
    " sum(units) as units, sum(revenue) as revenue from sales group by 1, 2"
)

_LOAD: Final = """\
python3 - <<'PY'
import csv, sqlite3
database = sqlite3.connect("/mnt/data/sales.db")
database.execute("drop table if exists sales")
database.execute("create table sales (date text, product text, region text, units integer, revenue real)")
with open("{csv}", newline="") as file:
    rows = [(r["date"], r["product"], r["region"], r["units"], r["revenue"]) for r in csv.DictReader(file)]
database.executemany("insert into sales values (?, ?, ?, ?, ?)", rows)
database.execute("{view}")
database.commit()
print(len(rows), "rows,", database.execute("select count(distinct product) from sales").fetchone()[0], "products")
PY"""

_TABLE: Final = """\
python3 - <<'PY'
import sqlite3
database = sqlite3.connect("/mnt/data/sales.db")
for product, quarter, revenue in database.execute("select product, quarter, revenue from quarters order by 1, 2"):
    print(f"{product:<24} {quarter} {revenue:>14,.2f}")
PY"""

_DECLINES: Final = """\
python3 - <<'PY'
import json, sqlite3
database = sqlite3.connect("/mnt/data/sales.db")
quarters = [q for (q,) in database.execute("select distinct quarter from quarters order by 1")]
before, now = quarters[-2:]
sums = {q: dict(database.execute("select product, revenue from quarters where quarter = ?", (q,))) for q in (before, now)}
declines = [
    {"product": p, "before": round(v, 2), "now": round(sums[now].get(p, 0), 2)}
    for p, v in sums[before].items() if sums[now].get(p, 0) < v
]
declines.sort(key=lambda d: d["now"] / d["before"])
print(json.dumps({"quarter": now, "previous": before, "products": len(sums[before]), "declines": declines}))
PY"""

_SKILLED_LOAD: Final = """\
python3 {sqlite}/scripts/load.py /mnt/data/sales.db {csv} --table sales && \
python3 -c 'import sqlite3; sqlite3.connect("/mnt/data/sales.db").execute("{view}")' && \
python3 {sqlite}/scripts/describe.py /mnt/data/sales.db quarters"""

_SKILLED_TABLE: Final = """\
python3 {sqlite}/scripts/query.py /mnt/data/sales.db "select product, quarter, revenue from quarters order by 1, 2" --limit 12"""

_SKILLED_REPORT: Final = """\
cat > /tmp/plan.py <<'PY' && python3 /tmp/plan.py && python3 {spreadsheets}/scripts/make.py /tmp/plan.json /mnt/data/report.xlsx && \
python3 {spreadsheets}/scripts/check.py /mnt/data/report.xlsx
import json, sqlite3
from openpyxl.utils import get_column_letter as letter
database = sqlite3.connect("/mnt/data/sales.db")
quarters = [q for (q,) in database.execute("select distinct quarter from quarters order by 1")]
sums = ", ".join(f"round(sum(case quarter when '{q}' then revenue end), 2)" for q in quarters)
before, now = letter(len(quarters)), letter(len(quarters) + 1)
columns = [{"title": "Product"}, *({"title": q, "format": "#,##0.00"} for q in quarters)]
columns.append({"title": "Change", "formula": f"=IF({before}{{row}}=0,0,{now}{{row}}/{before}{{row}}-1)", "format": "+0.0%;-0.0%"})
sheet = {
    "name": "Revenue by quarter",
    "source": {"database": "/mnt/data/sales.db", "sql": f"select product, {sums} from quarters group by 1 order by 1"},
    "columns": columns,
    "totals": {q: "sum" for q in quarters},
    "chart": {"type": "bar", "title": "Last two quarters", "categories": "Product", "series": quarters[-2:]},
}
json.dump({"sheets": [sheet]}, open("/tmp/plan.json", "w"))
PY"""

_CHART: Final = """\
python3 - <<'PY' && ls -l /mnt/data/report.xlsx /mnt/data/chart.png
import sqlite3
import matplotlib
matplotlib.use("Agg")
import matplotlib.pyplot as plt
database = sqlite3.connect("/mnt/data/sales.db")
quarters = [q for (q,) in database.execute("select distinct quarter from quarters order by 1")]
revenue = {(p, q): r for p, q, r in database.execute("select product, quarter, revenue from quarters")}
products = {p for p, _ in revenue}
before, now = quarters[-2:]
changes = {p: revenue.get((p, now), 0) / revenue[p, before] - 1 for p in products if revenue.get((p, before))}
order = sorted(changes, key=changes.get, reverse=True)
figure, axes = plt.subplots(figsize=(9, 0.45 * len(order) + 1.2))
axes.barh(order, [100 * changes[p] for p in order], color=["#c0392b" if changes[p] < 0 else "#2e7d5b" for p in order])
axes.axvline(0, color="black", linewidth=0.8)
axes.set_xlabel(f"Change of revenue, {before} to {now}, in percent")
figure.tight_layout()
figure.savefig("/mnt/data/chart.png", dpi=120)
PY"""

_REPORT: Final = """\
python3 - <<'PY'
import sqlite3
from openpyxl import Workbook
from openpyxl.styles import Font
database = sqlite3.connect("/mnt/data/sales.db")
quarters = [q for (q,) in database.execute("select distinct quarter from quarters order by 1")]
products = [p for (p,) in database.execute("select distinct product from quarters order by 1")]
revenue = {(p, q): r for p, q, r in database.execute("select product, quarter, revenue from quarters")}
book = Workbook()
sheet = book.active
sheet.title = "Revenue by quarter"
sheet.append(["Product", *quarters, "Change"])
for cell in sheet[1]:
    cell.font = Font(bold=True)
for product in products:
    values = [round(revenue.get((product, q), 0), 2) for q in quarters]
    sheet.append([product, *values, values[-1] / values[-2] - 1 if values[-2] else 0])
    sheet.cell(sheet.max_row, len(quarters) + 2).number_format = "+0.0%;-0.0%"
book.save("/mnt/data/report.xlsx")
PY"""


@dataclass(frozen=True, slots=True)
class DemoMove:
    """The demonstration in one turn: a remark and some commands, or the answer alone."""

    text: str
    commands: tuple[str, ...] = ()


def is_asked(text: str) -> bool:
    """Whether a user's message asks the demonstration's question."""
    return _QUESTION.search(text) is not None and ("quarter" in text.lower() or _CSV.search(text) is not None)


def skills_in(description: str) -> dict[str, str]:
    """Name to folder of the skills that a shell's description tells of."""
    return {name: path for path, name in _SKILL.findall(description)}


def next_move(question: str, turns: int, outputs: list[str], skills: Mapping[str, str]) -> DemoMove:
    """The turn after ``turns`` turns, whose tool outputs (as text) were ``outputs``; ``skills`` as :func:`skills_in` has them."""
    failed = next((output for output in outputs if _has_failed(output)), None)
    if failed is not None:
        return DemoMove(f"A command failed, so I stop here. It printed:\n\n{failed}")
    found = _CSV.search(question)
    csv = found[0] if found else "/mnt/data/sales.csv"
    if {"sqlite", "spreadsheets"} <= skills.keys():
        return _skilled(turns, outputs, csv, skills)
    match turns:
        case 0:
            return DemoMove("I look at the file first.", (f"head -n 5 {csv}", f"wc -l {csv}"))
        case 1:
            return DemoMove("I load it into SQLite.", (_LOAD.replace("{csv}", csv).replace("{view}", _VIEW),))
        case 2:
            return DemoMove("Now the revenue per product and quarter, and what declined.", (_TABLE, _DECLINES))
        case 3:
            return DemoMove("I write the workbook and the chart.", (f"{_REPORT}\n{_CHART}",))
    return DemoMove(_answer(outputs))


def _skilled(turns: int, outputs: list[str], csv: str, skills: Mapping[str, str]) -> DemoMove:
    def filled(command: str) -> str:
        for name, value in {"csv": csv, "view": _VIEW.replace("'", "'\"'\"'"), **skills}.items():
            command = command.replace(f"{{{name}}}", value)
        return command

    match turns:
        case 0:
            reading = (f"head -n 5 {csv}", "sed -n '6,14p' {sqlite}/SKILL.md", "sed -n '6,11p' {spreadsheets}/SKILL.md")
            return DemoMove("I look at the file, and at what the skills say.", tuple(map(filled, reading)))
        case 1:
            return DemoMove("I load it into SQLite, as the sqlite skill says.", (filled(_SKILLED_LOAD),))
        case 2:
            return DemoMove("Now the revenue per product and quarter, and what declined.", (filled(_SKILLED_TABLE), _DECLINES))
        case 3:
            return DemoMove("I make the workbook by the spreadsheets skill, and a chart.", (f"{filled(_SKILLED_REPORT)}\n{_CHART}",))
    return DemoMove(_answer(outputs))


def _has_failed(output: str) -> bool:
    return re.search(r"^\[(timed out|exit code (?!0\]))", output, re.MULTILINE) is not None


def _answer(outputs: list[str]) -> str:
    result = next((value for output in outputs for value in _json_lines(output) if "declines" in value), None)
    if result is None:
        return "I could not find the result of the query in what the commands printed."
    declines = result["declines"]
    head = f"In {result['quarter']}, {len(declines)} of {result['products']} products declined against {result['previous']}"
    lines = [f"- {d['product']}: {d['before']:,.2f} → {d['now']:,.2f} ({100 * (d['now'] / d['before'] - 1):+.1f} %)" for d in declines]
    files = "The workbook is /mnt/data/report.xlsx, the chart /mnt/data/chart.png."
    return "\n".join([f"{head}{':' if declines else '.'}", *lines, "", files])


def _json_lines(output: str) -> list[dict[str, Any]]:
    values = []
    for line in output.splitlines():
        if line.startswith("{"):
            try:
                values.append(orjson.loads(line))
            except orjson.JSONDecodeError:
                continue
    return [value for value in values if isinstance(value, dict)]
