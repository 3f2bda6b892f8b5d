"""A deployment while fifty responses run: no response fails, and nothing is done twice.

Each ``*.tar.xz`` beside this file is the code of an older version, as ``git archive COMMIT layers/core/python/moorage functions/steps
functions/responses functions/reaper`` gives it, without console, command line and what is for one machine. Its functions run in a
process of their own beside those of this version, over one table and one bucket. What began with the older ones goes on with them;
everything else is the new ones' from the deployment on: requests about the same responses, the reaper, and what it takes up.
"""

import asyncio
import contextlib
import json
import os
import socket
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
from moorage.store.api_keys import ApiKeys
from moorage.store.dynamodb import DynamoTable

from tests.mcp_servers import Depot, Running, depot_beside
from tests.ministack import ACCESS_KEY_ID, REGION, SECRET_ACCESS_KEY, Ministack, aws_clients, new_table_and_bucket
from tests.stack import assert_well_formed, say, script
from tests.upgrade.machine import ARN, Execution, StateMachine, Version

ROOT: Final = Path(__file__).resolve().parents[2]
ARCHIVES: Final = sorted(Path(__file__).parent.glob("*.tar.xz"))
RUNNING: Final = 50
IN_A_CALL: Final = 3
"""Of them, whose call of a remote server has begun and is not answered yet. The others are held before a task."""
CALLING: Final = 18
"""Of these, who call too: the model is asked, they call, it is asked again. The rest are about to be answered."""
_SECONDS_MAX: Final = 120


@dataclass
class World:
    """Table, bucket, state machine and a remote server, which outlive every version."""

    home: Path
    variables: dict[str, str]
    machine: StateMachine
    depot: Depot
    server: Running
    key: str
    begun: threading.Event = field(default_factory=threading.Event)
    deployed: threading.Event = field(default_factory=threading.Event)
    places: dict[str, int] = field(default_factory=dict)
    """Before which of its tasks an execution is held until the new version is there."""
    held: set[str] = field(default_factory=set)

    def before_task(self, execution: Execution) -> None:
        assert self.begun.wait(_SECONDS_MAX)
        if execution.tasks == self.places.get(execution.name) and not self.deployed.is_set():
            self.held.add(execution.name)
            assert self.deployed.wait(_SECONDS_MAX)

    def orders(self, prefix: str) -> int:
        return sum(sku.startswith(prefix) for sku, _ in self.depot.orders)

    async def before_order(self) -> None:
        (sku, _) = self.depot.orders[-1]
        while sku.startswith("slow") and not self.deployed.is_set():
            await asyncio.sleep(0.05)

    @contextlib.contextmanager
    def serving(self, name: str, tree: Path) -> Iterator[Version]:
        """The functions of a version."""
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        command = [sys.executable, "-m", "uvicorn", "--factory", "functions:make_app", "--port", str(port), "--log-level", "warning"]
        log = self.home / f"{name}.log"
        with log.open("wb") as words:
            path = f"{tree / 'layers/core/python'}:{Path(__file__).parent}"
            environment = self.variables | {"PYTHONPATH": path, "TREE": str(tree), "PATH": os.defpath}
            process = subprocess.Popen(command, cwd=self.home, env=environment, stdout=words, stderr=words)
        url, definition = f"http://127.0.0.1:{port}", tree / "layers/core/python/moorage/loop/agent_loop.asl.json"

        def answers() -> bool:
            assert process.poll() is None, log.read_text()
            with contextlib.suppress(httpx.TransportError):
                return httpx.get(f"{url}/healthz", trust_env=False).status_code == 200
            return False

        try:
            until(answers)
            yield Version(name, url, json.loads(definition.read_text()))
        finally:
            process.terminate()
            process.wait(30)

    def api(self, version: Version) -> httpx.Client:
        headers = {"authorization": f"Bearer {self.key}"}
        return httpx.Client(base_url=f"{version.url}/v1/", headers=headers, timeout=_SECONDS_MAX, trust_env=False)

    def begin(self, api: httpx.Client, sku: str | None) -> str:
        """A background response that orders one part, or just answers."""
        tool = {"type": "mcp", "server_label": "depot", "server_url": f"{self.server.url}/mcp", "require_approval": "never"}
        call = {"call": {"name": "depot__order_part", "arguments": {"sku": sku, "count": 1}}}
        steps = [say("Done.")] if sku is None else [call, say("Done.")]
        request = {"model": "demo", "input": script(*steps), "tools": [tool] if sku else [], "background": True}
        answer = api.post("responses", json=request)
        assert answer.status_code == 200, answer.text
        made: str = answer.json()["id"]
        return made


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _SECONDS_MAX
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.fixture(scope="module")
def emulator() -> Iterator[Ministack]:
    server = Ministack.start()
    yield server
    server.stop()


