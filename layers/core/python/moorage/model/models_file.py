"""``models.toml`` as it is written: its allowed content, checked field by field. Its meaning is in ``catalog.py``."""

import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails

from moorage import limits
from moorage.errors import SettingsConflict
from moorage.model.chat_templates import Family
from moorage.model.compaction import CompactionTable
from moorage.model.embedding_models import EmbeddingTable
from moorage.model.image_engine import ImageTable
from moorage.model.remote_servers import ServerTable
from moorage.model.search_engine import SearchTable
from moorage.settings import nearest

ProviderKind = Literal["openai_responses", "chat_completions", "anthropic_messages", "bedrock_converse", "demo"]

ComputerMode = Literal["native", "pixels", "grid1000", "refs", "text", "off"]
"""How a model uses a hosted computer."""

CONTEXT_WINDOW_TOKENS: Final = 128_000
"""Of a model that says nothing about it."""

_Dollars = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class _ModelPrices(BaseModel):
    model_config = ConfigDict(extra="forbid")
    input: _Dollars
    output: _Dollars
    cached_input: _Dollars | None = None
    tool_calls: dict[str, _Dollars] = Field(default_factory=dict)


class ModelTable(BaseModel):
    model_config = ConfigDict(extra="forbid")
    name: str = Field(min_length=1)
    provider: ProviderKind
    upstream_model: str = "*"
    base_url: str = ""
    key: str | None = None
    aliases: tuple[str, ...] = ()
    context_window_tokens: int = Field(default=CONTEXT_WINDOW_TOKENS, ge=1_000)
    max_output_tokens: int | None = Field(default=None, ge=16)
    native_tools: frozenset[str] | None = None
    dialect: Literal["generic", "openai"] | None = None
    template: Family | None = None
    files: bool = False
    starts_thinking: bool = False
    shell: Literal["parallel", "sequential", "upstream"] | None = None
    computer: ComputerMode | None = None
    replays_reasoning: bool = False
    encrypted_reasoning: bool | None = None
    auth: Literal["bearer", "sigv4"] = "bearer"
    region: str | None = None
    guardrail: str | None = None
    headers: dict[str, str] = Field(default_factory=dict)
    idle_seconds: float = Field(default=limits.UPSTREAM_IDLE_SECONDS, gt=0)
    price: _ModelPrices | None = None
    compaction: CompactionTable = Field(default_factory=CompactionTable)


class _SkillsTable(BaseModel):
    model_config = ConfigDict(extra="forbid")
    default: tuple[str, ...] = Field(default=(), max_length=limits.SKILLS_ATTACHED_MAX)


class ModelsFile(BaseModel):
    model_config = ConfigDict(extra="forbid")
    mcp: dict[str, ServerTable] = Field(default_factory=dict)
    mcp_hosts: tuple[str, ...] | None = None
    web_search: SearchTable | None = None
    embedding: tuple[EmbeddingTable, ...] = ()
    image_generation: ImageTable | None = None
    skills: _SkillsTable = Field(default_factory=_SkillsTable)
    compaction: CompactionTable = Field(default_factory=CompactionTable)
    default: str | None = None
    models: tuple[ModelTable, ...] = ()


def read(source: Path | str) -> ModelsFile:
    """The file (a path; a string with a line break, or an empty one, is the text itself). Raises SettingsConflict with one sentence."""
    try:
        return ModelsFile.model_validate(tomllib.loads(_text(source)))
    except tomllib.TOMLDecodeError as error:
        raise SettingsConflict(f"models.toml is not TOML: {error}.") from error
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(step) for step in first["loc"])
        raise SettingsConflict(f"models.toml is wrong at '{place}': {_fault(first)}.") from error


_FIELDS: Final[Mapping[tuple[int | str, ...], Iterable[str]]] = {(): ModelsFile.model_fields, ("models",): ModelTable.model_fields}
"""Of the tables in which most is written: what may be meant by a mistyped one."""


_NO_NATIVE_TEAMS: Final = "teams run here for every model, and none is passed on to its provider: leave it out"


def _fault(error: ErrorDetails) -> str:
    match error["loc"], error["type"]:
        case ("models", _, "multi_agent"), "extra_forbidden":
            return _NO_NATIVE_TEAMS
        case (*_, name), "extra_forbidden":
            known = _FIELDS.get(error["loc"][:-1:2], ())
            return f"there is no field of this name{nearest(str(name), known)}"
        case _, "tuple_type":
            return "it is a list of tables, each under its name in double brackets ([[models]])"
    return error["msg"]


def _text(source: Path | str) -> str:
    if isinstance(source, str) and ("\n" in source or not source):
        return source
    try:
        return Path(source).read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsConflict(f"{source} cannot be read: {error}") from error
