"""What has been said so far is looked up and checked in one place, whoever asks for it."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from moorage.api.input_tokens import input_tokens
from moorage.errors import ApiError
from moorage.loop.create import prepare
from moorage.loop.prepare import gather
from moorage.runtime import Runtime
from moorage.wire.requests import parse_compact, parse_create, parse_input_tokens

from tests.unit.loop.lab import TENANT, Lab, say

SAID = {"role": "user", "content": "hi"}


async def create(runtime: Runtime, body: dict[str, Any]) -> None:
    await prepare(runtime, TENANT, parse_create({"store": False, **body}))


async def count(runtime: Runtime, body: dict[str, Any]) -> None:
    await input_tokens(runtime, TENANT, parse_input_tokens(body))


async def compact(runtime: Runtime, body: dict[str, Any]) -> None:
    wanted = parse_compact(body)
    await gather(
        runtime,
        TENANT,
        model=wanted.model,
        input_items=wanted.input_items,
        previous_response_id=wanted.previous_response_id,
    )


ASKERS = {"create": create, "count": count, "compact": compact}


@pytest.mark.parametrize("ask", ASKERS.values(), ids=ASKERS)
@pytest.mark.parametrize(
    ("items", "param", "sentence"),
    [
        (
            [{"type": "function_call_output", "call_id": "c", "output": "x"}],
            "input",
            "No tool call found for function call output with call_id c.",
        ),
        ([{"id": "msg_unknown"}], "input", "Item with id 'msg_unknown' not found."),
        (
            [SAID, {"type": "compaction", "encrypted_content": "of somebody else"}],
            "input[1].encrypted_content",
            "it was sealed by another deployment",
        ),
    ],
    ids=["an output without its call", "a reference that leads nowhere", "a compaction that nobody can read"],
)
async def test_an_input_is_refused_alike_whoever_asks(
    ask: Callable[[Runtime, dict[str, Any]], Awaitable[None]], items: list[Any], param: str, sentence: str
) -> None:
    with pytest.raises(ApiError) as refused:
        await ask(Lab().runtime, {"model": "m", "input": items})
    assert refused.value.param == param
    assert sentence in refused.value.message


@pytest.mark.parametrize("ask", ASKERS.values(), ids=ASKERS)
async def test_a_chain_that_hangs_on_a_compaction_nobody_can_read_is_refused(
    ask: Callable[[Runtime, dict[str, Any]], Awaitable[None]],
) -> None:
    """Its upstream had made it, and the request goes to another model."""
    lab = Lab(say("done"))
    foreign = {"id": "cmp_1", "type": "compaction", "encrypted_content": "of the upstream"}
    lab.model.native_tools = frozenset({"function", "compaction"})
    stored = await lab.background(input_items=[{"id": "msg_1", "type": "message", "role": "user", "content": []}, foreign])
    await lab.run(stored)
    lab.model.native_tools = frozenset({"function"})
    with pytest.raises(ApiError) as refused:
        await ask(lab.runtime, {"model": "m", "input": [SAID], "previous_response_id": stored.response_id})
    assert (refused.value.status, refused.value.param) == (400, "previous_response_id")
