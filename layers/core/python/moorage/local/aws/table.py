"""DynamoDB, as far as this system asks for it, over the journal: ten operations on tables with string keys and one index of keys.

Conditions and updates are evaluated by ministack's own functions; what is not served is refused by name, so that no request means
less here than on AWS. ``tests/contract`` compares the answers with ministack's DynamoDB over random requests.
"""

import hashlib
import re
import sqlite3
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import orjson

from moorage.local.aws.expressions import apply_update, holds, item_error
from moorage.local.aws.journal import Journal
from moorage.local.aws.validity import key_refusal, refusal, update_refusal

Item = dict[str, Any]
Answer = tuple[int, dict[str, Any]]

_PREFIX: Final = "com.amazonaws.dynamodb.v20120810#"
_PAGE_BYTES_MAX: Final = 1024 * 1024
"""Query and Scan end a page at 1 MB (DynamoDB API reference)."""
_BATCH_GET_MAX: Final = 100
_BATCH_WRITE_MAX: Final = 25
_TRANSACTION_MAX: Final = 100
_HIGHEST: Final = "\U0010ffff\U0010ffff"
"""After every key with a prefix."""

_KEY_CONDITION: Final = re.compile(
    r"^\s*(?P<pk>[#\w]+)\s*=\s*(?P<pk_value>:\w+)"
    r"(?:\s+AND\s+(?:"
    r"(?P<sk>[#\w]+)\s*(?P<operator><=|>=|<|>|=)\s*(?P<sk_value>:\w+)"
    r"|(?P<between>[#\w]+)\s+BETWEEN\s+(?P<low>:\w+)\s+AND\s+(?P<high>:\w+)"
    r"|begins_with\s*\(\s*(?P<begins>[#\w]+)\s*,\s*(?P<prefix>:\w+)\s*\)"
    r"))?\s*$",
    re.IGNORECASE,
)
_COMMON: Final = frozenset({"TableName", "ReturnConsumedCapacity", "ReturnItemCollectionMetrics"})
_EXPRESSION: Final = frozenset({"ExpressionAttributeNames", "ExpressionAttributeValues"})
_CONDITIONAL: Final = _COMMON | _EXPRESSION | {"ConditionExpression", "ReturnValues", "ReturnValuesOnConditionCheckFailure"}
_SERVED: Final[Mapping[str, frozenset[str]]] = {
    "GetItem": _COMMON | {"Key", "ConsistentRead"},
    "PutItem": _CONDITIONAL | {"Item"},
    "UpdateItem": _CONDITIONAL | {"Key", "UpdateExpression"},
    "DeleteItem": _CONDITIONAL | {"Key"},
    "Query": _COMMON
    | _EXPRESSION
    | {"KeyConditionExpression", "IndexName", "ScanIndexForward", "ConsistentRead", "Limit", "ExclusiveStartKey", "FilterExpression"},
    "Scan": _COMMON | _EXPRESSION | {"FilterExpression", "ConsistentRead", "Limit", "ExclusiveStartKey"},
    "BatchGetItem": _COMMON | {"RequestItems"},
    "BatchWriteItem": _COMMON | {"RequestItems"},
    "TransactWriteItems": _COMMON | {"TransactItems", "ClientRequestToken"},
}
"""Parameters that are honoured; one that is not in here is refused."""


class Refused(Exception):
    """DynamoDB's answer to a request that cannot be served."""

    def __init__(self, code: str, message: str, **fields: Any) -> None:
        super().__init__(message)
        self.code, self.message, self.fields = code, message, fields

    def answer(self) -> Answer:
        return 400, {"__type": f"{_PREFIX}{self.code}", "message": self.message, **self.fields}


class Misfit(Refused):
    """An update that does not fit the item as it is. Alone it is invalid; of a transaction it is the reason to cancel it."""

    def __init__(self, message: str) -> None:
        super().__init__("ValidationException", message)


def invalid(message: str) -> Refused:
    return Refused("ValidationException", message)


