"""The table of the local stack answers as ministack's DynamoDB does, over the requests that this system makes."""

import asyncio
import json
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from ministack.services import dynamodb
from moorage.local.aws.journal import Journal
from moorage.local.aws.leftovers import Leftovers
from moorage.local.aws.table import TableService

Request = tuple[str, dict[str, Any]]

NAME = "moorage"
TABLE: dict[str, Any] = {
    "TableName": NAME,
    "BillingMode": "PAY_PER_REQUEST",
    "AttributeDefinitions": [{"AttributeName": name, "AttributeType": "S"} for name in ("PK", "SK", "GSI1PK", "GSI1SK")],
    "KeySchema": [{"AttributeName": "PK", "KeyType": "HASH"}, {"AttributeName": "SK", "KeyType": "RANGE"}],
    "GlobalSecondaryIndexes": [
        {
            "IndexName": "GSI1",
            "KeySchema": [{"AttributeName": "GSI1PK", "KeyType": "HASH"}, {"AttributeName": "GSI1SK", "KeyType": "RANGE"}],
            "Projection": {"ProjectionType": "KEYS_ONLY"},
        }
    ],
}


@contextmanager
def journal_in(folder: Path) -> Iterator[Journal]:
    journal = Journal(folder / "journal.sqlite")
    yield journal
    journal.close()


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[TableService]:
    with journal_in(tmp_path) as journal:
        table = TableService(journal)
        assert (await table.handle("CreateTable", json.dumps(TABLE).encode()))[0] == 200
        yield table


async def ask(service: TableService, operation: str, **request: Any) -> tuple[int, dict[str, Any]]:
    return await service.handle(operation, json.dumps({"TableName": NAME} | request).encode())


# --- the same as ministack ---------------------------------------------------------------------------------------------------

pks, sks = st.sampled_from(["a", "b"]), st.sampled_from(["EV#1", "EV#2", "EV#10", "META", "ä", "EV"])
numbers = st.integers(-3, 3).map(lambda n: {"N": str(n)})
words = st.sampled_from(["", "x", "ü\n", "EV#1"]).map(lambda s: {"S": s})
values = st.one_of(numbers, words, st.just({"NULL": True}), st.just({"BOOL": False}), st.just({"B": "AAE="}))
keys = st.fixed_dictionaries({"PK": pks.map(lambda s: {"S": s}), "SK": sks.map(lambda s: {"S": s})})
attributes = st.dictionaries(st.sampled_from(["n", "s", "ttl"]), values, max_size=3)
indexed: st.SearchStrategy[dict[str, Any]] = st.one_of(
    st.just({}),
    st.fixed_dictionaries({"GSI1PK": pks.map(lambda s: {"S": s}), "GSI1SK": sks.map(lambda s: {"S": s})}),
    st.just({"GSI1PK": {"S": "a"}}),
)
items = st.builds(lambda key, rest, index: {**rest, **index, **key}, keys, attributes, indexed)
conditions = st.sampled_from(
    [
        {},
        {"ConditionExpression": "attribute_not_exists(#c)", "names": {"#c": "PK"}},
        {"ConditionExpression": "attribute_exists(#c)", "names": {"#c": "PK"}},
        {"ConditionExpression": "#c = :c", "names": {"#c": "n"}, "values": {":c": {"N": "1"}}},
        {"ConditionExpression": "#c = :c AND attribute_not_exists(#d)", "names": {"#c": "n", "#d": "s"}, "values": {":c": {"N": "1"}}},
    ]
)
updates = st.sampled_from(
    [
        ("SET #u = :u", {"#u": "s"}, {":u": {"S": "new"}}),
        ("SET #u = if_not_exists(#u, :u)", {"#u": "s"}, {":u": {"S": "first"}}),
        ("ADD #u :u", {"#u": "n"}, {":u": {"N": "2"}}),
        ("REMOVE #u", {"#u": "GSI1PK"}, {}),
        ("SET #u = :u, #v = :v", {"#u": "GSI1PK", "#v": "GSI1SK"}, {":u": {"S": "b"}, ":v": {"S": "EV#1"}}),
        ("SET #u = :u", {"#u": "SK"}, {":u": {"S": "moved"}}),
        ("SET #u = :u ADD #v :v REMOVE #w", {"#u": "s", "#v": "n", "#w": "ttl"}, {":u": {"S": ""}, ":v": {"N": "-1"}}),
    ]
)


