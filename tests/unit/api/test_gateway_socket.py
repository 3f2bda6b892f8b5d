"""A WebSocket connection that API Gateway holds: who works for it, what comes of frames, and how it ends.

What is said on it is held to the same scenarios as the process's own connections (``tests/scenarios/test_websocket.py``).
"""

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, cast

import pytest
from moorage import limits
from moorage.api.gateway_events import GatewayEvents, WorkersBusy
from moorage.api.gateway_socket import work
from moorage.api.rate_limits import RateLimits
from moorage.errors import invalid_token
from moorage.identity.ended_sessions import session_digest
from moorage.net.connections import ConnectionGone, Connections
from moorage.state import LoopState
from moorage.store import keys
from moorage.store.api_keys import READ, ApiKey, hash_of, key_id_of
from moorage.store.rates import Rates
from moorage.store.sockets import SocketOpening, Sockets
from moorage.store.table import Record

from tests.unit.loop.lab import CONTAINER, Lab, say, shell

ID, SECRET = "AbC-1=", "sk-moorage-1"
SHELL = {"type": "shell", "environment": {"type": "container_reference", "container_id": CONTAINER}}
_PATIENCE_SECONDS = 60


class Keys:
    def __init__(self) -> None:
        self.found: dict[str, ApiKey] = {hash_of(SECRET): ApiKey("key_1", "t", "mine", 0)}

    async def find(self, secret: str) -> ApiKey | None:
        return await self.known(hash_of(secret))

    async def known(self, digest: str) -> ApiKey | None:
        return self.found.get(digest)


@dataclass
class Client:
    """What it sends comes to the door; what it hears is what a worker sends. It is the management API as well."""

    lab: Lab
    keys: Keys = field(default_factory=Keys)
    heard: list[dict[str, Any]] = field(default_factory=list)
    called: list[tuple[str, str]] = field(default_factory=list)
    """Workers that the door has called and that have not begun."""
    is_gone: bool = False
    is_closed: bool = False
    has_room: bool = True
    requests_per_minute: int = 0
    sent: int = 0

    def __post_init__(self) -> None:
        self.lab.runtime.identity = replace(self.lab.runtime.identity, api_keys=cast("Any", self.keys))
        self.sockets = Sockets(self.lab.table, clock=lambda: self.lab.now)
        self.connections = cast("Connections", self)
        self.door = GatewayEvents(self.sockets, self.keys.find, self.connections, call=self._call, clock=lambda: self.lab.now)

    async def _call(self, connection_id: str, holder: str) -> None:
        if not self.has_room:
            raise WorkersBusy
        self.called.append((connection_id, holder))

    async def send(self, connection_id: str, text: str) -> None:
        if self.is_gone or self.is_closed:
            raise ConnectionGone
        self.heard.append(json.loads(text))

    async def close(self, connection_id: str) -> None:
        self.is_closed = True

    async def connect(self, secret: str = SECRET, connection_id: str = ID) -> int:
        event = {"headers": {"Authorization": f"Bearer {secret}"}, "requestContext": self._context("$connect", connection_id)}
        return int((await self.door.handle(event))["statusCode"])

    async def disconnect(self, connection_id: str = ID) -> None:
        await self.door.handle({"requestContext": self._context("$disconnect", connection_id)})

    async def say(self, text: str = "hi", **more: Any) -> None:
        frame = {"type": "response.create", "model": "m", "input": text, **more}
        await self.frame(json.dumps(frame))

    async def frame(self, text: str) -> None:
        self.sent += 1
        context = self._context("$default") | {"messageId": f"m{self.sent}", "requestTimeEpoch": int(self.lab.now * 1000) + self.sent}
        assert await self.door.handle({"requestContext": context, "body": text}) == {"statusCode": 200}

    async def work(self) -> None:
        """Workers run one after the other until none is called any more."""
        while self.called:
            await self.run(self.called.pop(0))

    async def run(self, called: tuple[str, str]) -> None:
        rates = RateLimits(self.requests_per_minute, 0, Rates(self.lab.table), lambda: self.lab.now)
        await work(self.lab.runtime, self.connections, rates, *called)

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(_PATIENCE_SECONDS):
            while not holds():
                await asyncio.sleep(0.01)

    def finals(self, kind: str = "response.completed") -> list[dict[str, Any]]:
        return [event["response"] for event in self.heard if event["type"] == kind]

    @property
    def errors(self) -> list[tuple[int, str, str | None]]:
        return [(e["status"], e["error"]["code"], e.get("stream_id")) for e in self.heard if e["type"] == "error"]

    @property
    def records(self) -> list[str]:
        """Sort keys of what the table holds of connections."""
        return sorted(sk for pk, sk in self.lab.table.records if pk.startswith(keys.socket.prefix))

    def _context(self, route: str, connection_id: str = ID) -> dict[str, Any]:
        return {"routeKey": route, "connectionId": connection_id}


