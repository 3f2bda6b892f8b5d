"""The steps of docs/aws_tests.md, "One afternoon in an account", in order. Each says what it has seen, or raises :class:`NotProved`."""

import asyncio
import json
import re
import secrets
import shlex
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, TypeVar

import httpx
from moorage.store.api_keys import ApiKeys
from moorage.store.dynamodb import DynamoTable

from tests.afternoon.ground import Ground, Settings
from tests.afternoon.record import Record

T = TypeVar("T")
WAIT_SECONDS_MAX: Final = 900
"""For a response, a sandbox, a proxy that rests."""
RESTORE_SECONDS_MAX: Final = 3600
PART_BYTES: Final = 4_000_000
"""Of an upload: API Gateway takes about 4.5 MB of a body that is not text."""
_COMMAND_SAYS: Final = "response.shell_call_output_content.delta"
_PICTURE_SECONDS_MAX: Final = 60
_KILLED_SECONDS: Final = 300
"""Of a command that is not to come to its end."""
SECRET: Final = "the value of the secret"


class NotProved(Exception):
    """What was seen is not what has to come."""


@dataclass
class Afternoon:
    ground: Ground
    record: Record
    egress_host: str = "example.com"
    pause_seconds: float = 1.0
    """Between two looks."""
    _key: str = ""

    @property
    def outputs(self) -> dict[str, str]:
        return self.record.outputs

    @contextmanager
    def api(self, key: str | None = None) -> Iterator[httpx.Client]:
        headers = {"authorization": f"Bearer {key or self.key}"}
        url = f"{self.ground.url(self.outputs).rstrip('/')}/"
        with httpx.Client(base_url=url, headers=headers, timeout=120) as client:
            yield client

    @property
    def key(self) -> str:
        self._key = self._key or self._make_key()
        return self._key

    def _make_key(self) -> str:
        with ThreadPoolExecutor(1) as executor:
            table = DynamoTable(self.ground.client("dynamodb"), self.outputs["TableName"], executor)
            _, secret = asyncio.run(ApiKeys(table, clock=time.time).create("afternoon", name="afternoon"))
            return secret

    def deploy(self, more: Settings | None = None) -> None:
        self.record.outputs = self.ground.deploy({**self.ground.settings, **(more or {})})

    def until(self, what: str, look: Callable[[], T | None], seconds_max: float = WAIT_SECONDS_MAX) -> T:
        """What a look finds at last."""
        deadline = time.monotonic() + seconds_max
        while (found := look()) is None:
            if time.monotonic() > deadline:
                raise NotProved(f"{what}: not within {seconds_max:.0f} s")
            time.sleep(self.pause_seconds)
        return found

    def begin(
        self, api: httpx.Client, *steps: Mapping[str, Any], environment: Mapping[str, Any] | None = None, has_computer: bool = False
    ) -> str:
        """A background response of the demo model that plays these steps, and its id."""
        where = environment or {"type": "container_auto"}
        tools = [{"type": "shell", "environment": where}, *([{"type": "computer", "container": where}] if has_computer else [])]
        request = {"model": "demo", "input": script(*steps), "background": True, "tools": tools}
        self.record.sandboxes += where["type"] == "container_auto"
        created: dict[str, Any] = api.post("responses", json=request).raise_for_status().json()
        return str(created["id"])

    def ended(self, api: httpx.Client, response_id: str) -> dict[str, Any]:
        """The response when it has come to its end; raises if that is not a good one."""

        def look() -> dict[str, Any] | None:
            found: dict[str, Any] = api.get(f"responses/{response_id}").raise_for_status().json()
            return None if found["status"] in ("queued", "in_progress") else found

        response = self.until(f"the end of {response_id}", look)
        if response["status"] != "completed":
            raise NotProved(f"{response_id} is {response['status']}: {json.dumps(response.get('error'))}")
        return response


def script(*steps: Mapping[str, Any]) -> str:
    """What makes the demo model play these steps."""
    return f"```moorage-script\n{json.dumps(steps)}\n```"


def shell(command: str) -> dict[str, Any]:
    return {"shell": {"commands": [command], "timeout_ms": 600_000}}


def acts(*actions: Mapping[str, Any]) -> dict[str, Any]:
    return {"call": {"name": "computer", "arguments": {"actions": actions}}}


def printed(response: Mapping[str, Any]) -> list[str]:
    """Standard output of each command."""
    outputs = (item["output"] for item in response["output"] if item["type"] == "shell_call_output")
    return [each["stdout"].strip() for output in outputs for each in output]


