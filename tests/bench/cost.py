"""What a turn costs: ``make cost`` (``python -m tests.bench.cost``).

Counts are taken from a run: the synthesised stack is deployed onto the emulator, and every call of its functions to AWS passes a
proxy that counts it. DynamoDB's units are computed from the items in those calls by DynamoDB's own rules. Times are assumptions,
because an emulator's mean nothing: ``--model-seconds`` per model call, ``--command-seconds`` per command, ``--remote-seconds`` per
call of a remote server, 0.3 s per hop. What those seconds would have added to the counts is added: a look for a cancellation every
second, and the rounds in which a long command changes its Lambda.

Prices are list prices of autumn 2026 without the free tier (``infra/prices.py``); model tokens are not counted. The counts are kept in
``cost.json``, from which the tables of README.md and docs/aws.md are written.
"""

import argparse
import http.client
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from math import ceil
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import urlsplit

import boto3
import httpx
from moorage import limits
from moorage.limits import SANDBOX_CPU_UNITS as CPU_UNITS
from moorage.sandbox.lambda_microvm import IDLE_SECONDS as MICROVM_IDLE_SECONDS

from infra.agent_loop import TOOL_MEMORY_MIB
from infra.config import Config
from infra.prices import DEFAULT_REGION, PRICES, Prices
from localstack.deploy import Deployer
from tests.deploy.conftest import BUFFERED, REGION, Deployment, emulated_url, make_key, running_emulator, synthesise
from tests.deploy.test_ring import in_background, script, shell
from tests.mcp_servers import Depot, depot_beside

HOP_SECONDS = 0.3
MICROVM_START_SECONDS = 3.0
ROOT = Path(__file__).resolve().parents[2]
RECORD = Path(__file__).with_suffix(".json")
_SETTLE_SECONDS = 2.0
_SERVER = "depot"


@dataclass
class Counts:
    """What a turn made its functions ask of AWS."""

    write_units: float = 0
    read_units: float = 0
    calls: Counter[str] = field(default_factory=Counter)

    def add(self, service: str, operation: str, request: bytes, answer: bytes) -> None:
        self.calls[f"{service}:{operation}"] += 1
        if service == "dynamodb":
            self._add_units(operation, json.loads(request or b"{}"), json.loads(answer or b"{}"))

    def _add_units(self, operation: str, request: dict[str, Any], answer: dict[str, Any]) -> None:
        match operation:
            case "PutItem":
                self.write_units += written(request["Item"])
            case "UpdateItem" | "DeleteItem":
                self.write_units += written(answer.get("Attributes") or request["Key"])
            case "TransactWriteItems":
                for write in request["TransactItems"]:
                    ((kind, one),) = write.items()
                    # Two units a KiB. What an update leaves is not in the answer; its key stands for it.
                    self.write_units += 2 * (written(one["Item"]) if kind == "Put" else 1)
            case "BatchWriteItem":
                for writes in request["RequestItems"].values():
                    self.write_units += sum(written(w["PutRequest"]["Item"]) if "PutRequest" in w else 1 for w in writes)
            case "GetItem":
                self.read_units += read([answer.get("Item", {})], consistent=request.get("ConsistentRead", False))
            case "Query":
                self.read_units += read(answer["Items"], consistent=request.get("ConsistentRead", False))
            case "BatchGetItem":
                for table, items in answer["Responses"].items():
                    is_consistent = request["RequestItems"][table].get("ConsistentRead", False)
                    self.read_units += sum(read([item], consistent=is_consistent) for item in items)

    @property
    def s3_puts(self) -> int:
        return sum(self.calls[f"s3:{method}"] for method in ("PUT", "POST"))

    @property
    def s3_gets(self) -> int:
        return self.calls["s3:GET"] + self.calls["s3:HEAD"]


