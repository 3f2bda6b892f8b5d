"""Where a local stack serves, and whom it lets in there."""

import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest
from moorage.errors import SettingsConflict
from moorage.local.address import Address, LocalOriginGuard


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = Path(tmp_path_factory.mktemp("tls"))
    cert, key = folder / "cert.pem", folder / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=moorage.test", "-days", "1"]
    subprocess.run([*command, "-keyout", str(key), "-out", str(cert)], check=True, capture_output=True)
    return cert, key


def test_by_default_it_is_this_machine() -> None:
    address = Address.from_environment({})
    assert (address.host, address.port, address.warning, address.url(8080)) == ("127.0.0.1", 8080, None, "http://127.0.0.1:8080/v1")


def test_others_are_served_over_tls_with_a_warning(certificate: tuple[Path, Path]) -> None:
    environ = {"MOORAGE_HOST": "0.0.0.0", "MOORAGE_TLS_CERT": str(certificate[0]), "MOORAGE_TLS_KEY": str(certificate[1])}
    address = Address.from_environment(environ)
    assert "firewall" in str(address.warning)
    assert address.url(443) == "https://127.0.0.1:443/v1"
    assert Address.from_environment(environ | {"MOORAGE_HOST": "10.0.0.7"}).url(443) == "https://10.0.0.7:443/v1"
    assert Address.from_environment(environ | {"MOORAGE_HOST": "::1"}).warning is None


@pytest.mark.parametrize(
    ("environ", "said"),
    [
        ({"MOORAGE_HOST": "0.0.0.0"}, "takes TLS"),
        ({"MOORAGE_HOST": "10.0.0.7"}, "takes TLS"),
        ({"MOORAGE_HOST": "::"}, "takes TLS"),
        ({"MOORAGE_HOST": "example.com"}, "takes TLS"),
        ({"MOORAGE_TLS_CERT": "c.pem"}, "takes a certificate and its key"),
        ({"MOORAGE_TLS_KEY": "k.pem"}, "takes a certificate and its key"),
    ],
)
def test_what_would_serve_in_clear_is_refused(environ: dict[str, str], said: str) -> None:
    with pytest.raises(SettingsConflict, match=said):
        Address.from_environment(environ)


def test_a_certificate_that_cannot_be_used_is_refused() -> None:
    address = Address.from_environment({"MOORAGE_TLS_CERT": "/none.pem", "MOORAGE_TLS_KEY": "/none.pem"})
    with pytest.raises(SettingsConflict, match="cannot be used"):
        address.check_certificate()


@pytest.fixture
def interfaces(tmp_path: Path) -> Path:
    """``/sys/class/net`` of a container on a bridge."""
    for name in ("lo", "eth0"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "uevent").write_text(f"INTERFACE={name}\nIFINDEX=4\n")
    return tmp_path


def test_a_container_listens_at_all_of_its_addresses_and_tells_the_published_one(interfaces: Path) -> None:
    address = Address.from_environment({"MOORAGE_PUBLISHED": "127.0.0.1:9000"}, interfaces)
    assert address == Address("127.0.0.1", 9000, listens_at="0.0.0.0")
    assert (address.is_loopback, address.warning, address.url(9000)) == (True, None, "http://127.0.0.1:9000/v1")


