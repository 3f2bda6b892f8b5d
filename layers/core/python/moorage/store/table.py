"""The DynamoDB table: whole records in and out, conditions as expressions, nothing else.

Records are plain dicts of str, int, float, bool, bytes, None, lists and dicts. boto3 is synchronous; each call runs on the thread
pool that the runtime gave, so that an event loop is never blocked. All expression names are placeholders: DynamoDB reserves
several hundred words and the emulators do not check them.
"""

import asyncio
from collections.abc import Iterable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from botocore.exceptions import BotoCoreError, ClientError

from moorage import limits
from moorage.errors import STORAGE_FULL, ConditionFailed, StorageFull
from moorage.store.throttling import is_cancelled_for_now

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

Record = dict[str, Any]

TABLE_ERRORS: Final = (BotoCoreError, ClientError)
"""What a request raises that got no answer, or the answer that it cannot be served now; the SDK has tried again by then."""

_BATCH_GET_MAX = 100
"""BatchGetItem takes 100 keys (DynamoDB API reference)."""
_BATCH_WRITE_MAX = 25
"""BatchWriteItem takes 25 requests (DynamoDB API reference)."""


@dataclass(frozen=True, slots=True)
class Change:
    """A change to one record, as part of a transaction."""

    pk: str
    sk: str
    set: Mapping[str, Any]
    condition: Mapping[str, Any]
    """Attributes as they must be; none at all for a record that may be there or not."""
    remove: tuple[str, ...] = ()
    add: Mapping[str, int] = field(default_factory=dict)
    below: Mapping[str, int] = field(default_factory=dict)
    """Numbers that must be less than this."""
    is_end: bool = False
    """It is not changed but deleted."""


_PK_BYTES_MAX = 2048
_SK_BYTES_MAX = 1024
"""https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Constraints.html"""


