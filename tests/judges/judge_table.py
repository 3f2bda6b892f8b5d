"""DynamoDB Local judges the tables that stand in for DynamoDB here, the local stack's own and ministack's: over every request that the
scenarios make, random ones, and stories at the rims. And the scenarios run with it as their table.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.judges import dynamodb_local
from tests.judges.dynamodb_local import ROOT, DynamoDbLocal
from tests.judges.edges import CREATED, DIFFERENT, STORIES
from tests.judges.tables import Asked, Play, differences, embedded, ministacks, normal, recorded, verdict
from tests.unit.local.test_table_service import requests

pytestmark = pytest.mark.timeout(1800)

VERDICTS: Final = Path(__file__).with_name("verdicts.json")
RECORDING: Final = Path(__file__).with_name("recording")
GROUPS: Final = {
    "answers": (
        "responses conversations forks background compact store_false inputs input_tokens custom_tools chat_completions repeats "
        "rate_limits tool_search budgets"
    ),
    "sandboxes": "shell container_shell code_interpreter apply_patch skills restart",
    "files and people": "workspace approvals tenants vector_stores websocket",
}
"""Of tests/scenarios. A stack serves one group, as an account has no more than so many sandboxes at once. The others do without: what
copies or counts the emulator's journal (backup, writes), and what is about a process, a page or an upstream rather than the table."""
TABLES: Final = {"embedded": embedded, "ministack": ministacks}


@pytest.fixture(scope="session")
def judge() -> Iterator[DynamoDbLocal]:
    if (reason := dynamodb_local.reason_without()) is not None:
        pytest.skip(reason)
    with dynamodb_local.running() as judge:
        yield judge


@pytest.fixture(scope="session")
def notes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("notes") / "requests.jsonl"


@pytest.mark.parametrize("group", GROUPS)
def test_the_scenarios_run_with_it_as_their_table(judge: DynamoDbLocal, notes: Path, group: str) -> None:
    variables = os.environ | {"PYTHONPATH": str(RECORDING), "JUDGE_TABLE": judge.url, "JUDGE_NOTES": str(notes)}
    files = [f"tests/scenarios/test_{name}.py" for name in GROUPS[group].split()]
    done = subprocess.run([sys.executable, "-m", "pytest", "-q", *files], cwd=ROOT, env=variables, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-6000:]


@pytest.mark.parametrize("table", TABLES)
def test_each_of_their_requests_is_answered_alike(
    judge: DynamoDbLocal, notes: Path, table: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if not notes.exists():
        pytest.skip("no scenario has run")
    asked = recorded(notes)
    found = [
        difference
        for database, requests_ in asked.items()
        for difference in _compared(TABLES[table], judge, f"{table}{database}", requests_)
    ]
    with capsys.disabled():
        print(f"\n{table}: {sum(map(len, asked.values()))} requests to {len(asked)} tables, {len(found)} answered differently")
    assert found == [], "\n".join(found[:5])


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("story", STORIES)
def test_each_story_is_answered_alike(judge: DynamoDbLocal, table: str, story: str) -> None:
    """But for those that are written down, with their reason."""
    found = _compared(TABLES[table], judge, f"{table}story{list(STORIES).index(story)}", [CREATED, *STORIES[story]])
    assert (found != []) is (story in DIFFERENT[table]), "\n".join(found)


def test_its_verdicts_are_those_that_are_written_down(judge: DynamoDbLocal, request: pytest.FixtureRequest) -> None:
    """``test_verdicts.py`` holds the local table to them where there is no Java. ``--record-verdicts`` writes them."""
    said = {name: _verdicts(judge, f"verdicts{n}", story) for n, (name, story) in enumerate(STORIES.items())}
    if request.config.getoption("--record-verdicts"):
        VERDICTS.write_text(json.dumps(said, indent=1, ensure_ascii=False) + "\n")
    assert json.loads(VERDICTS.read_text()) == said


def test_random_requests_are_answered_alike(judge: DynamoDbLocal) -> None:
    runs = iter(range(1_000_000))

    @settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(st.lists(requests.filter(_is_judged), min_size=1, max_size=15))
    def play(asked: list[Asked]) -> None:
        assert _compared(embedded, judge, f"random{next(runs)}", [CREATED, *asked]) == []

    play()


def _is_judged(asked: Asked) -> bool:
    """Not an update of a key's attribute, nor a transaction that names an item twice, which AWS refuses and DynamoDB Local only if its
    conditions hold; nor a transaction whose update may not fit (``DIFFERENT``)."""
    operation, request = asked
    if operation == "UpdateItem":
        return not {"PK", "SK"} & {name for place, name in request["ExpressionAttributeNames"].items() if place.startswith("#u")}
    if operation != "TransactWriteItems":
        return True
    writes = [write for one in request["TransactItems"] for write in one.values()]
    keys = {(place["PK"]["S"], place["SK"]["S"]) for place in (write.get("Key") or write["Item"] for write in writes)}
    return len(keys) == len(writes) and not any("ADD" in write.get("UpdateExpression", "") for write in writes)


def _compared(table: Callable[[], AbstractContextManager[Play]], judge: DynamoDbLocal, database: str, asked: list[Asked]) -> list[str]:
    with table() as ours:
        return [str(each) for each in differences(asked, ours, lambda operation, request: judge.ask(database, operation, request))]


def _verdicts(judge: DynamoDbLocal, database: str, story: list[Asked]) -> list[str]:
    judge.ask(database, *CREATED)
    return [verdict(normal(operation, *judge.ask(database, operation, request))) for operation, request in story]
