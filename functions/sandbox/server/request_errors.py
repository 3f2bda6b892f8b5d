from __future__ import annotations

from typing import Any, Dict


class RequestError(Exception):
    """An answer with an error status: ``{"error": {"code", "message"}}``."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.body = {"error": {"code": code, "message": message}}


def field(body: Dict[str, Any], name: str, kind: type, default: Any = None) -> Any:
    value = body.get(name, default)
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise RequestError(400, "invalid_request", f"'{name}' must be of type {kind.__name__}.")
    return value


def no_such_file(path: str) -> RequestError:
    return RequestError(404, "no_such_file", f"There is no regular file '{path}'.")


def disk_full(reason: str = "The disk of the container is full.") -> RequestError:
    return RequestError(507, "disk_full", reason)
