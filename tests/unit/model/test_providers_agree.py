"""Five providers, one table: whatever the upstream's words, the same answer is understood."""

import threading
from typing import Any, get_args

import pytest
from moorage import limits
from moorage.model import base
from moorage.model.models_file import ProviderKind
from moorage.model.tokens import estimate_request

from tests.unit.model.encodings import (
    ALL,
    ANTHROPIC,
    CHAT,
    CONVERSE,
    DEMO,
    RESPONSES,
    Answer,
    Called,
    Kind,
    Said,
    Thought,
    answer,
    expected,
    hello,
    provider,
    replies,
    understood,
)

ANSWERS: dict[str, Answer] = {
    "a message": answer(Said(("Hello", " there."))),
    "a message of other scripts and emoji": answer(Said(("Grüße, ", "你好", " 🚢⚓"))),
    "a message with line breaks and quotes": answer(Said(('one\n\ntwo "three"', "\r\n\\four\\"))),
    "a call": answer(Called("get_weather", ('{"city":', '"Oslo"}'))),
    "a call without arguments": answer(Called("now", ())),
    "a message, then a call": answer(Said(("I look.",)), Called("look", ('{"at":1}',))),
    "three parallel calls": answer(*(Called("look", (f'{{"at":{n}', "}"), f"call_{n}") for n in range(3))),
    "reasoning, then a message": answer(Thought(("Let me ", "think.")), Said(("Done.",))),
    "reasoning, then parallel calls": answer(Thought(("Hm.",)), Called("a", ("{}",), "call_a"), Called("b", ("{}",), "call_b")),
}


@pytest.mark.parametrize("said", ANSWERS.values(), ids=ANSWERS.keys())
@pytest.mark.parametrize("kind", ALL, ids=[kind.name for kind in ALL])
async def test_every_provider_understands(kind: Kind, said: Answer) -> None:
    assert await understood(kind, said) == expected(said, kind)


@pytest.mark.parametrize("kind", [RESPONSES, CHAT, ANTHROPIC, CONVERSE], ids=lambda kind: kind.name)
@pytest.mark.parametrize("finish", ["max_output_tokens", "content_filter"])
async def test_every_provider_says_why_an_answer_was_cut(kind: Kind, finish: str) -> None:
    said = answer(Said(("It goes on and",)), finish=finish)
    assert await understood(kind, said) == expected(said, kind)


@pytest.mark.parametrize("kind", [RESPONSES, CHAT, ANTHROPIC, CONVERSE], ids=lambda kind: kind.name)
@pytest.mark.parametrize("finish", ["max_output_tokens", "content_filter"])
@pytest.mark.parametrize("last", [Said(("and",)), Called("look", ('{"at":',), "call_2")], ids=["a text", "a call"])
async def test_every_provider_says_what_was_cut(kind: Kind, finish: str, last: Said | Called) -> None:
    said = answer(Called("look", ('{"at":1}',)), last, finish=finish)
    served = provider(kind, lambda _: replies(kind, kind.encode(said)))
    ends = [delta.is_cut async for delta in served.stream(hello()) if isinstance(delta, base.ItemDone)]
    assert ends == [False, True]


class WatchedItem(dict[str, Any]):
    """An item that notes the threads that read it."""

    def __init__(self, item: dict[str, Any]) -> None:
        super().__init__(item)
        self.readers: set[int] = set()

    def __getitem__(self, name: str) -> Any:
        self.readers.add(threading.get_ident())
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None) -> Any:
        self.readers.add(threading.get_ident())
        return super().get(name, default)


@pytest.mark.parametrize("kind", [RESPONSES, CHAT, ANTHROPIC, CONVERSE], ids=lambda kind: kind.name)
@pytest.mark.parametrize("size", [1, limits.LOWERED_HERE_MAX + 1])
async def test_every_provider_writes_a_long_request_on_a_thread(kind: Kind, size: int) -> None:
    """All tenants wait for the event loop."""
    item = WatchedItem({"type": "message", "role": "user", "content": "hello"})
    request = base.ModelRequest("m", (item,) * size)
    served = provider(kind, lambda _: replies(kind, kind.encode(ANSWERS["a message"])))
    assert [delta.text async for delta in served.stream(request) if isinstance(delta, base.TextDelta)]
    assert (item.readers == {threading.get_ident()}) is (size == 1)
    assert len(item.readers) == 1


@pytest.mark.parametrize("size", [1, limits.LOWERED_HERE_MAX + 1])
async def test_a_long_request_is_counted_on_a_thread_where_the_server_counts_nothing(size: int) -> None:
    item = WatchedItem({"type": "message", "role": "user", "content": "hello"})
    request = base.ModelRequest("m", (item,) * size)
    said = b'data: {"choices":[{"index":0,"delta":{"content":"Hello"},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
    served = provider(CHAT, lambda _: replies(CHAT, said))
    told = [delta async for delta in served.stream(request) if isinstance(delta, base.UsageReported)]
    assert (threading.get_ident() in item.readers) is (size == 1)
    assert told == [base.UsageReported(estimate_request(request), 2)]


async def test_the_table_covers_every_kind_of_provider() -> None:
    assert {kind.name for kind in ALL} == set(get_args(ProviderKind))
    assert DEMO in ALL
