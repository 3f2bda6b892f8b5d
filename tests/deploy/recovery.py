"""Point-in-time recovery of ministack's tables, which in ministack 1.5.33 copies what is in the table now and refuses little.

As on AWS (DynamoDB developer guide, "Point-in-time backups"): a moment since recovery was turned on and not in the future; a target
that is not there; a table that takes a while, in which its settings cannot be changed; and of the settings only keys, indexes and
capacity, so neither TTL nor recovery nor protection against deletion.
"""

import copy
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from ministack.services import dynamodb
from ministack.services.cloudformation import provisioners

CREATING_SECONDS: Final = 2.0

Answer = tuple[int, dict[str, str], Any]
Handler = Callable[[dict[str, Any]], Answer]


@dataclass(frozen=True)
class _Change:
    """What stood at a key before a write."""

    at: float
    key: tuple[str, str]
    before: dict[str, Any] | None


@dataclass
class History:
    """Of the tables of one account; this emulator has no others."""

    since: dict[str, float] = field(default_factory=dict)
    """When recovery was turned on."""
    changes: dict[str, list[_Change]] = field(default_factory=dict)
    creating: dict[str, float] = field(default_factory=dict)
    """Until when."""

    def noting(self, write: Handler) -> Handler:
        def noted(request: dict[str, Any]) -> Answer:
            for name, item in _written(request):
                if name in self.since:
                    self._note(name, item)
            return write(request)

        return noted

    def _note(self, name: str, item: dict[str, Any]) -> None:
        table = dynamodb._tables[name]
        pk, sk = (str(dynamodb._extract_key_val(item[table[each]])) for each in ("pk_name", "sk_name"))
        before = copy.deepcopy(table["items"].get(pk, {}).get(sk))
        self.changes.setdefault(name, []).append(_Change(time.time(), (pk, sk), before))

    def switching(self, switch: Handler) -> Handler:
        def switched(request: dict[str, Any]) -> Answer:
            answer = switch(request)
            if answer[0] == 200:
                if not request["PointInTimeRecoverySpecification"]["PointInTimeRecoveryEnabled"]:
                    self.since.pop(request["TableName"], None)
                else:
                    self.since.setdefault(request["TableName"], time.time())
            return answer

        return switched

    def restoring(self, restore: Handler) -> Handler:
        def restored(request: dict[str, Any]) -> Answer:
            source, moment = request["SourceTableName"], request.get("RestoreDateTime")
            if source not in self.since:
                words = f"Point in time recovery is not enabled for table '{source}'"
                return _refusal("PointInTimeRecoveryUnavailableException", words)
            if (moment is None) is not request.get("UseLatestRestorableTime", False):
                return _refusal("ValidationException", "Either UseLatestRestorableTime or RestoreDateTime has to be given")
            if moment is not None and not self.since[source] <= float(moment) <= time.time():
                return _refusal("InvalidRestoreTimeException", "The moment is not within the time that can be restored")
            answer = restore(request)
            if answer[0] == 200:
                self._wind_back(source, request["TargetTableName"], time.time() if moment is None else float(moment))
            return answer

        return restored

    def _wind_back(self, source: str, target: str, moment: float) -> None:
        table = dynamodb._tables[target]
        for change in reversed([each for each in self.changes.get(source, []) if each.at > moment]):
            pk, sk = change.key
            if change.before is None:
                table["items"][pk].pop(sk, None)
            else:
                table["items"][pk][sk] = copy.deepcopy(change.before)
        dynamodb._items_replaced(table)
        table["TableStatus"] = "CREATING"
        self.creating[target] = time.time() + CREATING_SECONDS

    def describing(self, describe: Handler) -> Handler:
        def described(request: dict[str, Any]) -> Answer:
            name = request["TableName"]
            if name in self.creating and self.creating[name] <= time.time():
                del self.creating[name]
                dynamodb._tables[name]["TableStatus"] = "ACTIVE"
            return describe(request)

        return described

    def changing(self, change: Handler) -> Handler:
        def changed(request: dict[str, Any]) -> Answer:
            if request["TableName"] in self.creating:
                return _refusal("ResourceInUseException", f"Table is being created: {request['TableName']}")
            return change(request)

        return changed


def recover_as_aws_does() -> None:
    history = History()
    for name in ("_put_item", "_update_item", "_delete_item", "_batch_write_item", "_transact_write_items"):
        setattr(dynamodb, name, history.noting(getattr(dynamodb, name)))
    for name in ("_update_ttl", "_update_table"):
        setattr(dynamodb, name, history.changing(getattr(dynamodb, name)))
    dynamodb._update_continuous_backups = history.changing(history.switching(dynamodb._update_continuous_backups))
    dynamodb._restore_table_to_point_in_time = history.restoring(dynamodb._restore_table_to_point_in_time)
    dynamodb._describe_table = history.describing(dynamodb._describe_table)
    make_tables_whole()


def make_tables_whole() -> None:
    """ministack 1.5.33 leaves out of a template's table when its items end and whether it can be restored."""
    handlers = provisioners._RESOURCE_HANDLERS["AWS::DynamoDB::Table"]
    create = handlers["create"]

    def made(logical_id: str, properties: dict[str, Any], stack: str) -> Any:
        answer = create(logical_id, properties, stack)
        for name, change in (
            ("TimeToLiveSpecification", dynamodb._update_ttl),
            ("PointInTimeRecoverySpecification", dynamodb._update_continuous_backups),
        ):
            if name in properties:
                assert change({"TableName": answer[0], name: properties[name]})[0] == 200
        return answer

    handlers["create"] = made


def _written(request: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Tables and keys, or whole items, of a request that writes."""
    if "RequestItems" in request:
        for name, writes in request["RequestItems"].items():
            for write in writes:
                yield name, write["PutRequest"]["Item"] if "PutRequest" in write else write["DeleteRequest"]["Key"]
    elif "TransactItems" in request:
        for write in request["TransactItems"]:
            for kind, one in write.items():
                if kind != "ConditionCheck":
                    yield one["TableName"], one.get("Item") or one["Key"]
    else:
        yield request["TableName"], request.get("Item") or request["Key"]


def _refusal(code: str, words: str) -> Answer:
    body = json.dumps({"__type": f"com.amazonaws.dynamodb.v20120810#{code}", "message": words})
    return 400, {"Content-Type": "application/x-amz-json-1.0"}, body.encode()
