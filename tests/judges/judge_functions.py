"""AWS's own clients judge the functions as they are uploaded: the Lambda Web Adapter runs the streaming one, ``awslambdaric`` the
others, behind the twin of API Gateway and before an emulator's table and a local stack's sandboxes (``packages.py``).
"""

import json
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from openai import AuthenticationError, NotFoundError, OpenAI

from tests.deploy.conftest import SETTINGS, synthesise
from tests.judges import adapter
from tests.judges.packages import Deployed, deployed
from tests.ministack import Ministack
from tests.stack import Stack, at_endpoint, outputs, raw_events, say, script, shell
from tests.twin import runtime_api
from tests.twin.sockets import told_by
from tests.unit.sandbox import documents

pytestmark = pytest.mark.timeout(900)
SHELL: Any = {"type": "shell", "environment": {"type": "container_auto"}}


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    if (reason := adapter.reason_without()) is not None:
        pytest.skip(reason)
    emulator = Ministack.start()
    running = Stack(tmp_path_factory.mktemp("stack"), at_endpoint(emulator.endpoint)).start()
    yield running
    running.stop()
    emulator.stop()


@pytest.fixture(scope="session")
def service(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployed]:
    if not runtime_api.HAS_CLIENT:
        pytest.skip(runtime_api.REASON)
    if shutil.which("node") is None:
        pytest.skip("the packages are made by the CDK, which needs Node")
    assembly = synthesise(tmp_path_factory.mktemp("assembly"), SETTINGS)
    with deployed(assembly, told_by(stack), stack.key) as running:
        yield running


@pytest.fixture
def client(service: Deployed) -> Iterator[OpenAI]:
    with OpenAI(base_url=service.origin, api_key=service.key, max_retries=0, timeout=300) as client:
        yield client
    assert service.loop.failures == []


@pytest.fixture
def http(service: Deployed) -> Iterator[httpx.Client]:
    key = {"authorization": f"Bearer {service.key}"}
    with httpx.Client(base_url=service.origin, headers=key, timeout=300, trust_env=False) as http:
        yield http


@pytest.fixture
def downloaded(http: httpx.Client) -> Callable[[str], bytes]:
    """What the signed address leads to that an answer without a body names."""

    def download(path: str) -> bytes:
        answer = http.get(path)
        assert (answer.status_code, "X-Amz-Signature" in answer.headers["location"]) == (302, True)
        return httpx.get(answer.headers["location"], trust_env=False).raise_for_status().content

    return download


# --- the streaming function behind the Web Adapter --------------------------------------------------------------------------


def slowly(text: str, delta_ms: int) -> dict[str, Any]:
    return {"model": "demo", "input": script({"delta_ms": delta_ms}, say(text)), "stream": True}


def test_the_adapters_settings_are_those_of_the_deployment(service: Deployed) -> None:
    told = service.packages["Responses"].variables
    assert {name: value for name, value in told.items() if name.startswith("AWS_L")} == {
        "AWS_LAMBDA_EXEC_WRAPPER": "/opt/bootstrap",
        "AWS_LWA_INVOKE_MODE": "response_stream",
        "AWS_LWA_PORT": "8080",
        "AWS_LWA_READINESS_CHECK_PATH": "/healthz",
        "AWS_LWA_ASYNC_INIT": "true",
    }


