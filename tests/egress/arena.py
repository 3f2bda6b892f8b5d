"""A small internet in a network namespace of its own, with the real proxy in the middle of it.

    unshare --net python -m tests.egress.arena DIRECTORY

Everything that the egress tests need to reach lives here: an emulator with the table and the KMS key, the proxy process, and one
server that answers on every address and port (public-looking ones, private ones, the real metadata addresses) and remembers what
it was sent. The namespace has a loopback interface and nothing else, so that no packet can leave the machine. The tests steer it by
one JSON line per request over a Unix socket; the proxy's own socket lies beside it.
"""

import asyncio
import base64
import gzip
import hashlib
import io
import json
import os
import signal
import ssl
import subprocess
import sys
import time
import zipfile
import zlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast
from urllib.parse import unquote

import boto3
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from forwarder import PROXY_PORT, Forwarder
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import RequestReceived
from moorage.egress.ca import Authority, leaf, new_ca
from moorage.egress.keys import KmsKeys
from moorage.egress.operator_secrets import OperatorSecrets
from moorage.egress.places import place_word, places_key
from moorage.egress.policy import EgressOpening
from moorage.egress.service import EgressService
from moorage.settings import Settings
from moorage.store.dynamodb import DynamoTable
from moorage.wire.network_policy import parse_network_policy

from tests.ministack import ACCESS_KEY_ID, REGION, SECRET_ACCESS_KEY, Ministack, aws_clients, new_table_and_bucket

ROOT = Path(__file__).resolve().parents[2]
PROXY_PYTHON = ROOT / ".venv-egress" / "bin" / "python"

ALLOWED, ECHO, FORBIDDEN, REDIRECT, TWIN = (f"93.184.216.{n}" for n in (34, 35, 36, 37, 38))
V6 = "2606:2800:220:1::34"
ADDRESSES = (
    *(ALLOWED, ECHO, FORBIDDEN, REDIRECT, TWIN),
    *("10.0.0.5", "192.168.7.7", "100.64.0.9", "169.254.169.254", "169.254.170.2", "54.12.3.4", "198.18.0.1"),
    *(V6, "fd00:ec2::254", "fc00::5", "2002:5db8:d824::1", "64:ff9b::5db8:d824"),
)
HOSTS = f"""\
{ALLOWED} allowed.example a.pkg.example deep.a.pkg.example xn--bcher-kva.example port.example
{ECHO} echo.example basic.example query.example scoped.example named.example h2.example badcert.example selfsigned.example
{FORBIDDEN} forbidden.example evil.example pkg.example xn--llowed-hta.example xn--pg-via.pkg.example localtest.example
{REDIRECT} redirect.example
{TWIN} twin.example
10.0.0.5 private.example
192.168.7.7 home.example
100.64.0.9 cgnat.example
169.254.169.254 meta.example
169.254.170.2 taskmeta.example
fd00:ec2::254 meta6.example
127.0.0.1 loop.example
::1 loop6.example
0.0.0.0 zero.example
:: zero6.example
224.0.0.1 multicast.example
255.255.255.255 broadcast.example
::ffff:{FORBIDDEN} mapped.example
64:ff9b::5db8:d824 nat64.example
2002:5db8:d824::1 sixtofour.example
fe80::1 linklocal.example
fc00::5 ula.example
54.12.3.4 own.example
198.18.0.1 benchmark.example
10.0.0.5 mixed.example
{ALLOWED} mixed.example
{V6} six.example
93.184.216.99 silent.example
{ALLOWED} rebind.example
"""
PLACES_KEY = places_key(b"the arena's own deployment")
PORTS_PLAIN, PORTS_TLS, PORT_BANNER = (80, 8080), (443,), 8443
PAGE = b"""<!doctype html><html lang=en><title>waiting</title><script>
addEventListener("load", async () => {
  const headers = { "X-Key": location.hash.slice(1) || "none" }
  document.body.innerText = await (await fetch("/echo", { headers })).text()
  document.title = "heard"
})
</script><body><img src=https://forbidden.example/image.png>"""
"""It asks its own host with a header, and shows the answer."""


SIGN_IN = b"""<!doctype html><html lang=en><title>Sign in</title>
<style>input { position: absolute; left: 0; width: 300px; height: 40px }</style>
<form method=post action=/echo><input name=user aria-label=User style="top: 0">
<input name=password type=password aria-label=Password style="top: 50px"><input type=submit value=Enter style="top: 100px"></form>"""