def conditional(condition: dict[str, Any], request: dict[str, Any], shown: bool) -> dict[str, Any]:
    if not condition:
        return request
    names = request.get("ExpressionAttributeNames", {}) | condition.get("names", {})
    given_values = request.get("ExpressionAttributeValues", {}) | condition.get("values", {})
    whole = request | {"ConditionExpression": condition["ConditionExpression"], "ExpressionAttributeNames": names}
    if given_values:
        whole["ExpressionAttributeValues"] = given_values
    return whole | ({"ReturnValuesOnConditionCheckFailure": "ALL_OLD"} if shown else {})


def updated(key: dict[str, Any], change: tuple[str, dict[str, str], dict[str, Any]]) -> dict[str, Any]:
    expression, names, given_values = change
    request = {"TableName": NAME, "Key": key, "UpdateExpression": expression, "ExpressionAttributeNames": names}
    return request | ({"ExpressionAttributeValues": given_values} if given_values else {})


def batched(writes: list[Any]) -> Request:
    requests_ = [{"PutRequest": {"Item": write}} if len(write) > 2 else {"DeleteRequest": {"Key": write}} for write in writes]
    return "BatchWriteItem", {"RequestItems": {NAME: requests_}}


ranges = st.sampled_from(
    [
        ("", {}),
        (" AND #sk > :low", {":low": "EV#1"}),
        (" AND #sk <= :low", {":low": "EV#2"}),
        (" AND begins_with(#sk, :low)", {":low": "EV#"}),
        (" AND #sk BETWEEN :low AND :high", {":low": "EV#1", ":high": "EV#2"}),
        (" AND #sk = :low", {":low": "META"}),
    ]
)


def queried(pk: str, condition: tuple[str, dict[str, str]], forward: bool, limit: int | None, is_index: bool) -> Request:
    expression, given_values = condition
    names = {"#pk": "GSI1PK" if is_index else "PK"} | ({"#sk": "GSI1SK" if is_index else "SK"} if expression else {})
    request: dict[str, Any] = {
        "TableName": NAME,
        "KeyConditionExpression": "#pk = :pk" + expression,
        "ExpressionAttributeNames": names,
        "ExpressionAttributeValues": {name: {"S": value} for name, value in ({":pk": pk} | given_values).items()},
        "ScanIndexForward": forward,
    }
    return "Query", request | ({"Limit": limit} if limit else {}) | ({"IndexName": "GSI1"} if is_index else {"ConsistentRead": True})


requests = st.one_of(
    st.builds(
        lambda item, condition, shown, old: (
            "PutItem",
            conditional(condition, {"TableName": NAME, "Item": item} | ({"ReturnValues": "ALL_OLD"} if old else {}), shown),
        ),
        items, conditions, st.booleans(), st.booleans(),
    ),
    st.builds(
        lambda key, change, condition, shown: (
            "UpdateItem",
            conditional(condition, updated(key, change) | {"ReturnValues": "ALL_NEW"}, shown),
        ),
        keys, updates, conditions, st.booleans(),
    ),
    st.builds(
        lambda key, condition, shown: (
            "DeleteItem",
            conditional(condition, {"TableName": NAME, "Key": key, "ReturnValues": "ALL_OLD"}, shown),
        ),
        keys, conditions, st.booleans(),
    ),
    st.builds(lambda key: ("GetItem", {"TableName": NAME, "Key": key, "ConsistentRead": True}), keys),
    st.builds(lambda some: ("BatchGetItem", {"RequestItems": {NAME: {"Keys": some}}}), st.lists(keys, min_size=1, max_size=4)),
    st.builds(batched, st.lists(st.one_of(items, keys), min_size=1, max_size=5)),
    st.builds(queried, pks, ranges, st.booleans(), st.sampled_from([None, 1, 2, 50]), st.booleans()),
    st.builds(
        lambda puts, key, change, condition, token: (
            "TransactWriteItems",
            {
                "TransactItems": [
                    *({"Put": conditional(c, {"TableName": NAME, "Item": item}, shown=False)} for item, c in puts),
                    {"Update": conditional(condition, updated(key, change), shown=False)},
                ],
                "ClientRequestToken": token,
            },
        ),
        st.lists(st.tuples(items, conditions), max_size=2),
        keys,
        updates.filter(lambda change: "SK" not in change[1].values()),  # ministack lets a transaction move an item
        conditions,
        st.uuids().map(str),
    ),
)  # fmt: skip


