"""Requests at the rims of what a table takes, beside those that a run happens to make; each story begins with an empty table."""

from typing import Any, Final

from moorage.store.schema import INDEX, INDEX_PARTITION_KEY, INDEX_SORT_KEY, PARTITION_KEY, SORT_KEY

from tests.judges.tables import Asked

NAME: Final = "moorage"
CREATED: Final[Asked] = (
    "CreateTable",
    {
        "TableName": NAME,
        "BillingMode": "PAY_PER_REQUEST",
        "AttributeDefinitions": [
            {"AttributeName": name, "AttributeType": "S"} for name in (PARTITION_KEY, SORT_KEY, INDEX_PARTITION_KEY, INDEX_SORT_KEY)
        ],
        "KeySchema": [{"AttributeName": PARTITION_KEY, "KeyType": "HASH"}, {"AttributeName": SORT_KEY, "KeyType": "RANGE"}],
        "GlobalSecondaryIndexes": [
            {
                "IndexName": INDEX,
                "KeySchema": [
                    {"AttributeName": INDEX_PARTITION_KEY, "KeyType": "HASH"},
                    {"AttributeName": INDEX_SORT_KEY, "KeyType": "RANGE"},
                ],
                "Projection": {"ProjectionType": "KEYS_ONLY"},
            }
        ],
    },
)


def key(sk: str = "s", pk: str = "p") -> dict[str, Any]:
    return {PARTITION_KEY: {"S": pk}, SORT_KEY: {"S": sk}}


def ask(operation: str, **request: Any) -> Asked:
    return operation, {"TableName": NAME, **request}


def put(item: dict[str, Any] | None = None, sk: str = "s", **request: Any) -> Asked:
    return ask("PutItem", Item=key(sk) | (item or {}), **request)


def get(sk: str = "s", pk: str = "p") -> Asked:
    return ask("GetItem", Key=key(sk, pk), ConsistentRead=True)


def update(expression: str, names: dict[str, str], values: dict[str, Any] | None = None, *, sk: str = "s", **request: Any) -> Asked:
    given = {"ExpressionAttributeValues": values} if values else {}
    changed = {"UpdateExpression": expression, "ExpressionAttributeNames": names, "ReturnValues": "ALL_NEW"}
    return ask("UpdateItem", Key=key(sk), **changed, **given, **request)


def query(condition: str, values: dict[str, str], names: dict[str, str] | None = None, **request: Any) -> Asked:
    given = {name: {"S": value} for name, value in values.items()}
    names = names or {"#pk": PARTITION_KEY, **({"#sk": SORT_KEY} if "#sk" in condition else {})}
    return ask("Query", KeyConditionExpression=condition, ExpressionAttributeNames=names, ExpressionAttributeValues=given, **request)


def transact(*items: dict[str, Any], **request: Any) -> Asked:
    writes = [{kind: {"TableName": NAME} | one for kind, one in item.items()} for item in items]
    return "TransactWriteItems", {"TransactItems": writes, **request}


def batch(*writes: dict[str, Any]) -> Asked:
    return "BatchWriteItem", {"RequestItems": {NAME: list(writes)}}


def _put_in(sk: str, **item: Any) -> dict[str, Any]:
    return {"PutRequest": {"Item": key(sk) | item}}


_ABSENT: Final[dict[str, Any]] = {"ConditionExpression": "attribute_not_exists(#pk)", "ExpressionAttributeNames": {"#pk": "PK"}}
_EQUAL: Final = {"ConditionExpression": "#n = :n", "ExpressionAttributeNames": {"#n": "n"}}
_THERE: Final = {"ConditionExpression": "attribute_exists(#pk)", "ExpressionAttributeNames": {"#pk": PARTITION_KEY}}
_NUMBERS: Final = ("1.50", "1E3", "-0", "007", "1e-5", "12345678901234567890.12345678", "0.1", "1795400094.25", "1" + 37 * "0")
_SORT_KEYS: Final = ["a", "B", "b", "ä", "aa", "\U0001f600", "\uffee", "a#", "a0", "EV#2", "EV#10"]

