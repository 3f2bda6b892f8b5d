"""The table on DynamoDB: conditions as expressions, made in one place (:func:`_request`).

boto3 is synchronous; each call runs on the thread
pool that the runtime gave, so that an event loop is never blocked. All expression names are placeholders: DynamoDB reserves
several hundred words and the emulators do not check them.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from botocore.exceptions import ClientError

from moorage import limits
from moorage.errors import ConditionFailed
from moorage.store.table import SORT_KEY_BYTES_MAX, Record, RecordTooLarge, Table, Write, can_stand, check_keys, check_together
from moorage.store.throttling import is_cancelled_for_now

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

_BATCH_GET_MAX = 100
"""BatchGetItem takes 100 keys (DynamoDB API reference)."""
_BATCH_WRITE_MAX = 25
"""BatchWriteItem takes 25 requests (DynamoDB API reference)."""
_PAUSE_SECONDS: Final = 0.05
_PAUSE_SECONDS_MAX: Final = 2.0
_TOO_LARGE: Final = "exceeded the maximum allowed size"
"""Of a ValidationException that is about a record's bytes."""


class DynamoTable(Table):
    def __init__(
        self, client: "DynamoDBClient", name: str, executor: Executor, *, pause: Callable[[float], Awaitable[None]] = asyncio.sleep
    ) -> None:
        self.client = client
        self.name = name
        self._executor = executor
        self._pause = pause

    async def get(self, pk: str, sk: str, *, consistent: bool = True) -> Record | None:
        if not can_stand(pk, sk):
            return None
        answer = await self._call(self.client.get_item, {"TableName": self.name, "Key": _key(pk, sk), "ConsistentRead": consistent})
        return decode(answer["Item"]) if "Item" in answer else None

    async def get_many(
        self, keys: Iterable[tuple[str, str]], *, consistent: bool = False, without: Collection[str] = ()
    ) -> list[Record]:
        """The records that exist, in no particular order; batches of 100 in parallel."""
        wanted = [_key(pk, sk) for pk, sk in dict.fromkeys(keys) if can_stand(pk, sk)]
        batches = [wanted[i : i + _BATCH_GET_MAX] for i in range(0, len(wanted), _BATCH_GET_MAX)]
        found = await asyncio.gather(*(self._get_batch(batch, consistent, without) for batch in batches))
        return [record for batch in found for record in batch]

    async def _get_batch(self, keys: list[dict[str, Any]], consistent: bool, without: Collection[str]) -> list[Record]:
        records: list[Record] = []
        seconds = 0.0
        while keys:
            asked = {self.name: {"Keys": keys, "ConsistentRead": consistent}}
            answer = await self._call(self.client.batch_get_item, {"RequestItems": asked})
            items = answer["Responses"].get(self.name, [])
            records += [decode(_less(item, without)) for item in items]
            keys = answer.get("UnprocessedKeys", {}).get(self.name, {}).get("Keys", [])
            if keys:
                await self._pause(seconds := _longer(seconds))
        return records

    async def write(self, write: Write) -> Record | None:
        if write.record is None and not can_stand(write.pk, write.sk):
            if write.is_end:
                return None
            raise ConditionFailed
        kind, request = _request(self.name, write)
        if kind != "Put":
            request["ReturnValues"] = "ALL_OLD" if write.is_end else "ALL_NEW"
        if "ConditionExpression" in request:
            request["ReturnValuesOnConditionCheckFailure"] = "ALL_OLD"
        methods: Mapping[str, Callable[..., Any]] = {
            "Put": self.client.put_item,
            "Update": self.client.update_item,
            "Delete": self.client.delete_item,
        }
        answer = await self._call(methods[kind], request)
        return decode(answer["Attributes"]) if answer.get("Attributes") else None

    async def write_all(self, writes: Sequence[Write]) -> tuple[int, ...]:
        check_together(writes)
        requests = [{kind: request} for kind, request in (_request(self.name, write) for write in writes)]
        for attempt in range(limits.CONDITIONAL_WRITES_MAX):
            try:
                await self._call(self.client.transact_write_items, {"TransactItems": requests})
                return ()
            except ClientError as error:
                if error.response["Error"]["Code"] != "TransactionCanceledException":
                    raise
                reasons = error.response.get("CancellationReasons", [])
                if any(_TOO_LARGE in reason.get("Message", "") for reason in reasons):
                    raise RecordTooLarge from error
                codes = [reason.get("Code") for reason in reasons]
                failed = tuple(index for index, code in enumerate(codes) if code == "ConditionalCheckFailed")
                if failed:
                    return failed
                if not is_cancelled_for_now(error) or attempt == limits.CONDITIONAL_WRITES_MAX - 1:
                    raise
                await asyncio.sleep(0.02 * (attempt + 1))
        raise AssertionError("unreachable")

    async def query(
        self,
        pk: str,
        *,
        prefix: str | None = None,
        after: str | None = None,
        up_to: str | None = None,
        descending: bool = False,
        limit: int | None = None,
        index: str | None = None,
        without: Collection[str] = (),
    ) -> list[Record]:
        """Pages are followed until ``limit`` records are there."""
        if not can_stand(pk, prefix or ""):
            return []
        # What comes after a name that cannot stand comes after its beginning.
        after, up_to = (bound and bound.encode()[:SORT_KEY_BYTES_MAX].decode(errors="ignore") for bound in (after, up_to))
        found = _range(prefix, after, up_to)
        if found is None:
            return []
        test, bounds = found
        pk_name, sk_name = ("PK", "SK") if index is None else (f"{index}PK", f"{index}SK")
        request: dict[str, Any] = {
            "TableName": self.name,
            "KeyConditionExpression": f"#pk = :pk AND {test}" if test else "#pk = :pk",
            "ExpressionAttributeNames": {"#pk": pk_name, "#sk": sk_name} if test else {"#pk": pk_name},
            "ExpressionAttributeValues": {name: {"S": bound} for name, bound in {":pk": pk, **bounds}.items()},
            "ScanIndexForward": not descending,
        }
        if index is None:
            request["ConsistentRead"] = True
        else:
            request["IndexName"] = index
        records: list[Record] = []
        while True:
            if limit is not None:
                request["Limit"] = limit - len(records)
            answer = await self._call(self.client.query, request)
            records += [decode(_less(item, without)) for item in answer["Items"]]
            last = answer.get("LastEvaluatedKey")
            if not last or (limit is not None and len(records) >= limit):
                return records
            request["ExclusiveStartKey"] = last

    async def write_many(self, puts: Iterable[Record] = (), deletes: Iterable[tuple[str, str]] = ()) -> None:
        """Unconditional puts and deletes, 25 to a request; unprocessed ones are sent again, after growing pauses."""
        writes: list[dict[str, Any]] = [{"PutRequest": {"Item": encode(record)}} for record in puts]
        writes += [{"DeleteRequest": {"Key": _key(pk, sk)}} for pk, sk in deletes]
        seconds = 0.0
        while writes:
            batch, writes = writes[:_BATCH_WRITE_MAX], writes[_BATCH_WRITE_MAX:]
            answer = await self._call(self.client.batch_write_item, {"RequestItems": {self.name: batch}})
            unprocessed = answer.get("UnprocessedItems", {}).get(self.name, [])
            writes = unprocessed + writes
            if unprocessed:
                await self._pause(seconds := _longer(seconds))
            else:
                seconds = 0.0

    async def _call(self, method: Callable[..., Any], request: dict[str, Any]) -> dict[str, Any]:
        loop = asyncio.get_running_loop()
        try:
            answer: dict[str, Any] = await loop.run_in_executor(self._executor, lambda: method(**request))
        except ClientError as error:
            if error.response["Error"]["Code"] == "ConditionalCheckFailedException":
                item = error.response.get("Item")
                raise ConditionFailed(decode(item) if item else None) from error  # type: ignore[arg-type]
            if _TOO_LARGE in str(error):
                raise RecordTooLarge from error
            raise
        return answer


