"""The S3 Vectors of the tests refuses what the service refuses: what it let through would prove nothing."""

import json
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.unit.knowledge.vector_service import BUCKET, FakeS3Vectors, Refused

INDEX = f"{BUCKET}/index/vs-1"


def vector(key: str = "a", *numbers: float, **metadata: Any) -> dict[str, Any]:
    return {"key": key, "data": {"float32": list(numbers or (1.0, 0.0))}, "metadata": metadata}


def put(*vectors: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    return "put_vectors", {"indexArn": INDEX, "vectors": list(vectors)}


def query(**changed: Any) -> tuple[str, dict[str, Any]]:
    return "query_vectors", {"indexArn": INDEX, "topK": 1, "queryVector": {"float32": [1.0, 0.0]}, **changed}


def create(**changed: Any) -> tuple[str, dict[str, Any]]:
    shape = {"vectorBucketArn": BUCKET, "indexName": "vs-2", "dataType": "float32", "dimension": 2, "distanceMetric": "cosine"}
    return "create_index", shape | changed


REFUSED: dict[str, tuple[tuple[str, dict[str, Any]], str]] = {
    "an index that is there": (create(indexName="vs-1"), "ConflictException"),
    "an index too many": (create(indexName="vs-3"), "ServiceQuotaExceededException"),
    "an index in another bucket": (create(vectorBucketArn=BUCKET + "-other"), "NotFoundException"),
    "an index with a capital letter": (create(indexName="VS-2"), "ValidationException"),
    "an index with a long name": (create(indexName="v" * 64), "ValidationException"),
    "an index without a name": (create(indexName="v"), "ValidationException"),
    "an index of 4,097 dimensions": (create(dimension=4_097), "ValidationException"),
    "an index of another metric": (create(distanceMetric="dot"), "ValidationException"),
    "an index of half a dimension": (create(dimension=1.5), "ValidationException"),
    "vectors for no index": (("put_vectors", {"vectors": [vector()]}), "NotFoundException"),
    "vectors for an index that is not there": (("put_vectors", {"indexArn": INDEX + "0", "vectors": [vector()]}), "NotFoundException"),
    "an index's ARN that is none": (("put_vectors", {"indexArn": "vs-1", "vectors": [vector()]}), "ValidationException"),
    "no vectors": (put(), "ValidationException"),
    "501 vectors": (put(*(vector(str(number)) for number in range(501))), "ValidationException"),
    "two vectors of one key": (put(vector("a"), vector("a")), "ValidationException"),
    "a vector of another dimension": (put(vector("a", 1.0)), "ValidationException"),
    "a vector of zeros": (put(vector("a", 0.0, 0.0)), "ValidationException"),
    "a vector that is not a number": (put(vector("a", float("nan"), 1.0)), "ValidationException"),
    "a vector without a key": (put(vector("")), "ValidationException"),
    "a vector with a long key": (put(vector("a" * 1_025)), "ValidationException"),
    "much metadata": (put(vector("a", text="x" * 2_048)), "ValidationException"),
    "many keys of metadata": (put(vector("a", **{f"k{number}": 1 for number in range(51)})), "ValidationException"),
    "metadata within metadata": (put(vector("a", inner={"a": 1})), "ValidationException"),
    "a payload of 20 MiB": (put(*(vector(str(number), other="y" * 60_000) for number in range(400))), "ValidationException"),
    "501 deletions": (("delete_vectors", {"indexArn": INDEX, "keys": [str(number) for number in range(501)]}), "ValidationException"),
    "no deletion": (("delete_vectors", {"indexArn": INDEX, "keys": []}), "ValidationException"),
    "an index's deletion that is not there": (("delete_index", {"indexArn": INDEX + "0"}), "NotFoundException"),
    "a query for nothing": (query(topK=0), "ValidationException"),
    "a query for 10,001": (query(topK=10_001), "ValidationException"),
    "a query of zeros": (query(queryVector={"float32": [0.0, 0.0]}), "ValidationException"),
    "an empty filter": (query(filter={}), "ValidationException"),
    "an operator that is none": (query(filter={"version": {"$like": "a"}}), "ValidationException"),
    "a group that is none": (query(filter={"$not": [{"version": "a"}]}), "ValidationException"),
    "one of nothing": (query(filter={"version": {"$in": []}}), "ValidationException"),
    "more than a text": (query(filter={"version": {"$gt": "a"}}), "ValidationException"),
    "an operation that the code has no right to": (("list_vectors", {"indexArn": INDEX}), "AccessDeniedException"),
}


@pytest.fixture(scope="module")
def service() -> FakeS3Vectors:
    made = FakeS3Vectors(indexes_max=2)
    for name in ("vs-1", "vs-2"):
        made.client.create_index(**create(indexName=name)[1])
    return made


@pytest.mark.parametrize("what", REFUSED)
def test_what_the_service_does_not_take_is_refused(what: str, service: FakeS3Vectors) -> None:
    (operation, request), code = REFUSED[what]
    with pytest.raises(ClientError) as refused:
        getattr(service.client, operation)(**request)
    assert refused.value.response["Error"]["Code"] == code
    assert refused.value.response["ResponseMetadata"]["RetryAttempts"] == 0


NOT_SENT: dict[str, tuple[str, dict[str, Any], str]] = {
    "a vector of texts": ("PutVectors", put({"key": "a", "data": {"float32": ["1", "0"]}})[1], "what is no number"),
    "a vector of another type": ("PutVectors", put({"key": "a", "data": {"float64": [1.0, 0.0]}})[1], "unknown members"),
    "a vector of no type": ("PutVectors", put({"key": "a", "data": {}})[1], "one of several"),
    "a vector alone": ("PutVectors", {"indexArn": INDEX, "vectors": vector()}, "no list"),
    "what a newer model has": ("QueryVectors", query(queryTexts=[{"text": "anchor"}])[1], "unknown members"),
    "a switch of text": ("QueryVectors", query(returnDistance="yes")[1], "neither true nor false"),
    "a query without its vector": ("QueryVectors", {"indexArn": INDEX, "topK": 1}, "lacks"),
    "a key of numbers": ("DeleteVectors", {"indexArn": INDEX, "keys": [1]}, "no text"),
}
"""botocore itself would not send them."""


@pytest.mark.parametrize("what", NOT_SENT)
def test_what_the_model_does_not_know_is_refused(what: str, service: FakeS3Vectors) -> None:
    operation, request, rule = NOT_SENT[what]
    with pytest.raises(Refused, match=rule):
        service.work(operation, json.dumps(request))


FITTING: dict[str, tuple[dict[str, Any], bool]] = {
    "equal": ({"n": 3}, True),
    "equal by its operator": ({"n": {"$eq": 4}}, False),
    "an element of a list": ({"tags": "b"}, True),
    "unequal": ({"n": {"$ne": 4}}, True),
    "between": ({"n": {"$gt": 2, "$lte": 3}}, True),
    "below": ({"n": {"$lt": 3}}, False),
    "from": ({"n": {"$gte": 3}}, True),
    "one of": ({"n": {"$in": [1, 2]}}, False),
    "none of": ({"n": {"$nin": [1, 2]}}, True),
    "there": ({"n": {"$exists": True}}, True),
    "not there": ({"n": {"$exists": False}}, False),
    "all": ({"$and": [{"n": 3}, {"tags": "c"}]}, False),
    "any": ({"$or": [{"n": 4}, {"tags": "a"}]}, True),
}


@pytest.mark.parametrize("what", FITTING)
def test_filters_fit_what_the_user_guide_says(what: str, service: FakeS3Vectors) -> None:
    narrowed, fits = FITTING[what]
    service.client.put_vectors(**put(vector("a", n=3, tags=["a", "b"]))[1])
    found = service.client.query_vectors(**query(filter=narrowed)[1])["vectors"]
    assert [each["key"] for each in found] == (["a"] if fits else [])


def test_a_query_comes_in_pages_the_nearest_first() -> None:
    service = FakeS3Vectors()
    service.client.create_index(**create(indexName="vs-1")[1])
    service.client.put_vectors(**put(*(vector(f"{number:03d}", 1.0, number) for number in range(150)))[1])
    asked = query(topK=120, returnDistance=True)[1]
    first = service.client.query_vectors(**asked)
    second = service.client.query_vectors(**asked, nextToken=first["nextToken"])
    keys = [each["key"] for page in (first, second) for each in page["vectors"]]
    assert (keys, "nextToken" in second) == ([f"{number:03d}" for number in range(120)], False)
    assert first["vectors"][0] == {"key": "000", "distance": 0.0}
