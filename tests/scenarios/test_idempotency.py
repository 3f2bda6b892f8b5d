"""Requests that come twice run once: keys of the client's, and the SDK's own retries after a time-out."""

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import openai
import pytest
from openai import OpenAI

from tests.scenarios.test_tenants import make_key
from tests.stack import SHELL, Stack, outputs, raw_events, say, script, shell

TOOLS: Any = [SHELL]


def slowly(name: str, seconds: float = 3) -> str:
    """A task that takes longer than its client waits, and tells in the container how often it ran."""
    return script(shell(f"echo run >> {name}; sleep {seconds}; cat {name}"), say("It said {{output}}."))


def containers_named(stack: Stack, text: str) -> int:
    """Containers in which a file of this name was left."""
    with stack.http() as http:
        found = http.get("/containers", params={"limit": 100}).json()["data"]
        lists = [http.get(f"/containers/{container['id']}/files").json()["data"] for container in found]
    return sum(any(file["path"].endswith(f"/{text}") for file in files) for files in lists)


def test_the_sdks_retry_after_a_time_out_gets_the_response_that_is_running(stack: Stack) -> None:
    with OpenAI(base_url=stack.url, api_key=stack.key, timeout=1.5, max_retries=20) as client:
        response = client.responses.create(model="demo", input=slowly("sdk"), tools=TOOLS)
    assert (response.status, outputs(response.output)) == ("completed", [[("run\n", "", 0)]])
    assert containers_named(stack, "sdk") == 1


def test_a_stream_that_is_tried_again_begins_anew_and_runs_nothing_again(stack: Stack) -> None:
    """The SDK leaves it to its caller to try again once a stream has begun."""
    body = {"model": "demo", "input": slowly("streamed"), "tools": TOOLS, "stream": True}
    with stack.http() as http:
        first = http.build_request("POST", "/responses", json=body, headers={"x-stainless-retry-count": "0"}, timeout=1.5)
        with pytest.raises(httpx.ReadTimeout):
            http.send(first)
        time.sleep(0.5)
        events = raw_events(http.post("/responses", json=body, headers={"x-stainless-retry-count": "1"}).text.splitlines())
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert events[-1]["response"]["output"][1]["output"][0]["stdout"] == "run\n"
    assert containers_named(stack, "streamed") == 1


def test_without_a_count_of_tries_each_request_is_its_own(stack: Stack) -> None:
    task = script(shell("echo begun; echo run >> uncounted; sleep 2"), say("Done."))
    body = {"model": "demo", "input": task, "tools": TOOLS, "stream": True}
    with stack.http() as http:
        with http.stream("POST", "/responses", json=body) as left:
            assert next(line for line in left.iter_lines() if "shell_call_output" in line and "begun" in line)
        assert raw_events(http.post("/responses", json=body).text.splitlines())[-1]["type"] == "response.completed"
    assert containers_named(stack, "uncounted") == 2


def test_a_retry_takes_nothing_from_a_client_that_is_still_there(stack: Stack) -> None:
    """Four alike at once, one of which loses its connection: its retry gets that one's response, and the others keep theirs."""
    body = {"model": "demo", "input": slowly("alike", 2), "tools": TOOLS}

    def ask(count: int, timeout: float) -> str | None:
        with stack.http() as http:
            try:
                return str(
                    http.post("/responses", json=body, headers={"x-stainless-retry-count": str(count)}, timeout=timeout).json()["id"]
                )
            except httpx.ReadTimeout:
                return None

    with ThreadPoolExecutor(4) as threads:
        asked = [threads.submit(ask, 0, timeout) for timeout in (60, 60, 60, 1.2)]
        assert asked[3].result() is None
        time.sleep(0.4)
        retried, another = ask(1, 60), ask(1, 60)
        kept = {one.result() for one in asked[:3]}
    assert len({retried, another, *kept}) == 5
    assert containers_named(stack, "alike") == 5  # Only "another" had no lost response left to take.


def test_with_a_key_all_tries_are_one(stack: Stack) -> None:
    with OpenAI(base_url=stack.url, api_key=stack.key, timeout=1.2, max_retries=20) as client:
        headers = {"Idempotency-Key": "one-key-1"}
        response = client.responses.create(model="demo", input=slowly("keyed"), tools=TOOLS, extra_headers=headers)
        assert (response.status, outputs(response.output)) == ("completed", [[("run\n", "", 0)]])
        again = client.responses.create(model="demo", input=slowly("keyed"), tools=TOOLS, extra_headers=headers)
        assert again.to_dict() == response.to_dict()
    assert containers_named(stack, "keyed") == 1