POPUP = b"""<!doctype html><html lang=en><title>popup</title><a href="{}" target=_blank style="position: fixed; inset: 0">open</a>"""
PAGES = {"page": PAGE, "popup": POPUP, "sign-in": SIGN_IN}


class Internet:
    """One server for every address; what it saw is kept for the tests."""

    def __init__(self, authority: Authority) -> None:
        self.authority = authority
        self.seen: list[dict[str, Any]] = []
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._contexts: dict[str, ssl.SSLContext] = {}

    async def start(self) -> None:
        for port in PORTS_PLAIN:
            await asyncio.start_server(self._serve, None, port)
        context = self._context("allowed.example")
        context.sni_callback = self._choose
        for port in PORTS_TLS:
            await asyncio.start_server(lambda reader, writer: self._serve(reader, writer, context), None, port)
        await asyncio.start_server(self._greet, None, PORT_BANNER)

    def _context(self, host: str) -> ssl.SSLContext:
        if host not in self._contexts:
            named = "other.example" if host == "badcert.example" else host
            authority = new_ca() if host == "selfsigned.example" else self.authority
            pem = leaf(authority, named, self._key.public_key()).public_bytes(serialization.Encoding.PEM)
            key = self._key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
            file = Path(f"{host}.pem")
            file.write_bytes(pem + key)
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(file)
            context.set_alpn_protocols(["h2", "http/1.1"] if host == "h2.example" else ["http/1.1"])
            self._contexts[host] = context
        return self._contexts[host]

    def _choose(self, connection: ssl.SSLObject, name: str | None, _: ssl.SSLContext) -> None:
        connection.context = self._context(name or "allowed.example")

    async def _greet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._note(writer, {})
        writer.write(b"SSH-2.0-OpenSSH_9.9\r\n")
        await reader.read(100)
        writer.close()

    def _note(self, writer: asyncio.StreamWriter, fields: dict[str, Any]) -> dict[str, Any]:
        address, port = writer.get_extra_info("sockname")[:2]
        note = {"address": address.removeprefix("::ffff:"), "port": port, **fields}
        self.seen.append(note)
        return note

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, context: ssl.SSLContext | None = None) -> None:
        note = self._note(writer, {"raw": ""})
        try:
            if context is not None:
                await writer.start_tls(context)
                if writer.get_extra_info("ssl_object").selected_alpn_protocol() == "h2":
                    await self._serve_http2(reader, writer, note)
                    return
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                note["raw"] += head.decode("latin-1")
                lines = head.decode("latin-1").split("\r\n")
                method, path, _ = lines[0].split(" ", 2)
                headers = [line.partition(": ")[::2] for line in lines[1:] if line]
                fields = {name.lower(): value for name, value in headers}
                body = await self._body(reader, fields)
                note["raw"] += body.decode("latin-1")
                if path.startswith("/ws"):
                    await self._websocket(reader, writer, fields, note)
                    return
                await self._answer(writer, method, path, head, body)
        except (asyncio.IncompleteReadError, ConnectionError, ssl.SSLError, ValueError, asyncio.LimitOverrunError):
            pass
        finally:
            writer.close()

    async def _serve_http2(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, note: dict[str, Any]) -> None:
        """Answers every stream with the headers that it came with."""
        http2 = H2Connection(H2Configuration(client_side=False, header_encoding="utf-8"))
        http2.initiate_connection()
        writer.write(http2.data_to_send())
        while data := await reader.read(65536):
            for event in http2.receive_data(data):
                if isinstance(event, RequestReceived):
                    headers = cast("list[tuple[str, str]]", event.headers)
                    content = "".join(f"{name}: {value}\n" for name, value in headers).encode()
                    note["raw"] += content.decode()
                    if (path := dict(headers)[":path"]).startswith("/bytes?"):
                        await self._send_http2_bytes(writer, http2, event.stream_id or 1, int(path.partition("?")[2]))
                        continue
                    http2.send_headers(event.stream_id, [(":status", "200"), ("content-length", str(len(content)))])
                    http2.send_data(event.stream_id, content, end_stream=True)
            writer.write(http2.data_to_send())
            await writer.drain()

    async def _send_http2_bytes(self, writer: asyncio.StreamWriter, http2: H2Connection, stream_id: int, count: int) -> None:
        """As much as the peer's windows take at once; the proxy's take 2 GiB."""
        http2.send_headers(stream_id, [(":status", "200")])
        piece = bytes(http2.max_outbound_frame_size)
        for _ in range(count // len(piece)):
            http2.send_data(stream_id, piece)
            writer.write(http2.data_to_send())
            await writer.drain()
        http2.end_stream(stream_id)

    async def _body(self, reader: asyncio.StreamReader, fields: dict[str, str]) -> bytes:
        if "chunked" in fields.get("transfer-encoding", ""):
            body = b""
            while size := int(await reader.readline(), 16):
                body += (await reader.readexactly(size + 2))[:-2]
            await reader.readline()
            return body
        return await reader.readexactly(int(fields.get("content-length", "0")))

    async def _answer(self, writer: asyncio.StreamWriter, method: str, path: str, head: bytes, body: bytes) -> None:
        host = next((line[6:] for line in head.decode("latin-1").split("\r\n") if line.lower().startswith("host: ")), "")
        kind, _, argument = path[1:].partition("?")
        extra = []
        content, media = f"hello from {host}\n".encode(), "text/plain"
        match kind.split("/")[0]:
            case "echo":
                content = head + body
                extra.append(f"X-Echo: {head.decode('latin-1').splitlines()[-2][:200]}")
            case "reflect":
                content = b"{}"
                extra += [f"X-{line}" for line in head.decode("latin-1").split("\r\n")[1:] if line]
            case "gzip":
                content = gzip.compress(head)
                extra.append("Content-Encoding: gzip")
            case "deflate":
                content = zlib.compress(head)
                extra.append("Content-Encoding: deflate")
            case "base64":
                content = base64.b64encode(head)
            case "bytes":
                content = b"x" * int(argument)
            case "redirect":
                extra.append(f"Location: {argument}")
            case "simple":
                content = b'<a href="/files/tiny-1.0-py3-none-any.whl">tiny-1.0-py3-none-any.whl</a>' if "tiny" in path else b""
                media = "text/html"
            case "files":
                content, media = _wheel(), "application/octet-stream"
            case "npm":
                version = {
                    "name": "tiny",
                    "version": "1.2.3",
                    "dist": {"tarball": f"https://{host}/files/tiny.tgz", "shasum": "0" * 40},
                }
                content = json.dumps({"name": "tiny", "dist-tags": {"latest": "1.2.3"}, "versions": {"1.2.3": version}}).encode()
                media = "application/json"
            case "page" | "popup" | "sign-in" | "html" | "program" as page:
                content, media = _written(page, argument)
            case "git":
                content = b"0123456789012345678901234567890123456789\trefs/heads/main\n"
            case "cargo":
                content = json.dumps({"dl": f"https://{host}/cargo/dl", "api": f"https://{host}/crates"}).encode()
            case "crates":
                crate = {"name": "tiny", "max_version": "1.2.3", "description": "small"}
                content = json.dumps({"crates": [crate], "meta": {"total": 1}}).encode()
            case "pieces":
                await self._in_pieces(writer, head)
                return
            case "packed":
                content = await asyncio.to_thread(Path(kind).read_bytes)
                extra += [f"Content-Encoding: {codings}" for codings in argument.split("&")]
            case "interim":
                writer.write(b"HTTP/1.1 103 Early Hints\r\nLink: </style.css>\r\n\r\nHTTP/1.1 10")
                await writer.drain()
                await asyncio.sleep(0.05)
                writer.write(b"0 Continue\r\n\r\n")
                content = b"after 103\n"
            case "interims":
                await self._without_end(writer, b"HTTP/1.1 102 Processing\r\n\r\n")
                return
            case "headers":
                writer.write(b"HTTP/1.1 200 OK\r\n")
                await self._without_end(writer, b"X-More: " + b"x" * 1000 + b"\r\n")
                return
        status = "302 Found" if kind == "redirect" else "200 OK"
        lines = [f"HTTP/1.1 {status}", f"Content-Type: {media}", f"Content-Length: {len(content)}", *extra]
        writer.write("\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + (b"" if method == "HEAD" else content))
        await writer.drain()

    async def _without_end(self, writer: asyncio.StreamWriter, piece: bytes) -> None:
        for _ in range(10_000):
            writer.write(piece)
            await writer.drain()

    async def _in_pieces(self, writer: asyncio.StreamWriter, content: bytes) -> None:
        """Chunks of five bytes, each written on its own, so that an echo is cut many times."""
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        for at in range(0, len(content), 5):
            piece = content[at : at + 5]
            writer.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            await writer.drain()
            await asyncio.sleep(0)
        writer.write(b"0\r\n\r\n")
        await writer.drain()

    async def _websocket(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, fields: dict[str, str], note: dict[str, Any]
    ) -> None:
        digest = hashlib.sha1(fields["sec-websocket-key"].encode() + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest()
        accept = base64.b64encode(digest).decode()
        lines = ["HTTP/1.1 101 Switching Protocols", "Upgrade: websocket", "Connection: Upgrade", f"Sec-WebSocket-Accept: {accept}"]
        writer.write("\r\n".join(lines).encode() + b"\r\n\r\n")
        text = fields.get("authorization", "none").encode()
        writer.write(b"\x81" + bytes([len(text)]) + text)
        await writer.drain()
        frame = await reader.read(1000)
        note["raw"] += f"frame of {len(frame)} bytes"


def _written(kind: str, argument: str) -> tuple[bytes, str]:
    """A page with the argument in it, or what the argument is: a page or a program."""
    if kind in PAGES:
        return PAGES[kind].replace(b"{}", argument.encode()), "text/html"
    return unquote(argument).encode(), "text/javascript" if kind == "program" else "text/html"


def _wheel() -> bytes:
    """The smallest package that pip and uv install."""
    files = {
        "tiny.py": "VALUE = 1\n",
        "tiny-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n",
        "tiny-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{name},,\n" for name in [*files, "tiny-1.0.dist-info/RECORD"])
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as wheel:
        for name, text in {**files, "tiny-1.0.dist-info/RECORD": record}.items():
            wheel.writestr(name, text)
    return buffer.getvalue()


class Arena:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.executor = ThreadPoolExecutor(8)
        self.proxy: subprocess.Popen[bytes] | None = None
        self.internet = Internet(new_ca())

    def start_world(self) -> None:
        self.ministack = Ministack.start()
        self.clients = aws_clients(self.ministack.endpoint)
        self.table_name, self.bucket_name = new_table_and_bucket(self.clients)
        kms = boto3.client(
            "kms",
            endpoint_url=self.ministack.endpoint,
            region_name=REGION,
            aws_access_key_id=ACCESS_KEY_ID,
            aws_secret_access_key=SECRET_ACCESS_KEY,
        )
        key_id = kms.create_key()["KeyMetadata"]["KeyId"]
        self.environment = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": f"{ROOT / 'layers/core/python'}:{ROOT}",
            "AWS_ENDPOINT_URL": self.ministack.endpoint,
            "AWS_ACCESS_KEY_ID": ACCESS_KEY_ID,
            "AWS_SECRET_ACCESS_KEY": SECRET_ACCESS_KEY,
            "AWS_DEFAULT_REGION": REGION,
            "MOORAGE_TABLE": self.table_name,
            "MOORAGE_BUCKET": self.bucket_name,
            "MOORAGE_ALLOWED_EGRESS_DOMAINS": "*",
            "MOORAGE_EGRESS_PROXY": f"unix:{self.directory / 'proxy' / 'egress.sock'}",
            "MOORAGE_EGRESS_KEY": key_id,
            "MOORAGE_EGRESS_PLACES_KEY": PLACES_KEY.hex(),
            "MOORAGE_EGRESS_PORTS": str(PORT_BANNER),
            "MOORAGE_EGRESS_OWN_NETWORKS": "54.12.0.0/16",
            "FAULTY_HOOK_FILE": str(self.directory / "faulty-hook"),
        }
        table = DynamoTable(self.clients.dynamodb, self.table_name, self.executor)
        keys = KmsKeys(kms, key_id, self.executor)
        self.operators = OperatorSecrets(table, keys, time.time)
        self.egress = EgressService(table, keys, Settings.from_environment(self.environment), lambda: int(time.time()))
        (self.directory / "hosts").write_text(HOSTS)
        (self.directory / "upstream-ca.pem").write_text(self.internet.authority.certificate_pem)

    def start_proxy(self, module: str = "functions.egress_proxy.main") -> float:
        """Start the proxy and wait until it listens; returns the seconds that took."""
        started = time.monotonic()
        with (self.directory / "proxy.log").open("ab") as log:
            at = log.tell()
            command = [str(PROXY_PYTHON), "-m", module]
            command += ["--listen", f"unix:{self.directory / 'proxy' / 'egress.sock'}", "--listen", f"127.0.0.1:{PROXY_PORT}"]
            command += ["--hosts", str(self.directory / "hosts"), "--upstream-ca", str(self.directory / "upstream-ca.pem")]
            self.proxy = subprocess.Popen(command, env=self.environment, cwd=ROOT, stdout=log, stderr=log)
        while b"egress_ready" not in (self.directory / "proxy.log").read_bytes()[at:]:
            if self.proxy.poll() is not None or time.monotonic() - started > 30:
                raise RuntimeError((self.directory / "proxy.log").read_text()[-4000:])
            time.sleep(0.02)
        return time.monotonic() - started

    def stop_proxy(self, number: int = signal.SIGTERM) -> None:
        assert self.proxy is not None
        self.proxy.send_signal(number)
        self.proxy.wait(20)

    async def command(self, name: str, argument: dict[str, Any]) -> Any:
        match name:
            case "open":
                asked = parse_network_policy(argument["network_policy"], "network_policy")
                policy = await self.egress.admit(argument["tenant"], asked)
                grant = await self.egress.open(argument["tenant"], argument["container"], policy, asked.domain_secrets)
                assert grant is not None
                (self.directory / "egress-ca.pem").write_text(self.egress.ca_pem())
                return asdict(grant)
            case "forward":
                place = place_word(PLACES_KEY, argument["container"]) if argument["container"] else ""
                way = Forwarder({"networks": ["127.0.0.1/32"], "place": place})
                await asyncio.start_unix_server(way.forward, self.directory / "proxy" / argument["socket"], backlog=512)
            case "close":
                await self.egress.close(argument["tenant"], argument["container"])
            case "renew":
                grant = await self.egress.renew(argument["tenant"], argument["container"])
                assert grant is not None
                return asdict(grant)
            case "allow":
                await self.egress.allow(argument["tenant"], argument["container"], [EgressOpening.of_key(argument["key"])])
            case "pause":
                await self.egress.pause(argument["tenant"], argument["container"])
            case "live":
                return await self.egress.store.is_any_live()
            case "define":
                await self.operators.define(**argument)
            case "log":
                return [asdict(entry) for entry in await self.egress.log(argument["tenant"], argument["container"], limit=500)]
            case "refusals":
                return await self.egress.refusals_since(argument["tenant"], argument["container"], argument["at_ms"])
            case "seen":
                return self.internet.seen
            case "clear":
                self.internet.seen.clear()
            case "hosts":
                (self.directory / "hosts").write_text(argument["text"])
            case "dump":
                items = self.clients.dynamodb.get_paginator("scan").paginate(TableName=self.table_name)
                objects = self.clients.s3.list_objects_v2(Bucket=self.bucket_name).get("KeyCount")
                return {"items": repr([item for page in items for item in page["Items"]]), "objects": objects}
            case "freeze_table":
                self.ministack.process.send_signal(signal.SIGSTOP)
            case "thaw_table":
                self.ministack.process.send_signal(signal.SIGCONT)
            case "restart_proxy":
                self.stop_proxy(argument.get("signal", signal.SIGTERM))
                return self.start_proxy(argument.get("module", "functions.egress_proxy.main"))
            case "proxy":
                assert self.proxy is not None
                status = Path(f"/proc/{self.proxy.pid}/status").read_text()
                rss = next(line for line in status.splitlines() if line.startswith("VmRSS"))
                bounds = Path(f"/proc/{self.proxy.pid}/limits").read_text()
                core = next(line for line in bounds.splitlines() if line.startswith("Max core file size")).split()[4]
                tcp = next(
                    json.loads(line) for line in (self.directory / "proxy.log").read_text().splitlines() if "egress_ready" in line
                )
                return {"pid": self.proxy.pid, "rss_kib": int(rss.split()[1]), "core_bytes_max": core, "listen": tcp["listen"]}
            case _:
                raise AssertionError(name)
        return None

    async def steer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            name, argument = json.loads(line)
            try:
                answer: Any = {"ok": await self.command(name, argument)}
            except Exception as error:
                answer = {"error": f"{type(error).__name__}: {error}"}
            writer.write(json.dumps(answer).encode() + b"\n")
            await writer.drain()
        writer.close()


def bring_up_network() -> None:
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    for address in ADDRESSES:
        plain = ["ip", "addr", "add", f"{address}/{128 if ':' in address else 32}", "dev", "lo"]
        subprocess.run(plain + (["nodad"] if ":" in address else []), check=True)


async def _main(directory: Path) -> None:
    os.chdir(directory)
    bring_up_network()
    arena = Arena(directory)
    arena.start_world()
    await arena.internet.start()
    done = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, done.set)
    try:
        arena.start_proxy()
        await asyncio.start_unix_server(arena.steer, directory / "control.sock", limit=1 << 24)
        print("ready", flush=True)
        await done.wait()
    finally:
        if arena.proxy is not None and arena.proxy.poll() is None:
            arena.stop_proxy()
        arena.ministack.process.send_signal(signal.SIGCONT)
        arena.ministack.stop()


if __name__ == "__main__":
    asyncio.run(_main(Path(sys.argv[1])))