@dataclass(frozen=True, slots=True)
class Shape:
    """A table's keys: attribute names."""

    name: str
    pk: str
    sk: str
    index: str | None = None
    index_pk: str | None = None
    index_sk: str | None = None
    ttl: str | None = None

    def key_of(self, item: Item) -> tuple[str, str]:
        return _string(item, self.pk), _string(item, self.sk)

    def keys_in(self, item: Item) -> Item:
        return {name: item[name] for name in (self.pk, self.sk)}

    def indexed(self, item: Item) -> tuple[str | None, str | None]:
        """Where the item stands in the index; it is only there with both attributes."""
        if self.index_pk is None or self.index_sk is None or self.index_pk not in item or self.index_sk not in item:
            return None, None
        return _string(item, self.index_pk), _string(item, self.index_sk)

    def expires(self, item: Item) -> float | None:
        value = item.get(self.ttl or "", {}).get("N")
        return None if value is None else float(value)


def _string(item: Item, name: str) -> str:
    value = item.get(name, {}).get("S")
    if not isinstance(value, str) or not value:
        raise invalid(f"One or more parameter values were invalid: the key {name} takes a string that is not empty")
    return value


class TableService:
    """The target ``DynamoDB_20120810``."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._shapes: dict[str, Shape] = {}
        for name, description, ttl in journal.reader.execute("SELECT name, description, ttl_attribute FROM tables"):
            self._shapes[name] = shape_of(orjson.loads(description), ttl)
        self._reads: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
            "GetItem": self._get,
            "BatchGetItem": self._batch_get,
            "Query": self._query,
            "Scan": self._scan,
            "DescribeTable": self._describe,
            "ListTables": lambda _: {"TableNames": sorted(self._shapes)},
            "DescribeTimeToLive": self._describe_ttl,
        }
        self._writes: dict[str, Callable[[sqlite3.Connection, dict[str, Any]], dict[str, Any]]] = {
            "PutItem": self._put,
            "UpdateItem": self._update,
            "DeleteItem": self._delete,
            "BatchWriteItem": self._batch_write,
            "TransactWriteItems": self._transact,
            "CreateTable": self._create,
            "UpdateTimeToLive": self._set_ttl,
        }

    async def handle(self, operation: str, body: bytes) -> Answer:
        """Status and body; returns when what was written is on disk. Raises ``NoRoom``."""
        try:
            request = orjson.loads(body or b"{}")
            _check_parameters(operation, request)
            if operation in self._reads:
                return 200, self._reads[operation](request)
            if operation in self._writes:
                return 200, await self._journal.write(lambda connection: self._writes[operation](connection, request))
        except Refused as refused:
            return refused.answer()
        except orjson.JSONDecodeError:
            return Refused("SerializationException", "Start of structure or map found where not expected.").answer()
        return Refused("UnknownOperationException", f"Unknown operation: {operation}").answer()

    # --- tables ---

    def _create(self, connection: sqlite3.Connection, request: dict[str, Any]) -> dict[str, Any]:
        shape = shape_of(request, None)
        description = {
            key: request[key] for key in ("TableName", "KeySchema", "AttributeDefinitions", "GlobalSecondaryIndexes") if key in request
        }
        try:
            connection.execute("INSERT INTO tables (name, description) VALUES (?, ?)", (shape.name, orjson.dumps(description).decode()))
        except sqlite3.IntegrityError as error:
            raise Refused("ResourceInUseException", f"Table already exists: {shape.name}") from error
        self._shapes[shape.name] = shape
        return {"TableDescription": description | {"TableStatus": "ACTIVE"}}

    def _describe(self, request: dict[str, Any]) -> dict[str, Any]:
        shape = self._shape(request)
        (text,) = self._journal.reader.execute("SELECT description FROM tables WHERE name = ?", (shape.name,)).fetchone()
        return {"Table": orjson.loads(text) | {"TableStatus": "ACTIVE"}}

    def _set_ttl(self, connection: sqlite3.Connection, request: dict[str, Any]) -> dict[str, Any]:
        shape, wanted = self._shape(request), request["TimeToLiveSpecification"]
        attribute = wanted["AttributeName"] if wanted["Enabled"] else None
        connection.execute("UPDATE tables SET ttl_attribute = ? WHERE name = ?", (attribute, shape.name))
        (text,) = connection.execute("SELECT description FROM tables WHERE name = ?", (shape.name,)).fetchone()
        self._shapes[shape.name] = shape_of(orjson.loads(text), attribute)
        return {"TimeToLiveSpecification": wanted}

    def _describe_ttl(self, request: dict[str, Any]) -> dict[str, Any]:
        ttl = self._shape(request).ttl
        enabled = {"TimeToLiveStatus": "ENABLED", "AttributeName": ttl}
        return {"TimeToLiveDescription": {"TimeToLiveStatus": "DISABLED"} if ttl is None else enabled}

    def _shape(self, request: Mapping[str, Any]) -> Shape:
        try:
            return self._shapes[request["TableName"]]
        except KeyError:
            raise Refused("ResourceNotFoundException", "Requested resource not found") from None

    # --- reading ---

    def _get(self, request: dict[str, Any]) -> dict[str, Any]:
        shape = self._shape(request)
        item = _find(self._journal.reader, shape, _key(shape, request["Key"]))
        return {} if item is None else {"Item": item}

    def _batch_get(self, request: dict[str, Any]) -> dict[str, Any]:
        wanted = request["RequestItems"]
        if not 0 < sum(len(each["Keys"]) for each in wanted.values()) <= _BATCH_GET_MAX:
            raise invalid(f"Too many items requested for the BatchGetItem call, or none: it takes {_BATCH_GET_MAX}")
        responses: dict[str, list[Item]] = {}
        for name, each in wanted.items():
            if set(each) - {"Keys", "ConsistentRead"}:
                raise invalid("BatchGetItem is served with Keys and ConsistentRead alone")
            shape = self._shape({"TableName": name})
            keys = [_key(shape, key) for key in each["Keys"]]
            if len(set(keys)) != len(keys):
                raise invalid("Provided list of item keys contains duplicates")
            found = (_find(self._journal.reader, shape, key) for key in keys)
            responses[name] = [item for item in found if item is not None]
        return {"Responses": responses, "UnprocessedKeys": {}}

    def _query(self, request: dict[str, Any]) -> dict[str, Any]:
        shape = self._shape(request)
        is_index = "IndexName" in request
        if is_index and request["IndexName"] != shape.index:
            raise invalid("The table does not have the specified index: " + str(request["IndexName"]))
        if is_index and request.get("ConsistentRead"):
            raise invalid("Consistent reads are not supported on global secondary indexes")
        where, arguments = _range(shape, request, is_index=is_index)
        columns = ("index_pk", "index_sk", "pk", "sk") if is_index else ("pk", "sk")
        order, step = ("ASC", ">") if request.get("ScanIndexForward", True) else ("DESC", "<")
        if start := request.get("ExclusiveStartKey"):
            names = columns[1:]
            if (shape.indexed(start)[0] if is_index else shape.key_of(start)[0]) != arguments[1]:
                raise invalid("The provided starting key is outside query boundaries based on provided conditions")
            where += f" AND ({', '.join(names)}) {step} ({', '.join('?' * len(names))})"
            arguments += _start(shape, start, is_index=is_index)
        sorted_by = ", ".join(f"{column} {order}" for column in columns[1:])
        sql = f"SELECT pk, sk, index_pk, index_sk, item FROM rows WHERE {where} ORDER BY {sorted_by}"
        return self._page(shape, request, sql, arguments, is_index=is_index)

    def _scan(self, request: dict[str, Any]) -> dict[str, Any]:
        shape = self._shape(request)
        where, arguments = "place = ?", [shape.name]
        if start := request.get("ExclusiveStartKey"):
            where += " AND (pk, sk) > (?, ?)"
            arguments += [*shape.key_of(start)]
        sql = f"SELECT pk, sk, index_pk, index_sk, item FROM rows WHERE {where} ORDER BY pk, sk"
        return self._page(shape, request, sql, arguments, is_index=False)

    def _page(self, shape: Shape, request: dict[str, Any], sql: str, arguments: list[Any], *, is_index: bool) -> dict[str, Any]:
        """Items up to the limit or the page's size, and where to go on if there is more."""
        items: list[Item] = []
        last: Item | None = None
        size = looked_at = 0
        for pk, sk, index_pk, index_sk, text in self._journal.reader.execute(sql, arguments):
            if looked_at == request.get("Limit") or size > _PAGE_BYTES_MAX:
                assert last is not None
                return {"Items": items, "Count": len(items), "ScannedCount": looked_at, "LastEvaluatedKey": last}
            keys: Item = {shape.pk: {"S": pk}, shape.sk: {"S": sk}}
            if is_index:
                keys |= {str(shape.index_pk): {"S": index_pk}, str(shape.index_sk): {"S": index_sk}}
            item = keys if is_index else orjson.loads(text)
            if holds(request.get("FilterExpression"), item, request):
                items.append(item)
            last, size, looked_at = keys, size + (100 if is_index else len(text)), looked_at + 1
        page = {"Items": items, "Count": len(items), "ScannedCount": looked_at}
        # DynamoDB does not look whether anything comes after the limit.
        return page | {"LastEvaluatedKey": last} if last is not None and looked_at == request.get("Limit") else page

    # --- writing ---

    def _put(self, connection: sqlite3.Connection, request: dict[str, Any]) -> dict[str, Any]:
        old = self._put_one(connection, request)
        return _attributes(request, old=old, new=None)

    def _put_one(self, connection: sqlite3.Connection, request: dict[str, Any]) -> Item | None:
        shape, item = self._shape(request), request["Item"]
        key = shape.key_of(item)
        old = _find(connection, shape, key)
        _check_condition(request, old)
        _store(connection, shape, key, item)
        return old

    def _update(self, connection: sqlite3.Connection, request: dict[str, Any]) -> dict[str, Any]:
        old, new = self._update_one(connection, request)
        return _attributes(request, old=old, new=new)

    def _update_one(self, connection: sqlite3.Connection, request: dict[str, Any]) -> tuple[Item | None, Item]:
        shape = self._shape(request)
        key = _key(shape, request["Key"])
        if said := update_refusal(request, (shape.pk, shape.sk)):
            raise invalid(said)
        old = _find(connection, shape, key)
        _check_condition(request, old)
        try:
            new = apply_update(old or dict(request["Key"]), request)
        except ValueError as error:
            raise Misfit(str(error)) from error
        _store(connection, shape, key, new)
        return old, new

    def _delete(self, connection: sqlite3.Connection, request: dict[str, Any]) -> dict[str, Any]:
        return _attributes(request, old=self._delete_one(connection, request), new=None)

    def _delete_one(self, connection: sqlite3.Connection, request: dict[str, Any]) -> Item | None:
        shape = self._shape(request)
        key = _key(shape, request["Key"])
        old = _find(connection, shape, key)
        _check_condition(request, old)
        connection.execute("DELETE FROM rows WHERE place = ? AND pk = ? AND sk = ?", (shape.name, *key))
        return old

    def _batch_write(self, connection: sqlite3.Connection, request: dict[str, Any]) -> dict[str, Any]:
        writes = [(name, one) for name, requests in request["RequestItems"].items() for one in requests]
        if not 0 < len(writes) <= _BATCH_WRITE_MAX:
            raise invalid(f"Too many items requested for the BatchWriteItem call, or none: it takes {_BATCH_WRITE_MAX}")
        seen = set()
        for name, one in writes:
            shape = self._shape({"TableName": name})
            is_put = "PutRequest" in one
            key = shape.key_of(one["PutRequest"]["Item"]) if is_put else _key(shape, one["DeleteRequest"]["Key"])
            if (name, key) in seen:
                raise invalid("Provided list of item keys contains duplicates")
            seen.add((name, key))
            if is_put:
                _store(connection, shape, key, one["PutRequest"]["Item"])
            else:
                connection.execute("DELETE FROM rows WHERE place = ? AND pk = ? AND sk = ?", (name, *key))
        return {"UnprocessedItems": {}}

    def _transact(self, connection: sqlite3.Connection, request: dict[str, Any]) -> dict[str, Any]:
        writes = request["TransactItems"]
        if not 0 < len(writes) <= _TRANSACTION_MAX:
            raise invalid(f"A transaction takes up to {_TRANSACTION_MAX} items")
        token, digest = request.get("ClientRequestToken"), hashlib.sha256(orjson.dumps(writes)).hexdigest()
        if token is not None and (known := connection.execute("SELECT digest FROM tokens WHERE token = ?", (token,)).fetchone()):
            if known[0] != digest:
                raise Refused("IdempotentParameterMismatchException", "The token was used for another transaction")
            return {}
        self._all_or_nothing(connection, writes)
        if token is not None:
            connection.execute("INSERT INTO tokens VALUES (?, ?, ?)", (token, digest, time.time()))
        return {}

    def _all_or_nothing(self, connection: sqlite3.Connection, writes: list[dict[str, Any]]) -> None:
        """The journal undoes what was written before a condition failed."""
        steps = {"Put": self._put_one, "Update": self._update_one, "Delete": self._delete_one}
        reasons: list[dict[str, Any]] = []
        seen = set()
        for write in writes:
            ((kind, one),) = write.items()
            if kind not in steps:
                raise invalid(f"Transactions are served with {', '.join(steps)}")
            _check_parameters({"Put": "PutItem", "Update": "UpdateItem", "Delete": "DeleteItem"}[kind], one)
            shape = self._shape(one)
            place = (shape.name, shape.key_of(one["Item"]) if kind == "Put" else _key(shape, one["Key"]))
            if place in seen:
                raise invalid("Transaction request cannot include multiple operations on one item")
            seen.add(place)
            try:
                steps[kind](connection, one)
            except Misfit as misfit:
                reasons.append({"Code": "ValidationError", "Message": misfit.message})
            except Refused as refused:
                if refused.code != "ConditionalCheckFailedException":
                    raise
                reasons.append({"Code": "ConditionalCheckFailed", "Message": refused.message, **refused.fields})
            else:
                reasons.append({"Code": "None"})
        codes = [reason["Code"] for reason in reasons]
        if set(codes) != {"None"}:
            said = f"Transaction cancelled, please refer cancellation reasons for specific reasons [{', '.join(codes)}]"
            raise Refused("TransactionCanceledException", said, CancellationReasons=reasons)


