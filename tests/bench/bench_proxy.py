"""The egress proxy beside no proxy: added latency on kept connections, requests per second, memory, start time.

    python -m tests.bench.bench_proxy [--seconds 3] [--requests 1500]

It runs in a network namespace of its own, like the egress tests: the proxy and the table are the real ones, the host is a small TLS
server in another process, and no packet leaves the machine. Prints one JSON object.
"""

import argparse
import asyncio
import base64
import json
import os
import ssl
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from moorage.egress.ca import leaf

from tests.egress.arena import ADDRESSES, HOSTS, ROOT, Arena, bring_up_network

TUNNELLED, OPENED = "allowed.example", "echo.example"
ADDRESS = {TUNNELLED: ADDRESSES[0], OPENED: ADDRESSES[1]}
REQUEST = "GET / HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\n\r\n"
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 15\r\n\r\n" + b'{"hello":"you"}'
CONNECTIONS = 16


class Upstream(asyncio.Protocol):
    """As little of a server as answers at all, so that what is measured is the proxy."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.transport.write(ANSWER * data.count(b"\r\n\r\n"))


async def _serve(certificates: str) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(f"{certificates}/{TUNNELLED}.pem")
    other = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    other.load_cert_chain(f"{certificates}/{OPENED}.pem")

    def choose(connection: ssl.SSLObject, name: str | None, _: ssl.SSLContext) -> None:
        connection.context = other if name == OPENED else context

    context.sni_callback = choose
    server = await asyncio.get_running_loop().create_server(Upstream, None, 443, ssl=context)
    print("ready", flush=True)
    await server.serve_forever()


class Way:
    """A way to the host: straight, or through the proxy."""

    def __init__(self, host: str, context: ssl.SSLContext, proxy: str | None = None, basic: str = "", token: str = "none") -> None:
        self.host, self.context, self.proxy, self.basic = host, context, proxy, basic
        self.request = REQUEST.format(host=host, token=token).encode()

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self.proxy is None:
            return await asyncio.open_connection(ADDRESS[self.host], 443, ssl=self.context, server_hostname=self.host)
        reader, writer = await asyncio.open_unix_connection(self.proxy)
        line = f"CONNECT {self.host}:443 HTTP/1.1\r\nHost: {self.host}:443\r\nProxy-Authorization: Basic {self.basic}\r\n\r\n"
        writer.write(line.encode())
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200"), head
        await writer.start_tls(self.context, server_hostname=self.host)
        return reader, writer

    async def ask(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(self.request)
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200"), head
        await reader.readexactly(15)

    async def latencies_ms(self, requests: int) -> list[float]:
        reader, writer = await self.connect()
        for _ in range(50):
            await self.ask(reader, writer)
        taken = []
        for _ in range(requests):
            started = time.perf_counter()
            await self.ask(reader, writer)
            taken.append((time.perf_counter() - started) * 1000)
        writer.close()
        return taken

    async def connects_ms(self, times: int) -> list[float]:
        taken = []
        for _ in range(times):
            started = time.perf_counter()
            reader, writer = await self.connect()
            await self.ask(reader, writer)
            taken.append((time.perf_counter() - started) * 1000)
            writer.close()
        return taken

    async def requests_per_second(self, seconds: float) -> float:
        end = time.monotonic() + seconds

        async def go_on() -> int:
            reader, writer = await self.connect()
            done = 0
            while time.monotonic() < end:
                await self.ask(reader, writer)
                done += 1
            writer.close()
            return done

        return sum(await asyncio.gather(*(go_on() for _ in range(CONNECTIONS)))) / seconds


def _figures(taken: list[float]) -> dict[str, float]:
    return {"p50": round(statistics.median(taken), 3), "p99": round(statistics.quantiles(taken, n=100)[98], 3)}


async def _measure(arena: Arena, arguments: argparse.Namespace) -> dict[str, Any]:
    started = arena.start_proxy()
    secret = {"domain": OPENED, "name": "KEY", "value": "sk-bench-0123456789abcdef"}
    policy = {"type": "allowlist", "allowed_domains": [TUNNELLED, OPENED], "domain_secrets": [secret]}
    grant = await arena.command("open", {"tenant": "t", "container": "cntr_b", "network_policy": policy})
    basic = base64.b64encode(f"{grant['username']}:{grant['password']}".encode()).decode()
    (arena.directory / "bundle.pem").write_text(arena.egress.ca_pem() + arena.internet.authority.certificate_pem)
    context = ssl.create_default_context(cafile=str(arena.directory / "bundle.pem"))
    proxy = str(arena.directory / "proxy" / "egress.sock")
    ways = {
        "none": Way(TUNNELLED, context),
        "tunnel": Way(TUNNELLED, context, proxy, basic),
        "interception": Way(OPENED, context, proxy, basic, grant["placeholders"]["KEY"]),
    }
    idle = (await arena.command("proxy", {}))["rss_kib"]
    kept = {name: _figures(await way.latencies_ms(arguments.requests)) for name, way in ways.items()}
    fresh = {name: _figures(await way.connects_ms(60)) for name, way in ways.items()}
    rates = {name: round(await way.requests_per_second(arguments.seconds)) for name, way in ways.items()}
    return {
        "bench": "proxy",
        "kept_connection_ms": kept,
        "added_ms_p50": {name: round(kept[name]["p50"] - kept["none"]["p50"], 3) for name in ("tunnel", "interception")},
        "new_connection_ms": fresh,
        "requests_per_second": rates,
        "connections": CONNECTIONS,
        "start_seconds": round(started, 2),
        "memory_mib": {"idle": round(idle / 1024), "after": round((await arena.command("proxy", {}))["rss_kib"] / 1024)},
    }


async def _bench(arguments: argparse.Namespace, directory: Path) -> None:
    bring_up_network()
    arena = Arena(directory)
    arena.start_world()
    (directory / "hosts").write_text(HOSTS)
    key = ec.generate_private_key(ec.SECP256R1())
    for host in (TUNNELLED, OPENED):
        pem = leaf(arena.internet.authority, host, key.public_key()).public_bytes(serialization.Encoding.PEM)
        pem += key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        (directory / f"{host}.pem").write_bytes(pem)
    upstream = subprocess.Popen(
        [sys.executable, "-m", "tests.bench.bench_proxy", "--upstream", str(directory)], cwd=ROOT, stdout=subprocess.PIPE
    )
    assert upstream.stdout is not None
    try:
        upstream.stdout.readline()
        print(json.dumps(await _measure(arena, arguments), indent=1))
    finally:
        upstream.kill()
        upstream.wait()
        if arena.proxy is not None:
            arena.stop_proxy()
        arena.ministack.stop()


def main(given: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="What the egress proxy costs.")
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--requests", type=int, default=1500)
    parser.add_argument("--upstream", metavar="DIRECTORY", help=argparse.SUPPRESS)
    parser.add_argument("--inside", metavar="DIRECTORY", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args(given)
    if arguments.upstream:
        asyncio.run(_serve(arguments.upstream))
    elif arguments.inside:
        asyncio.run(_bench(arguments, arguments.inside))
    else:
        with tempfile.TemporaryDirectory(prefix="bench-proxy-") as directory:
            again = [sys.executable, "-m", "tests.bench.bench_proxy", "--inside", directory]
            again += ["--seconds", str(arguments.seconds), "--requests", str(arguments.requests)]
            path = f"{ROOT / 'layers/core/python'}:{ROOT}"
            namespace = ["unshare", "--user", "--map-root-user", "--net"]
            raise SystemExit(subprocess.run(namespace + again, cwd=ROOT, env=os.environ | {"PYTHONPATH": path}, check=False).returncode)


if __name__ == "__main__":
    main()
