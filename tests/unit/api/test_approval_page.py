"""A link decides one approval without a key: looking changes nothing, and it opens for nobody else, for nothing else, for no longer."""

from typing import Any, cast

import httpx
import pytest
from moorage.approvals.link_store import ApprovalLinkRecord, ApprovalLinks
from moorage.loop.stop import stop

from tests.unit.api.served import KEY_A, Served
from tests.unit.loop.approvals import approvals_of, begun, decided, played, ran
from tests.unit.loop.lab import say, shell

HIDDEN = "rm x # \u202e<script>alert(1)</script>"


async def opened(served: Served, path: str, method: str = "GET", **form: str) -> httpx.Response:
    """As a browser does it: without any key."""
    async with httpx.AsyncClient(transport=httpx.ASGITransport(served.app), base_url="http://api") as http:
        return await http.request(method, path, data=form or None)


async def linked(served: Served, approval: dict[str, Any], by: str = "key-a", **wanted: Any) -> httpx.Response:
    return await served.post(f"/responses/{approval['response_id']}/approvals/{approval['id']}/link", wanted, by)


async def asked(command: str = "rm x") -> tuple[Served, Any, dict[str, Any], str]:
    served, stored = await begun(shell(command), say("done"))
    (approval,) = await approvals_of(served, stored)
    made = (await linked(served, approval)).json()
    assert (made["object"], made["approval_id"]) == ("response.approval.link", approval["id"])
    assert made["expires_at"] == int(served.lab.now) + 24 * 3600
    return served, stored, approval, made["path"]


async def test_whoever_looks_sees_all_that_would_run_and_changes_nothing() -> None:
    served, stored, approval, path = await asked(HIDDEN)
    page = await opened(served, path)
    assert (page.status_code, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert (page.headers["cache-control"], page.headers["referrer-policy"]) == ("no-store", "no-referrer")
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert "rm x # \\u202e&lt;script&gt;alert(1)&lt;/script&gt;" in page.text
    assert (await approvals_of(served, stored), await played(served)) == ([approval], [])


async def test_the_button_decides_and_the_response_goes_on() -> None:
    served, stored, _, path = await asked()
    page = await opened(served, path, "POST", decision="deny", reason="Keep it.")
    assert (page.status_code, "This was denied." in page.text, "<form" in page.text) == (200, True, False)
    (approval,) = await approvals_of(served, stored)
    assert (approval["status"], approval["decided_by"], approval["reason"]) == ("denied", f"link of {KEY_A}", "Keep it.")
    await played(served)
    assert "They say: Keep it." in str((await served.lab.object_of(stored))["output"])
    assert ran(served) == []


async def test_a_link_ends_with_the_key_that_made_it() -> None:
    served, stored, approval, path = await asked()
    cast("Any", served.lab.runtime.identity.api_keys).revoked.add(KEY_A)
    for answer in (await opened(served, path), await opened(served, path, "POST", decision="approve")):
        assert (answer.status_code, "This link is not valid" in answer.text) == (404, True)
    assert (await approvals_of(served, stored), await played(served)) == ([approval], [])


async def test_a_link_decides_once() -> None:
    served, stored, _, path = await asked()
    assert (await opened(served, path, "POST", decision="approve")).status_code == 200
    again, other = await opened(served, path, "POST", decision="approve"), await opened(served, path, "POST", decision="deny")
    assert (again.status_code, other.status_code) == (200, 409)
    assert "it was approved" in other.text
    assert "<form" not in (await opened(served, path)).text
    assert (await played(served), ran(served)) == ([f"{stored.response_id}-p1"], ["call_1-0"])


async def test_a_link_to_what_was_decided_otherwise_says_so_and_no_new_one_is_made() -> None:
    served, _, approval, path = await asked()
    await decided(served, approval["id"], True)
    assert "This was allowed." in (await opened(served, path)).text
    refused = await linked(served, approval)
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "approval_decided")


async def test_a_response_that_has_ended_takes_no_decision() -> None:
    served, stored, _, path = await asked()
    await stop(served.lab.runtime, await served.lab.responses.snapshot("t", stored.response_id))
    page, late = await opened(served, path), await opened(served, path, "POST", decision="approve")
    assert ("its response has ended" in page.text, "<form" in page.text, late.status_code) == (True, False, 409)


async def test_a_link_ends_with_its_time_and_with_its_response() -> None:
    served, stored, _, path = await asked()
    served.lab.now += 24 * 3600
    for method in ("GET", "POST"):
        answer = await opened(served, path, method, **({"decision": "approve"} if method == "POST" else {}))
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "approval_link_not_valid")
    served.lab.now -= 3600
    await served.lab.responses.delete("t", stored.response_id)
    assert (await opened(served, path)).status_code == 404


@pytest.mark.parametrize("change", ["first", "last", "short", "none", "foreign"])
async def test_what_is_no_link_of_this_deployment_opens_nothing(change: str) -> None:
    served, stored, approval, path = await asked()
    token = path.removeprefix("/approve/")
    other = ApprovalLinks.of(b"x" * 32).seal(ApprovalLinkRecord("t", approval["id"], 2**40, KEY_A))
    forged = {
        "first": ("A" if token[0] != "A" else "B") + token[1:],
        "last": token[:-2] + ("AA" if token[-2:] != "AA" else "BB"),
        "short": token[:20],
        "none": "x",
        "foreign": other,
    }[change]
    answer = await opened(served, f"/approve/{forged}", "POST", decision="approve")
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "approval_link_not_valid")
    assert await approvals_of(served, stored) == [approval]


async def test_only_its_owner_makes_a_link_and_within_bounds() -> None:
    served, _, approval, _ = await asked()
    assert (await linked(served, approval, by="key-b")).status_code == 404
    for seconds in (59, 7 * 24 * 3600 + 1, "60"):
        assert (await linked(served, approval, expires_in_seconds=seconds)).status_code == 400
    made = await linked(served, approval, expires_in_seconds=60)
    assert made.json()["expires_at"] == int(served.lab.now) + 60
    assert (await linked(served, approval | {"id": "apr_" + "0" * 48})).status_code == 404


@pytest.mark.parametrize(
    "form", [{}, {"decision": "yes"}, {"decision": "approve", "reason": "x" * 4_001}, {"decision": "approve", "reason": "x" * 70_000}]
)
async def test_what_is_no_decision_is_refused(form: dict[str, str]) -> None:
    served, stored, approval, path = await asked()
    assert (await opened(served, path, "POST", **form)).status_code in (400, 413)
    assert await approvals_of(served, stored) == [approval]