def _check_parameters(operation: str, request: Mapping[str, Any]) -> None:
    unknown = set(request) - _SERVED.get(operation, frozenset(request))
    if unknown:
        raise invalid(f"{operation} is not served with {', '.join(sorted(unknown))} here")
    if request.get("ReturnValues", "NONE") not in ("NONE", "ALL_OLD", "ALL_NEW"):
        raise invalid("ReturnValues is served with NONE, ALL_OLD and ALL_NEW here")
    if said := refusal(request):
        raise invalid(said)


def shape_of(description: Mapping[str, Any], ttl: str | None) -> Shape:
    """Of a table that is served; any other is refused."""
    types = {each["AttributeName"]: each["AttributeType"] for each in description["AttributeDefinitions"]}
    if set(types.values()) != {"S"}:
        raise invalid("Tables are served with keys that are strings")
    pk, sk = _pair(description["KeySchema"])
    indexes = description.get("GlobalSecondaryIndexes", [])
    if not indexes:
        return Shape(description["TableName"], pk, sk, ttl=ttl)
    (index,) = indexes
    if index["Projection"]["ProjectionType"] != "KEYS_ONLY":
        raise invalid("An index is served with the projection KEYS_ONLY")
    return Shape(description["TableName"], pk, sk, index["IndexName"], *_pair(index["KeySchema"]), ttl=ttl)


