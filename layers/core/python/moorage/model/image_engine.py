"""The image model that the operator has named in ``models.toml``: what the tool ``image_generation`` draws with.

[image_generation]
kind = "openai"                       # a server of OpenAI's Images API, or bedrock: Stability's models there
model = "gpt-image-1.5"
models = ["gpt-image-*"]              # others that a request may name
url = "http://127.0.0.1:8080/v1"      # of a server of one's own; OpenAI's without it
key = "env:OPENAI_API_KEY"            # or ssm:/path, secretsmanager:/name; on Bedrock IAM credentials take its place
region = "us-west-2"                  # of Bedrock
"""

import fnmatch
from collections.abc import Callable, Mapping
from dataclasses import asdict, field
from typing import Final, Literal, Self
from urllib.parse import urlsplit

import orjson
from pydantic import BaseModel, ConfigDict, Field

from moorage.dataclass import dataclass
from moorage.errors import SettingsConflict
from moorage.model.references import KINDS, check_reference

ImageKind = Literal["openai", "bedrock"]

_OPENAI_URL: Final = "https://api.openai.com/v1"
_WHERE: Final = "models.toml, image_generation"
_ON_BEDROCK: Final = "stability."
"""Amazon's own image models came to their end on 30 September 2026 (Amazon Bedrock user guide, model lifecycle)."""


class ImageTable(BaseModel):
    model_config = ConfigDict(extra="forbid")
    kind: ImageKind
    model: str = Field(min_length=1)
    models: tuple[str, ...] = ()
    url: str | None = None
    key: str | None = None
    region: str | None = None


@dataclass(frozen=True, slots=True)
class ImageEngine:
    kind: ImageKind
    url: str = field(repr=False)
    model: str
    models: tuple[str, ...] = ()
    """Patterns of others."""
    key: str = field(default="", repr=False)
    region: str = ""

    def serves(self, model: str) -> bool:
        return model == self.model or any(fnmatch.fnmatchcase(model, pattern) for pattern in self.models)

    def to_secret(self) -> str:
        return orjson.dumps(asdict(self)).decode()

    @classmethod
    def from_secret(cls, secret: str) -> Self:
        fields = orjson.loads(secret)
        return cls(**fields | {"models": tuple(fields["models"])})


def check_images(table: ImageTable | None, upstream: Mapping[str, str], *, has_secrets: bool) -> None:
    """Checks beyond a schema. Raises SettingsConflict."""
    if table is None:
        return
    if table.url is not None:
        parts = urlsplit(table.url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
            raise SettingsConflict(f"{_WHERE}: url is not an http or https URL without a query.")
    named = (table.model, *table.models)
    if table.kind == "bedrock" and any(not model.startswith(_ON_BEDROCK) or set(model) & set("*?[") for model in named):
        raise SettingsConflict(f"{_WHERE}: on Bedrock, Stability's models draw: name one such as 'stability.stable-image-ultra-v1:1'.")
    if table.kind == "bedrock" and not _region(table, upstream):
        raise SettingsConflict(f"{_WHERE}: Bedrock needs a region: set 'region' or AWS_REGION.")
    if table.kind == "openai" and table.region is not None:
        raise SettingsConflict(f"{_WHERE}: openai takes no region: leave it out.")
    if table.kind == "openai" and table.url is None and table.key is None:
        raise SettingsConflict(f"{_WHERE}: OpenAI needs a key, {KINDS}; a server of your own a url.")
    if table.key is not None:
        check_reference(_WHERE, "key", table.key, upstream, has_secrets=has_secrets)


def images_of(table: ImageTable | None, upstream: Mapping[str, str], value_of: Callable[[str], str]) -> ImageEngine | None:
    """``value_of`` reads a reference. The table has been checked."""
    if table is None:
        return None
    region = _region(table, upstream) if table.kind == "bedrock" else ""
    url = table.url or (_OPENAI_URL if table.kind == "openai" else f"https://bedrock-runtime.{region}.amazonaws.com")
    key = "" if table.key is None else value_of(table.key)
    return ImageEngine(table.kind, url.rstrip("/"), table.model, table.models, key, region)


def _region(table: ImageTable, upstream: Mapping[str, str]) -> str:
    return table.region or upstream.get("AWS_REGION") or upstream.get("AWS_DEFAULT_REGION") or ""
