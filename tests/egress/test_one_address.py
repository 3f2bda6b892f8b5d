"""Two containers whose forwarders reach the proxy from one address, as MicroVMs of one connector do: real sandboxes, forwarders, proxy.

Each forwarder names its container in a signed line. It gives no leave for anything: policies and secrets go by the credential alone.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from moorage import limits
from moorage.egress.policy import EgressReason

from tests.egress.arena import ALLOWED, ECHO
from tests.egress.conftest import ArenaClient, Opened, Sandbox, a_sandbox, wait_until
from tests.egress.moves import Steps, connect_line, fill, get

VALUE = "one-address-value-0123456789"


@dataclass(frozen=True)
class Machine:
    """A container with its grant, in a sandbox behind its own forwarder."""

    box: Opened
    sandbox: Sandbox

    def asks(self, host: str, credential: str | None = None) -> str:
        """The status of a CONNECT; empty if the proxy hung up."""
        heard = self.sandbox.talk(["send", connect_line(self.box, f"{host}:443", credential)], ["head"], seconds=20)
        return heard[0][0].split(" ")[1] if heard and heard[0][0] else ""

    def sends_inside(self, host: str, header: str) -> str:
        request = fill(get(host, headers=f"X-Key: {header}\n"), self.box)
        steps: Steps = [["send", connect_line(self.box, f"{host}:443")], ["head"], ["tls", host], ["send", request], ["read", 5]]
        return self.sandbox.talk(*steps, seconds=20)[-1][0]


@pytest.fixture(scope="module")
def first(arena: ArenaClient, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    box = arena.open("allowed.example", "echo.example", secrets=[{"domain": "echo.example", "name": "KEY", "value": VALUE}])
    arena("forward", container=box.container_id, socket="first.sock")
    with a_sandbox(arena, tmp_path_factory, "first.sock") as sandbox:
        yield Machine(box, sandbox)


@pytest.fixture(scope="module")
def second(arena: ArenaClient, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    box = arena.open("echo.example")
    arena("forward", container=box.container_id, socket="second.sock")
    with a_sandbox(arena, tmp_path_factory, "second.sock") as sandbox:
        yield Machine(box, sandbox)


@pytest.fixture(scope="module")
def unnamed(arena: ArenaClient, first: Machine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """What reaches the address around its forwarder: it can name no place."""
    arena("forward", container="", socket="unnamed.sock")
    with a_sandbox(arena, tmp_path_factory, "unnamed.sock") as sandbox:
        yield Machine(first.box, sandbox)


def test_each_has_its_own_policy(arena: ArenaClient, first: Machine, second: Machine) -> None:
    offset = arena.log_file.stat().st_size
    assert [first.asks("allowed.example"), second.asks("allowed.example")] == ["200", "403"]
    refused = arena.wait_for_line(offset, lambda line: line.get("reason") == EgressReason.DOMAIN_NOT_ALLOWED)
    assert refused["container_id"] == second.box.container_id


def test_a_place_is_no_credential(arena: ArenaClient, first: Machine, second: Machine) -> None:
    offset = arena.log_file.stat().st_size
    assert first.asks("allowed.example", "eDp5") == "407"
    arena.wait_for_line(offset, lambda line: line.get("reason") == EgressReason.CREDENTIAL_UNKNOWN)
    assert second.asks("allowed.example", first.box.basic) == "200", "the credential decides"


def test_a_secret_is_its_containers_alone(arena: ArenaClient, first: Machine, second: Machine) -> None:
    placeholder = first.box.placeholders["KEY"]
    arena("clear")
    answers = [machine.sends_inside("echo.example", placeholder) for machine in (first, second)]
    seen = [note for note in arena("seen") if note["address"] == ECHO and "X-Key" in note.get("raw", "")]
    assert [(VALUE in note["raw"], placeholder in note["raw"]) for note in seen] == [(True, False), (False, True)]
    assert [VALUE in answer for answer in answers] == [False, False]


def test_one_that_holds_all_its_connections_leaves_the_other_its_way_out(first: Machine, second: Machine) -> None:
    first.sandbox.order("hold", processes=3, count=700)
    try:
        wait_until(lambda: 0 < first.sandbox.order("held") <= limits.EGRESS_STRANGERS_MAX)
        assert [second.asks("echo.example") for _ in range(10)] == ["200"] * 10
    finally:
        first.sandbox.order("release")
    wait_until(lambda: first.asks("allowed.example") == "200")


def test_one_that_goes_around_its_forwarder_takes_no_room_from_the_others(
    arena: ArenaClient, first: Machine, second: Machine, unnamed: Machine
) -> None:
    unnamed.sandbox.order("hold", processes=3, count=1_200)
    try:
        wait_until(lambda: 0 < unnamed.sandbox.order("held") <= limits.EGRESS_SILENT_MAX)
        arena("clear")
        assert [first.asks("allowed.example"), second.asks("echo.example")] == ["200", "200"]
        assert {note["address"] for note in arena("seen")} == {ALLOWED, ECHO}
    finally:
        unnamed.sandbox.order("release")
