"""Requests for the table, played one after another to the tables that this project runs on, and to DynamoDB Local, which judges them.

What two answers may differ in is written here and nowhere else:

* **The words of a refusal.** Its code is compared, and what it carries; the sentences are each one's own. Where a condition fails,
  DynamoDB Local says ``Message`` for ``message``, as AWS does in places; botocore reads both.
* **The order of BatchGetItem**, which the API reference leaves open: here they are as asked for, there they are not.
* **What describes a table** beyond what was asked for when it was made: its ARN, when it was made, how large it is.
* **How a number is spelled.** DynamoDB gives ``1.0`` back as ``1``; DynamoDB Local leaves it inside of maps and lists. Numbers are
  compared by value.
* **ConsumedCapacity**, which DynamoDB Local says of some deletions though nobody asked.
* **Where a page of a Scan ends, and its order**, which the API reference leaves open: whole scans are compared as sets.
"""

import asyncio
import hashlib
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import orjson
from ministack.services import dynamodb as ministack
from moorage.local.aws.journal import Journal
from moorage.local.aws.table import Answer, TableService

Asked = tuple[str, Any]
Play = Callable[[str, Any], Answer]
"""Asks a table: an operation and its request."""

_DESCRIBED: Final = ("TableName", "KeySchema", "AttributeDefinitions", "TableStatus")
_OF_AN_INDEX: Final = ("IndexName", "KeySchema", "Projection")


@dataclass(frozen=True, slots=True)
class Difference:
    asked: Asked
    ours: Any
    judged: Any

    def __str__(self) -> str:
        lines = [self.asked[0] + " " + orjson.dumps(self.asked[1]).decode()[:2000]]
        lines += [f"  {who}: {str(said)[:1500]}" for who, said in (("ours", self.ours), ("DynamoDB Local", self.judged))]
        return "\n".join(lines)


def recorded(path: Path) -> dict[str, list[Asked]]:
    """By database (``recording/sitecustomize.py``), in the order of their answers."""
    asked: dict[str, list[Asked]] = {}
    for line in path.read_bytes().splitlines():
        database, operation, request, _ = orjson.loads(line)
        asked.setdefault(database, []).append((operation, request))
    return asked


def differences(asked: Iterable[Asked], ours: Play, judge: Play) -> Iterator[Difference]:
    for operation, request in asked:
        mine, judged = normal(operation, *ours(operation, request)), normal(operation, *judge(operation, request))
        if mine != judged and not (operation == "Scan" and _is_part(request, mine, judged)):
            yield Difference((operation, request), mine, judged)


def normal(operation: str, status: int, answer: Mapping[str, Any]) -> Any:
    """An answer without what may differ."""
    if status != 200:
        reasons = [{name: one[name] for name in ("Code", "Item") if name in one} for one in answer.get("CancellationReasons", [])]
        return status, answer["__type"].rpartition("#")[2], _by_value(answer.get("Item")), _by_value(reasons)
    if operation == "BatchGetItem":
        found = {name: sorted(_text(item).decode() for item in items) for name, items in answer["Responses"].items()}
        return {"Responses": found, "UnprocessedKeys": answer.get("UnprocessedKeys", {})}
    if operation in ("CreateTable", "DescribeTable"):
        (described,) = answer.values()
        indexes = [{name: one[name] for name in _OF_AN_INDEX} for one in described.get("GlobalSecondaryIndexes", [])]
        return {"indexes": indexes, **{name: described[name] for name in _DESCRIBED}}
    if operation == "Scan":
        items = sorted(_text(item).decode() for item in answer["Items"])
        return {"Items": items, "more": "LastEvaluatedKey" in answer}
    return {name: _by_value(said) for name, said in answer.items() if name != "ConsumedCapacity"}


def _is_part(request: Mapping[str, Any], *answers: Any) -> bool:
    """Of a scan in pages, which are not where the other's are."""
    return "ExclusiveStartKey" in request or any(answer["more"] for answer in answers)


def verdict(answer: Any) -> str:
    """A normal answer in a few letters, to be written down."""
    return f"{answer[0]} {answer[1]}" if isinstance(answer, tuple) else hashlib.sha256(_text(answer)).hexdigest()[:12]


def _text(item: Any) -> bytes:
    return orjson.dumps(_by_value(item), option=orjson.OPT_SORT_KEYS)


def _by_value(said: Any) -> Any:
    if isinstance(said, list):
        return [_by_value(one) for one in said]
    if not isinstance(said, dict):
        return said
    if said.keys() == {"N"} and isinstance(said["N"], str):
        return {"N": f"{Decimal(said['N']).normalize():f}"}
    return {name: _by_value(one) for name, one in said.items()}


@contextmanager
def embedded() -> Iterator[Play]:
    """The table of the stack on one machine (``local/aws/table.py``)."""
    with asyncio.Runner() as runner, tempfile.TemporaryDirectory() as folder:
        journal = Journal(Path(folder) / "journal.sqlite")
        service = TableService(journal)
        yield lambda operation, request: runner.run(service.handle(operation, orjson.dumps(request)))
        journal.close()


@contextmanager
def ministacks() -> Iterator[Play]:
    """ministack's own, on which deployments are tested. It belongs to the process, and begins empty."""
    ministack._tables._data.clear()
    ministack._txn_idempotency._data.clear()

    with asyncio.Runner() as runner:

        def play(operation: str, request: Any) -> Answer:
            headers = {"x-amz-target": f"DynamoDB_20120810.{operation}"}
            status, _, text = runner.run(ministack.handle_request("POST", "/", headers, orjson.dumps(request), {}))
            return status, orjson.loads(text)

        yield play