def held_back(lab: Lab) -> asyncio.Event:
    """The model answers when this is set."""
    event = asyncio.Event()
    lab.model.before_answer = event.wait
    return event


# --- frames and workers ---


async def test_a_frame_calls_a_worker_that_answers_it_and_leaves() -> None:
    client = Client(Lab(say("one"), say("two")))
    assert await client.connect() == 200
    for text in ("one", "two"):
        await client.say(text)
        assert len(client.called) == 1
        await client.work()
    assert [final["output"][0]["content"][0]["text"] for final in client.finals()] == ["one", "two"]
    assert client.records == ["META", "PLACE#0000"]


async def test_frames_that_come_while_a_worker_is_there_call_no_other() -> None:
    client = Client(Lab(say("one"), say("two")))
    answer = held_back(client.lab)
    await client.connect()
    await client.say("one")
    working = asyncio.create_task(client.work())
    await client.until(lambda: len(client.lab.model.requests) == 1)
    await client.say("two", stream_id="other")
    assert client.called == []
    await client.until(lambda: len(client.finals()) == 1)
    assert client.finals()[0]["output"][0]["content"][0]["text"] in ("one", "two")  # side by side: the other lane is not held back
    answer.set()
    await working
    assert len(client.finals()) == 2


async def test_a_frame_that_comes_as_the_worker_leaves_is_not_left_lying() -> None:
    client = Client(Lab(say("one"), say("two")))
    await client.connect()
    await client.say("one")

    async def meanwhile(record: dict[str, Any]) -> None:
        if "lanes" in record and client.sent == 1:
            await client.say("two")

    client.lab.table.before_write = meanwhile
    await client.run(client.called.pop())
    assert (len(client.finals()), client.called) == (2, [])


async def test_a_worker_that_is_called_twice_works_once() -> None:
    client = Client(Lab(say("one")))
    answer = held_back(client.lab)
    await client.connect()
    await client.say()
    (called,) = client.called
    working = asyncio.create_task(client.work())
    await client.until(lambda: len(client.lab.model.requests) == 1)
    await client.run(called)
    answer.set()
    await working
    await client.run(called)
    assert (len(client.finals()), len(client.lab.model.requests), client.is_closed) == (1, 1, False)


@pytest.mark.parametrize("by", ["its second run", "the next frame"])
async def test_a_worker_that_has_died_closes_its_connection(by: str) -> None:
    client = Client(Lab())
    await client.connect()
    await client.say()
    (called,) = client.called
    assert await client.sockets.begin(*called) is not None  # and then nothing more
    client.lab.now += limits.WEBSOCKET_HOLD_SECONDS + 1
    if by == "its second run":
        await client.run(called)
    else:
        await client.say()
    assert (client.is_closed, client.records) == (True, [])


async def test_without_room_for_a_worker_the_frame_is_refused_in_its_lane() -> None:
    client = Client(Lab(say("one")), has_room=False)
    await client.connect()
    await client.say(stream_id="a")
    assert client.errors == [(429, "rate_limit_exceeded", "a")]
    client.has_room = True
    await client.say()
    await client.work()
    assert len(client.finals()) == 1