def container_of(response: Mapping[str, Any]) -> str:
    calls = (item for item in response["output"] if item["type"] == "shell_call")
    return str(next(calls)["environment"]["container_id"])


def demand(is_true: bool, otherwise: str) -> None:
    if not is_true:
        raise NotProved(otherwise)


# --- The steps ---


def account(a: Afternoon) -> str:
    said = a.ground.look_at_account()
    return f"moorage doctor --aws found no failure, and warned of {sum('warn' in line for line in said.splitlines())} things"


def deploy(a: Afternoon) -> str:
    a.deploy()
    stack = a.ground.client("cloudformation").describe_stacks(StackName=a.ground.name)["Stacks"][0]
    demand(stack["StackStatus"] in ("CREATE_COMPLETE", "UPDATE_COMPLETE"), f"the stack is {stack['StackStatus']}")
    return f"{stack['StackStatus']} at {a.ground.url(a.outputs)}"


def edge(a: Afternoon) -> str:
    with a.api("sk-moorage-wrong") as stranger:
        refused = stranger.get("models")
    demand((refused.status_code, refused.json()["error"]["code"]) == (401, "invalid_api_key"), f"a stranger got {refused.status_code}")
    cold, times = _streamed(a)
    warm, _ = _streamed(a)
    demand(times[-1] - times[0] > 0.5, f"{len(times)} events came all at once")
    spread = f"{len(times)} events over {times[-1] - times[0]:.1f} s"
    return f"{spread}; the first after {cold:.2f} s, then after {warm:.2f} s; a stranger got 401"


def _streamed(a: Afternoon) -> tuple[float, list[float]]:
    """Seconds to the first event, and when each came."""
    steps = {"say": "one two three four five six seven eight", "delta_ms": 200}
    times: list[float] = []
    with a.api() as api:
        began = time.monotonic()
        with api.stream("POST", "responses", json={"model": "demo", "input": script(steps), "stream": True}) as answer:
            times = [time.monotonic() for line in answer.iter_lines() if line.startswith("event:")]
    demand(len(times) > 3, "no events came")
    return times[0] - began, times


def sandbox(a: Afternoon) -> str:
    reach = "python3 -c \"import socket; socket.create_connection(('example.com', 443), 5)\" 2>/dev/null && echo open || echo closed"
    with a.api() as api:
        began = time.monotonic()
        first = a.ended(api, a.begin(api, shell("echo here"), {"say": "ok"}))
        started = time.monotonic() - began
        again = {"type": "container_reference", "container_id": container_of(first)}
        began = time.monotonic()
        second = a.ended(api, a.begin(api, shell("echo here"), {"say": "ok"}, environment=again))
        warm = time.monotonic() - began
        demand(printed(first) == printed(second) == ["here"], f"commands said {printed(first)} and {printed(second)}")
        said = f"a response with a new sandbox took {started:.0f} s, with a warm one {warm:.1f} s"
        if "egress" not in a.ground.features:
            return said
        (network,) = printed(a.ended(api, a.begin(api, shell(reach), {"say": "ok"}, environment=again)))
        demand(network == "closed", "a sandbox without a policy reached example.com")
    return f"{said}; it reached nothing"


def egress(a: Afternoon) -> str:
    host = a.egress_host
    policy = {
        "type": "allowlist",
        "allowed_domains": [host],
        "domain_secrets": [{"domain": host, "name": "API_KEY", "value": SECRET}],
    }
    allowed = f"curl -sS -o /dev/null -w '%{{http_code}}' --retry 20 --retry-all-errors --retry-delay 5 https://{host}/"
    denied = "curl -sS -m 20 https://denied.example.org/ 2>/dev/null || echo denied"
    with a.api() as api:
        command = shell(f'{allowed}; echo; {denied}; printf %s "$API_KEY"')
        response = a.ended(api, a.begin(api, command, {"say": "ok"}, environment={"type": "container_auto", "network_policy": policy}))
        said, container = printed(response)[0], container_of(response)
        demand(said.split()[:1] != ["000"] and "denied" in said, f"the commands said {said!r}")
        demand(SECRET not in json.dumps(response), "the secret's value is in the response")
        decisions = [each["decision"] for each in api.get(f"containers/{container}/egress").raise_for_status().json()["data"]]
        demand({"allowed", "denied"} <= set(decisions), f"decisions were {decisions}")
        api.delete(f"containers/{container}").raise_for_status()
    ecs = a.ground.client("ecs")
    clusters = [arn for arn in ecs.list_clusters()["clusterArns"] if ecs.list_services(cluster=arn)["serviceArns"]]
    (cluster,) = [arn for arn in clusters if a.ground.name in arn]
    services = ecs.list_services(cluster=cluster)["serviceArns"]

    def rests() -> bool | None:
        (service,) = ecs.describe_services(cluster=cluster, services=services)["services"]
        return True if service["desiredCount"] == 0 else None

    began = time.monotonic()
    a.until("the proxy's rest", rests)
    rested = time.monotonic() - began
    return f"{host} answered {said.split()[0]}, another was denied, the secret stayed out; the proxy rested {rested:.0f} s later"


