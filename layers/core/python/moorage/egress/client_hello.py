"""The first message of a TLS connection, read without opening it: which server does it name?

Strict if a lenient reader could be fooled: the message must be a ClientHello from its first byte, every length must be exact, an
extension may occur once, and the server name list must hold one DNS name. RFC 8446 sections 4.1.2 and 5.1, RFC 6066 section 3.
Encrypted Client Hello (RFC 9849, extension 0xfe0d) hides the true name behind another one; it is only reported here.
"""

import struct
from typing import Final

from moorage import limits
from moorage.dataclass import dataclass

_HANDSHAKE: Final = 22
_CLIENT_HELLO: Final = 1
_SERVER_NAME: Final = 0
_ENCRYPTED_CLIENT_HELLO: Final = 0xFE0D
_RECORD_BYTES_MAX: Final = 1 << 14


class NotTls(ValueError):
    """These bytes begin no ClientHello, or a broken one."""


@dataclass(frozen=True, slots=True)
class ClientHello:
    sni: str
    """The server name as sent, empty if none was."""
    has_encrypted_hello: bool


def looks_like_tls(data: bytes) -> bool:
    """Could this be the beginning of a ClientHello? (One byte may be enough to say no.)"""
    return data[:1] == b"\x16" and data[1:2] in (b"", b"\x03")


def read_client_hello(data: bytes) -> ClientHello | None:
    """The ClientHello that ``data`` begins with, None if more bytes are needed. Raises :class:`NotTls`."""
    if not looks_like_tls(data):
        raise NotTls("not a TLS handshake record")
    message = _handshake(data)
    if message is None:
        if len(data) > limits.EGRESS_HELLO_BYTES_MAX:
            raise NotTls("the ClientHello is too long")
        return None
    try:
        return _parse(message)
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise NotTls("the ClientHello is malformed") from error


def _handshake(data: bytes) -> bytes | None:
    """The first handshake message, put together from its records; None while it is incomplete."""
    message, offset = b"", 0
    while len(message) < 4 or len(message) < 4 + int.from_bytes(message[1:4], "big"):
        if message and message[0] != _CLIENT_HELLO:
            raise NotTls("not a ClientHello")
        if len(data) < offset + 5:
            return None
        kind, major, _, length = struct.unpack_from("!BBBH", data, offset)
        if kind != _HANDSHAKE or major != 3 or not 0 < length <= _RECORD_BYTES_MAX:
            raise NotTls("not a TLS handshake record")
        if len(data) < offset + 5 + length:
            return None
        message += data[offset + 5 : offset + 5 + length]
        offset += 5 + length
    if message[0] != _CLIENT_HELLO or len(message) != 4 + int.from_bytes(message[1:4], "big"):
        raise NotTls("something follows the ClientHello in its record")
    return message[4:]


def _parse(body: bytes) -> ClientHello:
    reader = _HelloReader(body)
    reader.take(2 + 32)  # legacy_version, random
    reader.vector(1)  # legacy_session_id
    reader.vector(2)  # cipher_suites
    reader.vector(1)  # legacy_compression_methods
    extensions: dict[int, bytes] = {}
    rest = _HelloReader(reader.vector(2) if reader.is_left else b"")
    if reader.is_left:
        raise NotTls("the ClientHello is malformed")
    while rest.is_left:
        (kind,) = struct.unpack("!H", rest.take(2))
        if kind in extensions:
            raise NotTls("an extension occurs twice")
        extensions[kind] = rest.vector(2)
    name = _server_name(extensions[_SERVER_NAME]) if _SERVER_NAME in extensions else ""
    return ClientHello(name, _ENCRYPTED_CLIENT_HELLO in extensions)


def _server_name(extension: bytes) -> str:
    reader = _HelloReader(extension)
    names = _HelloReader(reader.vector(2))
    if names.take(1) != b"\x00":
        raise NotTls("the server name is no DNS name")
    name = names.vector(2).decode("ascii")
    if names.is_left or reader.is_left or not name:
        raise NotTls("the server name list must hold one name")
    return name


class _HelloReader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def is_left(self) -> bool:
        return self._at < len(self._data)

    def take(self, count: int) -> bytes:
        if self._at + count > len(self._data):
            raise IndexError("a length points beyond the end")
        self._at += count
        return self._data[self._at - count : self._at]

    def vector(self, length_bytes: int) -> bytes:
        return self.take(int.from_bytes(self.take(length_bytes), "big"))
