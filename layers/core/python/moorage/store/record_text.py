"""A record as JSON text, and back: the form of one machine.

Two things are not JSON. Bytes are ``{"\\0B": base64}``, and integers of more than 64 bits ``{"\\0N": digits}``. A name in a map that
begins with ``\\0`` itself gets another one, so that it is neither.
"""

import base64
import binascii
import math
from collections.abc import Collection
from typing import Any, Final

import orjson

from moorage.store.writes import Record

_MARK: Final = "\0"
_BYTES: Final = "\0B"
_NUMBER: Final = "\0N"
_MARK_IN_TEXT: Final = b'"\\u0000'
_HOLDS_MORE: Final = (dict, list)
_PLAIN: Final = orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME


def dump_record(record: Record) -> bytes:
    """Raises ``TypeError`` for a value that no table holds, and ``ValueError`` for a number that is none."""
    bodies = list[bytes]()

    def bytes_alone(value: Any) -> dict[str, str]:
        if type(value) is not bytes:
            _refuse(value)
        bodies.append(value)
        return {_BYTES: base64.b64encode(value).decode()}

    try:
        text = orjson.dumps(record, bytes_alone, _PLAIN)
    except TypeError:  # A long integer, or nothing that can be kept: the slow way finds out.
        return orjson.dumps(_written(record))
    if b"null" in text:
        check_numbers(record)
    return orjson.dumps(_written(record)) if text.count(_MARK_IN_TEXT) > len(bodies) else text


def load_record(text: bytes, without: Collection[str] = ()) -> Record:
    """``without`` are names of attributes, which must not begin with ``\\0``."""
    record: Record = orjson.loads(text)
    for name in without:
        record.pop(name, None)
    return _read(record) if _MARK_IN_TEXT in text else record


def check_numbers(value: Any) -> None:
    """Raises ``ValueError`` for infinity and for what is not a number."""
    match value:
        case float():
            if not math.isfinite(value):
                raise ValueError(f"a table does not hold the number {value}")
        case dict():
            for each in value.values():
                if each is not None and type(each) is not str:
                    check_numbers(each)
        case list() | tuple():
            for each in value:
                if each is not None and type(each) is not str:
                    check_numbers(each)
        case _:
            pass


def _refuse(value: Any) -> Any:
    raise TypeError(f"a table does not hold a {type(value).__name__}")


def _written(value: Any) -> Any:
    match value:
        case str() | bool() | None:
            return value
        case int():
            return value if -(2**63) <= value < 2**63 else {_NUMBER: str(value)}
        case float():
            check_numbers(value)
            return value
        case bytes():
            return {_BYTES: base64.b64encode(value).decode()}
        case list() | tuple():
            return [_written(each) for each in value]
        case dict():
            return {_MARK + name if name.startswith(_MARK) else name: _written(each) for name, each in value.items()}
        case _:
            return _refuse(value)


def _read(value: Any) -> Any:
    """Written without patterns and calls for what stays as it is: a chain reads four hundred records for one request."""
    kind = type(value)
    if kind is dict:
        if len(value) == 1:
            ((name, inner),) = value.items()
            if name == _BYTES:
                return binascii.a2b_base64(inner)
            if name == _NUMBER:
                return int(inner)
        return {
            name[1:] if name[:1] == _MARK else name: _read(inner) if type(inner) in _HOLDS_MORE else inner
            for name, inner in value.items()
        }
    return [_read(each) for each in value] if kind is list else value