def normal(operation: str, status: int, answer: dict[str, Any]) -> Any:
    """What a client goes by: the error's code and what it carries, or the answer, with lists that have no order sorted."""
    if status != 200:
        code = answer["__type"].rpartition("#")[2]
        if code == "TransactionCanceledException":
            codes = [reason["Code"] for reason in answer.get("CancellationReasons", [])]
            return code, ["ConditionalCheckFailed" in codes, len(codes)]
        return code, answer.get("Item")
    if operation == "BatchGetItem":
        return sorted(json.dumps(item, sort_keys=True) for item in answer["Responses"][NAME])
    return {name: answer[name] for name in ("Item", "Items", "Attributes", "Count", "LastEvaluatedKey") if answer.get(name)}


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(requests, min_size=1, max_size=15))
def test_random_requests_are_answered_as_by_ministack(asked: list[Request]) -> None:
    dynamodb._tables._data.clear()
    dynamodb._txn_idempotency._data.clear()
    dynamodb._create_table(TABLE)

    async def play() -> None:
        with tempfile.TemporaryDirectory() as folder, journal_in(Path(folder)) as journal:
            service = TableService(journal)
            await service.handle("CreateTable", json.dumps(TABLE).encode())
            for operation, request in asked:
                body = json.dumps(request).encode()
                status, _, text = await dynamodb.handle_request("POST", "/", {"x-amz-target": f"D.{operation}"}, body, {})
                expected = normal(operation, status, json.loads(text))
                assert normal(operation, *await service.handle(operation, body)) == expected, (operation, request)

    asyncio.run(play())


# --- what is ours alone ------------------------------------------------------------------------------------------------------


def key(sk: str, pk: str = "p") -> dict[str, Any]:
    return {"PK": {"S": pk}, "SK": {"S": sk}}


async def test_a_transaction_that_fails_leaves_nothing(service: TableService) -> None:
    await ask(service, "PutItem", Item=key("there"))
    absent = {"ConditionExpression": "attribute_not_exists(#p)", "ExpressionAttributeNames": {"#p": "PK"}}
    puts = [{"Put": {"TableName": NAME, "Item": key(sk), **absent}} for sk in ("new", "there")]
    status, answer = await service.handle("TransactWriteItems", json.dumps({"TransactItems": puts}).encode())
    assert (status, [reason["Code"] for reason in answer["CancellationReasons"]]) == (400, ["None", "ConditionalCheckFailed"])
    assert (await ask(service, "GetItem", Key=key("new")))[1] == {}


async def test_an_update_that_does_not_fit_its_item_cancels_the_transaction(service: TableService) -> None:
    await ask(service, "PutItem", Item={**key("k"), "n": {"NULL": True}})
    add = {"UpdateExpression": "ADD #n :n", "ExpressionAttributeNames": {"#n": "n"}, "ExpressionAttributeValues": {":n": {"N": "1"}}}
    writes = [{"Put": {"TableName": NAME, "Item": key("new")}}, {"Update": {"TableName": NAME, "Key": key("k"), **add}}]
    status, answer = await service.handle("TransactWriteItems", json.dumps({"TransactItems": writes}).encode())
    assert (status, [reason["Code"] for reason in answer["CancellationReasons"]]) == (400, ["None", "ValidationError"])
    assert (await ask(service, "GetItem", Key=key("new")))[1] == {}


async def test_a_transaction_whose_answer_was_lost_is_not_done_again(service: TableService) -> None:
    add = {"UpdateExpression": "ADD #n :n", "ExpressionAttributeNames": {"#n": "n"}, "ExpressionAttributeValues": {":n": {"N": "1"}}}
    body = {"TransactItems": [{"Update": {"TableName": NAME, "Key": key("k"), **add}}], "ClientRequestToken": "once"}
    for _ in range(3):
        assert (await service.handle("TransactWriteItems", json.dumps(body).encode()))[0] == 200
    assert (await ask(service, "GetItem", Key=key("k")))[1]["Item"]["n"] == {"N": "1"}
    body["TransactItems"] = [{"Delete": {"TableName": NAME, "Key": key("k")}}]
    _, refused = await service.handle("TransactWriteItems", json.dumps(body).encode())
    assert refused["__type"].endswith("IdempotentParameterMismatchException")