class Table:
    def __init__(self, client: "DynamoDBClient", name: str, executor: Executor) -> None:
        self.client = client
        self.name = name
        self._executor = executor

    async def put(self, record: Record, *, if_absent: bool = False) -> None:
        """Write a whole record. ``if_absent`` makes it conditional; raises :class:`ConditionFailed` with what stands there."""
        request: dict[str, Any] = {"TableName": self.name, "Item": encode(record)}
        if if_absent:
            request |= {
                "ConditionExpression": "attribute_not_exists(#pk)",
                "ExpressionAttributeNames": {"#pk": "PK"},
                "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
            }
        await self._call("put_item", request)

    async def get(self, pk: str, sk: str, *, consistent: bool = True) -> Record | None:
        if not _can_stand(pk, sk):
            return None
        answer = await self._call(
            "get_item", {"TableName": self.name, "Key": _key(pk, sk), "ConsistentRead": consistent}
        )
        return decode(answer["Item"]) if "Item" in answer else None

    async def get_many(self, keys: Iterable[tuple[str, str]], *, consistent: bool = False) -> list[Record]:
        """The records that exist, in no particular order; batches of 100 in parallel."""
        wanted = [_key(pk, sk) for pk, sk in dict.fromkeys(keys) if _can_stand(pk, sk)]
        batches = [wanted[i : i + _BATCH_GET_MAX] for i in range(0, len(wanted), _BATCH_GET_MAX)]
        found = await asyncio.gather(*(self._get_batch(batch, consistent) for batch in batches))
        return [record for batch in found for record in batch]

    async def _get_batch(self, keys: list[dict[str, Any]], consistent: bool) -> list[Record]:
        records: list[Record] = []
        while keys:
            answer = await self._call("batch_get_item", {"RequestItems": {self.name: {"Keys": keys, "ConsistentRead": consistent}}})
            records += [decode(item) for item in answer["Responses"].get(self.name, [])]
            keys = answer.get("UnprocessedKeys", {}).get(self.name, {}).get("Keys", [])
        return records

    async def update(
        self,
        pk: str,
        sk: str,
        *,
        set: Mapping[str, Any] | None = None,
        set_once: Mapping[str, Any] | None = None,
        add: Mapping[str, int] | None = None,
        remove: Iterable[str] = (),
        condition: Mapping[str, Any] | None = None,
        must_exist: bool = True,
        absent: Iterable[str] = (),
        below: Mapping[str, int] | None = None,
    ) -> Record:
        """Change attributes and return the whole record as it is afterwards; ``set_once`` keeps a value that is there already.

        ``condition`` asks for equality of attributes, ``absent`` for attributes that must not be there, ``below`` for numbers that must
        be less. Raises
        :class:`ConditionFailed` with the record that stands there.
        """
        if not _can_stand(pk, sk):
            raise ConditionFailed
        names: dict[str, str] = {}
        values: dict[str, Any] = {}

        def name(attribute: str) -> str:
            names[f"#a{len(names)}"] = attribute
            return f"#a{len(names) - 1}"

        def value(thing: Any) -> str:
            values[f":v{len(values)}"] = encode_value(thing)
            return f":v{len(values) - 1}"

        clauses = []
        assignments = [f"{name(k)} = {value(v)}" for k, v in (set or {}).items()]
        for key, thing in (set_once or {}).items():
            attribute = name(key)
            assignments.append(f"{attribute} = if_not_exists({attribute}, {value(thing)})")
        if assignments:
            clauses.append("SET " + ", ".join(assignments))
        if add:
            clauses.append("ADD " + ", ".join(f"{name(k)} {value(v)}" for k, v in add.items()))
        removed = list(remove)
        if removed:
            clauses.append("REMOVE " + ", ".join(name(k) for k in removed))
        tests = [f"{name(k)} = {value(v)}" for k, v in (condition or {}).items()]
        tests += [f"attribute_not_exists({name(k)})" for k in absent]
        tests += [f"{name(k)} < {value(v)}" for k, v in (below or {}).items()]
        if must_exist:
            tests.append(f"attribute_exists({name('PK')})")
        request: dict[str, Any] = {
            "TableName": self.name,
            "Key": _key(pk, sk),
            "UpdateExpression": " ".join(clauses),
            "ExpressionAttributeNames": names,
            "ReturnValues": "ALL_NEW",
        }
        if values:
            request["ExpressionAttributeValues"] = values
        if tests:
            request |= {"ConditionExpression": " AND ".join(tests), "ReturnValuesOnConditionCheckFailure": "ALL_OLD"}
        return decode((await self._call("update_item", request))["Attributes"])

    async def delete(self, pk: str, sk: str, *, condition: Mapping[str, Any] | None = None) -> Record | None:
        """Delete a record; the answer is what stood there, None if nothing did."""
        if not _can_stand(pk, sk):
            return None
        request: dict[str, Any] = {"TableName": self.name, "Key": _key(pk, sk), "ReturnValues": "ALL_OLD"}
        if condition:
            request |= {
                "ConditionExpression": " AND ".join(f"#c{i} = :c{i}" for i in range(len(condition))),
                "ExpressionAttributeNames": {f"#c{i}": k for i, k in enumerate(condition)},
                "ExpressionAttributeValues": {f":c{i}": encode_value(v) for i, v in enumerate(condition.values())},
                "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
            }
        answer = await self._call("delete_item", request)
        return decode(answer["Attributes"]) if answer.get("Attributes") else None

    async def query(
        self,
        pk: str,
        *,
        prefix: str | None = None,
        after: str | None = None,
        up_to: str | None = None,
        descending: bool = False,
        limit: int | None = None,
        consistent: bool = True,
        index: str | None = None,
    ) -> list[Record]:
        """Records of one partition in key order: all, those whose sort key has a ``prefix``, is greater than ``after``, or is
        at most ``up_to``; ``after`` with one of the others means both. Pages are followed until ``limit`` records are there."""
        if not _can_stand(pk, prefix or ""):
            return []
        # What comes after a name that cannot stand comes after its beginning.
        after, up_to = (bound and bound.encode()[:_SK_BYTES_MAX].decode(errors="ignore") for bound in (after, up_to))
        pk_name, sk_name = ("PK", "SK") if index is None else (f"{index}PK", f"{index}SK")
        names = {"#pk": pk_name}
        values: dict[str, Any] = {":pk": {"S": pk}}
        condition = "#pk = :pk"
        if after is not None and prefix is not None:
            # One range on the sort key is allowed: (after, last key with the prefix].
            low, high = after + "\x00", prefix + "\uffff"
            if low > high:
                return []  # ``after`` came from a client; DynamoDB refuses a range that ends before it begins.
            condition += " AND #sk BETWEEN :low AND :high"
            values |= {":low": {"S": low}, ":high": {"S": high}}
        elif after is not None and up_to is not None:
            low = after + "\x00"
            if low > up_to:
                return []
            condition += " AND #sk BETWEEN :low AND :high"
            values |= {":low": {"S": low}, ":high": {"S": up_to}}
        elif after is not None:
            condition += " AND #sk > :low"
            values[":low"] = {"S": after}
        elif prefix is not None and up_to is not None:
            condition += " AND #sk BETWEEN :low AND :high"
            values |= {":low": {"S": prefix}, ":high": {"S": up_to}}
        elif up_to is not None:
            condition += " AND #sk <= :high"
            values[":high"] = {"S": up_to}
        elif prefix is not None:
            condition += " AND begins_with(#sk, :low)"
            values[":low"] = {"S": prefix}
        if "#sk" in condition:
            names["#sk"] = sk_name
        request: dict[str, Any] = {
            "TableName": self.name,
            "KeyConditionExpression": condition,
            "ExpressionAttributeNames": names,
            "ExpressionAttributeValues": values,
            "ScanIndexForward": not descending,
        }
        if index is None:
            request["ConsistentRead"] = consistent
        else:
            request["IndexName"] = index
        records: list[Record] = []
        while True:
            if limit is not None:
                request["Limit"] = limit - len(records)
            answer = await self._call("query", request)
            records += [decode(item) for item in answer["Items"]]
            last = answer.get("LastEvaluatedKey")
            if not last or (limit is not None and len(records) >= limit):
                return records
            request["ExclusiveStartKey"] = last

    async def write_many(self, puts: Iterable[Record] = (), deletes: Iterable[tuple[str, str]] = ()) -> None:
        """Unconditional puts and deletes, 25 to a request; what DynamoDB leaves unprocessed is sent again."""
        writes: list[dict[str, Any]] = [{"PutRequest": {"Item": encode(record)}} for record in puts]
        writes += [{"DeleteRequest": {"Key": _key(pk, sk)}} for pk, sk in deletes]
        while writes:
            batch, writes = writes[:_BATCH_WRITE_MAX], writes[_BATCH_WRITE_MAX:]
            answer = await self._call("batch_write_item", {"RequestItems": {self.name: batch}})
            unprocessed = answer.get("UnprocessedItems", {}).get(self.name, [])
            if unprocessed:
                await asyncio.sleep(0.05)
                writes = unprocessed + writes

    async def transact(
        self,
        puts: Iterable[Record],
        *,
        pk: str,
        sk: str,
        set: Mapping[str, Any],
        condition: Mapping[str, Any],
    ) -> tuple[int, ...]:
        """Put records that must not be there yet and change one that is as ``condition`` says, all or nothing.

        The answer is empty if it was done, else the positions of the conditions that failed (the changed record's comes last). Two
        transactions that meet are tried again.
        """
        return await self.write_together(puts, [Change(pk, sk, set=set, condition=condition)])

    async def write_together(
        self, puts: Iterable[Record], changes: Iterable["Change"], deletes: Iterable[tuple[str, str]] = ()
    ) -> tuple[int, ...]:
        """Put records that must not be there yet, make changes, and delete records that must be there, all or nothing.

        At most 100 writes. The answer is empty if it was done, else the positions of the conditions that failed, in this order.
        """
        writes = [*self._puts_if_absent(puts), *({"Delete" if change.is_end else "Update": self._change(change)} for change in changes)]
        for pk, sk in deletes:
            deletion = {"ConditionExpression": "attribute_exists(#pk)", "ExpressionAttributeNames": {"#pk": "PK"}}
            writes.append({"Delete": {"TableName": self.name, "Key": _key(pk, sk), **deletion}})
        return await self._transact(writes)

    def _change(self, change: "Change") -> dict[str, Any]:
        names = {f"#s{i}": key for i, key in enumerate(change.set)} | {f"#c{i}": key for i, key in enumerate(change.condition)}
        names |= {f"#r{i}": key for i, key in enumerate(change.remove)} | {f"#a{i}": key for i, key in enumerate(change.add)}
        names |= {f"#b{i}": key for i, key in enumerate(change.below)}
        values = {f":s{i}": value for i, value in enumerate(change.set.values())}
        values |= {f":c{i}": value for i, value in enumerate(change.condition.values())}
        values |= {f":a{i}": value for i, value in enumerate(change.add.values())}
        values |= {f":b{i}": value for i, value in enumerate(change.below.values())}
        clauses = [
            f"{word} " + ", ".join(parts)
            for word, parts in (
                ("SET", [f"#s{i} = :s{i}" for i in range(len(change.set))]),
                ("ADD", [f"#a{i} :a{i}" for i in range(len(change.add))]),
                ("REMOVE", [f"#r{i}" for i in range(len(change.remove))]),
            )
            if parts
        ]
        tests = [f"#c{i} = :c{i}" for i in range(len(change.condition))] + [f"#b{i} < :b{i}" for i in range(len(change.below))]
        write: dict[str, Any] = {"TableName": self.name, "Key": _key(change.pk, change.sk)}
        if clauses:
            write["UpdateExpression"] = " ".join(clauses)
        if tests:
            write["ConditionExpression"] = " AND ".join(tests)
        if names:
            write["ExpressionAttributeNames"] = names
        if values:
            write["ExpressionAttributeValues"] = {key: encode_value(value) for key, value in values.items()}
        return write

    async def replace(self, puts: Iterable[Record], *, pk: str, sk: str, condition: Mapping[str, Any]) -> tuple[int, ...]:
        """Put records that must not be there yet and delete one that is as ``condition`` says, all or nothing; answers as
        :meth:`transact`."""
        deletion = {
            "TableName": self.name,
            "Key": _key(pk, sk),
            "ConditionExpression": " AND ".join(f"#c{i} = :c{i}" for i in range(len(condition))),
            "ExpressionAttributeNames": {f"#c{i}": key for i, key in enumerate(condition)},
            "ExpressionAttributeValues": {f":c{i}": encode_value(value) for i, value in enumerate(condition.values())},
        }
        return await self._transact([*self._puts_if_absent(puts), {"Delete": deletion}])

    def _puts_if_absent(self, records: Iterable[Record]) -> list[dict[str, Any]]:
        return [
            {
                "Put": {
                    "TableName": self.name,
                    "Item": encode(record),
                    "ConditionExpression": "attribute_not_exists(#pk)",
                    "ExpressionAttributeNames": {"#pk": "PK"},
                }
            }
            for record in records
        ]

    async def _transact(self, writes: list[dict[str, Any]]) -> tuple[int, ...]:
        """Positions of the conditions that failed; empty if all was written."""
        for attempt in range(limits.CONDITIONAL_WRITES_MAX):
            try:
                await self._call("transact_write_items", {"TransactItems": writes})
                return ()
            except ClientError as error:
                if error.response["Error"]["Code"] != "TransactionCanceledException":
                    raise
                codes = [reason.get("Code") for reason in error.response.get("CancellationReasons", [])]
                failed = tuple(index for index, code in enumerate(codes) if code == "ConditionalCheckFailed")
                if failed:
                    return failed
                if not is_cancelled_for_now(error) or attempt == limits.CONDITIONAL_WRITES_MAX - 1:
                    raise
                await asyncio.sleep(0.02 * (attempt + 1))
        raise AssertionError("unreachable")

    async def _call(self, operation: str, request: dict[str, Any]) -> dict[str, Any]:
        method = getattr(self.client, operation)
        loop = asyncio.get_running_loop()
        try:
            answer: dict[str, Any] = await loop.run_in_executor(self._executor, lambda: method(**request))
        except ClientError as error:
            if error.response["Error"]["Code"] == "ConditionalCheckFailedException":
                item = error.response.get("Item")
                raise ConditionFailed(decode(item) if item else None) from error  # type: ignore[arg-type]
            if error.response["Error"]["Code"] == STORAGE_FULL:
                raise StorageFull from error
            raise
        return answer


def _can_stand(pk: str, sk: str) -> bool:
    """Whether a record can have these keys: ids come from clients, and DynamoDB refuses a request for one that cannot be."""
    return len(pk.encode()) <= _PK_BYTES_MAX and len(sk.encode()) <= _SK_BYTES_MAX


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
