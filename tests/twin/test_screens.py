"""Screens on AWS: the function that starts sandboxes reaches none, and asks the one in their network (``api/inside_relay.py``)."""

import asyncio
import io
import json
from typing import Any, cast

import pytest
from moorage.api.inside_relay import InsideRelay
from moorage.errors import ApiError
from moorage.sandbox.desk_client import DeskLease
from moorage.sandbox.exec_client import ExecClient
from moorage.sandbox.fargate import EXEC_PORT
from moorage.sandbox.provisioner import Handle

from tests.simulation.clock import run
from tests.twin.deployment import START_SECONDS, Deployment, Shell

SCREEN = "/v1/containers/cntr_1/screen"


def event(path: str, method: str = "GET") -> dict[str, Any]:
    return {"path": path, "httpMethod": method, "body": "{}"}


class Inside:
    """Lambda, with the function in the sandboxes' network: it answers with one status, or fails."""

    def __init__(self, status: int = 200, *, fails: bool = False) -> None:
        self.status, self.fails = status, fails
        self.asked: list[dict[str, Any]] = []

    def invoke(self, *, FunctionName: str, Payload: bytes) -> dict[str, Any]:
        assert FunctionName == "inside"
        self.asked.append(json.loads(Payload))
        said = {"errorType": "Sandbox.Timedout"} if self.fails else {"statusCode": self.status, "body": "inside"}
        failed = {"FunctionError": "Unhandled"} if self.fails else {}
        return {"Payload": io.BytesIO(json.dumps(said).encode()), **failed}


def relay(inside: Inside) -> InsideRelay:
    return InsideRelay(lambda event, context: {"statusCode": 200, "body": "outside"}, inside, "inside")


@pytest.mark.parametrize(
    ("path", "answered"),
    [
        (SCREEN, "inside"),
        (f"{SCREEN}/control", "inside"),
        (f"{SCREEN}/input", "inside"),
        (f"{SCREEN}/other", "outside"),
        ("/v1/containers/screen", "outside"),
        ("/v1/containers/cntr_1/files/screen", "outside"),
    ],
)
def test_what_is_asked_of_a_screen_is_answered_inside(path: str, answered: str) -> None:
    inside = Inside()
    assert relay(inside)(event(path), None)["body"] == answered
    assert inside.asked == ([event(path)] if answered == "inside" else [])


def test_only_control_is_tried_outside_where_there_is_no_sandbox() -> None:
    asked = {place: relay(Inside(503))(event(f"{SCREEN}{place}", "POST"), None)["body"] for place in ("", "/control", "/input")}
    assert asked == {"": "inside", "/control": "outside", "/input": "inside"}


@pytest.mark.parametrize(("status", "answered"), [(421, "inside"), (404, "outside"), (503, "outside")])
def test_what_is_reached_inside_alone_is_asked_there_with_the_event_as_it_is(status: int, answered: str) -> None:
    """Where MicroVMs are beside Fargate, sessions and processes come outside first."""
    inside = Inside()
    both, asked = (
        InsideRelay(lambda event, context: {"statusCode": status, "body": "outside"}, inside, "inside"),
        event("/v1/sessions/s"),
    )
    assert both(asked, None)["body"] == answered
    assert inside.asked == ([asked] if answered == "inside" else [])


def test_a_function_that_fails_inside_fails_outside() -> None:
    with pytest.raises(RuntimeError, match=r"Sandbox\.Timedout"):
        relay(Inside(fails=True))(event(SCREEN), None)


class Desk(Shell):
    """A sandbox with a browser."""

    async def last_line(self, kind: str, method: str, path: str, **options: Any) -> dict[str, Any]:
        self._alive()
        assert (kind, method, path) == ("desk", "PUT", "/v1/desk")
        return {"desk_id": "d", "browser": "", "is_whole": True, "has_own_sandbox": False, "width": 1280, "height": 800}

    async def ask(self, method: str, path: str, **options: Any) -> dict[str, Any]:
        self._alive()
        assert (method, path) == ("POST", "/v1/desk/control")
        return {"holder": options["json"]["holder"], "ms": 60_000}


class WithBrowsers(Deployment):
    def _connect(self, handle: Handle) -> ExecClient:
        address = handle.endpoint.removeprefix("http://").removesuffix(f":{EXEC_PORT}")
        return cast("ExecClient", Desk(self.ecs.sandboxes.get(address), handle, self.begun))


async def _taken() -> tuple[list[str], DeskLease, float]:
    """What stood in the way until control was had, the lease, and the seconds that it took."""
    deployment, refused = WithBrowsers(), []
    began = deployment.lab.now
    record = await deployment.outside.computers.containers.reserve("t", name="watched")
    for _ in range(60):
        for side in (deployment.inside, deployment.outside):
            try:
                lease = await side.computers.containers.screens.take("t", record.id, "a person")
            except ApiError as error:
                refused.append(str(error.code))
            else:
                return sorted(set(refused)), lease, deployment.lab.now - began
        await asyncio.sleep(5)
    raise AssertionError(refused)


def test_control_of_a_container_without_a_sandbox_starts_one() -> None:
    refused, lease, seconds = run(_taken())
    assert (refused, lease) == (["container_unavailable"], DeskLease("a person", 60_000))
    assert START_SECONDS <= seconds <= START_SECONDS + 10