STORIES: Final[dict[str, list[Asked]]] = {
    "numbers come back in DynamoDB's own form": [one for n in _NUMBERS for one in (put({"n": {"N": n}}), get())],
    "numbers that are none": [put({"n": {"N": n}}) for n in ("", "x", "NaN", "Infinity", "1" * 39, "1E126", "1e-131", "1 ")],
    "numbers are compared by value": [
        put({"n": {"N": "10"}}),
        *(
            ask("DeleteItem", Key=key(), **_EQUAL, ExpressionAttributeValues={":n": v})
            for v in ({"S": "10"}, {"N": "10.1"}, {"N": "1E1"})
        ),
        get(),
    ],
    "a number is less than another, and not less than a word": [
        put({"n": {"N": "9"}, "s": {"S": "9"}}),
        *(
            update("SET #t = :t", {"#t": "t", "#x": x}, {":t": {"S": "t"}, ":v": v}, ConditionExpression="#x < :v")
            for x in ("n", "s", "absent")
            for v in ({"N": "10"}, {"S": "10"}, {"S": "a"})
        ),
    ],
    "kinds of values": [
        put(
            {
                "s": {"S": ""},
                "b": {"B": ""},
                "bytes": {"B": "AAECAw=="},
                "null": {"NULL": True},
                "bool": {"BOOL": False},
                "list": {"L": [{"N": "1.0"}, {"M": {}}, {"L": []}]},
                "map": {"M": {"ü\n\u0000": {"S": "\u0000"}}},
            }
        ),
        get(),
    ],
    "names of attributes that are empty": [
        put({"": {"S": "x"}}),
        put({"map": {"M": {"": {"S": "x"}}}}),
        put({"list": {"L": [{"L": [{"M": {"inner": {"M": {"": {"S": "x"}}}}}]}]}}),
        update("SET #m = :m", {"#m": "m"}, {":m": {"M": {"": {"S": "x"}}}}),
        get(),
    ],
    "maps and lists are equal by what is in them": [
        put({"m": {"M": {"a": {"N": "1.0"}, "b": {"L": [{"S": "x"}]}}}}),
        update(
            "SET #t = :t",
            {"#t": "t", "#m": "m"},
            {":t": {"S": "t"}, ":m": {"M": {"b": {"L": [{"S": "x"}]}, "a": {"N": "1"}}}},
            ConditionExpression="#m = :m",
        ),
    ],
    "keys that cannot be": [
        *(put(sk=sk) for sk in ("", "x" * 1024, "x" * 1025, "ä" * 512, "ä" * 513)),
        get("x" * 1025),
        ask("GetItem", Key=key("s", "p" * 2049)),
        ask("GetItem", Key=key("s", "")),
        ask("GetItem", Key={PARTITION_KEY: {"S": "p"}}),
        ask("GetItem", Key=key() | {"more": {"S": "x"}}),
        ask("GetItem", Key={PARTITION_KEY: {"S": "p"}, SORT_KEY: {"N": "1"}}),
        ask("PutItem", Item={PARTITION_KEY: {"S": "p"}}),
    ],
    "keys of the index that cannot be": [
        put({INDEX_PARTITION_KEY: {"S": ""}, INDEX_SORT_KEY: {"S": "x"}}),
        put({INDEX_PARTITION_KEY: {"N": "1"}, INDEX_SORT_KEY: {"S": "x"}}),
        put({INDEX_PARTITION_KEY: {"S": "a"}}),
        update("SET #a = :a", {"#a": INDEX_SORT_KEY}, {":a": {"S": ""}}),
        update("SET #a = :a", {"#a": INDEX_SORT_KEY}, {":a": {"NULL": True}}),
        update("SET #a = :a", {"#a": INDEX_SORT_KEY}, {":a": {"S": "x" * 1025}}),
        query("#pk = :pk", {":pk": "a"}, {"#pk": INDEX_PARTITION_KEY}, IndexName=INDEX),
    ],
    "an item of 400 KB, and one byte more": [
        put({"x": {"S": "x" * (400 * 1024 - 6)}}),
        put({"x": {"S": "x" * (400 * 1024 - 7)}}),
        put({"x": {"S": "x" * (400 * 1024 - 8)}}),
        update("SET #y = :y", {"#y": "y"}, {":y": {"S": "longer"}}),
        batch(_put_in("t", x={"S": "x" * 500_000})),
        transact({"Put": {"Item": key("u") | {"x": {"S": "x" * 500_000}}}}),
    ],
    "names and values that are not used, or not given": [
        put(ExpressionAttributeNames={"#a": "a"}),
        put(ConditionExpression="attribute_not_exists(#pk)", ExpressionAttributeNames={"#pk": "PK", "#a": "a"}),
        put(ConditionExpression="attribute_not_exists(#pk)"),
        update("SET #a = :a", {"#a": "a", "#b": "b"}, {":a": {"S": "x"}}),
        update("SET #a = :a", {"#a": "a"}, {":a": {"S": "x"}, ":b": {"S": "x"}}),
        update("SET #a = :a", {"#a": "a"}, {":b": {"S": "x"}}),
        update("SET #a = :a", {"#b": "a"}, {":a": {"S": "x"}}),
        query("#pk = :pk", {":pk": "p", ":more": "x"}),
        query("#pk = :pk", {":pk": "p"}, {"#pk": "PK", "#more": "x"}),
    ],
    "words that are reserved": [
        put(ConditionExpression="attribute_not_exists(status)"),
        ask("UpdateItem", Key=key(), UpdateExpression="SET status = :s", ExpressionAttributeValues={":s": {"S": "x"}}),
    ],
    "updates": [
        update("SET #a = :a", {"#a": "a"}, {":a": {"N": "1"}}),
        update("ADD #a :a, #b :a", {"#a": "a", "#b": "b"}, {":a": {"N": "-3"}}),
        update("SET #a = if_not_exists(#a, :a), #c = if_not_exists(#c, :a)", {"#a": "a", "#c": "c"}, {":a": {"S": "x"}}),
        update("REMOVE #a, #z", {"#a": "a", "#z": "absent"}),
        update("SET #n = #n + :one", {"#n": "b"}, {":one": {"N": "1"}}),
        update("SET #n = #n + :one", {"#n": "absent"}, {":one": {"N": "1"}}),
        get(),
    ],
    "updates that do not fit": [
        put({"s": {"S": "word"}, "n": {"N": "1"}}),
        update("ADD #s :one", {"#s": "s"}, {":one": {"N": "1"}}),
        update("ADD #s :word", {"#s": "s"}, {":word": {"S": "x"}}),
        update("SET #s = :a, #t = :a REMOVE #s", {"#s": "s", "#t": "t"}, {":a": {"S": "x"}}),
        update("SET #s = :a, #s = :a", {"#s": "s"}, {":a": {"S": "x"}}),
        update("SET #pk = :a", {"#pk": "PK"}, {":a": {"S": "p"}}),
        update("REMOVE #sk", {"#sk": "SK"}),
        update("SET #s = :a SET #n = :a", {"#s": "s", "#n": "n"}, {":a": {"S": "x"}}),
        update("SET", {}),
        get(),
    ],
    "conditions that fail show what stands there": [
        put({"x": {"S": "1"}}),
        put({"x": {"S": "2"}}, **_ABSENT, ReturnValuesOnConditionCheckFailure="ALL_OLD"),
        put({"x": {"S": "2"}}, **_ABSENT),
        ask("DeleteItem", Key=key("other"), **_THERE, ReturnValuesOnConditionCheckFailure="ALL_OLD"),
        ask("DeleteItem", Key=key(), ReturnValues="ALL_OLD"),
        ask("DeleteItem", Key=key(), ReturnValues="ALL_OLD"),
        update("SET #a = :a", {"#a": "a", "#pk": "PK"}, {":a": {"S": "x"}}, ConditionExpression="attribute_exists(#pk)"),
    ],
    "sort keys are in the order of their bytes": [
        batch(*(_put_in(sk) for sk in _SORT_KEYS)),
        query("#pk = :pk", {":pk": "p"}),
        query("#pk = :pk", {":pk": "p"}, ScanIndexForward=False),
        query("#pk = :pk AND begins_with(#sk, :b)", {":pk": "p", ":b": "a"}),
        query("#pk = :pk AND #sk > :b", {":pk": "p", ":b": "b"}),
        query("#pk = :pk AND #sk BETWEEN :b AND :c", {":pk": "p", ":b": "a", ":c": "aa"}),
        query("#pk = :pk AND #sk BETWEEN :b AND :c", {":pk": "p", ":b": "b", ":c": "a"}),
        query("#pk = :pk AND begins_with(#sk, :b)", {":pk": "p", ":b": "\uffee"}),
        query("#pk = :pk AND begins_with(#sk, :b)", {":pk": "p", ":b": "\U0001f600"}),
    ],
    "pages": [
        batch(*(_put_in(f"{n:02}") for n in range(5))),
        query("#pk = :pk", {":pk": "p"}, Limit=2),
        query("#pk = :pk", {":pk": "p"}, Limit=2, ExclusiveStartKey=key("01")),
        query("#pk = :pk", {":pk": "p"}, Limit=2, ExclusiveStartKey=key("02"), ScanIndexForward=False),
        query("#pk = :pk", {":pk": "p"}, Limit=5),
        query("#pk = :pk", {":pk": "p"}, Limit=6),
        query("#pk = :pk", {":pk": "p"}, Limit=2, ExclusiveStartKey=key("01x")),
        query("#pk = :pk", {":pk": "p"}, Limit=2, ExclusiveStartKey=key("01", "another")),
        query("#pk = :pk", {":pk": "p"}, Limit=0),
        query("#pk = :pk", {":pk": ""}),
        query("#pk = :pk AND #sk = :sk", {":pk": "p", ":sk": ""}),
        query("#pk = :pk AND begins_with(#sk, :sk)", {":pk": "p", ":sk": ""}),
    ],
    "pages of a megabyte": [
        *(put({"x": {"S": "x" * 300_000}}, sk=f"{n}") for n in range(5)),
        query("#pk = :pk", {":pk": "p"}),
        query("#pk = :pk", {":pk": "p"}, ScanIndexForward=False),
        query("#pk = :pk", {":pk": "p"}, Limit=3),
        query("#pk = :pk", {":pk": "p"}, Limit=4),
    ],
    "filters come after the limit": [
        batch(*(_put_in(f"{n:02}", n={"N": str(n)}) for n in range(6))),
        *(
            ask(
                "Query",
                KeyConditionExpression="#pk = :pk",
                FilterExpression="#n >= :n",
                ExpressionAttributeNames={"#pk": "PK", "#n": "n"},
                ExpressionAttributeValues={":pk": {"S": "p"}, ":n": {"N": "2"}},
                **limit,
            )
            for limit in ({}, {"Limit": 3}, {"Limit": 6})
        ),
    ],
    "the index": [
        *(put({INDEX_PARTITION_KEY: {"S": "i"}, INDEX_SORT_KEY: {"S": at}}, sk=sk) for sk, at in (("x", "2"), ("y", "1"), ("z", "3"))),
        put({INDEX_PARTITION_KEY: {"S": "i"}}, sk="without"),
        query("#pk = :pk", {":pk": "i"}, {"#pk": INDEX_PARTITION_KEY}, IndexName=INDEX),
        query("#pk = :pk", {":pk": "i"}, {"#pk": INDEX_PARTITION_KEY}, IndexName=INDEX, Limit=2, ScanIndexForward=False),
        query(
            "#pk = :pk",
            {":pk": "i"},
            {"#pk": INDEX_PARTITION_KEY},
            IndexName=INDEX,
            ExclusiveStartKey=key("x") | {INDEX_PARTITION_KEY: {"S": "i"}, INDEX_SORT_KEY: {"S": "2"}},
        ),
        query("#pk = :pk", {":pk": "i"}, {"#pk": INDEX_PARTITION_KEY}, IndexName=INDEX, ConsistentRead=True),
        query("#pk = :pk", {":pk": "i"}, {"#pk": INDEX_PARTITION_KEY}, IndexName="GSI9"),
        update("REMOVE #a", {"#a": INDEX_SORT_KEY}, sk="x"),
        query("#pk = :pk", {":pk": "i"}, {"#pk": INDEX_PARTITION_KEY}, IndexName=INDEX),
    ],
    "batches": [
        batch(*(_put_in(f"{n}") for n in range(25))),
        batch(*(_put_in(f"{n}") for n in range(26))),
        batch(),
        batch(_put_in("a"), _put_in("a")),
        batch(_put_in("a"), {"DeleteRequest": {"Key": key("a")}}),
        batch({"DeleteRequest": {"Key": key("absent")}}),
        ("BatchGetItem", {"RequestItems": {NAME: {"Keys": [key(f"{n}") for n in range(100)]}}}),
        ("BatchGetItem", {"RequestItems": {NAME: {"Keys": [key(f"{n}") for n in range(101)]}}}),
        ("BatchGetItem", {"RequestItems": {NAME: {"Keys": [key("1"), key("1")]}}}),
        ("BatchGetItem", {"RequestItems": {NAME: {"Keys": []}}}),
        ("BatchGetItem", {"RequestItems": {"elsewhere": {"Keys": [key()]}}}),
    ],
    "batches are read to sixteen megabytes": [
        *(batch(*(_put_in(f"{n:02}", x={"S": "x" * 390_000}) for n in range(at, at + 15))) for at in (0, 15, 30)),
    ],
    "transactions": [
        put({"n": {"N": "1"}}, sk="there"),
        transact({"Put": {"Item": key("a"), **_ABSENT}}, {"Put": {"Item": key("there"), **_ABSENT}}),
        get("a"),
        transact({"Put": {"Item": key("a"), **_ABSENT}}, {"Delete": {"Key": key("there"), **_THERE}}),
        get("a"),
        get("there"),
        transact({"Put": {"Item": key("b")}}, {"Delete": {"Key": key("b")}}),
        transact(*({"Put": {"Item": key(f"many{n}")}} for n in range(100))),
        transact(*({"Put": {"Item": key(f"more{n}")}} for n in range(101))),
        transact(),
        transact({"Put": {"Item": key("c"), **_ABSENT, "ReturnValuesOnConditionCheckFailure": "ALL_OLD"}}),
        transact({"Put": {"Item": key("c"), **_ABSENT, "ReturnValuesOnConditionCheckFailure": "ALL_OLD"}}),
        transact({"Put": {"Item": key("")}}),
    ],
    "a transaction whose update does not fit": [
        put({"n": {"S": "word"}}, sk="word"),
        *(
            transact(
                {"Put": {"Item": key("d")}},
                {
                    "Update": {
                        "Key": key("word"),
                        "UpdateExpression": "ADD #n :n",
                        "ExpressionAttributeNames": {"#n": "n"},
                        "ExpressionAttributeValues": {":n": added},
                    }
                },
            )
            for added in ({"N": "1"}, {"S": "more"})
        ),
        get("d"),
    ],
    "a transaction's token": [
        transact({"Put": {"Item": key("t") | {"n": {"N": "1"}}}}, ClientRequestToken="once"),
        put({"n": {"N": "2"}}, sk="t"),
        transact({"Put": {"Item": key("t") | {"n": {"N": "1"}}}}, ClientRequestToken="once"),
        get("t"),
        transact({"Put": {"Item": key("t") | {"n": {"N": "3"}}}}, ClientRequestToken="once"),
        get("t"),
    ],
    "a table that is not there": [
        ("GetItem", {"TableName": "elsewhere", "Key": key()}),
        ("PutItem", {"TableName": "elsewhere", "Item": key()}),
        ("DescribeTable", {"TableName": "elsewhere"}),
        transact({"Put": {"TableName": "elsewhere", "Item": key()}}),
        CREATED,
    ],
    "a table's time to live": [
        ask("UpdateTimeToLive", TimeToLiveSpecification={"Enabled": True, "AttributeName": "ttl"}),
        ask("DescribeTimeToLive"),
    ],
    "everything": [
        batch(*(_put_in(f"{n:02}", n={"N": str(n)}) for n in range(6))),
        ask("Scan", Limit=4),
        ask("Scan", ConsistentRead=True),
        ask("Scan", FilterExpression="#n > :n", ExpressionAttributeNames={"#n": "n"}, ExpressionAttributeValues={":n": {"N": "2"}}),
    ],
}

_MISFIT: Final = "AWS cancels the transaction with the reason ValidationError (TransactWriteItems); DynamoDB Local refuses it"
DIFFERENT: Final[dict[str, dict[str, str]]] = {
    "embedded": {"a transaction whose update does not fit": _MISFIT},
    "ministack": {
        "a transaction whose update does not fit": _MISFIT,
        "names of attributes that are empty": "it takes them",
        "updates that do not fit": "it takes an update that names an attribute twice, and one with two SET",
        "pages of a megabyte": "it ends a page before the item that would exceed a megabyte, and not behind it",
    },
}
"""Stories that the tables answer otherwise, and why that stays. Where ministack, on which deployments are tested, is more lenient, the
local stack's table is not, and both are sent the same requests."""