def _pair(schema: Iterable[Mapping[str, str]]) -> tuple[str, str]:
    by_type = {each["KeyType"]: each["AttributeName"] for each in schema}
    if set(by_type) != {"HASH", "RANGE"}:
        raise invalid("Tables and indexes are served with a partition key and a sort key")
    return by_type["HASH"], by_type["RANGE"]


def _key(shape: Shape, key: Item) -> tuple[str, str]:
    if set(key) != {shape.pk, shape.sk}:
        raise invalid("The provided key element does not match the schema")
    pk, sk = shape.key_of(key)
    if said := key_refusal(pk, sk):
        raise invalid(said)
    return pk, sk


def _range(shape: Shape, request: dict[str, Any], *, is_index: bool) -> tuple[str, list[Any]]:
    """The key condition as SQL."""
    found = _KEY_CONDITION.match(request.get("KeyConditionExpression", ""))
    if found is None:
        raise invalid("Invalid KeyConditionExpression: it takes one partition, and one range of the sort key at most")
    names, values = request.get("ExpressionAttributeNames", {}), request.get("ExpressionAttributeValues", {})

    def value(group: str) -> str:
        if said := values.get(found[group], {}).get("S"):
            return str(said)
        raise invalid(f"Invalid KeyConditionExpression: {found[group]} is no string that was given, or an empty one")

    pk_name, sk_name = (shape.index_pk, shape.index_sk) if is_index else (shape.pk, shape.sk)
    pk_column, sk_column = ("index_pk", "index_sk") if is_index else ("pk", "sk")
    if names.get(found["pk"], found["pk"]) != pk_name:
        raise invalid(f"Query condition missed key schema element: {pk_name}")
    where, arguments = f"place = ? AND {pk_column} = ?", [shape.name, value("pk_value")]
    sort = found["sk"] or found["between"] or found["begins"]
    if sort is None:
        return where, arguments
    if names.get(sort, sort) != sk_name:
        raise invalid(f"Query condition missed key schema element: {sk_name}")
    if found["sk"]:
        return f"{where} AND {sk_column} {found['operator']} ?", [*arguments, value("sk_value")]
    low, high = (value("low"), value("high")) if found["between"] else (value("prefix"), value("prefix") + _HIGHEST)
    if low > high:
        raise invalid("Invalid KeyConditionExpression: The BETWEEN operator requires upper bound to be greater than lower bound")
    return f"{where} AND {sk_column} BETWEEN ? AND ?", [*arguments, low, high]


