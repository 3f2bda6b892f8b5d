"""What runs inside the sandbox of the egress tests: it does as it is told, and has only the standard library.

It brings the way out with it, as the real sandbox does: 127.0.0.1:3128 leads to the proxy's Unix socket. One JSON line per order on
standard input, one per report on standard output. An order that fails is reported too: the sandbox serves many tests.
"""

import base64
import contextlib
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

Order = dict[str, Any]

PROXY_SOCKET = os.environ["PROXY_SOCKET"]
BUNDLE = "/run/ca/bundle.pem"


def forward(near: socket.socket) -> None:
    far = socket.socket(socket.AF_UNIX)
    try:
        far.connect(PROXY_SOCKET)
    except OSError:
        near.close()
        return
    for source, target in ((near, far), (far, near)):
        threading.Thread(target=pump, args=(source, target), daemon=True).start()


def pump(source: socket.socket, target: socket.socket) -> None:
    try:
        while data := source.recv(65536):
            target.sendall(data)
    except OSError:
        pass
    for end in (source, target):
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


def serve_forwarder() -> None:
    listener = socket.create_server(("127.0.0.1", 3128), backlog=256)
    while True:
        near, _ = listener.accept()
        threading.Thread(target=forward, args=(near,), daemon=True).start()


def read_all(connection: socket.socket, seconds: float, enough: bytes | None = None) -> tuple[bytes, str]:
    connection.settimeout(seconds)
    data = b""
    try:
        while enough is None or enough not in data:
            piece = connection.recv(65536)
            if not piece:
                return data, "closed"
            data += piece
    except TimeoutError:
        return data, "open"
    except OSError as error:
        return data, f"{type(error).__name__}: {error}"
    return data, "open"


def steps(order: Order) -> list[list[str]]:
    """A conversation on one connection: send, read, start TLS; the report is what came back, piece by piece."""
    return converse(order, [], threading.Event())


def converse(order: Order, heard: list[list[str]], gate: threading.Event) -> list[list[str]]:
    connection: socket.socket = socket.create_connection(("127.0.0.1", 3128))
    for step in order["steps"]:
        kind, argument = step[0], step[1:]
        try:
            if kind == "send":
                connection.sendall(argument[0].encode("latin-1"))
            elif kind == "send64":
                connection.sendall(base64.b64decode(argument[0]))
            elif kind == "head":
                data, state = read_all(connection, order.get("seconds", 5), b"\r\n\r\n")
                heard.append([data.decode("latin-1"), state])
                if not data.startswith((b"HTTP/1.1 200", b"HTTP/1.0 200")):
                    break
            elif kind == "read":
                data, state = read_all(connection, argument[0] if argument else order.get("seconds", 5))
                heard.append([data.decode("latin-1"), state])
            elif kind == "until":
                data, state = read_all(connection, order.get("seconds", 5), argument[0].encode("latin-1"))
                heard.append([data.decode("latin-1"), state])
            elif kind == "tls":
                context = ssl.create_default_context(cafile=BUNDLE)
                context.check_hostname = False
                if len(argument) > 1:
                    context.set_alpn_protocols(argument[1])
                connection.settimeout(5)
                secured = context.wrap_socket(connection, server_hostname=argument[0] or None)
                certificate: Any = secured.getpeercert()
                names = ",".join(value for _, value in certificate["subjectAltName"])
                heard.append([f"tls {names} {secured.selected_alpn_protocol()}", "open"])
                connection = secured
            elif kind == "sleep":
                time.sleep(argument[0])
            elif kind == "gate":
                gate.wait(60)
            elif kind == "eof":
                connection.shutdown(socket.SHUT_WR)
        except OSError as error:
            heard.append([f"{type(error).__name__}: {error}", "failed"])
            break
    connection.close()
    return heard


class Conversation:
    """One that goes on while other orders come; at a gate it waits until it is finished."""

    def __init__(self, order: Order) -> None:
        self.heard: list[list[str]] = []
        self.gate = threading.Event()
        self.thread = threading.Thread(target=converse, args=(order, self.heard, self.gate), daemon=True)
        self.thread.start()


RUNNING: dict[str, Conversation] = {}


def start(order: Order) -> None:
    RUNNING[order["name"]] = Conversation(order)


def heard_so_far(order: Order) -> list[list[str]]:
    return RUNNING[order["name"]].heard


def finish(order: Order) -> list[list[str]]:
    conversation = RUNNING.pop(order["name"])
    conversation.gate.set()
    conversation.thread.join(60)
    return conversation.heard


