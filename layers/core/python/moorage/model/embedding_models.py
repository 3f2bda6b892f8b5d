"""Models that turn texts into vectors: those of ``models.toml``, asked over HTTP.

[[embedding]]                         # the first one is what new vector stores are made with
name = "text-embedding-3-small"       # as clients name it, and as stores remember it
provider = "openai"                   # or bedrock_titan
base_url = "https://api.openai.com/v1"
key = "env:OPENAI_API_KEY"
dimension = 1536
shortens = true                       # it takes the parameter 'dimensions'
price = { input = 0.02 }              # US dollars per million tokens
"""

from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field, replace
from typing import Any, Final, Literal, Protocol
from urllib.parse import quote, urlsplit

from pydantic import BaseModel, ConfigDict, Field

from moorage import limits
from moorage.dataclass import dataclass
from moorage.errors import SettingsConflict, UpstreamError
from moorage.model.base import Delta
from moorage.model.http import Upstream, broken
from moorage.model.prices import Price, list_price
from moorage.model.references import check_reference
from moorage.parallel import outweighs, side_by_side

TITAN: Final = "amazon.titan-embed-text-v2:0"
TITAN_DIMENSIONS: Final = (256, 512, 1024)


class _EmbeddingPrices(BaseModel):
    model_config = ConfigDict(extra="forbid")
    input: float = Field(ge=0, allow_inf_nan=False)


class EmbeddingTable(BaseModel):
    model_config = ConfigDict(extra="forbid")
    name: str = Field(min_length=1, max_length=limits.NAME_CHARS_MAX)
    provider: Literal["openai", "bedrock_titan"]
    aliases: tuple[str, ...] = ()
    upstream_model: str | None = None
    base_url: str = ""
    key: str | None = None
    region: str | None = None
    dimension: int | None = Field(default=None, ge=1, le=limits.EMBEDDING_DIMENSIONS_MAX)
    shortens: bool = False
    headers: dict[str, str] = Field(default_factory=dict)
    price: _EmbeddingPrices | None = None

    def known_price(self) -> Price | None:
        """As it is configured, or as the provider lists it; None if that is not known."""
        if self.price is not None:
            return Price(self.price.input)
        return list_price(urlsplit(self.base_url).hostname or "", self.upstream_model or self.name)


TITAN_TABLE: Final = EmbeddingTable(name=TITAN, provider="bedrock_titan", dimension=TITAN_DIMENSIONS[-1])
"""What serves where nothing is configured, and no model of our own is installed."""


def check_embeddings(tables: Iterable[EmbeddingTable], upstream: Mapping[str, str], *, has_secrets: bool) -> None:
    """Checks beyond a schema. Raises SettingsConflict."""
    names: set[str] = set()
    for table in tables:
        where = f"models.toml, embedding '{table.name}'"
        for name in (table.name, *table.aliases):
            if name in names:
                raise SettingsConflict(f"{where}: '{name}' names more than one embedding model.")
            names.add(name)
        if table.key is not None:
            check_reference(where, "key", table.key, upstream, has_secrets=has_secrets)
        if table.provider == "openai":
            _check_openai(where, table)
        elif table.dimension not in (None, *TITAN_DIMENSIONS):
            raise SettingsConflict(f"{where}: Titan makes vectors of 256, 512 or 1024 numbers, not of {table.dimension}.")


