"""The skills that come with the package: their scripts run in a sandbox, and what they make is opened."""

import io
import json
import re
import shutil
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import openpyxl
import pytest
from moorage.sandbox.exec_client import ExecClient
from moorage.sandbox.launcher_client import LauncherProvisioner
from moorage.sandbox.provisioner import SandboxSpec
from moorage.skills import curated

from tests.unit.sandbox.support import ROOT, TOKEN, launcher, new_id, run

SALES = """\
date,product,region,units,revenue,code
2026-01-05,Anchor,North,3,30.5,007
2026-04-05,Anchor,North,2,20.25,008
2026-01-09,Buoy,"South, far",10,100,009
2026-05-01,Buoy,South,12,,010
2026-05-02,=1+1,South,4,1.5,011
"""


@pytest.fixture(scope="module")
async def sandbox(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ExecClient]:
    """A sandbox that has them all."""
    with launcher(tmp_path_factory.mktemp("launcher"), "--toolbox", str(ROOT / ".venv-toolbox")) as socket:
        async with LauncherProvisioner(str(socket)) as provisioner:
            handle = await provisioner.start(SandboxSpec("acme", new_id(), TOKEN))
            for name in curated.names():
                bundle = curated.find(f"moorage-{name}")
                assert bundle is not None
                await provisioner.add_skill(handle, name, bundle.archive)
            async with ExecClient(handle) as client:
                await put(client, "Sales 2026.csv", SALES)
                await shell(client, 'python3 /home/oai/skills/sqlite/scripts/load.py sales.db "Sales 2026.csv"')
                yield client
            await provisioner.stop(handle.sandbox_id)


async def put(client: ExecClient, path: str, content: str) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        yield content.encode()

    await client.write_file(f"/mnt/data/{path}", pieces())


async def shell(client: ExecClient, command: str) -> str:
    done = await run(client, command, timeout_ms=90_000)
    assert done.exit_code == 0, done.text
    return done.text


async def script(client: ExecClient, name: str, arguments: str) -> str:
    return await shell(client, f"python3 /home/oai/skills/{name} {arguments}")


async def file(client: ExecClient, path: str) -> bytes:
    return b"".join([piece async for piece in client.read_file(path)])


def test_each_is_known_by_two_names_and_says_what_it_is_for() -> None:
    assert curated.names() == ("reports", "spreadsheets", "sqlite", "web-app")
    for name in curated.names():
        bundle = curated.find(f"moorage-{name}")
        assert bundle is not None
        assert curated.find(f"openai-{name}") == bundle
        assert bundle.name == name
        assert len(bundle.description) > 80
    assert [curated.find(skill_id) for skill_id in ("sqlite", "moorage-", "moorage-nothing", "moorage-..", "skill_1")] == [None] * 5


async def test_tables_are_loaded_with_their_types(sandbox: ExecClient) -> None:
    assert await script(sandbox, "sqlite/scripts/describe.py", "sales.db") == (
        "table sales_2026: 5 rows\n"
        "  date TEXT: 0 missing, 5 distinct, 2026-01-05 ... 2026-05-02\n"
        "  product TEXT: 0 missing, 3 distinct, =1+1 ... Buoy\n"
        "  region TEXT: 0 missing, 3 distinct, North ... South, far\n"
        "  units INTEGER: 0 missing, 5 distinct, 2 ... 12\n"
        "  revenue REAL: 1 missing, 4 distinct, 1.5 ... 100.0\n"
        "  code TEXT: 0 missing, 5 distinct, 007 ... 011\n"
        "  row: 2026-01-05 | Anchor | North | 3 | 30.5 | 007\n"
        "  row: 2026-04-05 | Anchor | North | 2 | 20.25 | 008\n"
        "  row: 2026-01-09 | Buoy | South, far | 10 | 100.0 | 009\n"
    )


async def test_other_forms_of_tables_are_loaded_too(sandbox: ExecClient) -> None:
    await put(sandbox, "a.jsonl", '{"id": 1, "tags": ["x"]}\n{"id": 2, "more": 1.5}\n')
    await put(sandbox, "b.tsv", "one\tone\t\n1\tx\t\n")
    await put(sandbox, "c.json", '[{"ü": null}]')
    await put(sandbox, "d.csv", "a;b\n1;2\n")
    assert await script(sandbox, "sqlite/scripts/load.py", "more.db a.jsonl b.tsv c.json d.csv") == (
        "a: 2 rows, 3 columns, from a.jsonl\n"
        "b: 1 rows, 3 columns, from b.tsv\n"
        "c: 1 rows, 1 columns, from c.json\n"
        "d: 1 rows, 2 columns, from d.csv\n"
    )
    found = await script(sandbox, "sqlite/scripts/query.py", "more.db 'select * from a' --format json")
    assert json.loads(found) == [{"id": 1, "tags": '["x"]', "more": None}, {"id": 2, "tags": None, "more": 1.5}]
    assert await script(sandbox, "sqlite/scripts/query.py", "more.db 'select one, one_2, column from b' --format csv") == (
        "one,one_2,column\r\n1,x,\r\n"
    )


