"""Identifiers, as the OpenAI API shapes them: a prefix that names the kind, then random text.

The ids of listed records begin with the microsecond of their second. Lists are ordered by ``created_at`` and then by id
(``store/keys.py: listed``), so records of one second keep their order. A caller that makes such an id takes ``created_at`` from the
same look at the clock. Ids of earlier versions are random throughout, and stand anywhere in their second.

Ids made by clients (``msg_<uuid>``, ``fco_<uuid>``) arrive in input items and are accepted as they are; only the ids made here
have this form. Source of the prefixes and lengths: recorded live responses.
"""

import hashlib
import secrets
import string
from typing import Final

KEY_PREFIX: Final = "sk-moorage-"
"""Every API key made here begins with it, so a key can be told from a provider's."""

_BASE62: Final = string.digits + string.ascii_uppercase + string.ascii_lowercase
"""In the order in which the table compares them."""


_UNIQUE_HEX: Final = 40
"""Hex digits that a response and its items share (five of time, 140 random bits); eight more tell the items apart."""

_RESPONSE_MARK: Final = "0" * 8
_SESSION_BYTES: Final = 8


def new_id(prefix: str) -> str:
    """A fresh id such as ``conv_<48 hex digits>``; 192 random bits, so that two never meet."""
    return f"{prefix}_{secrets.token_hex(24)}"


def new_listed_id(prefix: str, now: float) -> str:
    """The same for listed objects: 172 random bits."""
    return f"{prefix}_{_microsecond(now):05x}{secrets.token_hex(24)[5:]}"


RESPONSE_PREFIX: Final = "resp_"


def new_response_id(now: float) -> str:
    """A response's id; :func:`response_of` finds it again from any of its items' ids."""
    return f"resp_{_microsecond(now):05x}{secrets.token_hex(_UNIQUE_HEX // 2)[5:]}{_RESPONSE_MARK}"


def _microsecond(now: float) -> int:
    """Of its second."""
    return int(now % 1 * 1_000_000)


def new_item_id(prefix: str, response_id: str) -> str:
    """The id of an output item. It carries its response's digits, so that an ``item_reference`` needs no index."""
    return f"{prefix}_{response_id.removeprefix('resp_')[:_UNIQUE_HEX]}{secrets.token_hex(4)}"


def mark_of_item(lane: int, index: int) -> str:
    """The mark of a response's item before it has an id: its response, and its number there. 8 hex digits."""
    return f"{lane:02x}{index:06x}"


def new_message_id(response_id: str, mark: str) -> str:
    """The id of a message between agents of a response. It follows from the mark of the item that sends it."""
    return f"amsg_{response_id.removeprefix('resp_')[:_UNIQUE_HEX]}{mark}"


def approval_id(response_id: str, output_index: int, lane: int = 0) -> str:
    """The id of the one approval of a response's call, by its index among the items of its agent; :func:`response_of` finds the
    response again."""
    return f"apr_{response_id.removeprefix('resp_')[:_UNIQUE_HEX]}{lane << 24 | output_index:08x}"


def is_approval(item_id: str) -> bool:
    return item_id.startswith("apr_")


def response_of(item_id: str) -> str | None:
    """The id of the response that an output item, or an approval, belongs to; None for ids that were not made here."""
    _, _, digits = item_id.rpartition("_")
    if len(digits) != _UNIQUE_HEX + len(_RESPONSE_MARK) or not set(digits) <= set(string.hexdigits):
        return None
    return f"resp_{digits[:_UNIQUE_HEX]}{_RESPONSE_MARK}"


def response_digits(response_id: str) -> bytes:
    """The random part of a response's id, packed: 20 bytes."""
    return bytes.fromhex(response_id.removeprefix("resp_")[:_UNIQUE_HEX])


def response_of_digits(digits: bytes) -> str:
    """The id back from :func:`response_digits`."""
    return f"resp_{digits.hex()}{_RESPONSE_MARK}"


