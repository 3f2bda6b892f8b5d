"""Keys of WebSocket connections that API Gateway holds; all others are named in ``store/keys.py``."""

from typing import Final

from moorage.store.keys import SOCKET_PREFIX

FRAME_PREFIX: Final = "FRAME#"


def socket(connection_id: str) -> str:
    """Partition of a WebSocket connection that API Gateway holds, and has named."""
    return f"{SOCKET_PREFIX}{connection_id}"


def connection_of(pk: str) -> str:
    """The connection's id back from :func:`socket`."""
    return pk.removeprefix(SOCKET_PREFIX)


def socket_frame(at_ms: int, frame_id: str) -> str:
    """Sort key of a frame that waits: in the order in which the gateway took them."""
    return f"{FRAME_PREFIX}{at_ms:015d}#{frame_id}"


def socket_kept(response_id: str) -> str:
    """Sort key of an unstored response that can be continued on its connection."""
    return f"KEPT#{response_id}"


def socket_places(key_sha256: str) -> str:
    """Partition of the connections that a key holds open at API Gateway. No connection's id begins so: ``#`` is in none."""
    return f"{SOCKET_PREFIX}K#{key_sha256}"


def socket_place(number: int) -> str:
    """Sort key of one of them; numbers bound how many there are."""
    return f"PLACE#{number:04d}"
