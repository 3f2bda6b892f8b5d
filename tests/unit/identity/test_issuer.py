"""An issuer's document and keys: what is taken, how long it is kept, and how often it is asked for."""

import asyncio
import json
from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest
from moorage import limits
from moorage.egress.fetch import Fetcher, FetchError
from moorage.errors import ApiError
from moorage.identity.issuer import Issuer

from tests.issuer import SigningKey, issuing

URL = "https://login.example.com"
DOCUMENT = {"issuer": URL, "jwks_uri": f"{URL}/keys"}
FIRST, SECOND = SigningKey.rsa("first"), SigningKey.ec("second")


class Answers(Fetcher):
    """What the issuer answers, by path; a bound is met as by the real one."""

    def __init__(self, document: Any, *keys: Mapping[str, Any]) -> None:
        super().__init__()
        object.__setattr__(self, "said", {"/.well-known/openid-configuration": document, "/keys": {"keys": list(keys)}})
        object.__setattr__(self, "asked", Counter())
        object.__setattr__(self, "gate", asyncio.Event())
        self.gate.set()

    said: dict[str, Any]
    asked: "Counter[str]"  # type: ignore[assignment]
    gate: asyncio.Event
    """It answers when this is set."""

    async def ask(self, url: str, *, bytes_max: int, **_: Any) -> bytes:
        path = url.removeprefix(URL)
        self.asked[path] += 1
        await self.gate.wait()
        body = json.dumps(self.said[path]).encode()
        if len(body) > bytes_max or self.said[path] is None:
            raise FetchError("it is larger")
        return body


class Clock:
    now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


def issuer_of(answers: Answers) -> tuple[Issuer, Clock]:
    clock = Clock()
    return Issuer(URL, answers, clock), clock


async def test_a_key_is_found_by_its_name_and_kind() -> None:
    issuer, _ = issuer_of(Answers(DOCUMENT, FIRST.public(), SECOND.public()))
    assert await issuer.key("first", "RS256") is not None
    assert await issuer.key("second", "ES256") is not None
    assert await issuer.key(None, "ES256") is not None  # the only one of its kind
    others = (("first", "ES256"), ("second", "RS256"), ("first", "PS256"), ("", "RS256"))
    assert [await issuer.key(*each) for each in others] == [None] * 4


UNUSABLE: dict[str, dict[str, Any]] = {
    "a secret": {"kty": "oct", "k": "c2VjcmV0", "kid": "first", "alg": "HS256"},
    "one for encryption": FIRST.public() | {"use": "enc"},
    "too short a one": SigningKey.rsa("first", 1024).public(),
    "one that is broken": {"kty": "RSA", "n": "!", "e": "AQAB", "kid": "first"},
    "one whose name is no text": FIRST.public() | {"kid": 1},
}


@pytest.mark.parametrize("key", UNUSABLE.values(), ids=UNUSABLE.keys())
async def test_what_is_no_public_key_for_signatures_is_left_out(key: dict[str, Any]) -> None:
    issuer, _ = issuer_of(Answers(DOCUMENT, key, SECOND.public()))
    assert (await issuer.key("first", "RS256"), await issuer.key("second", "ES256") is not None) == (None, True)


WRONG: dict[str, Answers] = {
    "that names another issuer": Answers(DOCUMENT | {"issuer": f"{URL}/"}, FIRST.public()),
    "that names no keys": Answers({"issuer": URL}),
    "whose keys come in clear text": Answers(DOCUMENT | {"jwks_uri": "http://login.example.com/keys"}, FIRST.public()),
    "whose keys are a file": Answers(DOCUMENT | {"jwks_uri": "file:///etc/passwd"}, FIRST.public()),
    "that is a list": Answers([DOCUMENT], FIRST.public()),
    "with too many keys": Answers(DOCUMENT, *[FIRST.public() | {"kid": str(n)} for n in range(limits.ISSUER_KEYS_MAX + 1)]),
    "with keys that are too long": Answers(DOCUMENT, FIRST.public() | {"x": "x" * limits.ISSUER_ANSWER_BYTES_MAX}),
}


@pytest.mark.parametrize("answers", WRONG.values(), ids=WRONG.keys())
async def test_an_issuer_is_not_believed(answers: Answers) -> None:
    issuer, _ = issuer_of(answers)
    with pytest.raises(ApiError, match="cannot be reached") as refused:
        await issuer.key("first", "RS256")
    assert (refused.value.status, refused.value.code) == (503, "issuer_unreachable")


async def test_keys_are_read_once_an_hour_and_a_few_times_more_for_unknown_ones() -> None:
    answers = Answers(DOCUMENT, FIRST.public())
    issuer, clock = issuer_of(answers)
    for _ in range(100):
        await issuer.key("first", "RS256")
    assert answers.asked["/keys"] == 1
    for number in range(100):
        await issuer.key(f"made up {number}", "RS256")
    assert answers.asked["/keys"] == limits.ISSUER_REFRESHES_MAX
    clock.now += limits.ISSUER_REFRESHES_SECONDS
    answers.said["/keys"] = {"keys": [SECOND.public()]}
    assert await issuer.key("second", "ES256") is not None
    assert await issuer.key("first", "RS256") is None  # the issuer has taken it away


async def test_last_keys_are_used_for_a_day_while_the_issuer_is_away() -> None:
    answers = Answers(DOCUMENT, FIRST.public())
    issuer, clock = issuer_of(answers)
    assert await issuer.key("first", "RS256") is not None
    answers.said["/keys"] = None
    clock.now += limits.ISSUER_FRESH_SECONDS + 1
    assert await issuer.key("first", "RS256") is not None
    clock.now += limits.ISSUER_STALE_SECONDS
    with pytest.raises(ApiError, match="cannot be reached"):
        await issuer.key("first", "RS256")


async def test_last_keys_wait_for_nobody_while_the_issuer_is_slow() -> None:
    answers = Answers(DOCUMENT, FIRST.public())
    issuer, clock = issuer_of(answers)
    assert await issuer.key("first", "RS256") is not None
    answers.gate.clear()
    answers.said["/keys"] = None
    clock.now += limits.ISSUER_FRESH_SECONDS + 1
    waiting = asyncio.create_task(issuer.key("first", "RS256"))
    await asyncio.sleep(0)
    assert answers.asked["/.well-known/openid-configuration"] == 2
    assert await issuer.key("first", "RS256") is not None
    answers.gate.set()
    assert await waiting is not None
    answers.gate.clear()
    assert await issuer.key("first", "RS256") is not None  # the next attempt is a minute away


async def test_requests_that_waited_for_a_failed_attempt_make_none_of_their_own() -> None:
    answers = Answers(None)
    issuer, _ = issuer_of(answers)
    answers.gate.clear()
    asking = [asyncio.create_task(issuer.key("first", "RS256")) for _ in range(10)]
    await asyncio.sleep(0)
    answers.gate.set()
    refused = await asyncio.gather(*asking, return_exceptions=True)
    assert [getattr(each, "code", None) for each in refused] == ["issuer_unreachable"] * 10
    assert answers.asked["/.well-known/openid-configuration"] == 1


async def test_the_guarded_way_out_reaches_an_issuer_here_and_follows_no_redirection() -> None:
    with issuing() as served:
        issuer = Issuer(served.url, Fetcher(), Clock())
        assert await issuer.key("first", "RS256") is not None
        served.document = {"jwks_uri": f"{served.url}/moved"}
        moved = Issuer(served.url, Fetcher(), Clock())
        with pytest.raises(ApiError, match="cannot be reached"):
            await moved.metadata()