def new_session_id(container_id: str) -> str:
    """The id of a container's session. It carries the container's digits; :func:`container_of_session` finds it again."""
    return f"csess_{container_id.removeprefix('cntr_')}{secrets.token_hex(_SESSION_BYTES)}"


def new_turn_id(number: int) -> str:
    """The id of a turn of an agent's session; :func:`turn_number` finds its record again."""
    return f"turn_{number:08x}{secrets.token_hex(20)}"


def id_within_turn(prefix: str, turn_id: str, about: str) -> str:
    """The id of a part of a turn of an agent's session.

    It follows from that part; :func:`number_of_turn` finds the number of the turn again.
    """
    digest = hashlib.sha256(f"{turn_id} {about}".encode()).hexdigest()
    return f"{prefix}_{turn_number(turn_id):08x}{digest[:_UNIQUE_HEX]}"


def number_of_turn(id_: str) -> int:
    """The number of the turn of a session that something belongs to; 0 for an id that was not made here."""
    return turn_number(f"turn_{id_.rpartition('_')[2]}")


def new_turn_item_id(prefix: str, number: int, mark: str | None = None) -> str:
    """The id of an input item of a turn of this number; :func:`turn_number` finds the number again, with its own prefix.

    It ends with the mark, if there is one.
    """
    return f"{prefix}_{number:08x}{mark or secrets.token_hex(_UNIQUE_HEX // 2)}"


def turn_item_mark(digest: str, position: int) -> str:
    """The mark of a request's item: the request by the beginning of its digest, and the item by its position there."""
    return f"{digest[: _UNIQUE_HEX - 8]}{position:08x}"


def turn_number(turn_id: str) -> int:
    """The number of a session's turn: 0 for an id that was not made here, and there is no such turn."""
    digits = turn_id.removeprefix("turn_")
    return int(digits[:8], 16) if len(digits) == 48 and set(digits) <= set(string.hexdigits) else 0


def container_of_session(session_id: str) -> str:
    """The id of the container that a session would be of: one that was not made here leads to none."""
    return f"cntr_{session_id.removeprefix('csess_')[: -2 * _SESSION_BYTES]}"


def approval_event_id(approval_id: str, asked_at: int) -> str:
    """The id of a question's event: the same for every teller, and in the order of time."""
    digits = approval_id.removeprefix("apr_")
    return f"evt_{asked_at * 1000:012x}{digits[:28]}{digits[-8:]}"


def new_call_id() -> str:
    """A tool call's id: ``call_`` and 24 base-62 characters (143 random bits)."""
    return "call_" + _base62(secrets.randbelow(62**24), 24)


def new_file_id(now: float) -> str:
    """A file's id: ``file-`` and 24 base-62 characters, four of them of time."""
    return "file-" + _base62(_microsecond(now), 4) + _base62(secrets.randbelow(62**20), 20)


def _base62(number: int, length: int) -> str:
    digits = ""
    for _ in range(length):
        number, digit = divmod(number, 62)
        digits = _BASE62[digit] + digits
    return digits


def new_webhook_endpoint_id(now_ms: int) -> str:
    """``wh_`` and 48 hex digits that begin with its time: endpoints stand in the order of their making by id."""
    return f"wh_{now_ms:012x}{secrets.token_hex(18)}"


def is_webhook_endpoint_id(text: str) -> bool:
    prefix, _, digits = text.partition("_")
    return prefix == "wh" and len(digits) == 48 and set(digits) <= set(string.hexdigits)


def new_credential_id(now: float) -> str:
    """``cred_`` and 48 hex digits that begin with its microsecond: credentials stand in the order of their making by id."""
    return f"cred_{int(now * 1_000_000):014x}{secrets.token_hex(17)}"


def event_id(response_id: str, ended_at_ms: int) -> str:
    """The id of the event of a response's end: the same for every teller, and in the order of time."""
    return f"evt_{ended_at_ms:012x}{response_id.removeprefix('resp_')[:36]}"