def _longer(seconds: float) -> float:
    """The next pause. AWS advises exponential backoff for unprocessed items (API reference, BatchGetItem and BatchWriteItem)."""
    return min(max(2 * seconds, _PAUSE_SECONDS), _PAUSE_SECONDS_MAX)


def _request(table: str, write: Write) -> tuple[str, dict[str, Any]]:
    """The kind of the write, in DynamoDB's word, and its request: the same alone and in a transaction."""
    names: dict[str, str] = {}
    values: dict[str, Any] = {}

    def name(attribute: str) -> str:
        names[f"#a{len(names)}"] = attribute
        return f"#a{len(names) - 1}"

    def value(thing: Any) -> str:
        values[f":v{len(values)}"] = encode_value(thing)
        return f":v{len(values) - 1}"

    request: dict[str, Any] = {"TableName": table}
    kind = "Delete" if write.is_end else "Update" if write.record is None else "Put"
    if write.record is None:
        request["Key"] = _key(write.pk, write.sk)
    else:
        check_keys(write.pk, write.sk)
        request["Item"] = encode(write.record)
    assignments = [f"{name(k)} = {value(v)}" for k, v in write.set.items()]
    for key, thing in write.set_once.items():
        attribute = name(key)
        assignments.append(f"{attribute} = if_not_exists({attribute}, {value(thing)})")
    clauses = [
        f"{word} {', '.join(parts)}"
        for word, parts in (
            ("SET", assignments),
            ("ADD", [f"{name(k)} {value(v)}" for k, v in write.add.items()]),
            ("REMOVE", [name(k) for k in write.remove]),
        )
        if parts
    ]
    if clauses:
        request["UpdateExpression"] = " ".join(clauses)
    tests = [f"{name(k)} = {value(v)}" for k, v in write.condition.items()]
    tests += [f"attribute_not_exists({name(k)})" for k in write.absent]
    tests += [f"{name(k)} < {value(v)}" for k, v in write.below.items()]
    if write.is_there is not None:
        tests.append(f"{'attribute_exists' if write.is_there else 'attribute_not_exists'}({name('PK')})")
    if tests:
        request["ConditionExpression"] = " AND ".join(tests)
    if names:
        request["ExpressionAttributeNames"] = names
    if values:
        request["ExpressionAttributeValues"] = values
    return kind, request


