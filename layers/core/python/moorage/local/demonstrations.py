"""What ``moorage demo`` shows: each is a question to a model, with the tools to answer it, and what is left of the answer."""

import base64
import csv
import io
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from openai import OpenAI
from openai.types.responses import Response

from moorage.dataclass import dataclass
from moorage.errors import DeskUnavailable
from moorage.local.desks import NO_BROWSER, browser_here
from moorage.terminal import say

SKILLS: Final = ("sqlite", "spreadsheets")
_COMPUTER_OUTPUT: Final = "computer_call_output"


@dataclass(frozen=True, slots=True)
class Demonstration:
    question: str
    prepare: Callable[[OpenAI], list[dict[str, Any]]]
    """Upload what the question speaks of, say so, and return the tools; the first is the shell."""
    artifacts: tuple[str, ...]
    """Names of files below /mnt/data that the answer leaves."""
    check: Callable[[], None] = lambda: None
    """Raises an error that a person can read where this machine cannot show it."""

    def download(self, client: OpenAI, response: Response, folder: Path) -> int:
        """Fetch the artifacts from the response's container, and the pictures of its computer. Returns 1 if there is one missing."""
        container_id = response.tools[0].environment.container_id  # type: ignore[union-attr]
        files = {file.path.rsplit("/", 1)[-1]: file for file in client.containers.files.list(container_id)}
        for name in self.artifacts:
            if name not in files:
                say(f"The model made no {name}.")
                return 1
            _keep(folder / name, client.containers.files.content.retrieve(files[name].id, container_id=container_id).read())
        for number, url in enumerate(_pictures(response), 1):
            _keep(folder / f"screen-{number}.jpg", base64.b64decode(url.partition(",")[2]))
        return 0


def _keep(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    say(f"Downloaded {os.path.relpath(path)} ({len(content)} bytes)")


def _pictures(response: Response) -> list[str]:
    """Data URLs, in their order."""
    outputs: list[Any] = [item for item in response.output if item.type == _COMPUTER_OUTPUT]
    return [item.output.image_url for item in outputs if item.output.image_url]


# --- sales ------------------------------------------------------------------------------------------------------------------------


def _prepare_sales(client: OpenAI) -> list[dict[str, Any]]:
    table, rows = sales()
    uploaded = client.files.create(file=("sales.csv", table), purpose="user_data")
    say(f"Uploaded sales.csv: {rows} rows, {uploaded.bytes} bytes, as {uploaded.id}")
    say(f"Skills: {', '.join(SKILLS)}")
    skills = [{"type": "skill_reference", "skill_id": f"moorage-{name}"} for name in SKILLS]
    return [{"type": "shell", "environment": {"type": "container_auto", "file_ids": [uploaded.id], "skills": skills}}]


def sales() -> tuple[bytes, int]:
    """Two years of invented sales, the same at every run; three products decline in the last quarter."""
    chance = random.Random(20261121)
    products = ["Anchor", "Bollard", "Capstan", "Davit", "Fender", "Halyard", "Kedge", "Lanyard", "Mooring line", "Shackle"]
    trend = {"Capstan": 0.62, "Kedge": 0.81, "Shackle": 0.93}
    price = {product: round(chance.uniform(12, 240), 2) for product in products}
    buffer = io.StringIO()
    writer = csv.writer(buffer)
    writer.writerow(["date", "product", "region", "units", "revenue"])
    rows = 0
    for month in range(24):
        year, number = 2024 + month // 12, month % 12 + 1
        for product in products:
            level = (1 + month // 3 * 0.03) * (trend.get(product, 1.0) if month >= 21 else 1.0)
            for region in ("North", "South", "East", "West"):
                for day in (4, 9, 16, 23):
                    units = max(1, round(chance.gauss(40, 4) * level))
                    writer.writerow([f"{year}-{number:02d}-{day:02d}", product, region, units, round(units * price[product], 2)])
                    rows += 1
    return buffer.getvalue().encode(), rows


SALES: Final = Demonstration(
    question="The file /mnt/data/sales.csv holds our sales (columns: date, product, region, units, revenue). Which products declined "
    "this quarter, compared with the one before? Load the file into a SQLite database and query that. Then write "
    "/mnt/data/report.xlsx with the revenue of each product by quarter, and a chart of it as /mnt/data/chart.png. Answer with the "
    "declining products and their figures, and name the files.",
    prepare=_prepare_sales,
    artifacts=("report.xlsx", "chart.png"),
)


# --- a computer -------------------------------------------------------------------------------------------------------------------


_TOOLS: Final = (("shell", "environment"), ("computer", "container"))


def _check_browser() -> None:
    if browser_here() is None:
        raise DeskUnavailable(NO_BROWSER)


COMPUTER: Final = Demonstration(
    question="Write a web page /mnt/data/index.html with a button that counts what is in a cart, in the page and in its title, and "
    "serve it on port 8000. Open it in the browser, press the button, and look whether it counts. If it does not, mend the page and "
    "look again. Answer with what you saw.",
    prepare=lambda client: [{"type": kind, place: {"type": "container_auto"}} for kind, place in _TOOLS],
    artifacts=("index.html",),
    check=_check_browser,
)
DEMONSTRATIONS: Final = {"sales": SALES, "computer": COMPUTER}