async def test_lanes_are_counted_over_all_workers() -> None:
    client = Client(Lab())
    await client.connect()
    for number in range(limits.WEBSOCKET_STREAM_IDS_MAX + 1):
        await client.say(stream_id=f"lane-{number}", temperature=7)
        await client.work()
    assert client.errors[-1] == (400, "websocket_stream_limit_reached", f"lane-{limits.WEBSOCKET_STREAM_IDS_MAX}")
    assert {code for _, code, _ in client.errors[:-1]} != {"websocket_stream_limit_reached"}


async def test_an_unstored_response_lasts_as_long_as_its_connection() -> None:
    client = Client(Lab(say("one"), say("two")))
    await client.connect()
    await client.say("first", store=False)
    await client.work()
    parent = client.finals()[0]["id"]
    assert client.records == [f"KEPT#{parent}", "META", "PLACE#0000"]
    await client.say("second", store=False, previous_response_id=parent)
    await client.work()
    said = [item["content"][0]["text"] for item in client.lab.model.requests[1].items if item["type"] == "message"]
    assert said == ["first", "one", "second"]
    await client.disconnect()
    assert client.records == []


async def test_a_continuation_that_fails_makes_its_parent_forgotten_by_all_workers() -> None:
    client = Client(Lab(say("one")))
    await client.connect()
    await client.say(store=False, stream_id="a")
    await client.work()
    parent = client.finals()[0]["id"]
    for lane in ("b", "a", "a"):
        await client.say(store=False, stream_id=lane, previous_response_id=parent, temperature=7 if client.sent < 3 else 1)
        await client.work()
    above = "decimal_above_max_value"
    assert [code for _, code, _ in client.errors] == [above, above, "previous_response_not_found"]


# --- keys ---


async def test_a_handshake_needs_a_key_that_may_write() -> None:
    client = Client(Lab())
    client.keys.found[hash_of("sk-moorage-read")] = ApiKey("key_2", "t", "reads", 0, scope=READ)
    assert [await client.connect(secret) for secret in ("", "sk-moorage-no", "sk-other", "sk-moorage-read")] == [401, 401, 401, 403]
    assert client.records == []


async def test_a_revoked_key_closes_its_connection() -> None:
    client = Client(Lab(say("one")))
    await client.connect()
    client.keys.found.clear()
    await client.say()
    await client.work()
    assert (client.errors, client.is_closed, client.records) == ([(401, "invalid_api_key", None)], True, [])


async def test_an_ended_session_of_the_console_closes_its_connection() -> None:
    client = Client(Lab(say("one")))
    client.keys.found[hash_of(SECRET)] = ApiKey("key_1", "t", "console", 0, parent=hash_of("sk-moorage-0"))
    await client.connect()
    await client.lab.runtime.identity.ended.end(hash_of(SECRET), int(client.lab.now) + 600)
    await client.say()
    await client.work()
    assert (client.errors, client.is_closed, client.records) == ([(401, "invalid_api_key", None)], True, [])


def token(client: Client, *, scope: str = "", seconds: int = 600) -> str:
    """As an issuer's tokens are found: no table has them."""
    signed = f"eyJ.{scope}.signed"
    expires_at = int(client.lab.now) + seconds
    client.keys.found[hash_of(signed)] = ApiKey("key_9", "t", "ada", 0, scope=scope, expires_at=expires_at, parent="ada", subject="ada")
    return signed


async def test_a_token_opens_a_connection_until_it_expires() -> None:
    client = Client(Lab(say("one"), say("two")))
    assert await client.connect(token(client)) == 200
    client.keys.found.clear()  # The worker has the token's hash alone, and can find nobody by it.
    await client.say()
    await client.work()
    client.lab.now += 600
    await client.say()
    await client.work()
    assert (len(client.finals()), client.errors, client.is_closed) == (1, [(401, "invalid_api_key", None)], True)


async def test_a_token_whose_session_was_ended_closes_its_connection() -> None:
    client = Client(Lab(say("one")))
    signed = token(client)
    await client.connect(signed)
    await client.lab.runtime.identity.ended.end(session_digest(signed), int(client.lab.now) + 600)
    await client.say()
    await client.work()
    assert (client.finals(), client.errors, client.records) == ([], [(401, "invalid_api_key", None)], [])