def size_of(value: Any) -> int:
    """Bytes of an attribute by DynamoDB's rules (developer guide, "Item sizes and formats")."""
    ((kind, content),) = value.items()
    match kind:
        case "S":
            return len(content.encode())
        case "N":
            return len(content) // 2 + 1
        case "B":
            return len(content) * 3 // 4
        case "M":
            return 3 + sum(1 + len(k.encode()) + size_of(v) for k, v in content.items())
        case "L":
            return 3 + sum(1 + size_of(v) for v in content)
        case _:
            return 1


def item_size(item: dict[str, Any]) -> int:
    return sum(len(name.encode()) + size_of(value) for name, value in item.items())


def written(item: dict[str, Any]) -> int:
    """Write units of an item: one per KiB, and one more where it stands in the keys-only index."""
    return ceil(max(1, item_size(item)) / 1024) + ("GSI1PK" in item)


def read(items: list[dict[str, Any]], *, consistent: bool) -> float:
    """Read units of one request: one per 4 KiB, half of it where an older state is good enough."""
    units = ceil(max(1, sum(map(item_size, items))) / 4096)
    return units if consistent else units / 2


class CountingProxy:
    """Passes AWS calls on to the emulator and counts them."""

    def __init__(self) -> None:
        self.counts = Counts()
        self.target = ""
        self._lock = threading.Lock()

    def count(self, service: str, operation: str, request: bytes, answer: bytes) -> None:
        with self._lock:
            self.counts.add(service, operation, request, answer)

    def taken(self) -> Counts:
        """The counts so far; counting begins anew."""
        with self._lock:
            counts, self.counts = self.counts, Counts()
            return counts


