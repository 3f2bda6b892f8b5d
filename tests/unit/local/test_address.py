"""Where a local stack serves, and whom it lets in there."""

import subprocess
from pathlib import Path
from typing import Any

import pytest
from moorage.errors import SettingsConflict
from moorage.local.address import Address, FromHere


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
        ({"MOORAGE_TLS_CERT": "/none.pem", "MOORAGE_TLS_KEY": "/none.pem"}, "cannot be used"),
    ],
)
def test_what_would_serve_in_clear_is_refused(environ: dict[str, str], said: str) -> None:
    with pytest.raises(SettingsConflict, match=said):
        Address.from_environment(environ)


async def answer(**headers: str) -> int:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})

    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    pairs = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    await FromHere(app)({"type": "http", "headers": pairs}, None, send)
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