def traces(a: Afternoon) -> str:
    trace = f"{int(time.time()):08x}{secrets.token_hex(12)}"
    with a.api() as api:
        api.headers["traceparent"] = f"00-{trace}-{secrets.token_hex(8)}-01"
        a.ended(api, a.begin(api, shell("echo traced"), {"say": "ok"}))
    xray = a.ground.client("xray")

    def look() -> int | None:
        found = xray.batch_get_traces(TraceIds=[f"1-{trace[:8]}-{trace[8:]}"])["Traces"]
        return len(found[0]["Segments"]) if found and len(found[0]["Segments"]) > 2 else None

    return f"{a.until('the trace', look)} segments in one trace"


def large_file(a: Afternoon) -> str:
    size = a.ground.file_bytes
    with a.api() as api:
        began = time.monotonic()
        about = {"bytes": size, "filename": "large.bin", "mime_type": "application/octet-stream", "purpose": "user_data"}
        upload = api.post("uploads", json=about).raise_for_status().json()
        pieces = [bytes(min(PART_BYTES, size - at)) for at in range(0, size, PART_BYTES)]
        sent = [api.post(f"uploads/{upload['id']}/parts", files={"data": piece}).raise_for_status().json()["id"] for piece in pieces]
        file = api.post(f"uploads/{upload['id']}/complete", json={"part_ids": sent}).raise_for_status().json()["file"]
        uploaded = time.monotonic() - began
        try:
            environment = {"type": "container_auto", "file_ids": [file["id"]]}
            response = a.ended(api, a.begin(api, shell("wc -c < /mnt/data/large.bin"), {"say": "ok"}, environment=environment))
            demand(printed(response) == [str(size)], f"the sandbox has {printed(response)} bytes")
        finally:
            api.delete(f"files/{file['id']}")
    return f"{size / 1e6:.0f} MB went up in {len(sent)} parts and {uploaded:.0f} s, and a sandbox has every byte"


def websocket(a: Afternoon) -> str:
    from websockets.sync.client import connect

    def first_event() -> float:
        began = time.monotonic()
        with connect(a.outputs["WebSocketUrl"], additional_headers={"Authorization": f"Bearer {a.key}"}) as socket:
            socket.send(json.dumps({"type": "response.create", "model": "demo", "input": "hello"}))
            kinds = [json.loads(socket.recv(60))["type"]]
            first = time.monotonic() - began
            while kinds[-1] != "response.completed":
                kinds.append(json.loads(socket.recv(60))["type"])
        demand(kinds[0] == "response.created", f"the first event was {kinds[0]}")
        return first

    cold, warm = first_event(), first_event()
    return f"the first event came after {cold:.2f} s, then after {warm:.2f} s"


def killed_task(a: Afternoon) -> str:
    with a.api() as api:
        response_id = a.begin(api, shell(f"echo begun; sleep {_KILLED_SECONDS}; echo survived"), shell("echo again"), {"say": "ok"})
        # A task that is stopped before its command has begun takes no command with it.
        demand(_says(api, response_id, "begun"), f"{response_id} ended before its task was stopped")
        started_by = container_of(api.get(f"responses/{response_id}").raise_for_status().json())
        (victim,) = [each["taskArn"] for each in _tasks(a) if each.get("startedBy", "").split("/")[0] == started_by]
        a.ground.client("ecs").stop_task(cluster=a.ground.name, task=victim, reason="an afternoon's test")
        first, second = printed(a.ended(api, response_id))
    demand(("survived" not in first, second) == (True, "again"), f"the commands said {first!r} and {second!r}")
    return "the task was stopped in the middle of a command; the response said so, went on in another one and completed"


def _says(api: httpx.Client, response_id: str, word: str) -> bool:
    """Whether a command of the response says it; looks no further."""
    with api.stream("GET", f"responses/{response_id}", params={"stream": "true"}, timeout=WAIT_SECONDS_MAX) as answer:
        events = (json.loads(line.removeprefix("data: ")) for line in answer.iter_lines() if line.startswith("data: {"))
        return any(event["type"] == _COMMAND_SAYS and word in json.dumps(event["delta"]) for event in events)