def test_many_at_once_with_one_key_get_one_response(stack: Stack) -> None:
    body = {"model": "demo", "input": slowly("crowd", 1), "tools": TOOLS}

    async def crowd() -> list[httpx.Response]:
        headers = {"authorization": f"Bearer {stack.key}", "Idempotency-Key": "crowd"}
        async with httpx.AsyncClient(base_url=stack.url, headers=headers, timeout=60) as http:

            async def ask() -> httpx.Response:
                """As the SDKs do, which try again while the first request has no response yet."""
                while "idempotency_key_pending" in (answer := await http.post("/responses", json=body)).text:
                    await asyncio.sleep(0.05)
                return answer

            return await asyncio.gather(*(ask() for _ in range(7)))

    answers = asyncio.run(crowd())
    assert {answer.status_code for answer in answers} == {200}
    assert len({answer.json()["id"] for answer in answers}) == 1
    assert containers_named(stack, "crowd") == 1


def test_a_plain_response_goes_on_without_its_client_if_it_has_a_key(stack: Stack) -> None:
    body = {"model": "demo", "input": script({"sleep_ms": 1500}, say("late"))}
    headers = {"Idempotency-Key": "plain"}
    with stack.http() as http:
        with pytest.raises(httpx.ReadTimeout):
            http.post("/responses", json=body, headers=headers, timeout=0.5)
        first = http.post("/responses", json=body, headers=headers).json()
        assert first["output"][0]["content"][0]["text"] == "late"
        assert http.post("/responses", json=body, headers=headers).json() == first


def test_a_key_brings_back_a_stream_and_a_background_response_as_they_were_asked_for(stack: Stack) -> None:
    with stack.http() as http:
        streamed = {"model": "demo", "input": "hello", "stream": True}
        texts = [http.post("/responses", json=streamed, headers={"Idempotency-Key": "stream"}).text for _ in range(2)]
        assert [event["type"] for event in raw_events(texts[0].splitlines())][-1] == "response.completed"
        assert raw_events(texts[0].splitlines())[-1]["response"] == raw_events(texts[1].splitlines())[-1]["response"]
        background = {"model": "demo", "input": slowly("behind", 1), "tools": TOOLS, "background": True}
        answers = [http.post("/responses", json=background, headers={"Idempotency-Key": "background"}).json() for _ in range(3)]
    assert len({answer["id"] for answer in answers}) == 1
    assert answers[0]["status"] == "queued"


def test_another_body_under_the_same_key_is_refused_and_not_tried_again(stack: Stack) -> None:
    with stack.http() as http:
        headers = {"Idempotency-Key": "twice"}
        assert http.post("/responses", json={"model": "demo", "input": "a"}, headers=headers).status_code == 200
        refused = http.post("/responses", json={"model": "demo", "input": "b"}, headers=headers)
    assert (refused.status_code, refused.headers["x-should-retry"]) == (409, "false")
    assert refused.json()["error"]["code"] == "idempotency_key_reused"
    client = stack.client()
    with pytest.raises(openai.ConflictError, match="same parameters they were first used with"):
        client.responses.create(model="demo", input="b", extra_headers=headers)


def test_a_request_that_failed_leaves_its_key_free(stack: Stack) -> None:
    body = {"model": "demo", "input": script({"fail": {"status": 503, "times": 0}}, say("never"))}
    with stack.http() as http:
        headers = {"Idempotency-Key": "fails"}
        ids = [http.post("/responses", json=body, headers=headers) for _ in range(2)]
        assert {answer.status_code for answer in ids} == {502}
        assert http.post("/responses", json={"model": "none"}, headers={"Idempotency-Key": "wrong"}).status_code == 400
        assert http.post("/responses", json={"model": "demo", "input": "x"}, headers={"Idempotency-Key": "wrong"}).status_code == 200


def test_what_was_not_stored_is_not_run_again(stack: Stack) -> None:
    body = {"model": "demo", "input": slowly("unstored", 0.2), "tools": TOOLS, "store": False}
    with stack.http() as http:
        headers = {"Idempotency-Key": "unstored"}
        assert http.post("/responses", json=body, headers=headers).json()["status"] == "completed"
        plain = {"model": "demo", "input": "hi", "store": False}
        assert http.post("/responses", json=plain, headers={"Idempotency-Key": "plain-unstored"}).status_code == 200
        refused = http.post("/responses", json=plain, headers={"Idempotency-Key": "plain-unstored"})
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "idempotency_key_used")
    assert containers_named(stack, "unstored") == 1


def test_keys_are_their_tenants(stack: Stack) -> None:
    body = {"model": "demo", "input": "hi"}
    headers = {"Idempotency-Key": "shared"}
    with stack.http() as http, stack.http(make_key(stack, "repeats-other")) as foreign:
        ours, theirs = (one.post("/responses", json=body, headers=headers).json()["id"] for one in (http, foreign))
    assert ours != theirs


CREATIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "a container": ("/containers", {"name": "once"}),
    "a conversation": ("/conversations", {"metadata": {"a": "b"}}),
    "an upload": ("/uploads", {"filename": "a.txt", "bytes": 3, "mime_type": "text/plain", "purpose": "user_data"}),
}


@pytest.mark.parametrize(("path", "body"), CREATIONS.values(), ids=CREATIONS.keys())
def test_other_things_are_made_once_too(stack: Stack, path: str, body: dict[str, Any]) -> None:
    with stack.http() as http:
        headers = {"Idempotency-Key": f"once{path}"}
        first, again = (http.post(path, json=body, headers=headers) for _ in range(2))
        assert (first.json(), first.status_code) == (again.json(), again.status_code)
        assert ("idempotency-replayed" in first.headers, again.headers["idempotency-replayed"]) == (False, "true")
        other = http.post(path, json=body | {"name": "other", "metadata": {"c": "d"}, "bytes": 4}, headers=headers)
        assert (other.status_code, other.json()["error"]["code"]) == (409, "idempotency_key_reused")
        assert http.post(path, json=body).json()["id"] != first.json()["id"]


def test_a_file_is_stored_once_though_each_try_has_a_boundary_of_its_own(stack: Stack) -> None:
    with stack.http() as http:
        headers = {"Idempotency-Key": "file"}
        tries = [
            http.post("/files", files={"file": ("a.csv", b"x,y\n" * 9000)}, data={"purpose": "user_data"}, headers=headers)
            for _ in range(2)
        ]
        assert tries[0].request.headers["content-type"] != tries[1].request.headers["content-type"]
        assert tries[0].json() == tries[1].json()
        other = http.post("/files", files={"file": ("a.csv", b"x,z\n")}, data={"purpose": "user_data"}, headers=headers)
    assert other.status_code == 409


def test_a_request_while_the_first_is_still_read_is_told_to_wait(stack: Stack) -> None:
    has_begun, may_end = threading.Event(), threading.Event()

    def slow_body() -> Any:
        yield b'{"name": "slow"'
        has_begun.set()
        may_end.wait(60)
        yield b"}"

    headers = {"Idempotency-Key": "slow-body", "content-type": "application/json"}
    with stack.http() as http, stack.http() as other, ThreadPoolExecutor(1) as thread:
        first = thread.submit(http.post, "/containers", content=slow_body(), headers=headers)
        assert has_begun.wait(60)
        deadline = time.monotonic() + 60
        while (answer := other.post("/containers", content="{", headers=headers)).status_code == 400:
            assert time.monotonic() < deadline, "a wrong request leaves the key free, so the first one must get it"
        may_end.set()
        assert first.result().status_code == 200
    assert answer.status_code == 409
    assert answer.json()["error"]["code"] == "idempotency_key_pending"
    assert answer.headers["retry-after"] == "1"


@pytest.mark.parametrize("key", ["", "k" * 256])
def test_a_key_that_is_none_is_refused(stack: Stack, key: str) -> None:
    with stack.http() as http:
        for path, body in (("/responses", {"model": "demo", "input": "a"}), ("/containers", {"name": "n"})):
            answer = http.post(path, json=body, headers={"Idempotency-Key": key})
            assert (answer.status_code, "Idempotency-Key" in answer.json()["error"]["message"]) == (400, True)


def test_a_session_whose_first_stream_was_cut_is_not_made_again(stack: Stack) -> None:
    given = script({"say": "One after the other.", "delta_ms": 100})
    body = {"agent": {"model": "demo"}, "environment": {"type": "none"}, "input": given, "stream": True}
    key = {"idempotency-key": "the first stream"}
    with stack.http(make_key(stack, "cut-streams")) as http:
        with http.stream("POST", "/agents/sessions", json=body, headers=key) as cut:
            (begun,) = raw_events([next(line for line in cut.iter_lines() if line.startswith("data: "))])
        told = [http.post("/agents/sessions", json=body, headers=key) for _ in range(2)]
        for answer in told:
            events = raw_events(answer.text.splitlines())
            assert (events[0], events[-1]["type"]) == (begun, "agent.session.idle")
            assert [event["event_id"] for event in events] == sorted({event["event_id"] for event in events})
        assert [each["id"] for each in http.get("/agents/sessions").json()["data"]] == [begun["session"]["id"]]
        other = http.post("/agents/sessions", json={**body, "input": "Something else."}, headers=key)
        assert (other.status_code, other.json()["error"]["code"]) == (409, "idempotency_key_reused")
        elsewhere = http.post("/vaults", json={"name": "staging"}, headers=key)
        assert (elsewhere.status_code, elsewhere.json()["error"]["code"]) == (409, "idempotency_key_reused")
