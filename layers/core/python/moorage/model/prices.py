"""What a model's tokens and a tool's calls cost: as ``models.toml`` says, or by the public list of the provider.

The list is a default with a date, for the providers' own addresses alone: who serves a model of the same name elsewhere has other
prices, and an unknown price is told as unknown, not as zero. Sums are counted in billionths of a dollar, in whole numbers.
"""

import re
from collections.abc import Mapping
from dataclasses import field
from decimal import Decimal
from typing import Final

from moorage.dataclass import dataclass
from moorage.wire.responses import TokenUsage

LISTED: Final = "list prices of {month}"
"""Source of the tables below: the providers' public price pages in that month; standard tier, short context."""


@dataclass(frozen=True, slots=True)
class Price:
    """US dollars per million tokens, and per call."""

    input: float = 0.0
    cached_input: float | None = None
    """None: as other input."""
    output: float = 0.0
    tool_calls: Mapping[str, float] = field(default_factory=dict)
    """By type of the call's item."""
    source: str = "models.toml"

    def nanodollars(self, usage: TokenUsage, tool_calls: Mapping[str, int]) -> int:
        cached = self.input if self.cached_input is None else self.cached_input
        tokens = (
            _per_million(self.input, usage.input_tokens - usage.cached_tokens)
            + _per_million(cached, usage.cached_tokens)
            + _per_million(self.output, usage.output_tokens)
        )
        calls = sum(Decimal(str(self.tool_calls.get(name, 0.0))) * count for name, count in tool_calls.items())
        return int(((tokens + calls) * 1_000_000_000).to_integral_value())


def _per_million(dollars: float, tokens: int) -> Decimal:
    return Decimal(str(dollars)) * tokens / 1_000_000


def usd(nanodollars: int) -> float:
    """For answers: as many digits as there are."""
    return nanodollars / 1_000_000_000


def _listed(month: str, input: float, cached_input: float, output: float) -> Price:
    return Price(input, cached_input, output, source=LISTED.format(month=month))


_OPENAI: Final[Mapping[str, Price]] = {
    "gpt-6.1-sol": _listed("2026-10", 2.0, 0.1, 10.0),
    "gpt-6-sol": _listed("2026-10", 2.0, 0.2, 10.0),
    "gpt-6-luna": _listed("2026-10", 0.1, 0.01, 0.5),
    "gpt-5.5": _listed("2026-06", 5.0, 0.5, 30.0),
    "gpt-5.4": _listed("2026-06", 2.5, 0.25, 15.0),
    "gpt-5.4-mini": _listed("2026-06", 0.75, 0.075, 4.5),
    "gpt-5.4-nano": _listed("2026-06", 0.2, 0.02, 1.25),
    "text-embedding-3-small": _listed("2026-06", 0.02, 0.02, 0.0),
    "text-embedding-3-large": _listed("2026-06", 0.13, 0.13, 0.0),
    "text-embedding-ada-002": _listed("2026-06", 0.1, 0.1, 0.0),
}
_ANTHROPIC: Final[Mapping[str, Price]] = {
    "claude-fable-5-1": _listed("2026-10", 10.0, 0.25, 50.0),
    "claude-fable-5": _listed("2026-10", 10.0, 1.0, 50.0),
    "claude-opus-5-5": _listed("2026-10", 4.0, 0.2, 20.0),
    "claude-opus-5": _listed("2026-10", 5.0, 0.5, 25.0),
    "claude-opus-4-8": _listed("2026-10", 5.0, 0.5, 25.0),
    "claude-opus-4-7": _listed("2026-10", 5.0, 0.5, 25.0),
    "claude-opus-4-6": _listed("2026-10", 5.0, 0.5, 25.0),
    "claude-opus-4-5": _listed("2026-10", 5.0, 0.5, 25.0),
    "claude-opus-4-1": _listed("2026-10", 15.0, 1.5, 75.0),
    "claude-sonnet-5-5": _listed("2026-10", 2.0, 0.1, 10.0),
    "claude-sonnet-5": _listed("2026-10", 2.0, 0.2, 10.0),
    "claude-sonnet-4-6": _listed("2026-10", 3.0, 0.3, 15.0),
    "claude-sonnet-4-5": _listed("2026-10", 3.0, 0.3, 15.0),
    "claude-haiku-4-5": _listed("2026-10", 1.0, 0.1, 5.0),
}
"""Without Haiku 5.5, whose price goes by the length of each prompt: what depends on that is unknown here."""
FREE: Final = Price(source="the scripted model costs nothing")
OWN: Final = Price(source="the model that comes along costs nothing")
_SNAPSHOT: Final = re.compile(r"-20\d{2}-?\d{2}-?\d{2}$")


def list_price(host: str, upstream_model: str) -> Price | None:
    """The public price of a provider's model at its own address, of its dated snapshots too; None if it is not known."""
    tables = {"api.openai.com": _OPENAI, "api.anthropic.com": _ANTHROPIC}
    return tables.get(host, {}).get(_SNAPSHOT.sub("", upstream_model))