async def test_queries_read_and_do_not_write(sandbox: ExecClient) -> None:
    query = '"select product, sum(units) as units, sum(revenue) as revenue from sales_2026 group by 1"'
    assert await script(sandbox, "sqlite/scripts/query.py", f"sales.db {query}") == (
        "product  units  revenue\n-------  -----  -------\n=1+1     4      1.5\nAnchor   5      50.75\nBuoy     22     100\n"
    )
    assert (await script(sandbox, "sqlite/scripts/query.py", f"sales.db {query} --limit 1")).endswith(
        "... 1 of 3 rows; --output FILE writes them all\n"
    )
    for statement, problem in (
        ("delete from sales_2026", "attempt to write a readonly database"),
        ("select x from sales_2026", "no such column: x"),
    ):
        done = await run(sandbox, f"python3 /home/oai/skills/sqlite/scripts/query.py sales.db '{statement}'")
        assert (done.exit_code, done.stderr) == (1, f"{problem}. describe.py shows tables and columns.\n")


PLAN: dict[str, Any] = {
    "sheets": [
        {
            "name": "Revenue",
            "source": {"database": "sales.db", "sql": "select product, sum(units), sum(revenue) from sales_2026 group by 1"},
            "columns": [
                {"title": "Product"},
                {"title": "Units", "format": "#,##0"},
                {"title": "Revenue", "format": "#,##0.00"},
                {"title": "Each", "formula": '=IF(B{row}=0,"",C{row}/B{row})', "format": "0.00"},
            ],
            "totals": {"Units": "sum", "Revenue": "sum"},
            "chart": {"type": "bar", "title": "By product", "categories": "Product", "series": ["Revenue"]},
        },
        {
            "name": "Plan",
            "source": {"rows": [["2026-07-01", 2]]},
            "columns": [{"title": "Day"}, {"title": "Times"}, {"title": "Revenue", "formula": "=Revenue!C2*B{row}"}],
            "chart": {"type": "scatter", "categories": "Times", "series": ["Revenue"]},
        },
    ]
}


async def test_a_workbook_has_formulas_formats_and_charts(sandbox: ExecClient) -> None:
    await put(sandbox, "plan.json", json.dumps(PLAN))
    await script(sandbox, "spreadsheets/scripts/make.py", "plan.json report.xlsx")
    book = openpyxl.load_workbook(io.BytesIO(await file(sandbox, "report.xlsx")))
    sheet = book["Revenue"]
    assert [[cell.value for cell in row] for row in sheet.iter_rows()] == [
        ["Product", "Units", "Revenue", "Each"],
        ["=1+1", 4, 1.5, '=IF(B2=0,"",C2/B2)'],
        ["Anchor", 5, 50.75, '=IF(B3=0,"",C3/B3)'],
        ["Buoy", 22, 100, '=IF(B4=0,"",C4/B4)'],
        ["Total", "=SUM(B2:B4)", "=SUM(C2:C4)", None],
    ]
    assert [cell.data_type for cell in sheet[2]] == ["s", "n", "n", "f"]
    assert [cell.number_format for cell in sheet[5]] == ["General", "#,##0", "#,##0.00", "General"]
    assert (sheet["A1"].font.bold, sheet.freeze_panes, sheet.auto_filter.ref) == (True, "A2", "A1:D4")
    assert [len(each._charts) for each in book.worksheets] == [1, 1]
    assert book["Plan"]["A2"].is_date
    assert await script(sandbox, "spreadsheets/scripts/check.py", "report.xlsx") == (
        "Revenue: A1:D5, 5 formulas, 1 charts\nPlan: A1:C2, 1 formulas, 1 charts\nnothing wrong was found\n"
    )


@pytest.mark.skipif(shutil.which("soffice") is None, reason="LibreOffice is not installed on this machine")
async def test_libreoffice_opens_the_workbook_and_calculates_it(sandbox: ExecClient, tmp_path: Path) -> None:
    await put(sandbox, "plan.json", json.dumps(PLAN))
    await script(sandbox, "spreadsheets/scripts/make.py", "plan.json report.xlsx")
    (tmp_path / "report.xlsx").write_bytes(await file(sandbox, "report.xlsx"))
    command = ["soffice", f"-env:UserInstallation=file://{tmp_path}/profile", "--headless", "--convert-to", "csv", "report.xlsx"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, timeout=120)
    assert (tmp_path / "report.csv").read_text().splitlines() == [
        "Product,Units,Revenue,Each",
        "=1+1,4,1.50,0.38",
        "Anchor,5,50.75,10.15",
        "Buoy,22,100.00,4.55",
        "Total,31,152.25,",
    ]