@contextmanager
def counting_proxy() -> Iterator[tuple[CountingProxy, str]]:
    proxy = CountingProxy()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        served_by: ClassVar[CountingProxy] = proxy

        def forward(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            connection = http.client.HTTPConnection(urlsplit(self.served_by.target).netloc, timeout=120)
            connection.request(self.command, self.path, body, dict(self.headers))
            answer = connection.getresponse()
            content = answer.read()
            connection.close()
            scope = self.headers.get("authorization", "").partition("Credential=")[2].split("/")
            service = scope[3] if len(scope) > 3 else "?"
            operation = self.headers.get("x-amz-target", "").rpartition(".")[2] or self.command
            if answer.status < 300:
                self.served_by.count(service, operation, body, content)
            self.send_response(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in ("transfer-encoding", "content-length", "connection"):
                    self.send_header(name, value)
            length = answer.getheader("content-length") if self.command == "HEAD" else str(len(content))
            self.send_header("content-length", length or "0")
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content)

        do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = forward

        def log_message(self, format: str, *arguments: Any) -> None:
            """Nothing: the counts are the log."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield proxy, f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@dataclass(frozen=True)
class Turn:
    """A measured turn and the times that are assumed for it."""

    name: str
    counts: Counts
    transitions: int
    model_calls: int
    commands: int
    is_background: bool
    command_seconds: float
    model_seconds: float
    remote_calls: int = 0
    """Of tools of MCP servers: no sandbox is used for them."""
    remote_seconds: float = 0.0

    @property
    def title(self) -> str:
        return self.name if "background" in self.name else f"{self.name}, {'background' if self.is_background else 'foreground'}"

    @property
    def wall_seconds(self) -> float:
        return self.model_calls * (self.model_seconds + HOP_SECONDS) + self.tool_seconds

    @property
    def tool_seconds(self) -> float:
        remote = self.remote_calls * (self.remote_seconds + HOP_SECONDS)
        return self.commands * (self.command_seconds + HOP_SECONDS) + remote

    @property
    def read_units(self) -> float:
        """Counted, and for the assumed time of a loop one strongly consistent read a second (``CANCEL_POLL_SECONDS``), and two others
        if a client listens (``TAIL_POLL_SECONDS_MAX``)."""
        waiting = self.wall_seconds if self.transitions else 0
        listening = 0 if self.is_background else waiting
        return self.counts.read_units + waiting / limits.CANCEL_POLL_SECONDS + listening / limits.TAIL_POLL_SECONDS_MAX / 2

    @property
    def transitions_billed(self) -> int:
        """Counted, and three per handover of a long command: tool step, model step, choice."""
        return self.transitions + 3 * int(self.command_seconds // limits.TOOL_STEP_SECONDS_MAX) * self.commands

    def dollars(self, prices: Prices, config: Config) -> dict[str, float]:
        model_gib, tool_gib = config.model_memory_mib / 1024, TOOL_MEMORY_MIB / 1024
        is_inline = self.transitions == 0
        api_seconds = 1.0 if self.is_background else self.wall_seconds + 1
        # The first model step of a foreground turn runs inside the API function.
        model_seconds = 0 if is_inline else (self.model_calls - (not self.is_background)) * (self.model_seconds + HOP_SECONDS)
        invocations = 2 + (0 if is_inline else self.model_calls + self.commands + self.remote_calls)
        gb_seconds = model_gib * (api_seconds + model_seconds) + tool_gib * self.tool_seconds
        sandbox_seconds = self.wall_seconds + limits.CONTAINER_IDLE_MINUTES_DEFAULT * 60 if self.commands else 0
        vcpu = CPU_UNITS["1g"] / 1024
        sandbox = sandbox_seconds * (vcpu * prices.fargate_vcpu_second + prices.fargate_gb_second)
        if "1g" in config.microvm_tiers and self.commands:
            awake = self.wall_seconds + MICROVM_START_SECONDS + MICROVM_IDLE_SECONDS
            sandbox = prices.microvm(awake, self.commands * self.command_seconds)
        return {
            "API Gateway": prices.api_request,
            "Lambda": gb_seconds * prices.lambda_gb_second + invocations * prices.lambda_request,
            "Step Functions": self.transitions_billed * prices.transition,
            "DynamoDB": self.counts.write_units * prices.write_unit + self.read_units * prices.read_unit,
            "S3": self.counts.s3_puts * prices.s3_put + self.counts.s3_gets * prices.s3_get,
            "sandbox": sandbox,
        }


class Meter:
    """Runs turns on the deployed stack and measures each."""

    def __init__(self, deployment: Deployment, api: httpx.Client, proxy: CountingProxy, options: argparse.Namespace) -> None:
        self._deployment, self._api, self._proxy, self._options = deployment, api, proxy, options

    def foreground(self) -> Turn:
        self._proxy.taken()
        response = self._api.post("responses", json={"model": "demo", "input": "Say something."}).raise_for_status().json()
        return self._turn("1 model call", response["id"], model_calls=1, commands=0, is_background=False)

    def shell_calls(self, calls: int, *, command_seconds: float, name: str, is_background: bool = True) -> Turn:
        self._proxy.taken()
        text = script(*(shell(f"echo {number}") for number in range(calls)), {"say": "done"})
        response = in_background(self._api, text) if is_background else in_foreground(self._api, text)
        return self._turn(
            name,
            response["id"],
            model_calls=calls + 1,
            commands=calls,
            is_background=is_background,
            command_seconds=command_seconds,
        )

    def remote_calls(self, calls: int) -> Turn:
        """Of the operator's server; its list is read by the first model step."""
        self._proxy.taken()
        find = {"call": {"name": f"{_SERVER}__find_part", "arguments": {"sku": "A-7"}}}
        tools = [{"type": "mcp", "server_label": _SERVER, "require_approval": "never"}]
        body = {"model": "demo", "input": script(*[find] * calls, {"say": "done"}), "tools": tools}
        response = self._api.post("responses", json=body).raise_for_status().json()
        outputs = [item["output"] for item in response["output"] if item["type"] == "mcp_call"]
        assert outputs == ["14 of A-7 in stock"] * calls, response
        return self._turn(
            f"{calls + 1} model calls and {calls} MCP calls",
            response["id"],
            model_calls=calls + 1,
            commands=0,
            is_background=False,
            remote_calls=calls,
            remote_seconds=self._options.remote_seconds,
        )

    def _turn(self, name: str, response_id: str, *, command_seconds: float | None = None, **more: Any) -> Turn:
        time.sleep(_SETTLE_SECONDS)  # what runs after the answer counts too
        seconds = self._options.command_seconds if command_seconds is None else command_seconds
        return Turn(
            name,
            self._proxy.taken(),
            self._transitions(response_id),
            command_seconds=seconds,
            model_seconds=self._options.model_seconds,
            **more,
        )

    def _transitions(self, response_id: str) -> int:
        """States entered, over all executions of a response: what Standard workflows are billed by.

        The emulator's history leaves out that a Map's own states were entered, and has only their tasks.
        """
        client = self._deployment.client("stepfunctions")
        machine = self._deployment.outputs["StateMachineArn"]
        total = 0
        for execution in client.list_executions(stateMachineArn=machine)["executions"]:
            if execution["name"].startswith(response_id):
                pages = client.get_paginator("get_execution_history").paginate(executionArn=execution["executionArn"])
                types = Counter(event["type"] for page in pages for event in page["events"])
                invoked = types["TaskScheduled"] + types["LambdaFunctionScheduled"]
                total += sum(count for kind, count in types.items() if kind.endswith("StateEntered"))
                total += invoked - types["TaskStateEntered"]
        return total


def in_foreground(api: httpx.Client, text: str) -> dict[str, Any]:
    tools = [{"type": "shell", "environment": {"type": "container_auto"}}]
    created: dict[str, Any] = api.post("responses", json={"model": "demo", "input": text, "tools": tools}).raise_for_status().json()
    return created


def recorded() -> list[Turn]:
    """The turns as they were last measured."""
    turns = []
    for turn in json.loads(RECORD.read_text()):
        counts = Counts(**turn["counts"] | {"calls": Counter(turn["counts"]["calls"])})
        turns.append(Turn(**turn | {"counts": counts}))
    return turns


def tables(turns: list[Turn], prices: Prices, config: Config) -> dict[Path, list[str]]:
    """The rows of the documents' tables."""
    short, long = [], []
    for turn in turns:
        dollars = {part: 1000 * each for part, each in turn.dollars(prices, config).items()}
        whole, name = sum(dollars.values()), turn.title
        bare = whole - dollars["sandbox"]
        short.append(f"| {name} | {_rounded(bare)} |")
        microvm = turn.dollars(prices, config.model_copy(update={"provisioner": "lambda_microvm"}))["sandbox"]
        sandbox = f"{_rounded(whole)} | {_rounded(bare + 1000 * microvm)}" if turn.commands else " |"
        counts = f"{turn.transitions_billed} | {turn.counts.write_units:.0f}"
        long.append(f"| {name} | {counts} | {_rounded(bare)} | {sandbox} |".replace("|  | |", "| | |"))
    bare, fargate = prices.at_rest(config.model_copy(update={"provisioner": "none"})), prices.at_rest(config)
    short += [
        f"| idle, a month, without containers | {bare:.2f} |",
        f"| idle, a month, with Fargate's network endpoints | {fargate:.2f} |",
    ]
    return {ROOT / "README.md": short, ROOT / "docs" / "aws.md": long}


def _rounded(dollars: float) -> str:
    return f"{dollars:.2f}" if dollars < 10 else f"{dollars:.0f}"


def write_tables(rows: dict[Path, list[str]]) -> None:
    """Put the rows in the place of those that begin alike."""
    for file, new in rows.items():
        lines = file.read_text().splitlines()
        for row in new:
            start = row[: row.index("|", 1)]
            (number,) = (n for n, line in enumerate(lines) if line.startswith(start))
            lines[number] = row
        file.write_text("\n".join(lines) + "\n")


def with_server(assembly: Path, url: str) -> Path:
    """The operator's server, in each function that has the deployed ``models.toml`` beside it."""
    files = list(assembly.rglob("models.toml"))
    assert files, "no function has its models beside it"
    for file in files:
        file.write_text(f'{file.read_text()}\n[mcp.{_SERVER}]\nurl = "{url}"\n')
    return assembly


def measure(options: argparse.Namespace) -> list[Turn]:
    with tempfile.TemporaryDirectory() as folder, counting_proxy() as (proxy, address), depot_beside(Depot()) as depot:
        home = Path(folder)
        assembly = with_server(synthesise(home / "assembly", BUFFERED), f"{depot.url}/mcp")
        (home / "emulator").mkdir()
        with running_emulator(home / "emulator", seen_by_functions=address) as endpoint:
            proxy.target = endpoint
            deployer = Deployer(boto3.Session("test", "test", region_name=REGION), endpoint)
            outputs = deployer.deploy(assembly)["moorage"]
            deployment = Deployment(deployer, outputs, make_key(deployer, outputs["TableName"]), emulated_url(deployer, outputs))
            headers = {"authorization": f"Bearer {deployment.api_key}"}
            with httpx.Client(base_url=f"{deployment.base_url}/", headers=headers, timeout=600, trust_env=False) as api:
                meter = Meter(deployment, api, proxy, options)
                meter.foreground()  # warms the functions
                turns = [
                    meter.foreground(),
                    meter.shell_calls(
                        9, command_seconds=options.command_seconds, name="10 model calls and 9 shell calls", is_background=False
                    ),
                    meter.shell_calls(9, command_seconds=options.command_seconds, name="10 model calls and 9 shell calls"),
                    meter.shell_calls(1, command_seconds=3600, name="1 hour of background work in one command"),
                    meter.remote_calls(9),
                ]
            deployer.close()
            return turns


def main() -> None:
    """Print what was counted, and dollars per 1,000 turns."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model-seconds", type=float, default=8.0)
    parser.add_argument("--command-seconds", type=float, default=3.0)
    parser.add_argument("--remote-seconds", type=float, default=1.0)
    parser.add_argument("--region", choices=PRICES, default=DEFAULT_REGION)
    parser.add_argument("--docs", action="store_true", help="record the counts, and write the documents that show prices")
    options = parser.parse_args()
    prices, config = PRICES[options.region], Config()
    turns = measure(options)
    if options.docs:
        RECORD.write_text(json.dumps([vars(turn) | {"counts": vars(turn.counts)} for turn in turns], indent=1, sort_keys=True) + "\n")
        write_tables(tables(turns, prices, config))
        subprocess.run([sys.executable, "-m", "tests.bench.scale"], check=True)  # docs/scale.md is arithmetic over these counts
    for turn in turns:
        print(f"\n{turn.title} ({turn.wall_seconds:.0f} s)")
        counts = turn.counts
        print(
            f"  {turn.transitions_billed} transitions, {counts.write_units:.0f} write units, {turn.read_units:.0f} read units, "
            f"{counts.s3_puts} S3 puts, {counts.s3_gets} S3 gets"
        )
        print(f"  calls: {', '.join(f'{name} {number}' for name, number in sorted(counts.calls.items()))}")
        dollars = turn.dollars(prices, config)
        for part, each in dollars.items():
            print(f"  {part:16} {1000 * each:10.3f}")
        whole = sum(dollars.values())
        print(f"  {'without sandbox':16} {1000 * (whole - dollars['sandbox']):10.3f} $ per 1,000 turns")
        print(f"  {'all':16} {1000 * whole:10.3f} $ per 1,000 turns")
        microvm = turn.dollars(prices, Config(provisioner="lambda_microvm"))["sandbox"]
        print(f"  {'with a MicroVM':16} {1000 * (whole - dollars['sandbox'] + microvm):10.3f} $ per 1,000 turns, by calculation")
    both = Config(provisioner={"1g": "lambda_microvm", "16g": "fargate"})
    bare, microvms, beside = (prices.at_rest(each) for each in (Config(provisioner="none"), Config(provisioner="lambda_microvm"), both))
    print(f"\nidle, $ a month: without containers {bare:.2f}, with MicroVMs {microvms:.2f}, with Fargate {prices.at_rest(config):.2f},")
    print(f"with MicroVMs for 1g and Fargate for 16g {beside:.2f}")


if __name__ == "__main__":
    main()
