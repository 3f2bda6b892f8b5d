"""A person at a container's browser, while a response uses it: they watch, take over, and give back. On real Chromium."""

import asyncio
import base64
import secrets
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.processes import until
from tests.scenarios.test_computer import CLICK, OPEN, SERVE, WITH_PICTURES, acts, ask, needs_browser, said, shown
from tests.scenarios.test_tenants import keys_of, make_key
from tests.stack import Stack, say, shell

pytestmark = needs_browser
WAIT: dict[str, Any] = {"type": "wait"}
FIELD: dict[str, Any] = {"type": "click", "x": 100, "y": 150}
Asker = Callable[..., Any]


@pytest.fixture
def shop(stack: Stack) -> Any:
    """A response in whose container a shop is served, and shown in the browser."""
    return ask(stack.client(), shell(SERVE), acts(OPEN), say("ready"))


@pytest.fixture
def at_screen(stack: Stack, shop: Any) -> Iterator[Asker]:
    """Requests to the screen of its container."""
    with stack.http() as http:

        def asked(method: str, place: str = "", **fields: Any) -> Any:
            answer = http.request(method, f"/containers/{container_of(shop)}/screen{place}", **fields)
            return answer.json() if answer.is_success else (answer.status_code, answer.json()["error"]["code"])

        yield asked


def container_of(response: Any) -> str:
    return str(response.tools[1].model_dump()["container"]["container_id"])


def control(at_screen: Asker, action: str, holder: str = "left") -> Any:
    return at_screen("POST", "/control", json={"action": action, "holder": holder})


def give_input(at_screen: Asker, number: int, *actions: dict[str, Any], holder: str = "left") -> Any:
    return at_screen("POST", "/input", json={"holder": holder, "number": number, "actions": list(actions)})


def test_viewers_see_the_page_and_each_change(at_screen: Asker, stack: Stack, shop: Any) -> None:
    first, second = (at_screen("GET", params={"wait_ms": 5_000}) for _ in range(2))
    for seen in (first, second):
        assert base64.b64decode(seen["picture"].removeprefix("data:image/jpeg;base64,"))[:3] == b"\xff\xd8\xff"
        assert {**seen, "number": 0, "picture": ""} == {
            "object": "container.screen",
            "container_id": container_of(shop),
            "status": "open",
            "number": 0,
            "picture": "",
            "url": "http://localhost:3000/",
            "title": "Shop",
            "holder": None,
            "pointer": {"x": 0, "y": 0},
        }
    ask(stack.client(), acts(FIELD, {"type": "type", "text": "tea"}), say("typed"), previous_response_id=shop.id)
    later = at_screen("GET", params={"starting_after": second["number"], "wait_ms": 5_000})
    assert (later["number"] > second["number"], later["pointer"]) == (True, {"x": 100, "y": 150})


def test_a_call_waits_while_a_person_has_control_and_what_they_type_is_in_no_file(at_screen: Asker, stack: Stack, shop: Any) -> None:
    client, canary = stack.client(), f"canary-{secrets.token_hex(8)}"
    waits = [CLICK, WAIT, CLICK, WAIT, CLICK]
    running = ask(client, acts(*waits), say("end"), previous_response_id=shop.id, background=True)
    until(lambda: at_screen("GET")["pointer"] == {"x": 100, "y": 50})
    lease = control(at_screen, "take")
    assert (lease["holder"].endswith("/left"), 0 < lease["expires_in_ms"] <= 60_000) == (True, True)
    assert control(at_screen, "take", "right") == (409, "screen_held")
    assert give_input(at_screen, 1, CLICK, holder="right") == (409, "screen_held")
    typed = give_input(at_screen, 1, FIELD, {"type": "type", "text": canary})
    assert typed["actions"] == [{"ok": True, "error": None}] * 2
    assert give_input(at_screen, 1, FIELD, {"type": "type", "text": canary}) == typed
    give_input(at_screen, 2, *[{"type": "keypress", "keys": ["CTRL", "A"]}, {"type": "keypress", "keys": ["DELETE"]}])
    assert client.responses.retrieve(running.id).status == "in_progress"
    assert at_screen("GET")["holder"] == lease["holder"]
    assert control(at_screen, "give") == {
        "object": "container.screen.control",
        "container_id": container_of(shop),
        "holder": None,
        "expires_in_ms": 0,
    }
    until(lambda: client.responses.retrieve(running.id).status == "completed")
    (output,) = shown(client.responses.retrieve(running.id, include=WITH_PICTURES))
    assert output.actions == [{"ok": True}] * 5
    assert output.page["notes"][0].startswith("A person had control of the browser for ")
    counted = ask(client, shell("grep -c click /tmp/said"), say("end"), previous_response_id=running.id)
    assert said(counted) == ["3"]
    kept = [path for path in (*stack.state_dir.glob("*"), *(stack.state_dir / "store").rglob("*")) if path.is_file()]
    assert [path for path in kept if canary.encode() in path.read_bytes()] == []


def test_a_cancelled_response_does_no_further_action(at_screen: Asker, stack: Stack, shop: Any) -> None:
    client = stack.client()
    running = ask(client, acts(CLICK, WAIT, CLICK), say("end"), previous_response_id=shop.id, background=True)
    until(lambda: at_screen("GET")["pointer"] == {"x": 100, "y": 50})
    client.responses.cancel(running.id)
    counted = ask(client, acts(WAIT), shell("grep -c click /tmp/said"), say("end"), previous_response_id=shop.id)
    assert said(counted) == ["1"]


def test_who_may_only_look_watches_and_takes_no_control(at_screen: Asker, stack: Stack, shop: Any) -> None:
    with keys_of(stack) as keys:
        _, reader = asyncio.run(keys.create("default", scope="read"))
    path = f"/containers/{container_of(shop)}/screen"
    with stack.http(reader) as http:
        assert http.get(path).json()["status"] == "open"
        assert http.post(f"{path}/control", json={"action": "take", "holder": "x"}).status_code == 403
        assert http.post(f"{path}/input", json={"holder": "x", "number": 1, "actions": [CLICK]}).status_code == 403
    with stack.http(make_key(stack, "stranger")) as http:
        assert http.get(path).status_code == 404
        assert http.post(f"{path}/control", json={"action": "take", "holder": "x"}).status_code == 404
        assert http.post(f"{path}/input", json={"holder": "x", "number": 1, "actions": [CLICK]}).status_code == 404


def test_to_look_starts_no_browser_and_to_take_control_does(stack: Stack) -> None:
    container = stack.client().containers.create(name="screen")
    with stack.http() as http:
        path = f"/containers/{container.id}/screen"
        assert http.get(path).json()["status"] == "closed"
        unheld = http.post(f"{path}/input", json={"holder": "x", "number": 1, "actions": [{"type": "navigate", "url": "about:blank"}]})
        assert (unheld.status_code, unheld.json()["error"]["code"]) == (409, "screen_closed")
        assert http.post(f"{path}/control", json={"action": "give", "holder": "x"}).json()["holder"] is None
        assert http.post(f"{path}/control", json={"action": "take", "holder": "x"}).status_code == 200
        assert (http.get(path).json()["status"], http.get(path).json()["url"]) == ("open", "about:blank")