def _check_openai(where: str, table: EmbeddingTable) -> None:
    parts = urlsplit(table.base_url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise SettingsConflict(f"{where}: base_url is not an http or https URL without a query, such as http://127.0.0.1:11434/v1.")
    if table.dimension is None:
        raise SettingsConflict(f"{where}: dimension is missing: say how many numbers the model's vectors have.")


# --- what an embedding model does -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class EmbeddedTexts:
    vectors: list[bytes] = field(repr=False)
    """float32, little-endian, in the order of the texts."""
    tokens: int
    """Of all texts, as the model counts them."""


class Embedder(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def dimension(self) -> int:
        """Of its vectors, if nothing else is asked for."""
        ...

    def takes(self, dimension: int) -> bool:
        """Whether it can make vectors of this length."""
        ...

    async def embed(self, texts: Sequence[str], dimension: int) -> EmbeddedTexts:
        """Raises :class:`~moorage.errors.UpstreamError`. No text is empty."""
        ...


@dataclass(frozen=True, slots=True)
class OpenAIEmbedder:
    """``POST /v1/embeddings`` of OpenAI, or of a server that speaks like it (vLLM, Ollama, llama.cpp, LiteLLM ...)."""

    name: str
    upstream_model: str
    dimension: int
    shortens: bool
    upstream: Upstream
    """``url`` is the whole address."""

    def takes(self, dimension: int) -> bool:
        return dimension == self.dimension or (self.shortens and dimension < self.dimension)

    async def embed(self, texts: Sequence[str], dimension: int) -> EmbeddedTexts:
        answers = [await self._asked(batch, dimension) for batch in _batches(texts)]
        return EmbeddedTexts([vector for answer in answers for vector in answer.vectors], sum(answer.tokens for answer in answers))

    async def _asked(self, texts: Sequence[str], dimension: int) -> EmbeddedTexts:
        body: dict[str, Any] = {"model": self.upstream_model, "input": list(texts), "encoding_format": "float"}
        if self.shortens:
            body["dimensions"] = dimension
        return await _ask(self.upstream, body, lambda answer: _openai_answer(answer, len(texts), dimension))


@dataclass(frozen=True, slots=True)
class TitanEmbedder:
    """Amazon Titan Text Embeddings V2 at Bedrock. It takes one text in a request."""

    name: str
    model_id: str
    dimension: int
    upstream: Upstream
    """``url`` is the endpoint; the model's path is added."""

    def takes(self, dimension: int) -> bool:
        return dimension in TITAN_DIMENSIONS

    async def embed(self, texts: Sequence[str], dimension: int) -> EmbeddedTexts:
        upstream = replace(self.upstream, url=f"{self.upstream.url.rstrip('/')}/model/{quote(self.model_id, safe='')}/invoke")

        async def one(text: str) -> EmbeddedTexts:
            body = {"inputText": text[: limits.TITAN_TEXT_CHARS_MAX], "dimensions": dimension, "normalize": True}
            return await _ask(upstream, body, lambda answer: _titan_answer(answer, dimension))

        answers = await side_by_side(one, texts, at_once=limits.TITAN_AT_ONCE)
        return EmbeddedTexts([vector for answer in answers for vector in answer.vectors], sum(answer.tokens for answer in answers))


def embedder_of(table: EmbeddingTable, upstream: Upstream) -> Embedder:
    """``upstream`` leads to the table's address. The table has been checked."""
    if table.provider == "bedrock_titan":
        return TitanEmbedder(table.name, table.upstream_model or TITAN, table.dimension or TITAN_DIMENSIONS[-1], upstream)
    assert table.dimension is not None, table.name
    whole = replace(upstream, url=f"{upstream.url.rstrip('/')}/embeddings")
    return OpenAIEmbedder(table.name, table.upstream_model or table.name, table.dimension, table.shortens, whole)


# --- asking -------------------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Whole:
    """An answer that comes as one JSON body."""

    read: Callable[[dict[str, Any]], EmbeddedTexts]
    embedded: EmbeddedTexts | None = None
    is_finished: bool = False

    def feed(self, piece: bytes) -> list[Delta]:
        raise UpstreamError("The embedding model's upstream answered with something that is not JSON.", is_retryable=False)

    def whole(self, body: dict[str, Any]) -> list[Delta]:
        self.embedded = self.read(body)
        return []

    def end(self) -> list[Delta]:
        raise broken("it is empty")


async def _ask(upstream: Upstream, body: Mapping[str, Any], read: Callable[[dict[str, Any]], EmbeddedTexts]) -> EmbeddedTexts:
    tried: list[_Whole] = []

    def decoder() -> _Whole:
        tried.append(_Whole(read))
        return tried[-1]

    async for _ in upstream.stream(lambda: body, decoder, is_long=outweighs([body], limits.LOWERED_HERE_MAX)):
        pass
    embedded = tried[-1].embedded
    assert embedded is not None, "an answer was read, or an error raised"
    return embedded


def _batches(texts: Sequence[str]) -> list[Sequence[str]]:
    return [texts[start : start + limits.EMBEDDED_AT_ONCE] for start in range(0, len(texts), limits.EMBEDDED_AT_ONCE)]


def _openai_answer(answer: Mapping[str, Any], texts: int, dimension: int) -> EmbeddedTexts:
    rows = sorted(answer["data"], key=lambda row: row["index"])
    if [row["index"] for row in rows] != list(range(texts)):
        raise broken(f"it holds {len(rows)} vectors for {texts} texts")
    tokens = (answer.get("usage") or {}).get("prompt_tokens")
    return EmbeddedTexts([_vector(row["embedding"], dimension) for row in rows], tokens if isinstance(tokens, int) else 0)


def _titan_answer(answer: Mapping[str, Any], dimension: int) -> EmbeddedTexts:
    return EmbeddedTexts([_vector(answer["embedding"], dimension)], int(answer.get("inputTextTokenCount", 0)))


def _vector(numbers: Sequence[float], dimension: int) -> bytes:
    if len(numbers) != dimension:
        raise UpstreamError(
            f"The embedding model gave a vector of {len(numbers)} numbers in place of {dimension}. The operator has to correct "
            "'dimension' in models.toml.",
            is_retryable=False,
        )
    return array("f", numbers).tobytes()
