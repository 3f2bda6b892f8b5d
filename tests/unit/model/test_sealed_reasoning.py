"""What is called ``encrypted_content`` is encrypted, and still comes back to the model that made it."""

import json
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from moorage.loop.assemble import Assembler
from moorage.model import anthropic_messages, base, bedrock_converse, reasoning
from moorage.model.anthropic_messages import MessagesDecoder
from moorage.model.base import ModelRequest
from moorage.model.bedrock_converse import ConverseDecoder
from moorage.model.chat_messages import MessageStyle, messages
from moorage.model.turns import THINKING, ConversationTurns, ReasoningContent
from moorage.store.sealed import Sealer
from moorage.tools.lowering import OriginalTool

SEALER = Sealer(lambda: b"k" * 32)
OTHER = Sealer(lambda: b"o" * 32)
BLOCK = {"type": "thinking", "thinking": "secret thoughts", "signature": "s"}
RESP = "resp_" + "a" * 48


def made(*deltas: base.Delta, is_asked: bool = True) -> dict[str, Any]:
    """The reasoning item of a model's turn, as clients get it."""
    seal = partial(SEALER.seal, "ann")
    assembler = Assembler(RESP, lambda event: None, 0, lambda name: OriginalTool("function", name), seal=seal, seals_text=is_asked)
    for delta in (*deltas, base.StreamFinished("stop")):
        assembler.feed(delta)
    return assembler.items[0]


def again(item: dict[str, Any], sealer: Sealer = SEALER, tenant_id: str = "ann") -> dict[str, Any]:
    """The same item as a provider gets it when a client has sent it back."""
    return reasoning.opened(item, partial(sealer.open, tenant_id))


CLAUDE = (base.ReasoningStarted(), base.SummaryDelta("thoughts"), base.ItemDone(reasoning.pack(THINKING, BLOCK)))
OPEN_MODEL = (base.ReasoningStarted(), base.ReasoningTextDelta("raw thoughts"), base.ItemDone())


def test_thinking_blocks_cannot_be_read_by_who_carries_them_and_come_back_whole() -> None:
    item = made(*CLAUDE)
    sealed = item["encrypted_content"]
    assert not sealed.startswith("moorage.v1.")
    assert reasoning.unpack(THINKING, item) is None
    assert reasoning.unpack(THINKING, again(item)) == BLOCK
    turns = ConversationTurns.of(None, ({"role": "user", "content": "hi"}, again(item))).turns
    assert turns[-1].blocks == [ReasoningContent(BLOCK)]


def test_raw_thoughts_come_back_from_sealed_content_alone() -> None:
    item = made(*OPEN_MODEL)
    assert "raw thoughts" not in item["encrypted_content"]
    carried = {"type": "reasoning", "id": item["id"], "summary": [], "encrypted_content": item["encrypted_content"]}
    said = ModelRequest("m", ({"role": "user", "content": "hi"}, again(carried), {"role": "assistant", "content": "a"}))
    assert messages(said, MessageStyle(replays_reasoning=True))[1] == {
        "role": "assistant",
        "content": "a",
        "reasoning_content": "raw thoughts",
    }


def test_what_openai_sealed_is_passed_on_as_it_came() -> None:
    item = made(base.ReasoningStarted(), base.ItemDone("gAAAA-opaque"))
    assert item["encrypted_content"] == "gAAAA-opaque"
    assert again(item) == item


@pytest.mark.parametrize(("sealer", "tenant_id"), [(OTHER, "ann"), (SEALER, "bob")], ids=["another deployment", "another tenant"])
def test_nobody_else_opens_it(sealer: Sealer, tenant_id: str) -> None:
    item = made(*CLAUDE)
    assert again(item, sealer, tenant_id) == item
    assert ConversationTurns.of(None, (again(item, sealer, tenant_id),)).turns[0].blocks == [
        *ConversationTurns.of(None, ()).turns[0].blocks
    ]


def test_reasoning_that_an_older_version_packed_is_still_read() -> None:
    item = {"type": "reasoning", "summary": [], "encrypted_content": reasoning.pack(THINKING, BLOCK)}
    assert reasoning.unpack(THINKING, again(item)) == BLOCK


def test_reasoning_without_any_text_has_nothing_to_seal() -> None:
    assert "encrypted_content" not in made(base.ReasoningStarted(), base.SummaryDelta("short"), base.ItemDone())


def test_raw_thoughts_are_sealed_only_for_who_asked() -> None:
    assert "encrypted_content" not in made(*OPEN_MODEL, is_asked=False)


def claude_answered() -> list[base.Delta]:
    thinking = {"type": "thinking", "thinking": "secret thoughts", "signature": "sig"}
    use = {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {"at": "it"}}
    return MessagesDecoder().whole({"content": [thinking, use], "stop_reason": "tool_use", "usage": {}})


def bedrock_answered() -> list[base.Delta]:
    thinking = {"reasoningContent": {"reasoningText": {"text": "secret thoughts", "signature": "sig"}}}
    use = {"toolUse": {"toolUseId": "toolu_1", "name": "look", "input": {"at": "it"}}}
    return ConverseDecoder().whole({"output": {"message": {"content": [thinking, use]}}, "stopReason": "tool_use"})


def claude_asked(request: ModelRequest) -> Any:
    return anthropic_messages.request_body(request)["messages"][1]["content"][0]


def bedrock_asked(request: ModelRequest) -> Any:
    return bedrock_converse.request_body(request)["messages"][1]["content"][0]


@pytest.mark.parametrize(
    ("answered", "asked", "block"),
    [
        (claude_answered, claude_asked, {"type": "thinking", "thinking": "secret thoughts", "signature": "sig"}),
        (bedrock_answered, bedrock_asked, {"reasoningContent": {"reasoningText": {"text": "secret thoughts", "signature": "sig"}}}),
    ],
    ids=["Anthropic", "Bedrock"],
)
@pytest.mark.parametrize("is_asked", [True, False], ids=["asked for", "unasked, as OpenAI's comes too"])
def test_a_client_that_stores_nothing_here_brings_thinking_back_to_its_model(
    answered: Callable[[], list[base.Delta]], asked: Callable[[ModelRequest], Any], block: Any, is_asked: bool
) -> None:
    assembler = Assembler(
        RESP, lambda event: None, 0, lambda name: OriginalTool("function", name), seal=partial(SEALER.seal, "ann"), seals_text=is_asked
    )
    for delta in answered():
        assembler.feed(delta)
    thought, call = (json.loads(json.dumps(assembler.items[index])) for index in (0, 1))
    assert "sig" not in thought["encrypted_content"]
    output = {"type": "function_call_output", "call_id": call["call_id"], "output": "seen"}
    history = ({"type": "message", "role": "user", "content": "hi"}, again(thought), call, output)
    tool = {"type": "function", "name": "look", "parameters": {"type": "object"}}
    request = ModelRequest("anthropic.claude-sonnet-4-5", history, tools=(tool,), reasoning={"effort": "low"}, max_output_tokens=9_000)
    assert asked(request) == block
