"""A response whose calls need a person's word, and whoever decides."""

from typing import Any

import httpx
from moorage import ids
from moorage.store.responses import StoredResponse

from tests.stack import assert_well_formed
from tests.unit.api.served import Served
from tests.unit.loop.lab import SHELL_TOOL, Lab, Turn
from tests.unit.loop.test_pause import run_all

ASKS: dict[str, Any] = {**SHELL_TOOL, "require_approval": "always"}
PUSHES: dict[str, Any] = {
    **SHELL_TOOL,
    "require_approval": {"always": {"commands": ["git push*"]}, "never": {"commands": ["*"]}},
}


async def begun(*turns: Turn, tool: dict[str, Any] = ASKS, **approvals: Any) -> tuple[Served, StoredResponse]:
    """A response in the background that has come as far as it does by itself."""
    served = Served.of(Lab(*turns))
    stored = await served.lab.background(tools=[tool], parameters={"approvals": approvals} if approvals else {})
    await run_all(served.lab, stored.response_id)
    return served, stored


async def approvals_of(served: Served, stored: StoredResponse, **query: Any) -> list[dict[str, Any]]:
    answer = await served.get(f"/responses/{stored.response_id}/approvals", **query)
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()["data"]
    return found


async def waiting(served: Served, by: str = "key-a", **query: Any) -> list[str]:
    answer = await served.get("/approvals", by, **query)
    assert answer.status_code == 200, answer.text
    return [one["id"] for one in answer.json()["data"]]


async def decided(served: Served, approval_id: str, approve: bool, reason: str = "", by: str = "key-a") -> httpx.Response:
    body = {"approve": approve, **({"reason": reason} if reason else {})}
    return await served.post(f"/responses/{ids.response_of(approval_id)}/approvals/{approval_id}", body, by)


async def played(served: Served) -> list[str]:
    """Run the executions that were started and have not ended; their names."""
    names = [name for name, state in served.lab.executions.states.items() if state == "RUNNING"]
    for name in names:
        await run_all(served.lab, name)
    return names


async def ended(served: Served, stored: StoredResponse) -> dict[str, Any]:
    assert_well_formed(await served.lab.events(stored))
    return await served.lab.object_of(stored)


def ran(served: Served) -> list[str]:
    return [identity.split("-", 1)[1] for identity in served.lab.sandboxes.executed]


def both(*calls: Turn) -> Turn:
    return [*(delta for call in calls for delta in call[:-2]), *calls[-1][-2:]]
