"""A response that does not wait ends with the question, in OpenAI's form, and goes on with the client's next request."""

import re
from typing import Any

import pytest
from moorage.errors import ApiError
from moorage.store.responses import Ancestor, StoredResponse
from moorage.tools.capabilities import ValidatesItems
from moorage.tools.registry import ROOMS

from tests.unit.api.served import Served
from tests.unit.loop.approvals import ASKS, PUSHES, ended, ran, waiting
from tests.unit.loop.lab import Lab, say, shell, texts
from tests.unit.loop.test_pause import run_all
from tests.unit.store.deaths import Death, at_each_death


async def asked(served: Served, *items: dict[str, Any], after: StoredResponse | None = None) -> StoredResponse:
    """A response that does not wait in its place, run to its end."""
    changes: dict[str, Any] = {"input_items": list(items)} if items else {}
    if after is not None:
        last = (await served.lab.responses.snapshot("t", after.response_id)).last
        assert last is not None
        changes["ancestors"] = (*after.ancestors, Ancestor(after.response_id, last.first))
    stored = await served.lab.background(tools=[PUSHES], parameters={"approvals": {"park": False}}, **changes)
    await run_all(served.lab, stored.response_id)
    return stored


def answer_to(request: dict[str, Any], approve: bool, **fields: Any) -> dict[str, Any]:
    return {"id": "mcpa_1", "type": "mcp_approval_response", "approval_request_id": request["id"], "approve": approve, **fields}


async def test_an_allowed_call_runs_before_the_model_is_asked() -> None:
    served = Served.of(Lab(shell("git push"), say("pushed")))
    first = await asked(served)
    (request,) = (await ended(served, first))["output"]
    assert request | {"id": ""} == {
        "id": "",
        "type": "mcp_approval_request",
        "server_label": "moorage://shell",
        "name": "shell",
        "arguments": '{"commands":["git push"]}',
    }
    assert (ran(served), await waiting(served)) == ([], [])
    second = await asked(served, answer_to(request, True), after=first)
    call, output, message = (await ended(served, second))["output"]
    assert (call["type"], call["status"], call["call_id"]) == ("shell_call", "completed", request["id"])
    assert (call["action"]["commands"], output["output"][0]["stdout"]) == (["git push"], "git push\n")
    assert (texts([message]), len(served.lab.model.requests)) == (["pushed"], 2), "none was asked before the call"


async def test_a_denial_by_item_is_read_by_the_model_as_an_output_of_its_call() -> None:
    served = Served.of(Lab(shell("git push"), say("As you wish.")))
    first = await asked(served)
    (request,) = (await ended(served, first))["output"]
    second = await asked(served, answer_to(request, False, reason="Not today."), after=first)
    assert [item["type"] for item in (await ended(served, second))["output"]] == ["message"]
    call, output = served.lab.model.requests[1].items[-2:]
    assert (call["name"], call["arguments"], ran(served)) == ("shell", '{"commands":["git push"]}', [])
    assert "The user did not allow this call, and it was not run. They say: Not today." in output["output"]


async def test_a_history_that_comes_back_whole_runs_nothing_again() -> None:
    served = Served.of(Lab(shell("git push"), say("pushed"), say("still pushed")))
    first = await asked(served)
    (request,) = (await ended(served, first))["output"]
    answer = answer_to(request, True)
    second = await asked(served, answer, after=first)
    history = [request, answer, *(await ended(served, second))["output"]]
    third = await asked(served, *history, {"id": "msg_2", "type": "message", "role": "user", "content": "Sure?"})
    assert [item["type"] for item in (await ended(served, third))["output"]] == ["message"]
    assert len(ran(served)) == 1


async def test_a_model_cannot_allow_itself_by_the_id_of_a_call_that_was_allowed() -> None:
    served = Served.of(Lab(shell("git push"), say("pushed")))
    first = await asked(served)
    (request,) = (await ended(served, first))["output"]
    served.lab.model.turns = [shell("git push --force", call_id=request["id"]), say("?")]
    second = await asked(served, answer_to(request, True), after=first)
    *_, again = (await ended(served, second))["output"]
    assert (again["type"], again["arguments"]) == ("mcp_approval_request", '{"commands":["git push --force"]}')
    assert len(ran(served)) == 1


@at_each_death
async def test_an_allowed_call_runs_once_whatever_dies(death: Death) -> None:
    served = Served.of(Lab(shell("git push")))
    first = await asked(served)
    (request,) = (await ended(served, first))["output"]
    served.lab.model.turns = [say("pushed"), say("pushed")]
    last = (await served.lab.responses.snapshot("t", first.response_id)).last
    assert last is not None
    second = await served.lab.background(
        tools=[PUSHES],
        parameters={"approvals": {"park": False}},
        input_items=[answer_to(request, True)],
        ancestors=(Ancestor(first.response_id, last.first),),
    )
    await served.lab.run_with_deaths(second, death)
    served.lab.table.before_write = None
    response = await ended(served, second)
    assert (response["status"], len(ran(served))) == ("completed", 1)
    assert [item["type"] for item in response["output"][:2]] == ["shell_call", "shell_call_output"]


REQUESTED: dict[str, Any] = {
    "id": "mcpr_1",
    "type": "mcp_approval_request",
    "server_label": "moorage://shell",
    "name": "shell",
    "arguments": '{"commands":["ls"]}',
}
ALLOWED = answer_to(REQUESTED, True)
REFUSED: dict[str, tuple[list[dict[str, Any]], list[dict[str, Any]], str]] = {
    "no shell": ([REQUESTED, ALLOWED], [], "The hosted shell of this call is not among 'tools'."),
    "the client's shell": ([REQUESTED, ALLOWED], [{"type": "shell"}], "The hosted shell of this call is not among 'tools'."),
    "no question": ([ALLOWED], [ASKS], "No approval request found with id 'mcpr_1'."),
    "no call": ([REQUESTED | {"arguments": "x"}, ALLOWED], [ASKS], "what was asked for is no call of a shell."),
    "a server that is not there": (
        [REQUESTED | {"server_label": "depot"}, ALLOWED],
        [ASKS],
        "The server 'depot' of this call is not among 'tools'.",
    ),
}


@pytest.mark.parametrize(("items", "tools", "message"), REFUSED.values(), ids=REFUSED)
def test_an_approval_of_what_cannot_run_is_refused(items: list[dict[str, Any]], tools: list[dict[str, Any]], message: str) -> None:
    def admit() -> None:
        for room in ROOMS:
            if isinstance(room, ValidatesItems):
                room.validate_items(items, [], [tool for tool in tools if tool["type"] in room.types])

    with pytest.raises(ApiError, match=re.escape(message)):
        admit()
