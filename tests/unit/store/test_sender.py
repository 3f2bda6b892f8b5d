"""The table's client against a server that answers as it is told, byte by byte."""

import json
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError, ConnectionClosedError, EndpointConnectionError, ReadTimeoutError, SSLError
from moorage import limits
from moorage.net.sender import sends_directly

from tests.tls import certificate

CLOSES = b""
"""In the place of an answer: the connection is closed without one."""


def answer(body: str, *, status: str = "200 OK", fields: str = "") -> bytes:
    head = f"HTTP/1.1 {status}\r\nContent-Type: application/x-amz-json-1.0\r\nx-amzn-RequestId: R1\r\n{fields}"
    return f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode()


def chunked(*pieces: str) -> bytes:
    body = "".join(f"{len(piece):x}\r\n{piece}\r\n" for piece in (*pieces, ""))
    return f"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{body}".encode()


FOUND = answer('{"Item": {"PK": {"S": "a"}}}')


@dataclass
class Server:
    """Gives the next answer to each request, whichever connection it comes by; None keeps silent."""

    answers: list[bytes | None]
    requests: list[tuple[int, dict[str, str], Any]] = field(default_factory=list)
    """Number of the connection, headers, JSON body."""
    _socket: socket.socket = field(default_factory=lambda: socket.create_server(("127.0.0.1", 0)))
    _connections: list[socket.socket] = field(default_factory=list)
    tls: ssl.SSLContext | None = None
    url: str = ""

    def __post_init__(self) -> None:
        scheme = "http" if self.tls is None else "https"
        self.url = f"{scheme}://127.0.0.1:{self._socket.getsockname()[1]}"

    def serve(self) -> None:
        with self._socket:
            while True:
                try:
                    connection, _ = self._socket.accept()
                except OSError:
                    return
                self._connections.append(connection)
                threading.Thread(target=self._talk, args=(connection, len(self._connections)), daemon=True).start()

    def _talk(self, connection: socket.socket, number: int) -> None:
        if self.tls is not None:
            try:
                connection = self.tls.wrap_socket(connection, server_side=True)
            except OSError:  # The client does not know the certificate.
                connection.close()
                return
        with connection, connection.makefile("rb") as lines:
            while lines.readline():
                headers = {}
                while line := lines.readline().decode().strip():
                    name, _, value = line.partition(": ")
                    headers[name.lower()] = value
                self.requests.append((number, headers, json.loads(lines.read(int(headers["content-length"])))))
                said = self.answers.pop(0)
                if said == CLOSES:
                    return
                if said is not None:
                    connection.sendall(said)
                    if b"connection: close" in said.lower():
                        return

    def hang_up(self) -> None:
        """End every connection, as a server does that has waited long enough."""
        for connection in self._connections:
            connection.shutdown(socket.SHUT_RDWR)

    def stop(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        for connection in self._connections:
            connection.close()


@contextmanager
def serving(*answers: bytes | None, tls: ssl.SSLContext | None = None) -> Iterator[Server]:
    server = Server(list(answers), tls=tls)
    thread = threading.Thread(target=server.serve)
    thread.start()
    try:
        yield server
    finally:
        server.stop()
        thread.join()


def client(url: str, *, attempts: int = 1, read_seconds: float = 5, clock: Callable[[], float] = time.time) -> Any:
    session: Any = boto3.Session(aws_access_key_id="a", aws_secret_access_key="b", region_name="us-east-1")
    config = Config(retries={"mode": "standard", "total_max_attempts": attempts}, connect_timeout=1, read_timeout=read_seconds)
    return sends_directly(session.client("dynamodb", endpoint_url=url, config=config), read_seconds=read_seconds, clock=clock)


def get(asked: Any) -> Any:
    return asked.get_item(TableName="t", Key={"PK": {"S": "ä"}})["Item"]


def test_a_request_arrives_whole_and_signed_and_its_answer_is_understood() -> None:
    with serving(FOUND) as server:
        assert get(client(server.url)) == {"PK": {"S": "a"}}
    number, headers, body = server.requests[0]
    assert (number, body) == (1, {"TableName": "t", "Key": {"PK": {"S": "ä"}}})
    assert headers["host"] == server.url.removeprefix("http://")
    assert headers["x-amz-target"] == "DynamoDB_20120810.GetItem"
    assert headers["authorization"].startswith("AWS4-HMAC-SHA256 Credential=a/")


def test_requests_follow_each_other_on_one_connection() -> None:
    with serving(FOUND, chunked('{"Item": {"PK": ', '{"S": "b"}}}'), FOUND) as server:
        asked = client(server.url)
        assert [get(asked)["PK"]["S"] for _ in range(3)] == ["a", "b", "a"]
    assert [number for number, _, _ in server.requests] == [1, 1, 1]


def test_a_connection_that_its_server_gave_up_is_not_used_again() -> None:
    with serving(FOUND, answer('{"Item": {}}', fields="Connection: close\r\n"), FOUND) as server:
        asked = client(server.url)
        get(asked)
        server.hang_up()
        assert get(asked) == {}
        get(asked)
    assert [number for number, _, _ in server.requests] == [1, 2, 3]


def test_a_connection_that_has_rested_for_long_is_not_used_again() -> None:
    now = [1_000.0]
    with serving(FOUND, FOUND, FOUND) as server:
        asked = client(server.url, clock=lambda: now[0])
        get(asked)
        now[0] += limits.TABLE_IDLE_SECONDS
        get(asked)
        now[0] += limits.TABLE_IDLE_SECONDS + 1  # such as a function that was frozen meanwhile
        get(asked)
    assert [number for number, _, _ in server.requests] == [1, 1, 2]


def test_an_error_is_botocores_own() -> None:
    refusal = answer('{"__type": "com.amazonaws#ConditionalCheckFailedException"}', status="400 Bad Request")
    with serving(refusal) as server, pytest.raises(ClientError) as caught:
        get(client(server.url))
    assert caught.value.response["Error"]["Code"] == "ConditionalCheckFailedException"
    assert caught.value.response["ResponseMetadata"]["RequestId"] == "R1"


@pytest.mark.parametrize(
    "trouble",
    [
        answer('{"__type": "InternalServerError"}', status="500 Internal Server Error"),
        CLOSES,
        b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\nConnection: close\r\n\r\n{}",
        b"nonsense\r\n\r\n",
    ],
    ids=["a failing server", "a connection that is lost", "half an answer", "no HTTP"],
)
def test_what_may_pass_is_asked_again(trouble: bytes) -> None:
    with serving(trouble, FOUND) as server:
        assert get(client(server.url, attempts=2)) == {"PK": {"S": "a"}}
    assert len(server.requests) == 2


def test_a_lost_connection_and_a_silent_server_are_told_apart() -> None:
    with serving(CLOSES) as server, pytest.raises(ConnectionClosedError):
        get(client(server.url))
    with serving(None) as server, pytest.raises(ReadTimeoutError):
        get(client(server.url, read_seconds=0.1))


def test_a_server_that_cannot_be_reached_is_named_by_botocore() -> None:
    with serving() as server:
        pass
    with pytest.raises(EndpointConnectionError, match=server.url):
        get(client(server.url))


def test_threads_do_not_share_a_connection() -> None:
    with serving(*[FOUND] * 40) as server:
        asked = client(server.url)
        found: list[Any] = []
        threads = [threading.Thread(target=lambda: found.extend(get(asked)["PK"]["S"] for _ in range(10))) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert found == ["a"] * 40


def test_tls_is_spoken_over_kept_connections_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tls = certificate(tmp_path, "127.0.0.1")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "certificate.pem"))
    with serving(*[FOUND] * 3, tls=tls) as server:
        asked = client(server.url)
        assert [get(asked)["PK"]["S"] for _ in range(3)] == ["a"] * 3
    assert [number for number, _, _ in server.requests] == [1, 1, 1]


@pytest.mark.parametrize("name", ["127.0.0.1", "elsewhere"], ids=["an unknown certificate", "another host's"])
def test_a_server_that_is_not_who_it_should_be_gets_no_request(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tls = certificate(tmp_path, name)
    if name == "elsewhere":
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "certificate.pem"))
    with serving(FOUND, tls=tls) as server, pytest.raises(SSLError, match="certificate verify failed"):
        get(client(server.url))
    assert server.requests == []


def test_an_authority_that_only_botocore_was_told_of_is_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tls = certificate(tmp_path, "127.0.0.1")
    monkeypatch.setenv("AWS_CA_BUNDLE", str(tmp_path / "certificate.pem"))
    with serving(FOUND, FOUND, tls=tls) as server:
        asked = client(server.url)
        assert [get(asked)["PK"]["S"] for _ in range(2)] == ["a", "a"]


def test_a_proxy_of_the_environment_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(FOUND) as proxy:
        monkeypatch.setenv("http_proxy", proxy.url)
        assert get(client("http://dynamodb.example.com")) == {"PK": {"S": "a"}}
    assert proxy.requests[0][1]["host"] == "dynamodb.example.com"
