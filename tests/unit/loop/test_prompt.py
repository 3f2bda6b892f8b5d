"""What an operator is told that a model was sent is what it was sent."""

from typing import Any

import orjson
import pytest
from moorage.errors import ApiError
from moorage.loop.prompt import SentPrompt, sent
from moorage.model.base import ItemDone, ReasoningStarted, SummaryDelta
from moorage.model.reasoning import pack
from moorage.store.responses import Ancestor, StoredResponse

from tests.unit.api.served import Served
from tests.unit.loop.lab import SHELL_TOOL, Lab, Turn, broken, call, say, shell

FUNCTION: dict[str, Any] = {"type": "function", "name": "look", "parameters": {"type": "object", "properties": {}}, "strict": False}


async def told(lab: Lab, stored: StoredResponse, step: int) -> SentPrompt:
    return await sent(lab.runtime, await lab.runtime.stores.responses.snapshot(stored.tenant_id, stored.response_id), f"step_{step}")


async def test_each_step_was_sent_what_the_model_had_in_front_of_it() -> None:
    lab = Lab(*(shell(f"step {number}", call_id=f"call_{number}") for number in range(3)), say("Done."))
    stored = await lab.background(tools=[SHELL_TOOL, FUNCTION], parameters={"temperature": 0.5})
    await lab.run(stored)
    assert len(lab.model.requests) == 4
    assert [(await told(lab, stored, step)).request for step in range(4)] == lab.model.requests


async def test_a_step_that_was_asked_twice_is_told_as_it_began() -> None:
    lab = Lab(shell("step 0"), broken("This is cut off"), say("Done."))
    stored = await lab.background(tools=[SHELL_TOOL])
    await lab.run(stored)
    assert (await told(lab, stored, 1)).request == lab.model.requests[1]


async def test_what_was_asked_before_stands_in_front() -> None:
    lab = Lab(say("one"), say("two"))
    first = await lab.background("first")
    await lab.run(first)
    last = (await lab.runtime.stores.responses.log_of(first).read_from(0))[-1]
    second = await lab.background("second", ancestors=(Ancestor(first.response_id, last.first),))
    await lab.run(second)
    assert (await told(lab, second, 0)).request == lab.model.requests[1]
    assert [item["role"] for item in lab.model.requests[1].items] == ["user", "assistant", "user"]


async def test_a_step_that_runs_is_told_too() -> None:
    lab = Lab(shell("sleep"), say("never"))
    stored = await lab.background(tools=[SHELL_TOOL])
    seen: list[SentPrompt] = []

    async def look() -> None:
        seen.append(await told(lab, stored, 0))

    lab.model.before_answer = look
    await lab.run(stored)
    assert [each.request for each in seen] == lab.model.requests[:1]


async def test_reasoning_that_only_its_upstream_may_read_stays_sealed() -> None:
    thought = pack("anthropic", {"thinking": "planted-7a2c"})
    thinking: Turn = [ReasoningStarted(), SummaryDelta("hm"), ItemDone(encrypted_content=thought)]
    lab = Lab([*thinking, *shell("ls")], say("Done."))
    stored = await lab.background(tools=[SHELL_TOOL])
    await lab.run(stored)
    (upstreams,) = [item for item in lab.model.requests[1].items if item["type"] == "reasoning"]
    (ours,) = [item for item in (await told(lab, stored, 1)).to_json()["input"] if item["type"] == "reasoning"]
    assert upstreams["encrypted_content"] == thought
    assert ours["encrypted_content"] != thought
    assert b"planted" not in orjson.dumps(ours)


async def test_what_pictures_hold_is_left_out() -> None:
    picture = "data:image/png;base64," + "A" * 5000
    parts = [{"type": "input_text", "text": "What is this?"}, {"type": "input_image", "image_url": picture, "detail": "auto"}]
    message = {"id": "msg_in", "type": "message", "role": "user", "content": parts}
    lab = Lab(say("A."))
    stored = await lab.background(input_items=[message])
    await lab.run(stored)
    assert lab.model.requests[0].items == (message,)
    shown = parts[1] | {"image_url": f"{picture[:64]}... ({len(picture)} characters)"}
    assert (await told(lab, stored, 0)).to_json()["input"] == [message | {"content": [parts[0], shown]}]


async def test_there_is_no_prompt_of_a_call_or_of_a_step_that_is_not_there() -> None:
    lab = Lab(shell("ls", call_id="call_1"), say("Done."))
    stored = await lab.background(tools=[SHELL_TOOL])
    await lab.run(stored)
    for step_id in ("step_0_call_1", "step_7", "x"):
        with pytest.raises(ApiError) as refused:
            await sent(lab.runtime, await lab.runtime.stores.responses.snapshot(stored.tenant_id, stored.response_id), step_id)
        assert (refused.value.status, step_id in refused.value.message) == (404, True)


async def test_over_http_it_says_how_long_each_part_is_and_belongs_to_its_tenant() -> None:
    lab = Lab(call("look", "{}"), say("never"))
    stored = await lab.background("hello", tools=[FUNCTION])
    await lab.run(stored)
    served = Served.of(lab)
    path = f"/responses/{stored.response_id}/steps/step_0/prompt"
    answer = (await served.get(path)).json()
    assert answer == {
        "id": "step_0",
        "object": "response.prompt",
        "step": 0,
        "model": "m",
        "instructions": "Be brief.",
        "tools": [FUNCTION],
        "parameters": {"tool_choice": "auto", "parallel_tool_calls": True},
        "input": answer["input"],
        "estimated_tokens": {"frame": answer["estimated_tokens"]["frame"], "input": [answer["estimated_tokens"]["input"][0]]},
        "usage": answer["usage"],
    }
    assert [item["role"] for item in answer["input"]] == ["user"]
    assert answer["usage"]["input_tokens"] == 10
    assert (await served.get(path, by="key-b")).status_code == 404
