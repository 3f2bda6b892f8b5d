"""Loaded by every Python process of the stack under measurement: notes each AWS request in the file that AWS_REQUESTS_FILE names.

What the reaper looks for every few seconds anyway is left out: the lists of the index that are no tenant's.

Units are computed from the items as DynamoDB does: a write costs a unit for each KB, another for the index entry of an item that has
one; a strongly consistent read costs a unit for each 4 KB, of all items of a query together.
"""

import json
import os
from typing import Any

_PATH = os.environ.get("AWS_REQUESTS_FILE")


def _size(value: Any) -> int:
    """Bytes of an item in DynamoDB's typed form."""
    match value:
        case str():
            return len(value.encode())
        case bytes():
            return len(value)
        case dict():
            return sum(_size(key) + _size(one) for key, one in value.items())
        case list():
            return sum(map(_size, value))
        case _:
            return 1


def _writes(item: Any) -> int:
    units = max(1, -(-_size(item) // 1024))
    return units + (1 if "GSI1PK" in item else 0)


def _reads(items: Any) -> int:
    return max(1, -(-sum(map(_size, items)) // 4096))


def _units(operation: str, request: Any, answer: Any) -> tuple[int, int]:
    """Read units and write units."""
    match operation:
        case "GetItem":
            return _reads([answer.get("Item", {})]), 0
        case "Query":
            return _reads(answer["Items"]), 0
        case "BatchGetItem":
            return sum(_reads([item]) for items in answer["Responses"].values() for item in items), 0
        case "PutItem":
            return 0, _writes(request["Item"])
        case "UpdateItem":
            return 0, _writes(answer.get("Attributes", {}))
        case "DeleteItem":
            return 0, 1
        case "BatchWriteItem":
            puts = [one for requests in request["RequestItems"].values() for one in requests]
            return 0, sum(_writes(one["PutRequest"]["Item"]) if "PutRequest" in one else 1 for one in puts)
        case _:
            return 0, 0


def _place(request: Any) -> str:
    """The partition that is written, the first one of several."""
    for requests in (request.get("RequestItems") or {}).values():
        request = requests[0].get("PutRequest", {}) if isinstance(requests, list) else {}
    item = request.get("Item") or request.get("Key") or {}
    return str(item["PK"]["S"]) if isinstance(item, dict) and "PK" in item else ""


def _is_a_sweep(operation: str, request: Any) -> bool:
    return operation == "Query" and "IndexName" in request and not request["ExpressionAttributeValues"][":pk"]["S"].startswith("T#")


def _install(path: str) -> None:
    from botocore.client import BaseClient

    original = BaseClient._make_api_call  # type: ignore[attr-defined]

    def counted(self: Any, operation: str, request: Any) -> Any:
        service = self.meta.service_model.service_name
        if _is_a_sweep(operation, request):
            return original(self, operation, request)
        answer: Any = {}
        try:
            answer = original(self, operation, request)
        finally:
            reads, writes = _units(operation, request, answer) if answer else (0, 1)
            line = json.dumps([service, operation, reads, writes, _place(request)]) + "\n"
            descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            os.write(descriptor, line.encode())
            os.close(descriptor)
        return answer

    BaseClient._make_api_call = counted  # type: ignore[attr-defined]


if _PATH:
    _install(_PATH)
