"""``/v1/webhook_endpoints`` as the SDK drives it, and what it refuses."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import httpx2
import pytest
from moorage import limits
from moorage.egress.fetch import Fetcher
from moorage.webhooks.event_types import EVENT_TYPES
from openai import AsyncOpenAI, NotFoundError

from tests.receivers import HANG_UP, Receiver, receiving
from tests.unit.api.served import Served
from tests.unit.loop.lab import Lab, say
from tests.unit.loop.test_webhooks import completed, lab_with, reach

URL = "https://hooks.example/moorage"
WANTED: dict[str, Any] = {"name": "mine", "url": URL, "event_types": ["response.completed"]}


def sdk_of(served: Served, key: str = "key-a") -> AsyncOpenAI:
    http = httpx2.AsyncClient(transport=httpx2.ASGITransport(served.app))
    return AsyncOpenAI(api_key=key, base_url="http://api/v1", http_client=http, max_retries=0)


@asynccontextmanager
async def served_with(*answers: Any) -> AsyncIterator[tuple[Served, AsyncOpenAI, Receiver]]:
    async with lab_with(*answers) as (lab, receiver):
        served = Served.of(lab)
        sdk = sdk_of(served)
        yield served, sdk, receiver
        await sdk.close()


async def created(served: Served, **changes: Any) -> dict[str, Any]:
    answer = await served.post("/webhook_endpoints", WANTED | changes)
    assert answer.status_code == 200, answer.text
    made: dict[str, Any] = answer.json()
    return made


async def test_the_sdk_drives_the_whole_life_of_an_endpoint() -> None:
    async with served_with() as (served, sdk, receiver):
        made = await sdk.webhooks.create(name="mine", url=receiver.url, event_types=["response.completed", "response.failed"])
        assert made.signing_secret.startswith("whsec_")
        assert made.signing_secret_hint == f"whsec_...{made.signing_secret[-4:]}"
        found = await sdk.webhooks.retrieve(made.id)
        assert found.to_dict() == {
            "id": made.id,
            "object": "webhook_endpoint",
            "name": "mine",
            "url": receiver.url,
            "event_types": ["response.completed", "response.failed"],
            "created_at": int(served.lab.now),
            "updated_at": int(served.lab.now),
            "signing_secret_hint": made.signing_secret_hint,
            "status": "active",
            "failing_since": None,
        }
        served.lab.now += 10
        assert await sdk.webhooks.update(made.id, name="mine") == found  # What changes nothing is no change.
        changed = await sdk.webhooks.update(made.id, name="ours", event_types=["response.completed"])
        assert (changed.name, changed.event_types, changed.updated_at) == ("ours", ["response.completed"], found.created_at + 10)

        rotated = await sdk.webhooks.rotate_secret(made.id)
        assert rotated.signing_secret != made.signing_secret
        tested = await sdk.webhooks.test(made.id, event_type="response.failed")
        assert tested.to_dict() == {
            "object": "webhook_endpoint.test",
            "webhook_endpoint_id": made.id,
            "event_type": "response.failed",
            "status_code": 200,
            "success": True,
        }
        assert receiver.sent[0].unwrapped(rotated.signing_secret).type == "response.failed"

        assert [endpoint.id async for endpoint in sdk.webhooks.list()] == [made.id]
        assert (await sdk.webhooks.event_types.list()).data == list(EVENT_TYPES)
        gone = await sdk.webhooks.delete(made.id)
        assert gone.to_dict() == {"id": made.id, "object": "webhook_endpoint.deleted", "deleted": True}
        assert [endpoint.id async for endpoint in sdk.webhooks.list()] == []
        with pytest.raises(NotFoundError):
            await sdk.webhooks.retrieve(made.id)


async def test_endpoints_are_listed_newest_first_also_while_they_are_deleted() -> None:
    served = Served.of(Lab())
    sdk = sdk_of(served)
    made = []
    for number in range(5):
        served.lab.now += 1
        made.append((await created(served, name=str(number)))["id"])
    assert [each.id async for each in sdk.webhooks.list(limit=2)] == made[::-1]
    async for each in sdk.webhooks.list(limit=2):
        await sdk.webhooks.delete(each.id)
    page = (await served.get("/webhook_endpoints", order="asc")).json()
    assert page == {"object": "list", "data": [], "first_id": None, "last_id": None, "has_more": False}
    await sdk.close()


async def test_no_page_begins_behind_what_is_in_no_list() -> None:
    served = Served.of(Lab())
    made = await created(served)
    for path in ("/webhook_endpoints", f"/webhook_endpoints/{made['id']}/deliveries"):
        for order in ("asc", "desc"):
            for after in ("nope", "zzz"):
                answer = await served.get(path, after=after, order=order)
                assert (answer.status_code, answer.json().get("error", {}).get("param")) == (400, "after"), path


async def test_a_secret_is_shown_when_it_is_made_and_never_again() -> None:
    served = Served.of(Lab())
    made = await created(served)
    secret = made["signing_secret"]
    rotated = (await served.post(f"/webhook_endpoints/{made['id']}/rotate_secret", {})).json()
    for answer in (
        await served.get("/webhook_endpoints"),
        await served.get(f"/webhook_endpoints/{made['id']}"),
        await served.post(f"/webhook_endpoints/{made['id']}", {"name": "x"}),
    ):
        assert "signing_secret_hint" in answer.text
        assert secret[6:] not in answer.text
        assert rotated["signing_secret"][6:] not in answer.text


@pytest.mark.parametrize(
    ("changes", "param"),
    {
        "clear text": ({"url": "http://hooks.example/"}, "url"),
        "no address": ({"url": "hooks.example"}, "url"),
        "another scheme": ({"url": "ftp://hooks.example/"}, "url"),
        "this machine": ({"url": "https://127.0.0.1/"}, "url"),
        "a metadata address": ({"url": "https://169.254.169.254/"}, "url"),
        "an address in disguise": ({"url": "https://0x7f000001/"}, "url"),
        "an address of IPv6": ({"url": "https://[::1]/"}, "url"),
        "another port": ({"url": "https://hooks.example:22/"}, "url"),
        "credentials": ({"url": "https://me:word@hooks.example/"}, "url"),
        "too long an address": ({"url": URL + "x" * limits.WEBHOOK_URL_CHARS_MAX}, "url"),
        "no name": ({"name": ""}, "name"),
        "too long a name": ({"name": "x" * (limits.WEBHOOK_NAME_CHARS_MAX + 1)}, "name"),
        "no events": ({"event_types": []}, "event_types"),
        "an event that never comes": ({"event_types": ["batch.completed"]}, "event_types[0]"),
        "an event that is unknown": ({"event_types": ["response.completed", "x"]}, "event_types[1]"),
        "something else": ({"enabled": True}, "enabled"),
    }.values(),
    ids=str,
)
async def test_an_endpoint_that_cannot_work_is_refused(changes: dict[str, Any], param: str) -> None:
    served = Served.of(Lab())
    answer = await served.post("/webhook_endpoints", WANTED | changes)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param), answer.text
    made = await created(served)
    answer = await served.post(f"/webhook_endpoints/{made['id']}", changes)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param), answer.text


@pytest.mark.parametrize("missing", ["name", "url", "event_types"])
async def test_what_an_endpoint_needs_has_to_be_said(missing: str) -> None:
    answer = await Served.of(Lab()).post("/webhook_endpoints", {name: value for name, value in WANTED.items() if name != missing})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, missing)


async def test_there_may_be_so_many_endpoints_also_when_they_are_made_at_once() -> None:
    served = Served.of(Lab())
    more = limits.WEBHOOK_ENDPOINTS_MAX + 3
    answers = await asyncio.gather(*(served.post("/webhook_endpoints", WANTED) for _ in range(more)))
    assert sorted(answer.status_code for answer in answers) == [200] * limits.WEBHOOK_ENDPOINTS_MAX + [400] * 3
    page = (await served.get("/webhook_endpoints", limit=100)).json()
    assert len({each["id"] for each in page["data"]}) == limits.WEBHOOK_ENDPOINTS_MAX
    assert (await served.delete(f"/webhook_endpoints/{page['first_id']}")).status_code == 200
    await created(served)


async def test_endpoints_are_their_tenants() -> None:
    async with served_with() as (served, _, receiver):
        made = await created(served, url=receiver.url)
        await completed(served.lab)
        (delivery,) = (await served.get(f"/webhook_endpoints/{made['id']}/deliveries")).json()["data"]
        one = f"/webhook_endpoints/{made['id']}"
        for method, path, body in (
            ("GET", one, None),
            ("POST", one, {"name": "x"}),
            ("POST", f"{one}/rotate_secret", {}),
            ("POST", f"{one}/test", {"event_type": "response.failed"}),
            ("GET", f"{one}/deliveries", None),
            ("POST", f"{one}/deliveries/{delivery['id']}/redeliver", None),
            ("DELETE", one, None),
        ):
            answer = await served.ask(method, path, "key-b", json=body)
            assert answer.status_code == 404, f"{method} {path}: {answer.text}"
        assert (await served.get("/webhook_endpoints", by="key-b")).json()["data"] == []
        assert len(receiver.sent) == 1
        assert (await served.get(one)).json()["name"] == "mine"


async def test_the_log_tells_of_each_attempt() -> None:
    async with served_with(500) as (served, _, receiver):
        made = await created(served, url=receiver.url)
        stored = await completed(served.lab)
        path = f"/webhook_endpoints/{made['id']}/deliveries"
        (shown,) = (await served.get(path)).json()["data"]
        (attempt,) = shown.pop("attempts")
        assert attempt.pop("duration_ms") >= 0
        assert attempt == {"at": int(served.lab.now * 1000), "status_code": 500, "error": None}
        assert shown == {
            "id": receiver.sent[0].headers["webhook-id"],
            "object": "webhook_endpoint.delivery",
            "webhook_endpoint_id": made["id"],
            "event_type": "response.completed",
            "response_id": stored.response_id,
            "session_id": None,
            "created_at": int(served.lab.now),
            "status": "pending",
            "next_attempt_at": int(served.lab.now) + limits.WEBHOOK_PAUSE_SECONDS_MIN,
            "attempt_count": 1,
        }
        failing = (await served.get(f"/webhook_endpoints/{made['id']}")).json()
        assert (failing["status"], failing["failing_since"]) == ("failing", int(served.lab.now))


async def test_the_log_has_pages() -> None:
    async with served_with() as (served, _, receiver):
        made = await created(served, url=receiver.url)
        told = []
        for _ in range(5):
            served.lab.now += 1
            await completed(served.lab)
            told.append(receiver.sent[-1].headers["webhook-id"])
        for order, expected in (("desc", told[::-1]), ("asc", told)):
            seen: list[str] = []
            after: dict[str, str] = {}
            while True:
                page = (await served.get(f"/webhook_endpoints/{made['id']}/deliveries", limit=2, order=order, **after)).json()
                seen += [each["id"] for each in page["data"]]
                if not page["has_more"]:
                    break
                after = {"after": page["last_id"]}
            assert seen == expected


async def test_an_event_is_sent_again_on_request() -> None:
    async with served_with() as (served, _, receiver):
        made = await created(served, url=receiver.url)
        await completed(served.lab)
        identity = receiver.sent[0].headers["webhook-id"]
        path = f"/webhook_endpoints/{made['id']}/deliveries/{identity}/redeliver"
        again = (await served.post(path)).json()
        assert (again["status"], again["next_attempt_at"]) == ("pending", int(served.lab.now))
        unknown = await served.post(path.replace(identity, "evt_unknown"))
        assert (unknown.status_code, unknown.json()["error"]["message"]) == (
            404,
            "No delivery of the event 'evt_unknown' to this endpoint is known.",
        )


@pytest.mark.parametrize(("answer", "status"), [(204, 200), (404, 200), ("http://localhost/inward", 200), (HANG_UP, 400)])
async def test_a_test_says_what_the_endpoint_answers(answer: Any, status: int) -> None:
    async with served_with(answer) as (served, _, receiver):
        made = await created(served, url=receiver.url)
        said = await served.post(f"/webhook_endpoints/{made['id']}/test", {"event_type": "response.completed"})
        assert said.status_code == status
        if status == 400:
            assert said.json()["error"]["code"] == "webhook_endpoint_unreachable"
        else:
            assert said.json()["status_code"] == (answer if isinstance(answer, int) else 307)
        assert len(receiver.sent) == 1


async def test_a_test_of_an_event_that_never_comes_is_refused() -> None:
    served = Served.of(Lab())
    made = await created(served)
    answer = await served.post(f"/webhook_endpoints/{made['id']}/test", {"event_type": "batch.completed"})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "event_type")


async def test_a_response_that_is_deleted_before_its_end_was_told_is_told_of_first() -> None:
    async with served_with() as (served, _, receiver):
        await created(served, url=receiver.url)
        lab = served.lab
        lab.model.turns.append(say("done"))
        stored = await lab.background()

        async def dies_before_it_is_told(record: dict[str, Any]) -> None:
            if "#W" in record["PK"]:
                raise ConnectionError

        lab.table.before_write = dies_before_it_is_told
        with pytest.raises(ConnectionError):
            await lab.run(stored)
        lab.table.before_write = None
        lab.executions.states[stored.execution] = "FAILED"
        assert (await served.delete(f"/responses/{stored.response_id}")).status_code == 200
        await lab.runtime.process.rest(60)
        assert [event["data"]["id"] for event in receiver.events] == [stored.response_id]


async def test_an_address_in_clear_is_for_ranges_that_the_operator_has_opened() -> None:
    async with receiving() as receiver:
        lab = Lab()
        lab.now = time.time()
        reach(lab, receiver)
        served = Served.of(lab)
        made = await created(served, url=receiver.url)
        lab.runtime.fetcher = replace(lab.runtime.fetcher, allowed_networks=("10.0.0.0/8",))
        answer = await served.post(f"/webhook_endpoints/{made['id']}/test", {"event_type": "response.completed"})
        assert answer.status_code == 400
        assert receiver.sent == []


async def test_the_way_to_an_endpoint_on_the_own_machine_is_told_step_by_step() -> None:
    served = Served.of(lab := Lab())
    steps = [
        (Fetcher(), "http://127.0.0.1:9000/", "MOORAGE_FETCH_ALLOWED_NETWORKS"),
        (Fetcher(allowed_networks=("127.0.0.0/8",)), "http://127.0.0.1:9000/", "MOORAGE_EGRESS_PORTS"),
        (Fetcher(allowed_networks=("127.0.0.0/8",), ports=(9000,)), "http://127.0.0.1:9000/", "such as localhost"),
    ]
    for fetcher, url, remedy in steps:
        lab.runtime.fetcher = fetcher
        refused = await served.post("/webhook_endpoints", WANTED | {"url": url})
        assert (refused.status_code, remedy in refused.json()["error"]["message"]) == (400, True), refused.text
    await created(served, url="http://localhost:9000/")
