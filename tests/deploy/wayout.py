"""The egress proxy of a deployed stack, and the hosts that it reaches, as processes of this machine.

The emulator starts the task of the proxy's service as the image's own command does, on an address of its own, by which sandboxes know
the proxy's name. Behind it is a folder instead of the internet: a name with its address, the CA of its host, and the port that it
listens on (:class:`Internet`).
"""

import os
import ssl
import subprocess
import tempfile
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from moorage.egress.ca import leaf, new_ca

ROOT: Final = Path(__file__).resolve().parents[2]
PYTHON: Final = ROOT / ".venv-egress" / "bin" / "python"
VARIABLE: Final = "EMULATED_INTERNET"
"""Of the emulator: the folder."""

ANSWER: Final = b"from the host"

_NAME: Final = "proxy.moorage.internal"
_PORT: Final = 3128


def hosts_of_sandboxes(address: str) -> Path:
    """What ``/etc/hosts`` is in sandboxes: there the private zone is known."""
    with tempfile.NamedTemporaryFile("w", prefix="moorage-hosts-", delete=False) as file:
        file.write(f"127.0.0.1 localhost\n{address} {_NAME}\n")
    os.chmod(file.name, 0o644)  # sandboxes are another user
    return Path(file.name)


def started(address: str, told: Mapping[str, str], endpoint: str) -> "subprocess.Popen[bytes]":
    """The proxy, told what its task definition tells it, with the rights of an administrator."""
    internet = Path(os.environ[VARIABLE])
    return subprocess.Popen(
        [
            *(str(PYTHON), "-m", "functions.egress_proxy.main", "--listen", f"{address}:{_PORT}"),
            *("--hosts", str(internet / "hosts"), "--upstream-ca", str(internet / "ca.pem")),
        ],
        cwd=ROOT,
        env={
            "PATH": os.environ["PATH"],
            "PYTHONPATH": f"{ROOT}:{ROOT / 'layers/core/python'}",
            **told,
            "MOORAGE_EGRESS_PORTS": (internet / "port").read_text(),
            "MOORAGE_EGRESS_ALLOWED_NETWORKS": "127.0.0.0/8",
            "AWS_ENDPOINT_URL": endpoint,
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_DEFAULT_REGION": "us-east-1",
        },
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Host)
        self.heard: list[str] = []


class _Host(BaseHTTPRequestHandler):
    server: _Server

    def do_GET(self) -> None:
        self.server.heard.append(self.headers.get("authorization", "nothing"))
        self.send_response(200)
        self.send_header("content-length", str(len(ANSWER)))
        self.end_headers()
        self.wfile.write(ANSWER)

    def log_message(self, format: str, *args: Any) -> None:
        """Nobody reads it."""


@dataclass(frozen=True)
class Internet:
    """One host, and the folder that tells a proxy of it."""

    folder: Path
    port: int
    heard: list[str]
    """The authorization of each request."""
    _server: _Server

    @classmethod
    def of(cls, folder: Path, host: str) -> "Internet":
        authority, key = new_ca(), ec.generate_private_key(ec.SECP256R1())
        private = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        certificate = leaf(authority, host, key.public_key()).public_bytes(serialization.Encoding.PEM)
        (folder / "host.pem").write_bytes(certificate + private)
        (folder / "ca.pem").write_bytes(authority.certificate.public_bytes(serialization.Encoding.PEM))
        server = _Server()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(folder / "host.pem")
        server.socket = context.wrap_socket(server.socket, server_side=True)
        port = server.server_address[1]
        (folder / "hosts").write_text(f"127.0.0.1 {host}\n")
        (folder / "port").write_text(str(port))
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        return cls(folder, port, server.heard, server)

    def end(self) -> None:
        self._server.shutdown()
        self._server.server_close()