async def test_a_check_finds_what_is_wrong_in_a_workbook(sandbox: ExecClient) -> None:
    formulas = ["=Nowhere!A1", "='No such'!A1", "=SUM(A1", "=#REF!+1", '="Nowhere!" & A1']
    columns = [{"title": str(index), "formula": formula} for index, formula in enumerate(formulas)]
    plan = {"sheets": [{"name": "S", "source": {"rows": [[1]]}, "columns": columns}]}
    await put(sandbox, "wrong.json", json.dumps(plan))
    await script(sandbox, "spreadsheets/scripts/make.py", "wrong.json wrong.xlsx")
    done = await run(sandbox, "python3 /home/oai/skills/spreadsheets/scripts/check.py wrong.xlsx")
    assert (done.exit_code, done.stderr) == (
        1,
        "S!A2: =Nowhere!A1 refers to a sheet 'Nowhere' that does not exist\n"
        "S!B2: ='No such'!A1 refers to a sheet 'No such' that does not exist\n"
        "S!C2: =SUM(A1 has unbalanced brackets\n"
        "S!D2: =#REF!+1 refers to #REF!\n",
    )


REPORT = {
    "title": "Sales & <more>",
    "subtitle": "$5",
    "sections": [
        {"heading": "Summary", "text": "Two declined.\n\n- one\n- two"},
        {"heading": "Table", "table": {"source": {"csv": "Sales 2026.csv"}, "formats": {"units": ",.1f"}, "rows_max": 3}},
        {"heading": "Chart", "chart": {"source": {"csv": "Sales 2026.csv"}, "type": "bar", "x": "product", "y": ["units"]}},
    ],
}


async def test_a_report_is_a_page_or_a_pdf(sandbox: ExecClient) -> None:
    await put(sandbox, "report.json", json.dumps(REPORT))
    await script(sandbox, "reports/scripts/report.py", "report.json report.html")
    page = (await file(sandbox, "report.html")).decode()
    assert "<h1>Sales &amp; &lt;more&gt;</h1>" in page
    assert "<ul><li>one</li><li>two</li></ul>" in page
    assert '<td class="number">10.0</td>' in page
    assert "<p>3 of 5 rows</p>" in page
    assert len(re.findall(r'<img alt="chart" src="data:image/png;base64,', page)) == 1
    said = await script(sandbox, "reports/scripts/report.py", "report.json report.pdf")
    assert said.startswith("report.pdf: 2 pages, ")
    assert (await file(sandbox, "report.pdf")).startswith(b"%PDF-")
    await shell(sandbox, "head -c 500 report.pdf > cut.pdf")
    checked = await run(sandbox, "python3 /home/oai/skills/reports/scripts/report.py --check cut.pdf")
    assert (checked.exit_code, checked.text) == (1, "cut.pdf is no whole PDF\n")


async def test_a_service_lives_on_is_checked_and_stopped(sandbox: ExecClient) -> None:
    await shell(sandbox, "mkdir site; echo Hello > site/index.html")
    serve, check = "web-app/scripts/serve.py", "web-app/scripts/check.py"
    command = "-- python3 -m http.server 8123 --bind 127.0.0.1 --directory site"
    assert re.fullmatch(
        r"site listens on port 8123: process \d+, log /tmp/services/site\.log\n",
        await script(sandbox, serve, f"--name site --port 8123 {command}"),
    )
    assert " 200 text/html, 6 bytes in " in await script(sandbox, check, "http://127.0.0.1:8123/ --contains Hello")
    assert " 404 text/html, " in await script(sandbox, check, "http://127.0.0.1:8123/none --status 404")
    wrong = await run(sandbox, f"python3 /home/oai/skills/{check} http://127.0.0.1:8123/ --contains Bye --status 201")
    assert (wrong.exit_code, wrong.stderr) == (
        1,
        "http://127.0.0.1:8123/: status 200, expected 201\nhttp://127.0.0.1:8123/: does not contain 'Bye'\n",
    )
    assert re.fullmatch(r"site: process \d+, port 8123, runs\n", await script(sandbox, serve, "--list"))
    assert await script(sandbox, serve, "--stop site") == "site: stopped\n"
    assert (await run(sandbox, f"python3 /home/oai/skills/{check} http://127.0.0.1:8123/")).exit_code == 1
    broken = await run(sandbox, f"python3 /home/oai/skills/{serve} --name bad --port 8124 -- sh -c 'echo why; exit 3'")
    assert (broken.exit_code, broken.stderr) == (1, "bad ended with 3; the end of its log:\nwhy\n")