def flood(order: Order) -> list[str]:
    """Many connections at once, all kept open until the last has been answered; the report is their first lines."""
    connections = []
    answers = []
    for _ in range(order["count"]):
        connection = socket.create_connection(("127.0.0.1", 3128))
        connection.sendall(order["head"].encode())
        connections.append(connection)
    for connection in connections:
        data, _ = read_all(connection, 20, b"\r\n\r\n")
        answers.append(data.decode("latin-1").split(" ")[1] if b" " in data else "closed")
    for connection in connections:
        connection.close()
    return answers


HELD: list[subprocess.Popen[bytes]] = []

HOLD = """
import resource, socket, sys
most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
held = []
for _ in range(min(int(sys.argv[1]), most - 50)):
    one = socket.socket(socket.AF_UNIX)
    try:
        one.connect(sys.argv[2])
    except OSError:
        continue
    held.append(one)
def is_open(one):
    one.setblocking(False)
    try:
        return bool(one.recv(1))
    except BlockingIOError:
        return True
    except OSError:
        return False
for _ in sys.stdin:
    print(sum(map(is_open, held)), flush=True)
"""


def hold(order: Order) -> int:
    """Connections to the proxy that say nothing, from several processes; the report is how many of them stand."""
    command = ["/usr/bin/python3", "-c", HOLD, str(order["count"]), PROXY_SOCKET]
    HELD.extend(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) for _ in range(order["processes"]))
    return held(order)


def held(_: Order) -> int:
    """How many connections of those processes stand now: a busy proxy refuses one later than it was opened."""
    return sum(map(standing, HELD))


def standing(process: "subprocess.Popen[bytes]") -> int:
    """How many connections of a holding process stand now."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(b"\n")
    process.stdin.flush()
    return int(process.stdout.readline())


CHURN = """
import socket, sys
head = sys.argv[2].encode()
while True:
    opened = []
    for _ in range(200):
        one = socket.socket(socket.AF_UNIX)
        try:
            one.connect(sys.argv[1])
            one.sendall(head)
        except OSError:
            pass
        opened.append(one)
    for one in opened:
        one.close()
"""


def churn(order: Order) -> None:
    """Processes that open connections to the proxy, say half a word, and close them, until they are released."""
    command = ["/usr/bin/python3", "-c", CHURN, PROXY_SOCKET, order["head"]]
    HELD.extend(subprocess.Popen(command) for _ in range(order["processes"]))


def release(_: Order) -> None:
    for process in HELD:
        process.kill()
        process.wait()
    HELD.clear()


def direct(order: Order) -> str:
    """An attempt to leave without the proxy; the report is what the kernel says."""
    kinds = {"tcp": socket.SOCK_STREAM, "udp": socket.SOCK_DGRAM, "raw": socket.SOCK_RAW}
    family = socket.AF_INET6 if ":" in order["address"] else socket.AF_INET
    try:
        with socket.socket(family, kinds[order["kind"]], socket.IPPROTO_ICMP if order["kind"] == "raw" else 0) as attempt:
            attempt.settimeout(2)
            attempt.connect((order["address"], order["port"]))
            attempt.send(b"x")
            return "sent"
    except OSError as error:
        return os.strerror(error.errno) if error.errno else type(error).__name__


def shell(order: Order) -> dict[str, Any]:
    """Run a command; one that takes too long ends with all that it has started."""
    started = time.monotonic()
    process = subprocess.Popen(
        ["bash", "-c", order["command"]],
        env={**os.environ, **order["env"]},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        stdout, stderr = process.communicate(timeout=order["seconds"])
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        raise
    return {
        "exit_code": process.returncode,
        "stdout": stdout.decode("utf-8", "replace"),
        "stderr": stderr.decode("utf-8", "replace"),
        "seconds": time.monotonic() - started,
    }


def resolve(order: Order) -> Any:
    try:
        return [entry[4][0] for entry in socket.getaddrinfo(order["host"], 443)]
    except OSError as error:
        return str(error)


def main() -> None:
    threading.Thread(target=serve_forwarder, daemon=True).start()
    orders: dict[str, Callable[[Order], Any]] = {
        "steps": steps,
        "start": start,
        "heard": heard_so_far,
        "finish": finish,
        "direct": direct,
        "shell": shell,
        "resolve": resolve,
        "flood": flood,
        "hold": hold,
        "held": held,
        "churn": churn,
        "release": release,
    }
    print(json.dumps("ready"), flush=True)
    for line in sys.stdin:
        order = json.loads(line)
        report: Order
        try:
            report = {"ok": orders[order["do"]](order)}
        except Exception as error:
            report = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(report), flush=True)


if __name__ == "__main__":
    main()