def test_events_pass_the_adapter_one_by_one_while_the_model_speaks(http: httpx.Client) -> None:
    """What came before the last delta was said came in at least three pieces: nothing gathers them."""
    pieces: list[bytes] = []
    with http.stream("POST", "/responses", json=slowly("one two three four five six seven eight", 150)) as answer:
        assert (answer.status_code, answer.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")
        for piece in answer.iter_raw():
            pieces.append(piece)
    events = raw_events(b"".join(pieces).decode().splitlines())
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert (events[0]["type"], events[-1]["type"]) == ("response.created", "response.completed")
    with_deltas = [piece for piece in pieces if b"response.output_text.delta" in piece]
    assert len(with_deltas) >= 3


def test_a_stream_is_resumed_by_its_query(http: httpx.Client) -> None:
    whole = raw_events(http.post("/responses", json=slowly("one two three", 0)).text.splitlines())
    path = f"/responses/{whole[0]['response']['id']}"
    rest = raw_events(http.get(path, params={"stream": "true", "starting_after": "3"}).text.splitlines())
    assert [event["sequence_number"] for event in rest] == [event["sequence_number"] for event in whole[4:]]


@pytest.mark.parametrize("size", [100_000, 3_000_000])
def test_large_bodies_pass_in_both_directions(client: OpenAI, size: int) -> None:
    """Three bytes a letter."""
    text = "…" * (size // 3)
    conversation = client.conversations.create(items=[{"role": "user", "content": text}])
    (item,) = client.conversations.items.list(conversation.id).data
    assert item.to_dict()["content"] == [{"type": "input_text", "text": text}]


def test_more_than_lambda_takes_is_refused_by_the_gateway(http: httpx.Client) -> None:
    answer = http.post("/responses", json={"model": "demo", "input": "x" * 7_000_000})
    assert (answer.status_code, answer.json()["error"]["code"]) == (413, "request_too_large")


def test_refusals_of_the_application_keep_their_status_and_words(http: httpx.Client) -> None:
    refused = http.post("/responses", json={"model": "demo", "input": 1})
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "input")
    assert http.get("/responses/resp_nowhere").status_code == 404
    assert http.delete("/responses/resp_nowhere").status_code == 404
    assert http.request("PATCH", "/responses").status_code in (404, 405)
    assert refused.headers["x-request-id"]


def test_a_response_that_is_cancelled_has_no_body_in_its_request(client: OpenAI) -> None:
    response = client.responses.create(model="demo", input=script({"sleep_ms": 60_000}, say("never")), background=True)
    assert client.responses.cancel(response.id).status == "cancelled"


def test_a_client_that_goes_away_ends_nothing_and_the_next_one_is_served(http: httpx.Client, client: OpenAI) -> None:
    with http.stream("POST", "/responses", json=slowly("one two three four five six", 150)) as answer:
        first = next(line for line in answer.iter_lines() if line.startswith("data: "))
    response_id = json.loads(first.removeprefix("data: "))["response"]["id"]
    assert client.responses.create(model="demo", input="still there?").status == "completed"
    assert client.responses.retrieve(response_id).status == "completed"


def test_a_function_that_dies_in_the_middle_ends_the_stream_without_a_last_event(
    service: Deployed, http: httpx.Client, client: OpenAI
) -> None:
    """The adapter adds words of its own, which are no event, and the connection ends in good order. The next request finds the function
    made anew."""
    seen: list[str] = []
    with http.stream("POST", "/responses", json=slowly("one two three four five", 400)) as answer:
        for line in answer.iter_lines():
            seen.append(line)
            if len(seen) == 1:
                environment = service.functions.streaming["Responses"].environment
                assert environment is not None
                os.killpg(environment.function.pid, signal.SIGKILL)
    events = [json.loads(line.removeprefix("data: "))["type"] for line in seen if line.startswith("data: ")]
    assert events[0] == "response.created"
    assert not {"response.completed", "response.failed", "response.incomplete"} & set(events)
    assert seen[-2:][0] + "\r\n" == adapter.BROKE_OFF.decode().splitlines(keepends=True)[0]
    assert client.responses.create(model="demo", input="again").status == "completed"


@pytest.fixture
def late(service: Deployed, tmp_path: Path) -> Iterator[adapter.Environment]:
    """An application that serves nothing before there is a file ``go``."""
    (tmp_path / "run.sh").write_text(
        "#!/bin/sh\nwhile [ ! -e go ]; do sleep 0.05; done\nexec python3 server.py\n",
    )
    (tmp_path / "run.sh").chmod(0o755)
    (tmp_path / "server.py").write_text(
        "import os, http.server as h\n"
        "class S(h.BaseHTTPRequestHandler):\n"
        "    def do_GET(self):\n"
        "        open('asked', 'a').write(self.path + '\\n')\n"
        "        self.send_response(200); self.end_headers()\n"
        "h.ThreadingHTTPServer(('127.0.0.1', int(os.environ['AWS_LWA_PORT'])), S).serve_forever()\n"
    )
    environment = adapter.Environment(tmp_path, (), service.packages["Responses"].variables)
    yield environment
    environment.end()


def test_the_adapter_asks_for_events_only_when_the_application_is_ready(late: adapter.Environment) -> None:
    assert not late.is_ready.wait(1)
    (late.root / "go").touch()
    assert late.is_ready.wait(60)
    assert "/healthz" in (late.root / "asked").read_text().splitlines()


def test_a_slow_cold_start_answers_the_first_request_late(late: adapter.Environment) -> None:
    """Lambda would begin anew after ten seconds; the adapter says before that it has begun."""
    assert late.is_ready.wait(60)
    request = {"httpMethod": "GET", "resource": "/{proxy+}", "path": "/v1/models", "headers": {}, "multiValueHeaders": {}}
    context = {"httpMethod": "GET", "path": "/api/v1/models", "stage": "api", "identity": {}, "resourcePath": "/{proxy+}"}
    asked = late.begin({**request, "requestContext": context, "body": None, "isBase64Encoded": False}, 60)
    (late.root / "go").touch()
    prelude = asked.pieces.get(timeout=60)
    assert isinstance(prelude, bytes)
    assert b'"statusCode":200' in prelude, late.log()
    assert (late.root / "asked").read_text().splitlines()[-1] == "/v1/models"


# --- the others by the runtime's own client ---------------------------------------------------------------------------------


def test_the_authorizer_lets_nobody_in_without_a_key_that_is_known(service: Deployed) -> None:
    for key in ("sk-moorage-unknown", "nonsense"):
        with OpenAI(base_url=service.origin, api_key=key, max_retries=0) as stranger, pytest.raises(AuthenticationError) as refused:
            stranger.models.list()
        assert refused.value.code == "invalid_api_key"


def test_a_command_runs_and_its_file_is_there(client: OpenAI, service: Deployed, downloaded: Callable[[str], bytes]) -> None:
    """Responses, ModelStep, ToolStep, Containers; the state machine's walk between them."""
    commands = script(shell("echo hello > /mnt/data/note.txt; echo done"), shell("cat /mnt/data/note.txt", "exit 3"), say("ready"))
    response = client.responses.create(model="demo", input=commands, tools=[SHELL])
    assert (response.status, response.output_text) == ("completed", "ready")
    assert outputs(response.output) == [[("done\n", "", 0)], [("hello\n", "", 0), ("", "", 3)]]
    (container,) = {item.environment.container_id for item in response.output if item.type == "shell_call" and item.environment}  # type: ignore[union-attr]
    (file,) = client.containers.files.list(container).data
    assert downloaded(f"/containers/{container}/files/{file.id}/content") == b"hello\n"
    assert service.loop.begun[-1]["next"] == "tool"


def test_bytes_go_up_and_come_down_as_they_are(client: OpenAI, downloaded: Callable[[str], bytes]) -> None:
    data = bytes(range(256)) * 1_000
    file = client.files.create(file=("all.bin", data), purpose="user_data")
    assert downloaded(f"/files/{file.id}/content") == data
    client.files.delete(file.id)
    with pytest.raises(NotFoundError):
        client.files.retrieve(file.id)


def test_files_of_a_vector_store_are_read_and_found(client: OpenAI) -> None:
    """IndexStep and ParseStep."""
    store = client.vector_stores.create(name="harbour")
    given: list[Any] = [("tides.md", b"Spring tides come with new moon."), ("ships.pdf", documents.pdf("The capstan turns the chain."))]
    batch = client.vector_stores.file_batches.upload_and_poll(store.id, files=given)
    assert (batch.status, batch.file_counts.completed) == ("completed", 2)
    assert client.vector_stores.search(store.id, query="what turns the chain?").data[0].filename == "ships.pdf"


@pytest.mark.parametrize("function", ["Recovery", "Expiry", "Retirement"])
def test_the_reapers_run_by_the_event_of_their_schedule(service: Deployed, function: str) -> None:
    event = {"version": "0", "source": "aws.events", "detail-type": "Scheduled Event", "detail": {}, "time": "2026-01-01T00:00:00Z"}
    assert service.functions.buffered[function].invoke(event) is None


def test_placement_hears_of_a_task_that_nobody_waits_for(service: Deployed) -> None:
    detail = {
        "clusterArn": "arn:aws:ecs:us-east-1:111122223333:cluster/moorage",
        "taskArn": "arn:aws:ecs:us-east-1:111122223333:task/moorage/0123456789abcdef0123456789abcdef",
        "group": "moorage:default",
        "startedBy": "cntr_nobody/0123456789abcdef",
        "lastStatus": "STOPPED",
        "desiredStatus": "STOPPED",
        "stoppedReason": "Essential container in task exited",
        "containers": [],
        "attachments": [],
        "overrides": {"containerOverrides": []},
    }
    event = {"version": "0", "source": "aws.ecs", "detail-type": "ECS Task State Change", "detail": detail}
    assert service.functions.buffered["Placement"].invoke(event) is None


def test_a_response_that_cannot_go_on_is_ended_by_the_last_state(client: OpenAI, service: Deployed) -> None:
    """FailResponse, with the state that the loop would hand it."""
    response = client.responses.create(model="demo", input=script({"sleep_ms": 60_000}, say("never")), background=True)
    state = service.loop.begun[-1]
    assert state["response_id"] == response.id
    assert service.functions.buffered["FailResponse"].invoke(state) == {}
    ended = client.responses.retrieve(response.id)
    assert ended.error is not None
    assert (ended.status, ended.error.code) == ("failed", "server_error")