def _tasks(a: Afternoon) -> list[dict[str, Any]]:
    ecs = a.ground.client("ecs")
    arns = ecs.list_tasks(cluster=a.ground.name)["taskArns"]
    found: list[dict[str, Any]] = ecs.describe_tasks(cluster=a.ground.name, tasks=arns)["tasks"] if arns else []
    return found


def update_under_load(a: Afternoon) -> str:
    wait, many = shell(f"echo once >> log; sleep {a.ground.command_seconds}; wc -l < log"), a.ground.responses_at_once
    with a.api() as api:
        begun = [a.begin(api, *[wait] * 3, {"say": "ok"}) for _ in range(many)]
    a.deploy(a.ground.another_image)
    with a.api() as api:
        said = [printed(a.ended(api, each)) for each in begun]
        demand(said == [["1", "2", "3"]] * many, f"commands ran otherwise than once each: {said}")
        after = printed(a.ended(api, a.begin(api, shell("echo new"), {"say": "ok"})))
        demand(after == ["new"], f"with the new image a command said {after}")
    return f"another image and other code came while {many} responses ran {3 * many} commands; all completed, each command ran once"


def zones(a: Afternoon) -> str:
    a.deploy({**a.ground.another_image, "availability_zones": 2})
    with a.api() as api:
        said = printed(a.ended(api, a.begin(api, shell("echo here"), {"say": "ok"})))
    demand(said == ["here"], f"a command said {said}")
    a.deploy(a.ground.another_image)
    return "the deployment went from one zone to two, started a sandbox there, and went back"


_SHOP: Final = """<title>0</title><button style="position: absolute; left: 0; top: 0; width: 200px; height: 100px"
    onclick="document.title = Number(document.title) + 1">Add to cart</button>"""
_SERVE: Final = f"printf %s {shlex.quote(_SHOP)} > index.html; (setsid nohup python3 -m http.server 8000 >/dev/null 2>&1 &); sleep 3"
_LOOK: Final = {"type": "navigate", "url": "http://localhost:8000/"}
_CLICK: Final = {"type": "click", "x": 100, "y": 50}
_BROWSERS: Final = "grep -slza 'remote-debuggin[g]-pipe' /proc/[0-9]*/cmdline | wc -l"


def computer(a: Afternoon) -> str:
    a.deploy({**a.ground.another_image, "computer": True})
    with a.api() as api:
        began = time.monotonic()
        first = a.ended(api, a.begin(api, shell(_SERVE), acts(_LOOK), {"say": "ok"}, has_computer=True))
        started = time.monotonic() - began
        container = container_of(first)
        again = {"type": "container_reference", "container_id": container}

        def browsed(*steps: Mapping[str, Any]) -> dict[str, Any]:
            return a.ended(api, a.begin(api, *steps, {"say": "ok"}, environment=again, has_computer=True))

        began = time.monotonic()
        second = browsed(acts(_CLICK, _CLICK))
        warm = time.monotonic() - began
        seen = [page["title"] for page in _pages(first) + _pages(second)]
        demand(seen == ["0", "2"], f"the pages were {seen}")
        closed = browsed(acts({"type": "navigate", "url": f"http://{a.egress_host}/"}), shell(_BROWSERS))
        ((page,), (processes,)) = _pages(closed), printed(closed)
        demand(bool(page["refused"]), f"a browser without a policy was not refused {a.egress_host}")
        demand(processes == "0", f"commands see {processes} processes of a browser")
        api.post(f"containers/{container}/screen/control", json={"action": "take", "holder": "afternoon"}).raise_for_status()
        screen = a.until("a picture for a person", lambda: _picture(api, container), _PICTURE_SECONDS_MAX)
        demand(screen["holder"].endswith("/afternoon"), f"control has {screen['holder']!r}")
    a.deploy(a.ground.another_image)
    return (
        f"with a new sandbox a picture was there after {started:.0f} s, then a click's after {warm:.1f} s; commands saw no browser, a "
        "person had control, and the deployment went back"
    )


def _picture(api: httpx.Client, container: str) -> dict[str, Any] | None:
    seen: dict[str, Any] = api.get(f"containers/{container}/screen", params={"wait_ms": 10_000}).raise_for_status().json()
    return seen if seen["picture"] else None