@pytest.fixture
def world(emulator: Ministack, tmp_path: Path) -> Iterator[World]:
    clients = aws_clients(emulator.endpoint)
    table_name, bucket_name = new_table_and_bucket(clients)
    with ThreadPoolExecutor(1) as executor:
        _, key = asyncio.run(ApiKeys(DynamoTable(clients.dynamodb, table_name, executor), clock=time.time).create("acme"))
    (tmp_path / "models.toml").touch()
    depot, machine = Depot(), StateMachine()
    with depot_beside(depot) as server:
        variables = {
            "AWS_ENDPOINT_URL": emulator.endpoint,
            "AWS_ENDPOINT_URL_SFN": machine.url,
            "AWS_ACCESS_KEY_ID": ACCESS_KEY_ID,
            "AWS_SECRET_ACCESS_KEY": SECRET_ACCESS_KEY,
            "AWS_DEFAULT_REGION": REGION,
            "MOORAGE_TABLE": table_name,
            "MOORAGE_BUCKET": bucket_name,
            "MOORAGE_STATE_MACHINE_ARN": ARN,
            "MOORAGE_CONTENT_KEY": "ab" * 32,
            "MOORAGE_PROVISIONER": "elsewhere",
            "MOORAGE_FETCH_ALLOWED_NETWORKS": "127.0.0.0/8,::1/128",
            "MOORAGE_EGRESS_PORTS": str(server.port),
            "MOORAGE_RUNNING_RESPONSES_MAX": str(2 * RUNNING),
        }
        made = World(tmp_path, variables, machine, depot, server, key)
        depot.before_order, machine.before_task = made.before_order, made.before_task
        yield made
        made.begun.set()
        made.deployed.set()
        machine.close()
    for client in (clients.dynamodb, clients.s3, clients.stepfunctions, clients.lambda_):
        client.close()


def events_of(api: httpx.Client, response_id: str) -> list[dict[str, Any]]:
    """Its log, followed to its end."""
    with api.stream("GET", f"responses/{response_id}", params={"stream": "true"}) as answer:
        assert answer.status_code == 200
        return [json.loads(line.removeprefix("data: ")) for line in answer.iter_lines() if line.startswith("data: {")]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("archive", ARCHIVES, ids=lambda path: path.name.removesuffix(".tar.xz"))
def test_a_deployment_fails_no_response_that_runs_and_does_nothing_twice(archive: Path, world: World, tmp_path: Path) -> None:
    tree, machine = tmp_path / "older", world.machine
    with tarfile.open(archive) as packed:
        packed.extractall(tree, filter="data")
    with world.serving("older", tree) as older, world.api(older) as before:
        machine.current = older
        slow = [world.begin(before, f"slow-{number}") for number in range(IN_A_CALL)]
        calling = [world.begin(before, f"part-{number}") for number in range(CALLING)]
        asked = [world.begin(before, None) for _ in range(RUNNING - IN_A_CALL - CALLING)]
        unwanted = world.begin(before, "unwanted")
        world.places |= {response_id: 1 + number % 3 for number, response_id in enumerate(calling)}
        world.places |= dict.fromkeys(asked, 1) | {unwanted: 2}
        running = (*slow, *calling, *asked)
        with ThreadPoolExecutor(1) as readers:
            followed = readers.submit(events_of, before, slow[0])
            world.begun.set()
            until(lambda: len(world.held) == len(world.places) and world.orders("slow") == IN_A_CALL)
            with world.serving("newer", ROOT) as newer, world.api(newer) as api:
                machine.current = newer
                lost = [asked[0], *calling[:3]]  # whose executions have ended before each of their tasks
                for response_id in lost:
                    machine.stop(response_id)
                assert {api.get(f"responses/{each}").json()["status"] for each in running} <= {"queued", "in_progress"}
                assert api.post(f"responses/{unwanted}/cancel").json()["status"] == "cancelled"
                newer.invoke("reaper", "recover_responses", {})
                fresh = [world.begin(api, f"fresh-{number}") for number in range(3)]
                world.deployed.set()
                until(lambda: all(execution.ended.is_set() for execution in [*machine.executions.values()]))

                assert machine.failures == []
                taken_up = {f"{response_id}-r1" for response_id in lost}
                versions = {execution.name: execution.version.name for execution in machine.executions.values()}
                assert versions == dict.fromkeys((*running, unwanted), "older") | dict.fromkeys((*taken_up, *fresh), "newer")
                counts = [("slow", IN_A_CALL), ("part", CALLING), ("fresh", 3)]
                wanted = [f"{name}-{number}" for name, count in counts for number in range(count)]
                assert sorted(sku for sku, _ in world.depot.orders) == sorted(wanted)
                for response_id in (*running, *fresh):
                    assert_done(api, response_id, calls=0 if response_id in asked else 1)
                assert plain(followed.result(_SECONDS_MAX)) == plain(events_of(api, slow[0]))
                after = api.post("responses", json={"model": "demo", "input": "And then?", "previous_response_id": slow[0]}).json()
                assert (after["status"], after["error"]) == ("completed", None)


def plain(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Without the random letters that every reading adds."""
    return [{name: value for name, value in event.items() if name != "obfuscation"} for event in events]


def assert_done(api: httpx.Client, response_id: str, *, calls: int) -> None:
    events = events_of(api, response_id)
    assert_well_formed(events)
    response = api.get(f"responses/{response_id}").json()
    assert response == events[-1]["response"]
    called = [item["error"] for item in response["output"] if item["type"] == "mcp_call"]
    assert (response["status"], response["error"], called) == ("completed", None, [None] * calls)
    assert response["output"][-1]["content"][0]["text"] == "Done."
