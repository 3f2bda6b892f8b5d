"""What tokens and calls cost, where a price comes from, and what is told where none is known."""

import pytest
from moorage.errors import SettingsConflict
from moorage.model.catalog import ModelCatalog
from moorage.model.prices import LISTED, Price, list_price
from moorage.wire.responses import TokenUsage

from tests.unit.api.served import Served
from tests.unit.loop.lab import Lab, first_state, say, shell

PRICE = Price(1.25, 0.125, 10.0, {"shell_call": 0.03}, "a test")
MODELS = """
default = "own"
[[models]]
name = "own"
provider = "chat_completions"
base_url = "http://127.0.0.1:1/v1"
price = { input = 2.0, output = 8.0, tool_calls = { shell_call = 0.5 } }
[[models]]
name = "local"
provider = "chat_completions"
base_url = "http://127.0.0.1:1/v1"
upstream_model = "gpt-5.4"
[[models]]
name = "openai"
provider = "openai_responses"
upstream_model = "gpt-5.4-2026-03-05"
[[models]]
name = "claude"
provider = "anthropic_messages"
upstream_model = "claude-haiku-4-5-20251001"
[[models]]
name = "unheard-of"
provider = "openai_responses"
"""


@pytest.mark.parametrize(
    ("usage", "calls", "nanodollars"),
    [
        (TokenUsage(), {}, 0),
        (TokenUsage(input_tokens=1_000_000), {}, 1_250_000_000),
        (TokenUsage(input_tokens=1_000_000, cached_tokens=400_000), {}, 800_000_000),
        (TokenUsage(output_tokens=3, reasoning_tokens=2), {}, 30_000),
        (TokenUsage(input_tokens=1), {"shell_call": 2, "web_search_call": 9}, 60_001_250),
    ],
)
def test_tokens_and_calls_are_counted_exactly(usage: TokenUsage, calls: dict[str, int], nanodollars: int) -> None:
    assert PRICE.nanodollars(usage, calls) == nanodollars


def test_cached_input_without_a_price_of_its_own_costs_what_other_input_does() -> None:
    assert Price(2.0, None, 0.0).nanodollars(TokenUsage(input_tokens=10, cached_tokens=10), {}) == 20_000


def test_a_price_is_the_operators_then_the_providers_and_otherwise_unknown() -> None:
    catalog = ModelCatalog.load(MODELS, {})
    assert catalog.price_of("own") == Price(2.0, None, 8.0, {"shell_call": 0.5}, "models.toml")
    assert catalog.price_of("openai") == Price(2.5, 0.25, 15.0, source=LISTED.format(month="2026-06"))
    assert catalog.price_of("claude") == Price(1.0, 0.1, 5.0, source=LISTED.format(month="2026-10"))
    assert [catalog.price_of(name) for name in ("local", "unheard-of", "gone")] == [None, None, None]
    assert (catalog.price_of("demo") or PRICE).nanodollars(TokenUsage(10, 10), {"shell_call": 1}) == 0


def test_a_listed_price_is_that_of_the_providers_own_address_and_model_alone() -> None:
    assert list_price("api.openai.com.evil.example", "gpt-5.4") is None
    assert list_price("api.openai.com", "gpt-5.4-turbo") is None
    assert list_price("api.openai.com", "gpt-5.4-mini-20260305") == Price(0.75, 0.075, 4.5, source=LISTED.format(month="2026-06"))


WRONG = ("input = -1, output = 1", "input = nan, output = 1", "input = 1", "input = 1, output = 1, tool_calls = { x = -1 }")


@pytest.mark.parametrize("wrong", WRONG)
def test_a_price_that_is_none_stops_the_start(wrong: str) -> None:
    with pytest.raises(SettingsConflict, match="price"):
        ModelCatalog.load(f'[[models]]\nname = "m"\nprovider = "demo"\nprice = {{ {wrong} }}\n', {})


async def test_dollars_stand_in_responses_lists_steps_and_sums() -> None:
    served = Served.of(Lab(shell("make"), say("done")))
    served.lab.price = PRICE
    stored = await served.lab.background()
    await served.lab.run(stored, first_state(stored))
    model = (10 * 1.25 + 2 * 10.0) / 1_000_000
    path = f"/responses/{stored.response_id}"
    shown = (await served.get(path, **{"include[]": "usage.cost"})).json()["usage"]["cost"]
    assert shown == {"usd": pytest.approx(2 * model + 0.03), "source": "a test"}
    assert "cost" not in (await served.get(path)).json()["usage"]
    assert '"cost"' not in (await served.get(path, stream="true")).text
    assert [each["cost_usd"] for each in (await served.get(f"{path}/steps")).json()["data"]] == pytest.approx([model, 0.03, model])
    assert (await served.get("/responses")).json()["data"][0]["cost_usd"] == pytest.approx(2 * model + 0.03)
    (group,) = (await served.get("/usage", group_by="key")).json()["data"]
    assert (group["cost_usd"], group["unpriced_responses"]) == (pytest.approx(2 * model + 0.03), 0)


async def test_an_unknown_price_is_told_as_unknown_and_counted() -> None:
    served = Served.of(Lab(say("done")))
    stored = await served.lab.background()
    await served.lab.run(stored, first_state(stored))
    assert "cost" not in (await served.get(f"/responses/{stored.response_id}", **{"include[]": "usage.cost"})).json()["usage"]
    assert (await served.get("/responses")).json()["data"][0]["cost_usd"] is None
    (group,) = (await served.get("/usage")).json()["data"]
    assert (group["cost_usd"], group["unpriced_responses"]) == (0.0, 1)
