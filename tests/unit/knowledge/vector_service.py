"""S3 Vectors for tests: boto3's own client, answered in this process.

Each call is held against the service's model in botocore (what there is, what is required, of which type and size) and against what
the user guide says beyond it ("Limitations and restrictions", "Metadata filtering"). What it does not know it refuses, as a service
would. Faults can be put before calls: a throttle, or a reply that gets lost after the work was done.
"""

import json
import math
import re
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import boto3
import botocore.session
import numpy as np
from botocore.awsrequest import AWSPreparedRequest, AWSResponse
from botocore.compat import HTTPHeaders
from botocore.config import Config
from botocore.exceptions import ConnectionClosedError
from moorage.store.vector_bucket import VectorBucket

MIB: Final = 1024 * 1024
MODEL: Final = botocore.session.get_session().get_service_model("s3vectors")
BUCKET: Final = "arn:aws:s3vectors:us-east-1:123456789012:bucket/moorage-vectors"
PAGE: Final = 100
"""Vectors of one page of a query."""
TOP_MAX: Final = 10_000

_THREADS: Final = ThreadPoolExecutor(8, thread_name_prefix="vectors")

Vector = tuple[np.ndarray[Any, Any], dict[str, Any]]


class Refused(Exception):
    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class FakeS3Vectors:
    """One vector bucket."""

    def __init__(self, *, indexes_max: int = 10_000) -> None:
        self.indexes: dict[str, dict[str, Vector]] = {}
        self.dimensions: dict[str, int] = {}
        self.indexes_max = indexes_max
        self.is_there = True
        self.calls: Counter[str] = Counter()
        """By operation, those that were refused or lost included."""
        self.asked: list[dict[str, Any]] = []
        """What QueryVectors was asked."""
        self.faults: deque[tuple[str, str]] = deque()
        """``("PutVectors", "throttled")``, ``(…, "lost")`` or a refusal's code: what happens to the next call of it."""
        self.before: Callable[[str], None] = lambda operation: None
        """Told of each operation before it works, in the thread of the call."""
        self.client = boto3.client(
            "s3vectors",
            region_name="us-east-1",
            aws_access_key_id="testing",
            aws_secret_access_key="testing",
            config=Config(retries={"mode": "standard", "total_max_attempts": 5}, parameter_validation=False),
        )
        self.client.meta.events.register("before-send.s3vectors", self._answer)

    def bucket(self, arn: str = BUCKET) -> VectorBucket:
        return VectorBucket(self.client, arn, _THREADS)

    def vectors(self) -> list[str]:
        """The keys of all vectors."""
        return sorted(key for index in self.indexes.values() for key in index)

    # --- the wire ---

    def _answer(self, request: AWSPreparedRequest, **_: Any) -> AWSResponse:
        operation = str(request.url).rpartition("/")[2]
        self.calls[operation] += 1
        fault = self._fault(operation)
        self.before(operation)
        try:
            if fault == "throttled":
                raise Refused("TooManyRequestsException", "The request was denied due to request throttling.")
            if fault not in (None, "lost", "throttled"):
                raise Refused(str(fault), f"{operation} is refused.")
            answer, status = self.work(operation, request.body or b""), 200
        except Refused as refusal:
            answer, status = {"message": str(refusal)}, _status(refusal.code)
            return _response(request, status, answer, {"x-amzn-ErrorType": refusal.code})
        if fault == "lost":
            raise ConnectionClosedError(endpoint_url=request.url)
        return _response(request, status, answer, {})

    def _fault(self, operation: str) -> str | None:
        if self.faults and self.faults[0][0] == operation:
            return self.faults.popleft()[1]
        return None

    def work(self, operation: str, body: Any) -> dict[str, Any]:
        """What a request is answered with. Raises :class:`Refused`."""
        if len(body) > 20 * MIB:
            raise Refused("ValidationException", "The payload is larger than 20 MiB.")
        asked = json.loads(body)
        shape = MODEL.operation_model(operation).input_shape
        _check_shape(shape, asked, operation)
        if not self.is_there:
            raise Refused("NotFoundException", "The specified vector bucket could not be found.")
        work = {
            "CreateIndex": self._create,
            "DeleteIndex": self._delete_index,
            "PutVectors": self._put,
            "DeleteVectors": self._delete,
            "QueryVectors": self._query,
        }.get(operation)
        if work is None:
            raise Refused("AccessDeniedException", f"Nobody here asks for {operation}.")
        return work(asked)

    # --- what it does ---

    def _create(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        name = asked["indexName"]
        if asked.get("vectorBucketArn") != BUCKET:
            raise Refused("NotFoundException", "The specified vector bucket could not be found.")
        _demand(re.fullmatch(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]", name), "an index's name has a form")
        if name in self.indexes:
            raise Refused("ConflictException", "An index with the specified name already exists.")
        if len(self.indexes) >= self.indexes_max:
            raise Refused("ServiceQuotaExceededException", "The vector bucket has too many indexes.")
        self.indexes[name], self.dimensions[name] = {}, asked["dimension"]
        return {"indexArn": f"{BUCKET}/index/{name}"}

    def _delete_index(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        name = self._named(asked)
        del self.indexes[name], self.dimensions[name]
        return {}

    def _put(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        name = self._named(asked)
        put = {each["key"]: (self._numbers(name, each["data"]), each.get("metadata", {})) for each in asked["vectors"]}
        _demand(len(put) == len(asked["vectors"]), "each key stands once in a request")
        for _, metadata in put.values():
            _check_metadata(metadata)
        self.indexes[name] |= put
        return {}

    def _delete(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        name = self._named(asked)
        for key in asked["keys"]:
            self.indexes[name].pop(key, None)
        return {}

    def _query(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        self.asked.append(dict(asked))
        name = self._named(asked)
        _demand(asked["topK"] <= TOP_MAX, f"topK is at most {TOP_MAX}")
        vector = self._numbers(name, asked["queryVector"])
        _fits(asked.get("filter", {"none": 0}), {})  # a filter that is none is refused also where there is nothing to find
        found = [
            (1 - float(vector @ numbers) / float(np.linalg.norm(vector) * np.linalg.norm(numbers)), key)
            for key, (numbers, metadata) in self.indexes[name].items()
            if "filter" not in asked or _fits(asked["filter"], metadata)
        ]
        start = int(asked.get("nextToken", "0"))
        end = min(start + PAGE, asked["topK"])
        best = sorted(found)[: asked["topK"]]
        page: dict[str, Any] = {
            "distanceMetric": "cosine",
            "vectors": [_found(key, distance, asked) for distance, key in best[start:end]],
        }
        return page | ({"nextToken": str(end)} if end < len(best) else {})

    def _named(self, asked: Mapping[str, Any]) -> str:
        """The index, by its ARN alone: by names is another way, which nobody here takes."""
        bucket, _, name = asked.get("indexArn", "").rpartition("/index/")
        if bucket != BUCKET or name not in self.indexes:
            raise Refused("NotFoundException", "The specified index could not be found.")
        return str(name)

    def _numbers(self, name: str, data: Mapping[str, Any]) -> np.ndarray[Any, Any]:
        numbers = data.get("float32", [])
        _demand(
            len(numbers) == self.dimensions[name], f"the index has {self.dimensions[name]} dimensions, and the vector {len(numbers)}"
        )
        _demand(all(math.isfinite(number) for number in numbers), "a vector's numbers are finite")
        _demand(any(numbers), "a vector of nothing but zeros has no cosine")
        return np.array(numbers, np.float32)


# --- what is refused --------------------------------------------------------------------------------------------------------------


def _demand(is_so: object, rule: str) -> None:
    if not is_so:
        raise Refused("ValidationException", rule)


def _check_shape(shape: Any, value: Any, where: str) -> None:
    """As the model has it. Required members, unknown ones, types, bounds, words and patterns."""
    if getattr(shape, "is_document_type", False):
        return
    match shape.type_name:
        case "structure":
            _demand(isinstance(value, dict), f"{where} is no structure")
            _demand(set(shape.required_members) <= value.keys(), f"{where} lacks one of {shape.required_members}")
            _demand(value.keys() <= shape.members.keys(), f"{where} has unknown members: {value.keys() - shape.members.keys()}")
            _demand(not shape.is_tagged_union or len(value) == 1, f"{where} is one of several")
            for name, each in value.items():
                _check_shape(shape.members[name], each, f"{where}.{name}")
        case "list":
            _demand(isinstance(value, list), f"{where} is no list")
            _check_bounds(shape, len(value), where)
            if shape.member.type_name == "float":  # one by one, they would take most of a test
                _demand(all(type(each) in (int, float) for each in value), f"{where} has what is no number")
            else:
                for each in value:
                    _check_shape(shape.member, each, where)
        case "string":
            _demand(isinstance(value, str), f"{where} is no text")
            _check_bounds(shape, len(value), where)
            _demand(not shape.enum or value in shape.enum, f"{where} is none of {shape.enum}")
            pattern = shape.metadata.get("pattern")
            _demand(pattern is None or re.fullmatch(pattern, value), f"{where} does not match {pattern}")
        case "integer":
            _demand(isinstance(value, int) and not isinstance(value, bool), f"{where} is no whole number")
            _check_bounds(shape, value, where)
        case "float":
            _demand(isinstance(value, int | float) and not isinstance(value, bool), f"{where} is no number")
        case "boolean":
            _demand(isinstance(value, bool), f"{where} is neither true nor false")
        case other:
            raise Refused("ValidationException", f"{where}: {other} is not understood here")


def _check_bounds(shape: Any, size: int, where: str) -> None:
    least, most = shape.metadata.get("min"), shape.metadata.get("max")
    _demand(least is None or size >= least, f"{where} is below {least}")
    _demand(most is None or size <= most, f"{where} is above {most}")


def _check_metadata(metadata: Mapping[str, Any]) -> None:
    """All keys are filterable, because no index is made with others."""
    _demand(len(metadata) <= 50, "a vector has at most 50 keys of metadata")
    _demand(len(json.dumps(metadata).encode()) <= 2048, "filterable metadata takes at most 2 KB")
    for key, value in metadata.items():
        _demand(0 < len(key) <= 63, "a key of metadata has 1 to 63 characters")
        _demand(
            all(isinstance(each, str | int | float | bool) for each in (value if isinstance(value, list) else [value])), "a plain value"
        )


_NUMBERS: Final[Mapping[str, Callable[[float, float], bool]]] = {
    "$gt": lambda value, other: value > other,
    "$gte": lambda value, other: value >= other,
    "$lt": lambda value, other: value < other,
    "$lte": lambda value, other: value <= other,
}


def _fits(condition: Any, metadata: Mapping[str, Any]) -> bool:
    _demand(isinstance(condition, dict) and condition, "a filter is an object that is not empty")
    results = []
    for key, wanted in condition.items():
        if key in ("$and", "$or"):
            _demand(isinstance(wanted, list) and wanted, f"{key} takes a list that is not empty")
            inner = [_fits(each, metadata) for each in wanted]
            results.append(all(inner) if key == "$and" else any(inner))
        else:
            _demand(not key.startswith("$"), f"{key} is no operator of a filter")
            results.append(_compares(wanted if isinstance(wanted, dict) else {"$eq": wanted}, metadata.get(key)))
    return all(results)


def _compares(operators: Mapping[str, Any], value: Any) -> bool:
    _demand(operators, "a comparison is not empty")
    values = value if isinstance(value, list) else [value]
    results = []
    for operator, other in operators.items():
        if operator in ("$in", "$nin"):
            _demand(isinstance(other, list) and other, f"{operator} takes a list that is not empty")
            results.append(any(each in other for each in values) == (operator == "$in"))
        elif operator in ("$eq", "$ne"):
            _demand(isinstance(other, str | int | float | bool), f"{operator} takes one plain value")
            results.append((other in values) == (operator == "$eq"))
        elif operator in _NUMBERS:
            _demand(isinstance(other, int | float) and not isinstance(other, bool), f"{operator} takes a number")
            results.append(isinstance(value, int | float) and _NUMBERS[operator](value, other))
        elif operator == "$exists":
            _demand(isinstance(other, bool), "$exists takes true or false")
            results.append((value is not None) == other)
        else:
            raise Refused("ValidationException", f"{operator} is no operator of a filter")
    return all(results)


def _found(key: str, distance: float, asked: Mapping[str, Any]) -> dict[str, Any]:
    return {"key": key} | ({"distance": float(np.float32(distance))} if asked.get("returnDistance") else {})


def _status(code: str) -> int:
    status: int = MODEL.shape_for(code).metadata.get("error", {}).get("httpStatusCode", 400)
    return status


class _Raw:
    """A body as botocore reads one."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    def stream(self, *_: Any, **__: Any) -> Sequence[bytes]:
        return [self._content]


def _response(request: AWSPreparedRequest, status: int, answer: Mapping[str, Any], headers: Mapping[str, str]) -> AWSResponse:
    body = json.dumps(answer).encode()
    return AWSResponse(request.url, status, HTTPHeaders.from_dict({"content-type": "application/json", **headers}), _Raw(body))