async def test_tokens_of_one_person_share_the_places_and_a_reader_gets_none() -> None:
    client = Client(Lab())
    assert await client.connect(token(client, scope=READ)) == 403
    assert [await client.connect(token(client), connection_id=f"c{number}=") for number in range(2)] == [200, 200]
    assert {pk for pk, _ in client.lab.table.records if pk.startswith(keys.socket_places(""))} == {keys.socket_places("ada")}


async def test_a_token_that_opens_nothing_refuses_the_handshake() -> None:
    client = Client(Lab())

    async def refuse(_: str) -> ApiKey | None:
        raise invalid_token("it has expired")

    client.door = GatewayEvents(client.sockets, refuse, client.connections, call=client._call, clock=lambda: client.lab.now)
    assert (await client.connect("eyJ.e30.x"), client.records) == (401, [])


async def test_a_keys_rate_counts_every_frame() -> None:
    client = Client(Lab(say("one"), say("two")), requests_per_minute=1)
    await client.connect()
    for _ in range(2):
        await client.say()
        await client.work()
    assert (len(client.finals()), client.errors) == (1, [(429, "rate_limit_exceeded", None)])


async def test_a_key_has_so_many_connections_and_gets_back_what_it_gives() -> None:
    client = Client(Lab())
    most = limits.WEBSOCKETS_PER_KEY_MAX
    assert [await client.connect(connection_id=f"c{number}=") for number in range(most + 1)] == [200] * most + [429]
    await client.disconnect("c7=")
    assert [await client.connect(connection_id=f"d{number}=") for number in range(2)] == [200, 429]
    # The gateway does not tell of every end, but no connection lives for longer than two hours.
    client.lab.now += limits.WEBSOCKET_GATEWAY_SECONDS_MAX + limits.WEBSOCKET_HOLD_SECONDS + 1
    assert await client.connect(connection_id="e=") == 200


async def test_two_handshakes_at_once_take_two_places() -> None:
    client = Client(Lab())

    async def meanwhile(record: dict[str, Any]) -> None:
        client.lab.table.before_write = None
        await client.connect(connection_id="faster=")

    client.lab.table.before_write = meanwhile
    assert await client.connect() == 200
    assert client.records == ["META", "META", "PLACE#0000", "PLACE#0001"]


async def test_a_connection_of_a_derived_key_counts_as_its_parents() -> None:
    client = Client(Lab())
    client.keys.found[hash_of(SECRET)] = ApiKey("key_1", "t", "console", 0, parent=hash_of("parent"))
    await client.connect()
    opened = await client.sockets.find(ID)
    assert opened == SocketOpening(ID, "t", hash_of(SECRET), hash_of("parent"), (), int(client.lab.now), 0)
    assert key_id_of(opened.counts_as) == key_id_of(hash_of("parent"))


# --- ends ---


async def test_a_client_that_has_gone_cancels_what_only_the_worker_has() -> None:
    client = Client(Lab(say("never heard")))
    held_back(client.lab)
    await client.connect()
    await client.say()
    client.is_gone = True
    await client.work()
    await client.lab.runtime.process.rest(_PATIENCE_SECONDS)
    assert client.heard == []
    written = {keys.response.read(pk) for pk, _ in client.lab.table.records if keys.is_response(pk)}
    assert [(await client.lab.responses.snapshot(*each)).final_object["status"] for each in written] in ([], ["cancelled"])


async def test_what_the_state_machine_has_goes_on_without_its_client() -> None:
    client = Client(Lab(shell("ls"), say("done")))
    await client.connect()
    await client.say("list", tools=[SHELL])
    working = asyncio.create_task(client.work())
    await client.until(lambda: bool(client.lab.executions.started))
    await client.disconnect()
    await working
    assert client.records == []
    ((response_id, state),) = client.lab.executions.started.items()
    stored = (await client.lab.responses.snapshot("t", response_id)).stored
    await client.lab.run(stored, LoopState.from_json(state))
    assert (await client.lab.object_of(stored))["status"] == "completed"
    # Who comes back continues it on a new connection.
    client.lab.model.turns.append(say("and now?"))
    assert await client.connect(connection_id=ID) == 200
    await client.say("go on", previous_response_id=response_id)
    await client.work()
    assert client.finals()[-1]["previous_response_id"] == response_id