def _pages(response: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [item["page"] for item in response["output"] if item["type"] == "computer_call_output"]


def throttle(a: Afternoon) -> str:
    with a.api() as api, ThreadPoolExecutor(100) as executor:
        answers = list(executor.map(lambda _: api.get("models"), range(600)))
    refused = [each for each in answers if each.status_code == 429]
    kinds = {each.status_code for each in answers}
    demand(bool(refused) and kinds == {200, 429}, f"statuses were {sorted(kinds)}")
    demand(all(each.json()["error"]["type"] for each in refused), "a refusal has another envelope")
    return f"of 600 requests at once {len(refused)} were refused with 429 in OpenAI's envelope"


def restore(a: Afternoon) -> str:
    dynamodb, target = a.ground.client("dynamodb"), f"{a.ground.name}-restored"
    table, bucket = a.outputs["TableName"], a.outputs["BucketName"]
    with a.api() as api:
        kept = a.ended(api, a.begin(api, shell("echo kept"), {"say": "ok"}))["id"]
        moment = datetime.now(UTC)
        a.until("a moment that can be restored", lambda: _can_restore(dynamodb, table, moment))
        api.delete(f"responses/{kept}").raise_for_status()
        demand(api.get(f"responses/{kept}").status_code == 404, "what was deleted is still there")
    began = time.monotonic()
    try:
        dynamodb.restore_table_to_point_in_time(SourceTableName=table, TargetTableName=target, RestoreDateTime=moment)
        active = lambda: True if dynamodb.describe_table(TableName=target)["Table"]["TableStatus"] == "ACTIVE" else None  # noqa: E731
        a.until("the restored table", active, RESTORE_SECONDS_MAX)
        restored = time.monotonic() - began
        a.deploy({**a.ground.another_image, "table_name": target, "bucket_name": bucket})
        with a.api() as api:
            found = api.get(f"responses/{kept}")
            demand(found.status_code == 200, f"the restored deployment answered {found.status_code}")
    finally:
        a.deploy(a.ground.another_image)
        dynamodb.delete_table(TableName=target)
    return f"a response that was deleted is there in a table restored within {restored:.0f} s; the deployment took it and went back"


def _can_restore(dynamodb: Any, table: str, moment: datetime) -> bool | None:
    described = dynamodb.describe_continuous_backups(TableName=table)["ContinuousBackupsDescription"]
    latest = described["PointInTimeRecoveryDescription"].get("LatestRestorableDateTime", moment)
    return True if latest >= moment else None


def destroy(a: Afternoon) -> str:
    a.ground.destroy()
    a.record.outputs = {}
    cloudformation = a.ground.client("cloudformation")
    left = [
        each["StackName"]
        for each in cloudformation.describe_stacks()["Stacks"]
        if re.fullmatch(rf"{re.escape(a.ground.name)}(-state)?", each["StackName"]) and each["StackStatus"] != "DELETE_COMPLETE"
    ]
    demand(not left, f"stacks are left: {', '.join(left)}")
    return "no stack is left"


@dataclass(frozen=True)
class Step:
    name: str
    run: Callable[[Afternoon], str]
    proves: str
    needs: str = ""
    """A feature of the ground."""
    is_of_deployment: bool = True
    """It asks something of a deployment that is there."""


STEPS: Final = (
    Step("account", account, "what the deployment asks of a new account", "account", is_of_deployment=False),
    Step(
        "deploy",
        deploy,
        "CloudFormation takes the templates, CodeBuild builds the images, and their ends are heard of",
        is_of_deployment=False,
    ),
    Step("edge", edge, "the Web Adapter, the streamed integration, the authorizer, cold starts"),
    Step("sandbox", sandbox, "the image pull, the closed network, the event of a task's address, the tool step's way to it"),
    Step("egress", egress, "the peering, the proxy's start, rights and rest, secrets that stay out", "egress"),
    Step("traces", traces, "the loop runs in the trace of its request", "traces"),
    Step("large file", large_file, "uploads in parts, and the way of a large file into a sandbox"),
    Step("websocket", websocket, "the WebSocket API's stage, authorizer, door, worker and management rights", "websocket"),
    Step("killed task", killed_task, "a response outlives its sandbox"),
    Step("update under load", update_under_load, "versions, aliases and task definitions of an update"),
    Step("zones", zones, "subnets of another zone come and go"),
    Step("computer", computer, "the second image and container of a task, the way to a browser, its walls", "computer"),
    Step("throttle", throttle, "the gateway's throttle, and its refusals in OpenAI's words", "throttle"),
    Step("restore", restore, "point-in-time recovery, and a deployment that adopts a table"),
    Step("destroy", destroy, "sandboxes end with the stack, and nothing is left that costs", is_of_deployment=False),
)