def _range(prefix: str | None, after: str | None, up_to: str | None) -> tuple[str, dict[str, str]] | None:
    """The test of the sort key, of which one is allowed, and its values; None for a range that ends before it begins, which DynamoDB
    refuses. ``after`` comes from clients."""
    if prefix is None and up_to is None:
        return ("", {}) if after is None else ("#sk > :low", {":low": after})
    if after is None and up_to is None:
        return "begins_with(#sk, :low)", {":low": prefix or ""}
    if after is None and prefix is None:
        return "#sk <= :high", {":high": up_to or ""}
    low = (prefix or "") if after is None else max(prefix or "", after + "\x00")
    high = f"{prefix}\U0010ffff" if up_to is None else up_to
    return None if low > high else ("#sk BETWEEN :low AND :high", {":low": low, ":high": high})


def _less(item: dict[str, Any], without: Collection[str]) -> dict[str, Any]:
    return {name: value for name, value in item.items() if name not in without} if without else item


def _key(pk: str, sk: str) -> dict[str, Any]:
    return {"PK": {"S": pk}, "SK": {"S": sk}}


_NAMED: Final = "\0"
"""Before names in a map that DynamoDB would not take, because they are empty, or that begin with it: clients name their metadata."""


def _stored_name(name: str) -> str:
    return _NAMED + name if not name or name.startswith(_NAMED) else name


def encode(record: Record) -> dict[str, Any]:
    """A record in DynamoDB's typed JSON."""
    return {key: encode_value(value) for key, value in record.items()}


def encode_value(value: Any) -> dict[str, Any]:
    match value:
        case str():
            return {"S": value}
        case bool():
            return {"BOOL": value}
        case float() if not math.isfinite(value):
            raise ValueError(f"a table does not hold the number {value}")
        case int() | float() | Decimal():
            return {"N": str(value)}
        case bytes():
            return {"B": value}
        case None:
            return {"NULL": True}
        case list() | tuple():
            return {"L": [encode_value(element) for element in value]}
        case dict():
            return {"M": {_stored_name(key): encode_value(element) for key, element in value.items()}}
        case _:
            raise TypeError(f"DynamoDB cannot hold a {type(value).__name__}")


def decode(item: Mapping[str, Any]) -> Record:
    return {key: _decode_value(value) for key, value in item.items()}


def _decode_value(typed: Mapping[str, Any]) -> Any:
    ((kind, value),) = typed.items()
    match kind:
        case "S" | "BOOL" | "B":
            return value
        case "N":
            return int(value) if value.lstrip("-").isdigit() else float(value)
        case "NULL":
            return None
        case "L":
            return [_decode_value(element) for element in value]
        case "M":
            return {key.removeprefix(_NAMED): _decode_value(element) for key, element in value.items()}
        case _:
            raise TypeError(f"DynamoDB sent a {kind}")
