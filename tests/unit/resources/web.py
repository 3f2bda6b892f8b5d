"""A small web server on 127.0.0.1 that writes down what it was asked, with and without TLS."""

import asyncio
import datetime
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


@dataclass
class Web:
    """``pages`` maps paths to whole HTTP answers."""

    pages: dict[str, bytes] = field(default_factory=dict)
    asked: list[tuple[str, str]] = field(default_factory=list)
    """Path and ``Host`` of every request."""
    names: list[str | None] = field(default_factory=list)
    """SNI of every TLS connection."""
    port: int = 0

    def page(self, path: str, body: bytes, *headers: str, status: str = "200 OK") -> None:
        lines = [f"HTTP/1.1 {status}", f"content-length: {len(body)}", "connection: close", *headers, "", ""]
        self.pages[path] = "\r\n".join(lines).encode() + body

    def redirect(self, path: str, location: str) -> None:
        self.page(path, b"", f"location: {location}", status="302 Found")


@asynccontextmanager
async def serving(web: Web, context: ssl.SSLContext | None = None) -> AsyncIterator[Web]:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            path = head.split(" ")[1]
            host = next(line[6:] for line in head.split("\r\n") if line.lower().startswith("host: "))
            web.asked.append((path, host))
            writer.write(web.pages.get(path, b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"))
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    if context is not None:
        context.sni_callback = lambda _socket, name, _context: web.names.append(name)
    server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context)
    web.port = server.sockets[0].getsockname()[1]
    async with server:
        yield web


def certificate(directory: Path, name: str) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """A server's and a client's TLS context for one self-signed name."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    signed = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    path = directory / "server.pem"
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    path.write_bytes(private + signed.public_bytes(pem))
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(path)
    return server, ssl.create_default_context(cadata=signed.public_bytes(pem).decode())