def test_a_container_is_reached_at_addresses_that_are_not_loopback(interfaces: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with Address.from_environment({"MOORAGE_PUBLISHED": f"127.0.0.1:{port}"}, interfaces).bound() as listener:
        assert listener.getsockname() == ("0.0.0.0", port)


def test_a_container_that_others_reach_serves_over_tls(certificate: tuple[Path, Path], interfaces: Path) -> None:
    environ = {"MOORAGE_PUBLISHED": "moorage.test:443"}
    with pytest.raises(SettingsConflict, match="takes TLS"):
        Address.from_environment(environ, interfaces)
    environ |= {"MOORAGE_TLS_CERT": str(certificate[0]), "MOORAGE_TLS_KEY": str(certificate[1])}
    address = Address.from_environment(environ, interfaces)
    assert (address.is_loopback, address.url(443)) == (False, "https://moorage.test:443/v1")


ADAPTERS = {"device": "INTERFACE=eth0\n", "bridge": "DEVTYPE=bridge\n", "macvlan": "DEVTYPE=macvlan\n"}


@pytest.mark.parametrize("kind", ADAPTERS)
def test_what_has_the_network_of_its_machine_publishes_nothing(kind: str, interfaces: Path) -> None:
    (interfaces / "eth0" / "uevent").write_text(ADAPTERS[kind])
    if kind == "device":
        (interfaces / "eth0" / "device").mkdir()
    with pytest.raises(SettingsConflict, match="a container with a network of its own"):
        Address.from_environment({"MOORAGE_PUBLISHED": "127.0.0.1:8080"}, interfaces)


def test_where_no_interfaces_can_be_seen_nothing_is_published(tmp_path: Path) -> None:
    with pytest.raises(SettingsConflict, match="a container with a network of its own"):
        Address.from_environment({"MOORAGE_PUBLISHED": "127.0.0.1:8080"}, tmp_path / "none")


@pytest.mark.parametrize(
    ("environ", "said"),
    [
        ({"MOORAGE_PUBLISHED": "8080"}, "takes a host and a port"),
        ({"MOORAGE_PUBLISHED": "127.0.0.1"}, "takes a host and a port"),
        ({"MOORAGE_PUBLISHED": "127.0.0.1:0"}, "takes a host and a port"),
        ({"MOORAGE_PUBLISHED": "127.0.0.1:99999"}, "takes a host and a port"),
        ({"MOORAGE_PUBLISHED": "http://127.0.0.1:8080"}, "takes a host and a port"),
        ({"MOORAGE_PUBLISHED": "127.0.0.1:8080/v1"}, "takes a host and a port"),
        ({"MOORAGE_PUBLISHED": "127.0.0.1:8080?"}, "takes a host and a port"),
        ({"MOORAGE_PUBLISHED": "127.0.0.1:8080#v1"}, "takes a host and a port"),
        ({"MOORAGE_PUBLISHED": ":word@127.0.0.1:8080"}, "takes a host and a port"),
        ({"MOORAGE_PUBLISHED": "127.0.0.1:8080", "MOORAGE_HOST": "127.0.0.1"}, "take MOORAGE_HOST out"),
        ({"MOORAGE_PUBLISHED": "127.0.0.1:8080", "MOORAGE_PORT": "9000"}, "MOORAGE_PORT is 9000 and MOORAGE_PUBLISHED is"),
        ({"MOORAGE_PUBLISHED": "192.168.0.7:8080"}, "takes TLS"),
    ],
)
def test_what_cannot_be_published_is_refused(environ: dict[str, str], said: str, interfaces: Path) -> None:
    with pytest.raises(SettingsConflict, match=said):
        Address.from_environment(environ, interfaces)


async def answer(**headers: str) -> int:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})

    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    pairs = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    await LocalOriginGuard(app)({"type": "http", "headers": pairs}, None, send)
    return int(sent[0]["status"])


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "127.0.0.1:8080"},
        {"host": "localhost:8080"},
        {"host": "[::1]:8080"},
        {"host": "127.0.0.1", "origin": "http://localhost:3000"},
        {"host": "127.0.0.1", "sec_fetch_site": "same-origin"},
    ],
)
async def test_who_asks_from_here_is_let_in(headers: dict[str, str]) -> None:
    assert await answer(**headers) == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "evil.example:8080"},
        {"host": "127.0.0.1.evil.example"},
        {"host": ""},
        {"host": "127.0.0.1", "origin": "https://evil.example"},
        {"host": "127.0.0.1", "origin": "null"},
        {"host": "127.0.0.1", "sec_fetch_site": "cross-site"},
        {"host": "127.0.0.1", "sec_fetch_site": "same-site"},
        {"host": "[::1", "origin": "http://[::1"},
    ],
)
async def test_pages_and_rebound_names_stay_outside(headers: dict[str, str]) -> None:
    assert await answer(**headers) == 403
