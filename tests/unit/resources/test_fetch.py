import asyncio
import ssl
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from moorage.egress.fetch import Fetcher, FetchError, FetchRefused
from moorage.settings import Settings

from tests.unit.resources.web import Web, certificate, serving

LOOPBACK = ("127.0.0.0/8",)


@pytest.fixture
async def web() -> AsyncIterator[Web]:
    async with serving(Web()) as served:
        yield served


def fetcher(web: Web, *, names: dict[str, list[str]] | None = None, tls: ssl.SSLContext | None = None) -> Fetcher:
    """One that may reach the test's server, and knows these names."""
    known = {"files.example": ["127.0.0.1"]} | (names or {})

    async def resolve(host: str, port: int) -> list[str]:
        return known[host]

    return Fetcher(allowed_networks=LOOPBACK, ports=(web.port,), addresses=resolve, tls=lambda: tls or ssl.create_default_context())


async def fetched(source: Fetcher, url: str, bytes_max: int = 1_000_000) -> bytes:
    async with source.open(url, bytes_max=bytes_max) as download:
        return b"".join([chunk async for chunk in download.chunks])


async def refusal(source: Fetcher, url: str, bytes_max: int = 1_000_000) -> str:
    with pytest.raises(FetchError) as caught:
        await fetched(source, url, bytes_max)
    return str(caught.value)


async def test_a_page_comes_with_its_name_and_type(web: Web) -> None:
    web.page("/a/my%20data.csv?x=1", b"1,2", "content-type: text/csv; charset=utf-8")
    async with fetcher(web).open(f"http://files.example:{web.port}/a/my%20data.csv?x=1#part", bytes_max=10) as download:
        assert (download.filename, download.media_type) == ("my data.csv", "text/csv")
        assert b"".join([chunk async for chunk in download.chunks]) == b"1,2"
    assert web.asked == [("/a/my%20data.csv?x=1", f"files.example:{web.port}")]


async def test_tls_is_checked_against_the_name_although_the_address_is_connected_to(tmp_path: Path) -> None:
    server, client = certificate(tmp_path, "files.example")
    async with serving(Web(), server) as web:
        web.page("/", b"secret")
        names = {"other.example": ["127.0.0.1"]}
        assert await fetched(fetcher(web, tls=client), f"https://files.example:{web.port}/") == b"secret"
        assert "cannot be reached" in await refusal(fetcher(web, names=names, tls=client), f"https://other.example:{web.port}/")
        assert web.names == ["files.example", "other.example"]
        assert web.asked == [("/", f"files.example:{web.port}")]


@pytest.mark.parametrize(
    ("url", "reason"),
    {
        "another scheme": ("ftp://files.example/x", "only http and https"),
        "a file": ("file:///etc/passwd", "only http and https"),
        "no host": ("http:///x", "names no host"),
        "credentials": ("http://user:pass@files.example/x", "user name or password"),
        "another port": ("http://files.example:22/x", "port 22 is not allowed"),
        "nonsense": ("http://[::1", "not a valid URL"),
    }.values(),
    ids=str,
)
async def test_a_url_that_is_no_public_web_address_is_refused(web: Web, url: str, reason: str) -> None:
    assert reason in await refusal(fetcher(web), url)
    assert web.asked == []


@pytest.mark.parametrize(
    "addresses",
    [
        ["127.0.0.1"],
        ["10.0.0.1"],
        ["172.16.5.5"],
        ["192.168.1.1"],
        ["169.254.169.254"],
        ["169.254.170.2"],
        ["100.64.0.1"],
        ["0.0.0.0"],
        ["224.0.0.1"],
        ["::1"],
        ["::"],
        ["fe80::1"],
        ["fd00:ec2::254"],
        ["::ffff:127.0.0.1"],
        ["64:ff9b::7f00:1"],
        ["2002:7f00:1::"],
        ["93.184.216.34", "127.0.0.1"],
        [],
    ],
    ids=str,
)
async def test_a_name_with_an_address_that_is_not_public_is_refused(addresses: list[str]) -> None:
    async def resolve(host: str, port: int) -> list[str]:
        return addresses

    expected = "not a public address" if addresses else "has no address"
    assert expected in await refusal(Fetcher(addresses=resolve), "http://files.example/x")


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]", "[::ffff:7f00:1]", "2130706433", "0x7f000001", "0177.0.0.1", "localhost"])
async def test_an_address_written_in_any_way_is_judged_as_what_it_is(host: str) -> None:
    message = await refusal(Fetcher(), f"http://{host}/x")
    assert "not a public address" in message or "has no address" in message or "not a valid URL" in message