async def test_pages_end_at_a_megabyte_and_go_on_without_gap_or_repeat(service: TableService) -> None:
    for n in range(12):
        more = {"body": {"S": "x" * 200_000}, "GSI1PK": {"S": "i"}, "GSI1SK": {"S": "same"}}
        await ask(service, "PutItem", Item=key(f"{n:03}") | more)
    condition = {"KeyConditionExpression": "PK = :p", "ExpressionAttributeValues": {":p": {"S": "p"}}}
    start: dict[str, Any] = {}
    seen, pages = [], 0
    while True:
        _, page = await ask(service, "Query", **condition, **start)
        seen += [item["SK"]["S"] for item in page["Items"]]
        pages += 1
        if "LastEvaluatedKey" not in page:
            break
        start = {"ExclusiveStartKey": page["LastEvaluatedKey"]}
    assert (seen, pages) == ([f"{n:03}" for n in range(12)], 2)
    index = {"IndexName": "GSI1", "KeyConditionExpression": "GSI1PK = :p", "ExpressionAttributeValues": {":p": {"S": "i"}}, "Limit": 5}
    first = (await ask(service, "Query", **index))[1]
    rest = (await ask(service, "Query", **index | {"Limit": 50}, ExclusiveStartKey=first["LastEvaluatedKey"]))[1]
    assert [item["SK"]["S"] for item in first["Items"] + rest["Items"]] == [f"{n:03}" for n in range(12)]


async def test_rows_go_when_their_time_is_over(service: TableService) -> None:
    await service.handle(
        "UpdateTimeToLive",
        json.dumps({"TableName": NAME, "TimeToLiveSpecification": {"Enabled": True, "AttributeName": "ttl"}}).encode(),
    )
    for sk, ttl in (("old", "100"), ("new", "300"), ("word", None)):
        await ask(service, "PutItem", Item=key(sk) | ({"ttl": {"N": ttl}} if ttl else {"ttl": {"S": "100"}}))
    assert await Leftovers(service._journal).expire(200) == 1
    assert [(await ask(service, "GetItem", Key=key(sk)))[1] != {} for sk in ("old", "new", "word")] == [False, True, True]


@pytest.mark.parametrize(
    ("operation", "request_", "said"),
    [
        ("Query", {"Select": "COUNT", "KeyConditionExpression": "PK = :p"}, "Select"),
        ("Query", {"ProjectionExpression": "PK", "KeyConditionExpression": "PK = :p"}, "ProjectionExpression"),
        ("Query", {"KeyConditionExpression": "n = :p", "ExpressionAttributeValues": {":p": {"S": "p"}}}, "PK"),
        ("Query", {"KeyConditionExpression": "PK = PK OR SK = SK"}, "KeyConditionExpression"),
        ("PutItem", {"Item": {"PK": {"S": "p"}, "SK": {"N": "1"}}}, "SK"),
        ("PutItem", {"Item": key("k") | {"GSI1PK": {"S": ""}, "GSI1SK": {"S": "x"}}}, "GSI1PK"),
        ("PutItem", {"Item": key("k"), "ReturnValues": "UPDATED_NEW"}, "ReturnValues"),
        ("GetItem", {"Key": {"PK": {"S": "p"}}}, "schema"),
        ("GetItem", {"Key": key("x" * 1025)}, "size limit"),
        ("Query", {"Limit": 0, "KeyConditionExpression": "PK = :p", "ExpressionAttributeValues": {":p": {"S": "p"}}}, "limit"),
        ("PutItem", {"Item": key("k"), "ConditionExpression": "attribute_exists(#p)"}, "not defined: #p"),
        ("PutItem", {"Item": key("k"), "ExpressionAttributeNames": {"#p": "PK"}}, "unused in expressions: #p"),
        ("PutItem", {"Item": key("k") | {"metadata": {"M": {"": {"S": "x"}}}}}, "Empty attribute name"),
        ("DeleteTable", {}, "Unknown operation"),
    ],
)  # fmt: skip
async def test_what_is_not_served_is_refused_by_name(
    service: TableService, operation: str, request_: dict[str, Any], said: str
) -> None:
    status, answer = await ask(service, operation, **request_)
    assert (status, said in answer["message"]) == (400, True)


async def test_a_second_start_finds_tables_rows_and_their_time(tmp_path: Path) -> None:
    with journal_in(tmp_path) as journal:
        service = TableService(journal)
        await service.handle("CreateTable", json.dumps(TABLE).encode())
        await ask(service, "PutItem", Item=key("k"))
    with journal_in(tmp_path) as journal:
        service = TableService(journal)
        assert (await ask(service, "GetItem", Key=key("k")))[1] == {"Item": key("k")}
        _, refused = await service.handle("CreateTable", json.dumps(TABLE).encode())
        assert refused["__type"].endswith("ResourceInUseException")