def _start(shape: Shape, start: Item, *, is_index: bool) -> list[str]:
    """The sort columns of ``ExclusiveStartKey``."""
    if not is_index:
        return [shape.key_of(start)[1]]
    index_sk = shape.indexed(start)[1]
    if index_sk is None:
        raise invalid("The provided starting key is invalid")
    return [index_sk, *shape.key_of(start)]


def _find(connection: sqlite3.Connection, shape: Shape, key: tuple[str, str]) -> Item | None:
    row = connection.execute("SELECT item FROM rows WHERE place = ? AND pk = ? AND sk = ?", (shape.name, *key)).fetchone()
    return None if row is None else orjson.loads(row[0])


def _store(connection: sqlite3.Connection, shape: Shape, key: tuple[str, str], item: Item) -> None:
    if refusal := item_error(item, shape.pk, shape.sk):
        raise invalid(refusal)
    connection.execute(
        "INSERT INTO rows (place, pk, sk, index_pk, index_sk, ttl, item) VALUES (?, ?, ?, ?, ?, ?, ?) "
        "ON CONFLICT (place, pk, sk) DO UPDATE SET index_pk = excluded.index_pk, index_sk = excluded.index_sk, ttl = excluded.ttl, "
        "item = excluded.item",
        (shape.name, *key, *shape.indexed(item), shape.expires(item), orjson.dumps(item).decode()),
    )


def _check_condition(request: Mapping[str, Any], old: Item | None) -> None:
    try:
        if holds(request.get("ConditionExpression"), old or {}, request):
            return
    except ValueError as error:
        raise invalid(str(error)) from error
    shown = {"Item": old} if old is not None and request.get("ReturnValuesOnConditionCheckFailure") == "ALL_OLD" else {}
    raise Refused("ConditionalCheckFailedException", "The conditional request failed", **shown)


def _attributes(request: Mapping[str, Any], *, old: Item | None, new: Item | None) -> dict[str, Any]:
    match request.get("ReturnValues", "NONE"):
        case "ALL_OLD" if old is not None:
            return {"Attributes": old}
        case "ALL_NEW" if new is not None:
            return {"Attributes": new}
        case _:
            return {}