async def test_a_name_is_resolved_once_for_each_hop(web: Web) -> None:
    """A server that answers differently the second time (DNS rebinding) is never asked a second time."""
    lookups: list[str] = []

    async def resolve(host: str, port: int) -> list[str]:
        lookups.append(host)
        return ["127.0.0.1"] if len(lookups) == 1 else ["169.254.169.254"]

    web.page("/", b"ok")
    source = Fetcher(allowed_networks=LOOPBACK, ports=(web.port,), addresses=resolve)
    assert await fetched(source, f"http://files.example:{web.port}/") == b"ok"
    assert lookups == ["files.example"]


@pytest.mark.parametrize(
    ("location", "reason"),
    [
        ("http://inside.example:{port}/x", "not a public address"),
        ("http://169.254.169.254/latest/meta-data/", "port 80 is not allowed"),
        ("file:///etc/passwd", "only http and https"),
        ("http://files.example:22/", "port 22"),
        ("", "only http and https"),
        ("/again", "redirects more than"),
    ],
)
async def test_a_redirection_is_judged_like_the_url_itself(web: Web, location: str, reason: str) -> None:
    web.redirect("/again", location.format(port=web.port))
    source = fetcher(web, names={"inside.example": ["10.0.0.1"]})
    assert reason in await refusal(source, f"http://files.example:{web.port}/again")


async def test_a_good_redirection_is_followed(web: Web) -> None:
    web.redirect("/old", "new?x=1")
    web.redirect("/new?x=1", f"http://cdn.example:{web.port}/there")
    web.page("/there", b"ok")
    source = fetcher(web, names={"cdn.example": ["127.0.0.1"]})
    assert await fetched(source, f"http://files.example:{web.port}/old") == b"ok"
    assert [host.split(":")[0] for _, host in web.asked] == ["files.example", "files.example", "cdn.example"]


async def test_https_does_not_fall_back_to_http(tmp_path: Path) -> None:
    server, client = certificate(tmp_path, "files.example")
    async with serving(Web(), server) as web:
        web.redirect("/", f"http://files.example:{web.port}/x")
        assert "https to http" in await refusal(fetcher(web, tls=client), f"https://files.example:{web.port}/")


async def test_what_is_too_long_is_refused_whether_it_says_so_or_not(web: Web) -> None:
    web.page("/honest", b"x" * 101)
    web.pages["/silent"] = b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n" + b"x" * 200_000
    web.page("/exact", b"x" * 100)
    source, base = fetcher(web), f"http://files.example:{web.port}"
    assert await refusal(source, f"{base}/honest", 100) == "it is larger than 100 bytes"
    assert await refusal(source, f"{base}/silent", 100) == "it is larger than 100 bytes"
    assert await fetched(source, f"{base}/exact", 100) == b"x" * 100