async def test_an_interruption_is_carried_through_when_its_worker_has_left() -> None:
    client = Client(Lab(shell("ls"), say("never")))
    lab, may_stop = client.lab, asyncio.Event()

    async def before_write(record: Record) -> None:
        if record.get("cancel_requested"):
            await may_stop.wait()

    lab.table.before_write = before_write
    await client.connect()
    await client.say("list", tools=[SHELL])
    working = asyncio.create_task(client.work())
    await client.until(lambda: bool(lab.executions.started))
    (response_id,) = lab.executions.started
    await client.frame(json.dumps({"type": "response.interrupt", "response_id": response_id, "mode": "discard_partial_items"}))
    await client.until(lambda: "holder" not in lab.table.records[keys.socket(ID), keys.META])
    assert [final["incomplete_details"] for final in client.finals("response.incomplete")] == [{"reason": "interrupted"}]
    may_stop.set()
    await working
    await lab.runtime.process.rest(_PATIENCE_SECONDS)
    assert lab.executions.states == {response_id: "ABORTED"}


async def test_frames_of_a_connection_that_has_ended_are_dropped() -> None:
    client = Client(Lab())
    await client.connect()
    await client.disconnect()
    await client.say()
    assert (client.called, client.records) == ([], [])


async def test_a_connection_is_told_its_end_after_an_hour() -> None:
    client = Client(Lab())
    await client.connect()
    client.lab.now += limits.WEBSOCKET_SECONDS_MAX
    await client.say()
    await client.work()
    assert (client.errors, client.is_closed) == ([(400, "websocket_connection_limit_reached", None)], True)


async def test_a_silent_response_keeps_its_connection_open() -> None:
    client = Client(Lab(say("at last")))
    answer = held_back(client.lab)
    await client.connect()
    await client.say()
    working = asyncio.create_task(client.work())
    await client.until(lambda: len(client.lab.model.requests) == 1)
    client.lab.now += limits.WEBSOCKET_SILENCE_SECONDS
    await client.until(lambda: {"type": "keepalive"} in client.heard)
    answer.set()
    await working
    assert len(client.finals()) == 1


async def test_a_response_that_outlasts_its_worker_goes_on_and_says_where() -> None:
    client = Client(Lab(say("never heard")))
    client.lab.runtime.settings = replace(client.lab.runtime.settings, stream_seconds_max=1)
    held_back(client.lab)
    await client.connect()
    await client.say(stream_id="a")
    await client.work()
    (response_id,) = client.lab.executions.started
    assert client.errors == [(400, "time_limit_exceeded", "a")]
    assert f"/v1/responses/{response_id}?stream=true" in client.heard[-1]["error"]["message"]


async def test_a_frame_that_comes_at_a_workers_end_is_to_be_sent_again() -> None:
    client = Client(Lab(say("one")))
    client.lab.runtime.settings = replace(client.lab.runtime.settings, stream_seconds_max=0)
    await client.connect()
    await client.say()
    await client.work()
    assert client.errors == [(429, "rate_limit_exceeded", None)]


async def test_the_words_of_a_connection_are_no_longer_than_a_message() -> None:
    client = Client(Lab(say("x" * 200_000)))
    await client.connect()
    await client.say()
    await client.work()
    (final,) = [event for event in client.heard if event["type"] == "response.completed"]
    assert final["response"]["output"][0]["content"][0]["text"] == ""
    assert final["shortened"]["members"] == ["response.output.0.content.0.text"]
    assert final["shortened"]["bytes"] > 200_000


async def test_a_refused_handshake_says_why_to_whoever_can_read_it() -> None:
    client = Client(Lab())
    answer = await client.door.handle({"headers": {}, "requestContext": {"routeKey": "$connect", "connectionId": ID}})
    assert (answer["statusCode"], json.loads(answer["body"])["error"]["code"]) == (401, "invalid_api_key")
