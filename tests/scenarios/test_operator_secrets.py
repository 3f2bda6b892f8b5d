"""``moorage secrets``, from the operator's keyboard to the header that a host receives."""

import json
import os
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import openai
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from moorage.command_hints import typed_here
from moorage.egress.ca import leaf, new_ca

from tests.stack import Stack, outputs, say, script, shell

HOST = "api.lab.test"
VALUES = ("operator-value-one-1234", "operator-value-two-5678")


SIGN_IN = """<!doctype html><title>Sign in</title><style>input { position: absolute; left: 0; width: 300px; height: 40px }</style>
<form method=post><input name=user aria-label=User style="top: 0">
<input name=password type=password aria-label=Password style="top: 50px"><input type=submit style="top: 100px"></form>"""


@dataclass
class Host:
    port: int
    environment: dict[str, str]
    """Of a stack whose proxy knows it by name, and may reach it on this machine."""
    received: list[str] = field(default_factory=list)
    """What stood in the Authorization header of each request."""
    posted: list[str] = field(default_factory=list)
    """The bodies of its forms."""


@contextmanager
def a_host(directory: Path) -> Iterator[Host]:
    """A server with a certificate of a CA that the proxy is told to believe."""
    authority, key = new_ca(), ec.generate_private_key(ec.SECP256R1())
    (directory / "upstream-ca.pem").write_text(authority.certificate_pem)
    private = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    certificate = leaf(authority, HOST, key.public_key()).public_bytes(serialization.Encoding.PEM)
    (directory / "host.pem").write_bytes(certificate + private)
    (directory / "hosts").write_text(f"127.0.0.1 {HOST}\n")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(directory / "host.pem")

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"])).decode()
            seen.posted.append(body)
            self._say(f"<!doctype html><title>Signed in by {body}</title>")

        def do_GET(self) -> None:
            if self.path == "/sign-in":
                self._say(SIGN_IN)
                return
            seen.received.append(self.headers.get("authorization", ""))
            self.send_response(200)
            self.end_headers()
            self.wfile.write(f"you sent {seen.received[-1]}".encode())

        def _say(self, page: str) -> None:
            self.send_response(200)
            self.send_header("content-type", "text/html")
            self.end_headers()
            self.wfile.write(page.encode())

        def log_message(self, *_: Any) -> None:
            """Quiet."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        environment = {
            "MOORAGE_ALLOWED_EGRESS_DOMAINS": HOST,
            "MOORAGE_EGRESS_HOSTS": str(directory / "hosts"),
            "MOORAGE_EGRESS_UPSTREAM_CA": str(directory / "upstream-ca.pem"),
            "MOORAGE_EGRESS_ALLOWED_NETWORKS": "127.0.0.0/8",
            "MOORAGE_EGRESS_PORTS": str(server.server_address[1]),
        }
        seen = Host(server.server_address[1], environment)
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield seen
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    with a_host(tmp_path_factory.getbasetemp()) as one:
        yield one


@pytest.fixture(scope="module")
def lab(host: Host, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A stack whose proxy knows the host by name, and may reach it on this machine."""
    running = Stack(tmp_path_factory.mktemp("operator"), host.environment).start()
    yield running
    assert running.stop() == 0


def moorage(stack: Stack, *arguments: str, said: str = "") -> tuple[int, str, str]:
    """One command, with ``said`` on its standard input."""
    done = subprocess.run(
        [sys.executable, "-m", "moorage.cli.main", "secrets", *arguments],
        env={"PATH": os.environ["PATH"], "MOORAGE_STATE_DIR": str(stack.state_dir)},
        input=said,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


def asks_with_it(stack: Stack, host: Host, previous: str | None = None) -> tuple[str, str]:
    """A response whose command sends the secret's placeholder; its id, and what the command heard."""
    policy = {"type": "allowlist", "allowed_domains": [HOST], "domain_secrets": [{"domain": HOST, "name": "API_TOKEN"}]}
    tools: Any = [{"type": "shell", "environment": {"type": "container_auto", "network_policy": policy}}]
    fetch = f'curl -sS -H "Authorization: Bearer $API_TOKEN" https://{HOST}:{host.port}/'
    response = stack.client().responses.create(
        model="demo", input=script(shell(fetch), say("x")), tools=tools, previous_response_id=previous
    )
    ((stdout, stderr, _),) = outputs(response.output)[0]
    assert stderr == ""
    return response.id, stdout


def test_a_secret_is_set_used_replaced_and_deleted_and_never_shown(lab: Stack, host: Host) -> None:
    first, second = VALUES
    assert moorage(lab, "set", "API_TOKEN", "--domain", HOST, "--tenant", "default", said=f"{first}\n") == (
        0,
        f"API_TOKEN is set for {HOST}.\n",
        "",
    )
    code, listed, errors = moorage(lab, "list", "--json")
    (row,) = map(json.loads, listed.splitlines())
    assert (code, errors, row.pop("set_at") > 0, row) == (
        0,
        "",
        True,
        {"name": "API_TOKEN", "domain": HOST, "tenants": ["default"]},
    )
    response, heard = asks_with_it(lab, host)
    assert (host.received, heard) == ([f"Bearer {first}"], f"you sent Bearer {'*' * len(first)}")

    assert moorage(lab, "set", "API_TOKEN", "--domain", HOST, said=second)[0] == 0
    container_goes_on, heard = asks_with_it(lab, host, response)
    # The proxy believes what it read for two seconds.
    while host.received[-1] == f"Bearer {first}":
        container_goes_on, heard = asks_with_it(lab, host, container_goes_on)
    assert (host.received[-1], heard) == (f"Bearer {second}", f"you sent Bearer {'*' * len(second)}")

    assert moorage(lab, "delete", "API_TOKEN") == (0, "API_TOKEN is deleted.\n", "")
    with pytest.raises(openai.BadRequestError) as refused:
        asks_with_it(lab, host)
    assert refused.value.code == "secret_not_found"
    assert moorage(lab, "delete", "API_TOKEN") == (
        1,
        "",
        typed_here("moorage: There is no secret 'API_TOKEN'. 'moorage secrets list' shows them.\n"),
    )
    assert moorage(lab, "list")[1] == "none\n"


def test_another_tenants_secret_looks_like_none(lab: Stack, host: Host) -> None:
    assert moorage(lab, "set", "API_TOKEN", "--domain", HOST, "--tenant", "acme", said=VALUES[0])[0] == 0
    with pytest.raises(openai.BadRequestError) as refused:
        asks_with_it(lab, host)
    assert refused.value.code == "secret_not_found"
    assert moorage(lab, "delete", "API_TOKEN")[0] == 0


WRONG = {
    "a name that the container needs": (["set", "PATH", "--domain", HOST], "v-12345678", "a variable that the container itself needs"),
    "a wildcard": (["set", "API_TOKEN", "--domain", "*.lab.test"], "v-12345678", "one full domain name, without a wildcard"),
    "no value": (["set", "API_TOKEN", "--domain", HOST], "\n", "string too short"),
    "two lines": (["set", "API_TOKEN", "--domain", HOST], "v-1234\n5678\n", "printable ASCII characters only"),
}


@pytest.mark.parametrize(("arguments", "said", "why"), WRONG.values(), ids=WRONG.keys())
def test_what_no_request_could_use_is_refused_without_a_trace(lab: Stack, arguments: list[str], said: str, why: str) -> None:
    code, out, errors = moorage(lab, *arguments, said=said)
    assert (code, out) == (1, "")
    assert why in errors
    assert "1234" not in errors
    assert moorage(lab, "list")[1].count("\n") == 1