@pytest.mark.parametrize(
    ("answer", "reason"),
    {
        "an error": (b"HTTP/1.1 500 No\r\ncontent-length: 0\r\n\r\n", "answered 500"),
        "nothing": (b"", "did not answer"),
        "no HTTP": (b"SSH-2.0-x\r\n", "did not answer"),
        "half a body": (b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf", "broke off"),
        "compressed": (b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 1\r\n\r\nx", "compressed"),
    }.values(),
    ids=str,
)
async def test_a_bad_answer_is_an_error_with_a_reason(web: Web, answer: bytes, reason: str) -> None:
    web.pages["/"] = answer
    assert reason in await refusal(fetcher(web), f"http://files.example:{web.port}/")


async def test_a_port_where_nobody_listens_is_an_error() -> None:
    server = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()
    assert "cannot be reached" in await refusal(fetcher(Web(port=port)), f"http://files.example:{port}/")


async def on_this_machine(host: str, port: int) -> list[str]:
    return ["127.0.0.1"]


def set_up(web: Web, **settings: tuple[str, ...]) -> Fetcher:
    """As the API makes it of its settings, but for the resolver."""
    return replace(Fetcher.of(Settings("t", "b", egress_ports=(web.port,), **settings)), addresses=on_this_machine)  # type: ignore[arg-type]


async def test_what_containers_may_reach_is_not_what_the_api_fetches(web: Web) -> None:
    web.page("/internal", b"for containers with a policy")
    source = set_up(web, egress_allowed_networks=LOOPBACK)
    for host in ("127.0.0.1", "files.example"):
        assert "not a public address" in await refusal(source, f"http://{host}:{web.port}/internal")
    assert web.asked == []


async def test_an_opened_range_is_for_names_and_not_for_addresses(web: Web) -> None:
    web.page("/internal", b"1,2")
    source = set_up(web, fetch_allowed_networks=LOOPBACK)
    assert await fetched(source, f"http://files.example:{web.port}/internal") == b"1,2"
    for host in ("127.0.0.1", "127.1", "2130706433", "0x7f000001"):
        assert "not a public address" in await refusal(source, f"http://{host}:{web.port}/internal")


# --- Sending ---------------------------------------------------------------------------------------------------------------------


async def test_what_is_sent_goes_to_the_judged_address_and_its_answer_is_a_status(web: Web) -> None:
    web.page("/hook", b"thanks", status="202 Accepted")
    status = await fetcher(web).post(f"http://files.example:{web.port}/hook", b"{}", {"webhook-id": "1"}, seconds=60)
    assert (status, web.asked) == (202, [("/hook", f"files.example:{web.port}")])


async def exchanged(source: Fetcher, url: str) -> tuple[int, bytes]:
    return await source.exchange(url, b"a=b", {"content-type": "application/x-www-form-urlencoded"}, bytes_max=10, seconds=60)


async def test_an_answer_to_what_is_sent_is_read_whatever_its_status_is(web: Web) -> None:
    web.page("/token", b"no", status="400 Bad Request")
    assert await exchanged(fetcher(web), f"http://files.example:{web.port}/token") == (400, b"no")
    web.page("/token", b"far too long")
    with pytest.raises(FetchError, match="it is larger than 10 bytes"):
        await exchanged(fetcher(web), f"http://files.example:{web.port}/token")


async def test_a_redirection_of_what_is_sent_is_not_followed(web: Web) -> None:
    web.redirect("/hook", f"http://files.example:{web.port}/inward")
    assert await fetcher(web).post(f"http://files.example:{web.port}/hook", b"{}", {}, seconds=60) == 302
    assert (await exchanged(fetcher(web), f"http://files.example:{web.port}/hook"))[0] == 302
    assert [path for path, _ in web.asked] == ["/hook"] * 2


async def test_a_receiver_that_hangs_is_left() -> None:
    never = asyncio.Event()

    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await never.wait()
        writer.close()

    server = await asyncio.start_server(hang, "127.0.0.1", 0)
    async with server:
        source = fetcher(Web(port=server.sockets[0].getsockname()[1]))
        with pytest.raises(FetchError, match=r"it took longer than 0\.2 seconds"):
            await source.post(f"http://files.example:{source.ports[0]}/", b"{}", {}, seconds=0.2)
        never.set()


@pytest.mark.parametrize(
    ("addresses", "reason"),
    [
        (["127.0.0.1"], "not a public address"),
        (["8.8.8.8"], "must begin with https"),
        (["8.8.8.8", "10.0.0.1"], "not a public address"),
    ],
)
async def test_nothing_is_sent_inside_nor_in_clear_to_the_outside(addresses: list[str], reason: str) -> None:
    async def resolve(host: str, port: int) -> list[str]:
        return addresses

    with pytest.raises(FetchError, match=reason):
        await Fetcher(addresses=resolve).post("http://hooks.example/", b"{}", {}, seconds=60)
    with pytest.raises(FetchError, match=reason):
        await exchanged(Fetcher(addresses=resolve), "http://hooks.example/")


# --- a server that the operator has named ---


async def asked_of(source: Fetcher, url: str, bytes_max: int = 1_000) -> bytes:
    return await source.ask(url, method="GET", headers={"x-key": "k3y"}, bytes_max=bytes_max, seconds=60)


async def test_a_server_of_the_operators_may_stand_anywhere_but_at_metadata(web: Web) -> None:
    web.page("/answer", b"{}")
    source = Fetcher()
    assert await asked_of(source, f"http://127.0.0.1:{web.port}/answer") == b"{}"
    with pytest.raises(FetchError, match="not a public address"):
        await asked_of(source, "http://169.254.169.254/latest/meta-data/")


async def test_an_answer_of_the_operators_server_is_bounded_and_its_status_known(web: Web) -> None:
    web.page("/answer", b"x" * 20)
    url = f"http://127.0.0.1:{web.port}"
    with pytest.raises(FetchError, match="larger than 10 bytes"):
        await asked_of(Fetcher(), f"{url}/answer", bytes_max=10)
    with pytest.raises(FetchRefused) as refused:
        await asked_of(Fetcher(), f"{url}/nowhere")
    assert (refused.value.status, str(refused.value)) == (404, "the server answered 404")


async def test_a_page_names_its_charset(web: Web) -> None:
    web.page("/", b"x", "content-type: text/html; charset=iso-8859-1")
    async with fetcher(web).open(f"http://files.example:{web.port}/", bytes_max=10) as download:
        assert download.charset == "iso-8859-1"
