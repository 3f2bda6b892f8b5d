"""Answers that end badly: half a call never counts, and what broke off is asked for again or fails in its upstream's words."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from moorage.errors import UpstreamError
from moorage.loop import context
from moorage.loop.assemble import Assembler
from moorage.loop.decide import LoopDecision, after_model
from moorage.model.anthropic_messages import MessagesDecoder
from moorage.model.base import CallDelta, CallStarted, Delta, MessageStarted, StreamFinished, TextDelta, UsageReported
from moorage.model.bedrock_converse import ConverseDecoder
from moorage.model.chat_completions import decoder_for
from moorage.model.http import Decoder
from moorage.model.openai_responses import ResponsesDecoder
from moorage.state import Next
from moorage.tools.lowering import OriginalTool
from moorage.wire.types import Item

from tests.unit.loop.lab import Lab, Turn, call, say, shell, texts
from tests.unit.model.encodings import (
    ANTHROPIC,
    CHAT,
    CONVERSE,
    RESPONSES,
    Answer,
    Called,
    Kind,
    Said,
    Thought,
    answer,
    hello,
)

AMOUNT = {"type": "object", "properties": {"amount": {"type": "number"}}}
PAY: dict[str, Any] = {"type": "function", "name": "pay", "parameters": AMOUNT}


def half(*deltas: Delta, message: str = "overloaded") -> Turn:
    return [*deltas, UpstreamError(message, is_retryable=True)]


def announced(text: str) -> list[Delta]:
    return [MessageStarted(), TextDelta(text)]


def half_call(name: str, arguments: str) -> list[Delta]:
    return [CallStarted(name, "call_half"), CallDelta(arguments)]


def shown(item: Item) -> tuple[Any, ...]:
    return (item["type"], item.get("status"), item.get("arguments"))


# --- stories ------------------------------------------------------------------------------------------------------------------------


async def test_words_before_half_a_hosted_call_are_no_answer() -> None:
    lab = Lab(half(*announced("Let me look."), *half_call("shell", '{"commands": ["ls /mn')), shell("ls"), say("All done."))
    stored = await lab.background()
    await lab.run(stored)
    ended = await lab.object_of(stored)
    assert (ended["status"], texts(ended["output"])) == ("completed", ["Let me look.", "All done."])
    assert lab.model.requests[1].items[-1]["content"][0]["text"] == "Let me look."


async def test_half_a_hosted_call_without_words_is_asked_for_again() -> None:
    lab = Lab(half(*half_call("shell", '{"commands": ["ls')), say("All done."))
    stored = await lab.background()
    await lab.run(stored)
    assert texts((await lab.object_of(stored))["output"]) == ["All done."]


async def test_half_a_call_of_the_clients_is_asked_for_again_and_left_out() -> None:
    lab = Lab(half(*half_call("pay", '{"amount": 1')), call("pay", '{"amount": 100}'))
    stored = await lab.background(tools=[PAY])
    await lab.run(stored)
    ended = await lab.object_of(stored)
    assert [shown(item) for item in ended["output"]] == [("function_call", "completed", '{"amount": 100}')]
    done = [event["item"] for event in await lab.events(stored) if event["type"] == "response.output_item.done"]
    assert [shown(item) for item in done] == [("function_call", "incomplete", ""), ("function_call", "completed", '{"amount": 100}')]


async def test_an_answer_never_whole_fails_with_its_upstreams_last_sentence() -> None:
    lab = Lab(*(half(*half_call("pay", '{"amount": 1'), message=f"worker {number} gave up") for number in range(5)))
    stored = await lab.background(tools=[PAY])
    await lab.run(stored)
    ended = await lab.object_of(stored)
    assert (ended["status"], ended["error"]["message"], ended["output"]) == ("failed", "worker 4 gave up", [])


async def test_a_limit_inside_a_call_leaves_it_in_an_incomplete_response() -> None:
    lab = Lab([*half_call("pay", '{"amount": 1'), UsageReported(1, 1), StreamFinished("max_output_tokens")])
    stored = await lab.background(tools=[PAY])
    await lab.run(stored)
    ended = await lab.object_of(stored)
    assert (ended["status"], [shown(item) for item in ended["output"]]) == (
        "incomplete",
        [("function_call", "incomplete", '{"amount": 1')],
    )


@pytest.mark.parametrize("arguments", ['{"amount": 1', '{"amount": 1} trailing', "amount=1"])
async def test_arguments_that_are_no_json_are_told_to_the_model(arguments: str) -> None:
    lab = Lab(call("pay", arguments), call("pay", '{"amount": 1}', "call_2"))
    stored = await lab.background(tools=[PAY])
    await lab.run(stored)
    assert [shown(item) for item in (await lab.object_of(stored))["output"]] == [("function_call", "completed", '{"amount": 1}')]
    complaint = lab.model.requests[1].items[-1]
    assert (complaint["type"], complaint["call_id"], complaint["output"].split(".")[0]) == (
        "function_call_output",
        "call_1",
        "The arguments are not valid JSON",
    )


# --- every byte ---------------------------------------------------------------------------------------------------------------------

STREAMS: dict[str, Answer] = {
    "words": answer(Said(("Hello", " there."))),
    "thoughts, then words": answer(Thought(("Let me ", "think.")), Said(("Done.",))),
    "the client's call": answer(Called("pay", ('{"amount":', "100}"))),
    "words, then the client's call": answer(Said(("I pay.",)), Called("pay", ('{"amount":', "100}"))),
    "words, then a hosted call": answer(Said(("I look.",)), Called("shell", ('{"commands":', '["ls"]}'))),
    "two calls": answer(Called("pay", ('{"amount":', "1}"), "call_a"), Called("shell", ('{"commands":["ls"]}',), "call_b")),
}
DECODERS: dict[Kind, Callable[[], Decoder]] = {
    RESPONSES: ResponsesDecoder,
    CHAT: lambda: decoder_for(hello()),
    ANTHROPIC: MessagesDecoder,
    CONVERSE: ConverseDecoder,
}


def restored(name: str) -> OriginalTool:
    return OriginalTool("shell" if name == "shell" else "function", name)


def ending(decoder: Decoder, body: bytes) -> tuple[LoopDecision, Assembler, UpstreamError | None]:
    """What follows a body that ends here, as ``loop/ask.py`` puts it together."""
    assembler, error = Assembler("resp_" + "a" * 48, lambda event: None, 0, restored, container_id="cntr_1"), None
    try:
        for delta in (*decoder.feed(body), *(() if decoder.is_finished else decoder.end())):
            assembler.feed(delta)
    except UpstreamError as raised:
        error = raised
        assembler.abandon(is_said_anew=raised.is_retryable)
    decision = after_model(
        assembler.items,
        assembler.finished,
        calls_made=0,
        max_tool_calls=None,
        own_container="cntr_1",
        broke_inside=assembler.broke_inside,
    )
    return decision, assembler, error


def calls_in(items: list[Item]) -> list[Any]:
    calls = [item for item in items if item["type"] in ("function_call", "shell_call")]
    return [json.loads(c["arguments"]) if c["type"] == "function_call" else {"commands": c["action"]["commands"]} for c in calls]


def text_in(items: list[Item]) -> str:
    return "".join(texts(items))


@pytest.mark.parametrize("said", STREAMS.values(), ids=STREAMS.keys())
@pytest.mark.parametrize("kind", DECODERS, ids=lambda kind: kind.name)
def test_a_stream_cut_at_any_byte_is_whole_or_asked_for_again(kind: Kind, said: Answer) -> None:
    body = kind.encode(said)
    wanted_calls = [json.loads("".join(part.pieces)) for part in said.parts if isinstance(part, Called)]
    wanted_text = "".join("".join(part.pieces) for part in said.parts if isinstance(part, Said))
    for length in range(len(body) + 1):
        decision, assembler, error = ending(DECODERS[kind](), body[:length])
        assert error is None or error.is_retryable, length
        if decision.next is Next.MODEL:
            assert error is not None, f"asked again after an answer that was whole ({length})"
            continue
        kept = context.final_output(assembler.items[index] for index in sorted(assembler.items))
        calls = calls_in(kept)
        # Whole calls are acted on, in their order; an answer without any is whole.
        assert calls == wanted_calls[: len(calls)], length
        assert calls or (text_in(kept), wanted_calls) == (wanted_text, []), length
        assert (decision.next is Next.TOOLS) == any(item["type"] == "shell_call" for item in kept), length
