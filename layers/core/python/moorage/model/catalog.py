"""The models by name: from ``models.toml``, or from the environment.

An entry's ``name`` is an exact public name or a pattern (``gpt-*``); exact names win over aliases, aliases over patterns, and
earlier entries over later ones. If ``models.toml`` configures nothing, the first of these that is there serves every name:
``MOORAGE_UPSTREAM_URL`` (or ``MOORAGE_UPSTREAM_KIND=bedrock_converse``), ``OPENAI_API_KEY``, ``ANTHROPIC_API_KEY``, an Ollama on
this machine, and at last the scripted ``demo`` model.

Keys are named by reference (``model/references.py``) and read when a provider is made; no entry holds one.
"""

import asyncio
import fnmatch
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import field, replace
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal, get_args
from urllib.parse import urlsplit

import httpx

from moorage import errors, limits
from moorage.dataclass import dataclass
from moorage.errors import SettingsConflict
from moorage.model import anthropic_messages, models_file, openai_responses
from moorage.model.anthropic_messages import AnthropicMessages
from moorage.model.base import Provider
from moorage.model.bedrock_converse import GUARDRAIL, BedrockConverse
from moorage.model.cached_secrets import CachedSecrets
from moorage.model.chat_completions import ChatCompletions
from moorage.model.chat_messages import MessageStyle
from moorage.model.chat_templates import FAMILIES, Family, family_of
from moorage.model.compaction import CompactionSettings, CompactionTable
from moorage.model.demo import Demo
from moorage.model.embedding_models import EmbeddingTable, check_embeddings
from moorage.model.http import Upstream
from moorage.model.image_engine import ImageTable, check_images, images_of
from moorage.model.models_file import CONTEXT_WINDOW_TOKENS, ComputerMode, ModelTable, ProviderKind
from moorage.model.openai_responses import OpenAIResponses
from moorage.model.prices import FREE, Price, list_price
from moorage.model.references import check_form, why_no_key
from moorage.model.remote_servers import RemoteServers, ServerTable, check_hosts, check_server, server_of
from moorage.model.search_engine import SearchTable, check_engine, engine_of
from moorage.net.sigv4 import AwsAuth
from moorage.net.transport import UpstreamTransport
from moorage.wire.answers import Model

if TYPE_CHECKING:
    from botocore.session import Session

OPENAI_URL: Final = "https://api.openai.com/v1"
ANTHROPIC_URL: Final = "https://api.anthropic.com/v1"
OLLAMA_URL: Final = "http://127.0.0.1:11434"
_OLLAMA_SECONDS: Final = 0.2
OPENAI_MODEL: Final = "gpt-5.5"
ANTHROPIC_MODEL: Final = "claude-sonnet-5"
"""The default model; MOORAGE_UPSTREAM_MODEL changes it."""

_WITHOUT_REASONING: Final = ("gpt-3.5*", "gpt-4*", "gpt-5-chat*", "chatgpt-*")
"""OpenAI's models that refuse to be asked for encrypted reasoning."""


_ALL_DOCUMENTS: Final = frozenset({"pdf", "docx", "pptx", "xlsx", "eml", "rtf", "html", "text"})
_DOCUMENTS: Final = {
    "anthropic_messages": frozenset({"pdf"}),
    "bedrock_converse": frozenset({"pdf", "docx", "xlsx", "html"}),
}


_ON_A_GRID: Final = ("gemini", "qwen3-vl")


@dataclass(frozen=True, slots=True)
class ModelEntry:
    """One model as requests name it."""

    name: str
    """The public name, or the pattern, until ``resolve`` has put the requested name here."""
    provider_kind: ProviderKind
    upstream_model: str
    """The upstream's name; ``*`` stands for the requested name."""
    base_url: str = ""
    key: str | None = None
    """A reference: ``env:NAME``, ``ssm:/path`` or ``secretsmanager:/name``."""
    aliases: tuple[str, ...] = ()
    context_window_tokens: int = CONTEXT_WINDOW_TOKENS
    max_output_tokens: int | None = None
    """The most that the model writes in one answer; Anthropic wants it said."""
    native_tools: frozenset[str] | None = None
    """None: what the kind of provider usually takes."""
    dialect: Literal["generic", "openai"] | None = None
    template: Family | None = None
    """None: the family of chat templates that the upstream's name tells."""
    files: bool = False
    """A Chat Completions server that takes ``file`` parts."""
    starts_thinking: bool = False
    shell: Literal["parallel", "sequential", "upstream"] | None = None
    """How the shell is offered as a function: a list of commands that run side by side, or one command. None: by provider.
    ``upstream``: a hosted one goes to the upstream as it is, and runs in its container."""
    computer: ComputerMode | None = None
    """How a hosted computer is offered. None: by provider and name."""
    replays_reasoning: bool = False
    encrypted_reasoning: bool | None = None
    auth: Literal["bearer", "sigv4"] = "bearer"
    region: str | None = None
    guardrail: str | None = None
    """Of Bedrock's Converse: ``id:version``, or the guardrail's ARN in place of the id."""
    headers: Mapping[str, str] = field(default_factory=dict)
    idle_seconds: float = limits.UPSTREAM_IDLE_SECONDS
    price: Price | None = None
    compaction: CompactionSettings = field(default_factory=CompactionSettings)
    """What applies where a request does not say otherwise."""

    @property
    def is_shell_sequential(self) -> bool:
        """Only OpenAI's models have been trained on a list of commands, and the demo's scripts write one."""
        if self.shell in ("parallel", "sequential"):
            return self.shell == "sequential"
        return self.provider_kind not in ("openai_responses", "demo") and self.dialect != "openai" and not _is_openai(self.base_url)

    @property
    def view(self) -> ComputerMode:
        """How a hosted computer is offered to a model that does not know it natively. Gemini answers in coordinates from 0 to 1000
        (Google's guide to computer use), and Qwen3-VL does (its model card). Models of other servers are unknown: they get numbers of
        elements that hold for all.
        """
        if self.computer is not None:
            return self.computer
        if self.provider_kind in ("openai_responses", "anthropic_messages", "demo") or "anthropic" in self.upstream_model:
            return "pixels"
        return "grid1000" if any(name in self.upstream_model.lower() for name in _ON_A_GRID) else "refs"

    @property
    def is_generic(self) -> bool:
        """Whether a Chat Completions server of no known dialect serves it, as most local models are."""
        return self.provider_kind == "chat_completions" and self.dialect != "openai" and not _is_openai(self.base_url)

    @property
    def documents(self) -> frozenset[str]:
        """Kinds of documents (``vector_stores/documents.py``) that its server takes as they are. Of OpenAI's: its guide "File inputs";
        of Anthropic's: "PDF support"; of Bedrock's: ``DocumentBlock.format``."""
        if self.is_generic and not self.files:
            return frozenset()
        return _DOCUMENTS.get(self.provider_kind, _ALL_DOCUMENTS)

    @property
    def is_pattern(self) -> bool:
        return any(mark in self.name for mark in "*?[")


class ModelCatalog:
    """All entries, and the providers behind them."""

    def __init__(
        self,
        entries: tuple[ModelEntry, ...],
        upstream: Mapping[str, str],
        *,
        default: str,
        reason: str,
        secret: Callable[[str], str] | None = None,
        clock: Callable[[], float] = time.time,
        default_skills: tuple[str, ...] = (),
        servers: Mapping[str, ServerTable] = MappingProxyType({}),
        server_hosts: tuple[str, ...] | None = None,
        search: SearchTable | None = None,
        embeddings: tuple[EmbeddingTable, ...] = (),
        images: ImageTable | None = None,
    ) -> None:
        self.embeddings = embeddings
        """The embedding models of ``models.toml``; the first is what new vector stores are made with."""
        self.default_skills = default_skills
        """Ids of skills that every hosted shell gets, beside those that its request names."""
        self._servers = servers
        self._server_hosts = server_hosts
        self._search = search
        self._images = images
        self._entries = entries
        aliased = [(alias, entry) for entry in reversed(entries) for alias in entry.aliases]
        named = [(entry.name, entry) for entry in reversed(entries)]
        self._by_name = {name: _named(entry, name) for name, entry in (*aliased, *named)}
        """By name and alias, the default among them. A request asks several times, so nothing is made for it."""
        if self._serves(default):
            self._by_name[default] = self._find(default)
        self._upstream = upstream
        self._default = default
        self._reason = reason
        self._secrets = None if secret is None else CachedSecrets(secret, clock)
        self._aws_session: Session | None = None
        delta_ms = upstream.get("MOORAGE_DEMO_DELTA_MS", "0")
        self._demo = Demo(delta_seconds=float(delta_ms) / 1000)

    @classmethod
    def load(
        cls,
        source: Path | str,
        upstream: Mapping[str, str],
        *,
        secret: Callable[[str], str] | None = None,
        clock: Callable[[], float] = time.time,
    ) -> "ModelCatalog":
        """Read ``models.toml`` (a path; a string with a line break, or an empty one, is the text itself).

        ``upstream`` holds the environment, with the models of a local Ollama in ``MOORAGE_OLLAMA_MODELS`` (the start of the local stack
        asks for them once, by ``probe_ollama``); ``secret`` reads references to secrets of AWS. Nothing is asked over the network here.
        Raises SettingsConflict with one sentence for any fault.
        """
        file = models_file.read(source)
        configured = tuple(_entry(table, file.compaction) for table in file.models)
        default = file.default
        for entry in configured:
            _check(entry, upstream, has_secrets=secret is not None)
        for label, table in file.mcp.items():
            check_server(label, table, upstream, has_secrets=secret is not None)
        extras: dict[str, Any] = {"secret": secret, "clock": clock, "default_skills": file.skills.default, "servers": file.mcp}
        extras["server_hosts"] = check_hosts(file.mcp_hosts)
        check_engine(file.web_search, upstream, has_secrets=secret is not None)
        extras["search"] = file.web_search
        check_embeddings(file.embedding, upstream, has_secrets=secret is not None)
        extras["embeddings"] = file.embedding
        check_images(file.image_generation, upstream, has_secrets=secret is not None)
        extras["images"] = file.image_generation
        for twice in (each for each, times in Counter(entry.name for entry in configured).items() if times > 1):
            raise SettingsConflict(f"models.toml: two models have the name '{twice}', and the second would never be asked.")
        if configured:
            name = default or next((e.name for e in configured if not e.is_pattern), None)
            if name is None:
                raise SettingsConflict('models.toml holds only patterns: name one that they match by default = "...".')
            catalog = cls(configured, upstream, default=name, reason="models.toml says so", **extras)
            if not catalog._serves(name):
                raise SettingsConflict(f"models.toml: default is '{name}', but no model there has this name.")
            needed = [name, *({entry.compaction.model for entry in configured} - {None})]
            for missing in (sentence for each in needed if (sentence := catalog._lacks(each)) is not None):
                raise SettingsConflict(missing)
            for writer in {entry.compaction.model for entry in configured} - {None}:
                if not catalog._serves(str(writer)):
                    raise SettingsConflict(f"models.toml: compactions want notes of '{writer}', but no model there has this name.")
            return catalog
        if default is not None:
            raise SettingsConflict(f"models.toml: default is '{default}', but the file names no model: a table [[models]] does.")
        detected, name, reason = _detected(upstream)
        for entry in detected:
            _check_region(entry, upstream)
        entries = tuple(replace(entry, compaction=file.compaction.over(CompactionTable())) for entry in detected)
        return cls((*entries, _DEMO), upstream, default=name, reason=reason, **extras)

    @property
    def entries(self) -> tuple[ModelEntry, ...]:
        return self._entries

    @property
    def default_model(self) -> str:
        """The public name that is listed first, and counts tokens for a request without one."""
        return self._default

    @property
    def notices(self) -> tuple[str, ...]:
        """Notes for an operator about models that cannot be used; the others can."""
        return tuple(sentence for entry in self._entries if (sentence := _without_key(entry, self._upstream)) is not None)

    def resolve(self, model: str | None) -> ModelEntry:
        """The entry for a public name, with ``name`` and ``upstream_model`` filled in. Raises the API's model_not_found."""
        entry = self._find(model or self._default)
        if _without_key(entry, self._upstream) is not None:
            raise errors.model_without_key(entry.name)
        return entry

    def _lacks(self, model: str | None) -> str | None:
        """The reason that keeps this model from being used, if there is one."""
        return _without_key(self._find(model), self._upstream) if model is not None and self._serves(model) else None

    def _serves(self, model: str) -> bool:
        return model in self._by_name or any(fnmatch.fnmatchcase(model, entry.name) for entry in self._entries)

    def _find(self, model: str) -> ModelEntry:
        if model in self._by_name:
            return self._by_name[model]
        if model == _DEMO.name:
            return _DEMO
        for entry in self._entries:
            if entry.is_pattern and fnmatch.fnmatchcase(model, entry.name):
                return _named(entry, model)
        raise errors.model_not_found(model)

    def price_of(self, model: str) -> Price | None:
        """The prices of a model, by its public name: as configured, or by its provider's public list. None if they are not known."""
        try:
            entry = self._find(model)
        except errors.ApiError:
            return None  # It was taken out of models.toml meanwhile.
        if entry.price is None and entry.provider_kind == "demo":
            return FREE
        return entry.price or list_price(urlsplit(entry.base_url).hostname or "", entry.upstream_model)

    def provider(self, entry: ModelEntry, transport: httpx.AsyncBaseTransport) -> Provider:
        """The provider that serves a resolved entry."""
        match entry.provider_kind:
            case "demo":
                return self._demo
            case "openai_responses":
                is_openai = _is_openai(entry.base_url) or entry.dialect == "openai"
                natives = openai_responses.native_to_openai(entry.upstream_model) if is_openai else openai_responses.NATIVE_TO_ALL
                asks = entry.encrypted_reasoning
                if asks is None:
                    asks = not any(fnmatch.fnmatchcase(entry.upstream_model, pattern) for pattern in _WITHOUT_REASONING)
                upstream = self._over_http(entry, transport, "/responses")
                return OpenAIResponses(upstream, _natives(entry, natives), asks_encrypted_reasoning=asks)
            case "chat_completions":
                upstream = self._over_http(entry, transport, "/chat/completions")
                natives = _natives(entry, frozenset({"function"}))
                return ChatCompletions(upstream, natives, _style(entry), starts_thinking=entry.starts_thinking)
            case "anthropic_messages":
                bound = entry.max_output_tokens or anthropic_messages.OUTPUT_TOKENS_DEFAULT
                upstream = self._over_http(entry, transport, "/messages", key_header="x-api-key")
                is_anthropics = urlsplit(entry.base_url).hostname == urlsplit(ANTHROPIC_URL).hostname
                natives = anthropic_messages.natives_of(entry.upstream_model, is_anthropics=is_anthropics, asked=entry.computer)
                return AnthropicMessages(upstream, natives, output_tokens_max=bound)
            case "bedrock_converse":
                url = entry.base_url or f"https://bedrock-runtime.{self._region(entry)}.amazonaws.com"
                upstream = self._over_http(replace(entry, base_url=url, auth="bearer" if entry.key else "sigv4"), transport, "")
                return BedrockConverse(upstream, output_tokens_max=entry.max_output_tokens, guardrail=entry.guardrail)

    def upstream_of(self, entry: ModelEntry, transport: httpx.AsyncBaseTransport) -> Upstream:
        """The address of a resolved entry, for requests that are passed on as they are."""
        return self._over_http(entry, transport, "")

    def embedding_upstream(self, table: EmbeddingTable, transport: httpx.AsyncBaseTransport) -> Upstream:
        """The address of an embedding model."""
        entry = ModelEntry(table.name, "chat_completions", "", table.base_url, table.key, region=table.region, headers=table.headers)
        if table.provider == "bedrock_titan":
            url = entry.base_url or f"https://bedrock-runtime.{self._region(entry)}.amazonaws.com"
            entry = replace(entry, base_url=url, auth="bearer" if entry.key else "sigv4")
        return self._over_http(entry, transport, "")

    def _over_http(
        self, entry: ModelEntry, transport: httpx.AsyncBaseTransport, path: str, *, key_header: str = "authorization"
    ) -> Upstream:
        key = None if entry.key is None else self._value_of(entry.key)
        headers = dict(entry.headers)
        if key_header == "x-api-key":
            headers.setdefault("anthropic-version", anthropic_messages.VERSION)
        if key:
            headers[key_header] = _bearing(key_header, key)
        secrets = [key] if key else []
        return Upstream(
            transport,
            f"{entry.base_url.rstrip('/')}{path}",
            headers,
            auth=self._aws_auth(entry) if entry.auth == "sigv4" else None,
            secrets=secrets,
            rekeyed=None if entry.key is None else self._rekeyed(entry.key, key_header, secrets),
            idle_seconds=entry.idle_seconds,
        )

    def _rekeyed(self, reference: str, key_header: str, secrets: list[str]) -> Callable[[Upstream, bool], Upstream]:
        """A function that gives an upstream the present key of a reference, and adds it to its ``secrets``, shared by decoders."""

        def rekeyed(upstream: Upstream, is_refused: bool) -> Upstream:
            had = upstream.headers.get(key_header, "").removeprefix("Bearer ")
            key = self._value_of(reference, refused=had if is_refused else None)
            if key == had:
                return upstream
            if key not in secrets:
                secrets.append(key)
            return replace(upstream, headers={**upstream.headers, key_header: _bearing(key_header, key)})

        return rekeyed

    def _aws_auth(self, entry: ModelEntry) -> AwsAuth:
        host = urlsplit(entry.base_url).hostname or ""
        return self.aws_auth("bedrock-mantle" if "bedrock-mantle" in host else "bedrock", self._region(entry))

    def aws_auth(self, service: str, region: str) -> AwsAuth:
        return AwsAuth(self._aws_credentials, service, region)

    def _region(self, entry: ModelEntry) -> str:
        return _region(entry, self._upstream)

    def _aws_credentials(self) -> Any:
        """IAM credentials as botocore finds them. The embedded stack's own are no good at Bedrock: a profile takes their place."""
        import botocore.session  # net/aws.py

        if self._aws_session is None:
            self._aws_session = botocore.session.Session(profile=self._upstream.get("MOORAGE_UPSTREAM_AWS_PROFILE"))
        return self._aws_session.get_credentials()

    @property
    def remote_servers(self) -> RemoteServers:
        """Servers that requests may use by their labels, and further allowed addresses, with their present keys."""
        named = {label: server_of(table, self._value_of) for label, table in self._servers.items()}
        images = images_of(self._images, self._upstream, self._value_of)
        return RemoteServers(named, self._server_hosts, engine_of(self._search, self._value_of), images)

    @property
    def engine_keys(self) -> dict[str, str]:
        """References to the keys of everything but answering models, by their owners."""
        tables = {"the search engine": self._search, "the image model": self._images}
        return {what: table.key for what, table in tables.items() if table is not None and table.key is not None}

    @property
    def searches_web(self) -> bool:
        """Whether the operator has named a search engine."""
        return self._search is not None

    def _value_of(self, reference: str, *, refused: str | None = None) -> str:
        """The value of a reference; ``refused`` as :meth:`CachedSecrets.value` has it."""
        kind, _, name = reference.partition(":")
        if kind == "env":
            return self._upstream[name]
        assert self._secrets is not None, "checked when the catalogue was loaded"
        return self._secrets.value(reference, refused=refused)

    def listing(self) -> list[Model]:
        """The data of ``GET /v1/models``: every exact name and alias, and the default."""
        usable = (entry for entry in self._entries if _without_key(entry, self._upstream) is None)
        names = [self._default, *(n for e in usable for n in (e.name, *e.aliases))]
        shown = dict.fromkeys(name for name in names if not any(mark in name for mark in "*?["))
        return [{"id": name, "object": "model", "created": 0, "owned_by": "moorage"} for name in shown]

    def describe_default(self) -> str:
        """The model that answers by default, and the reason: a sentence that its reader begins."""
        entry = self.resolve(None)
        place = urlsplit(entry.base_url).netloc or {"demo": "the scripted demo model, offline"}.get(entry.provider_kind, "Bedrock")
        upstream = "" if entry.upstream_model == entry.name else f" ({entry.upstream_model})"
        if entry.provider_kind == "demo":
            return f"'{entry.name}', {place}, because {self._reason}."
        return f"'{entry.name}'{upstream} at {place}, because {self._reason}."


def _bearing(key_header: str, key: str) -> str:
    return key if key_header == "x-api-key" else f"Bearer {key}"


def _natives(entry: ModelEntry, usual: frozenset[str]) -> frozenset[str]:
    natives = usual if entry.native_tools is None else entry.native_tools | {"function"}
    natives = openai_responses.with_computer(natives, entry.computer)
    runs_shell = entry.shell == "upstream" and entry.provider_kind == "openai_responses"
    return natives | openai_responses.WITH_CONTAINERS if runs_shell else natives


def _named(entry: ModelEntry, model: str) -> ModelEntry:
    """The entry under a public name."""
    return replace(entry, name=model, upstream_model=entry.upstream_model.replace("*", model))


def _style(entry: ModelEntry) -> MessageStyle:
    return MessageStyle(
        entry.dialect or ("openai" if _is_openai(entry.base_url) else "generic"),
        FAMILIES[entry.template or family_of(entry.upstream_model)],
        replays_reasoning=entry.replays_reasoning,
        takes_files=entry.files,
    )


@cache
def _is_openai(base_url: str) -> bool:
    return urlsplit(base_url).hostname == urlsplit(OPENAI_URL).hostname


# --- models.toml ----------------------------------------------------------------------------------------------------------------


def _entry(table: ModelTable, compaction: CompactionTable) -> ModelEntry:
    urls: dict[str, str] = {"openai_responses": OPENAI_URL, "anthropic_messages": ANTHROPIC_URL}
    fields = table.model_dump(exclude={"provider", "price", "compaction"})
    price = Price(**table.price.model_dump()) if table.price else None
    fields["base_url"] = table.base_url or urls.get(table.provider, "")
    return ModelEntry(provider_kind=table.provider, price=price, compaction=table.compaction.over(compaction), **fields)


def _check(entry: ModelEntry, upstream: Mapping[str, str], *, has_secrets: bool) -> None:
    """Checks beyond a schema. Raises SettingsConflict."""
    where = f"models.toml, model '{entry.name}'"
    _check_region(entry, upstream)
    if entry.provider_kind == "chat_completions" and not entry.base_url:
        raise SettingsConflict(f"{where}: chat_completions needs a base_url, such as http://127.0.0.1:8000/v1.")
    if entry.base_url and urlsplit(entry.base_url).scheme not in ("http", "https"):
        raise SettingsConflict(f"{where}: base_url '{entry.base_url}' is not an http or https URL.")
    if entry.is_pattern and entry.upstream_model.count("*") > 1:
        raise SettingsConflict(f"{where}: upstream_model may hold one '*' for the requested name.")
    if entry.guardrail is not None and entry.provider_kind != "bedrock_converse":
        raise SettingsConflict(f"{where}: guardrail belongs to the provider bedrock_converse: leave it out.")
    if entry.guardrail is not None and GUARDRAIL.fullmatch(entry.guardrail) is None:
        raise SettingsConflict(f"{where}: guardrail is 'id:version' or 'arn:version', such as 'abc123:1' or 'abc123:DRAFT'.")
    if entry.key is not None:
        check_form(where, "key", entry.key, has_secrets=has_secrets)


def _check_region(entry: ModelEntry, upstream: Mapping[str, str]) -> None:
    """A model of Bedrock's has its region in its address, or in its signature. Raises SettingsConflict."""
    is_bedrocks = entry.provider_kind == "bedrock_converse" and not (entry.base_url and entry.key)
    if is_bedrocks or entry.auth == "sigv4":
        _region(entry, upstream)


def _region(entry: ModelEntry, upstream: Mapping[str, str]) -> str:
    region = entry.region or upstream.get("AWS_REGION") or upstream.get("AWS_DEFAULT_REGION")
    if not region:
        raise SettingsConflict(f"Model '{entry.name}' needs a region: set 'region' in models.toml or AWS_REGION.")
    return region


def _without_key(entry: ModelEntry, upstream: Mapping[str, str]) -> str | None:
    """The fault of an entry's key, if it refers to a variable that is not set."""
    kind, _, name = (entry.key or "").partition(":")
    if kind != "env" or (lack := why_no_key(name, upstream)) is None:
        return None
    return f"models.toml, model '{entry.name}': key refers to the environment variable {name}, which {lack}."


# --- without models.toml ----------------------------------------------------------------------------------------------------------

_DEMO: Final = ModelEntry("demo", "demo", "demo")
"""Answers to its name everywhere, listed or not: examples run as they are, and ``moorage doctor`` needs no model for its sandbox."""


def _detected(upstream: Mapping[str, str]) -> tuple[tuple[ModelEntry, ...], str, str]:
    """Entries, default name and reason, out of the environment."""
    if upstream.get("MOORAGE_UPSTREAM_URL") or upstream.get("MOORAGE_UPSTREAM_KIND"):
        return _from_upstream_variables(upstream)
    model = upstream.get("MOORAGE_UPSTREAM_MODEL")
    if why_no_key("OPENAI_API_KEY", upstream) is None and not _points_here(upstream):
        entry = ModelEntry("*", "openai_responses", "*", OPENAI_URL, "env:OPENAI_API_KEY", context_window_tokens=400_000)
        return (entry,), model or OPENAI_MODEL, "OPENAI_API_KEY is set"
    if why_no_key("ANTHROPIC_API_KEY", upstream) is None:
        kind: ProviderKind = "anthropic_messages"
        common = {"base_url": ANTHROPIC_URL, "key": "env:ANTHROPIC_API_KEY", "context_window_tokens": 200_000}
        claude = ModelEntry("claude-*", kind, "*", **common)  # type: ignore[arg-type]
        other = ModelEntry("*", kind, model or ANTHROPIC_MODEL, **common)  # type: ignore[arg-type]
        return (claude, other), model or ANTHROPIC_MODEL, "ANTHROPIC_API_KEY is set"
    found = upstream.get("MOORAGE_OLLAMA_MODELS", "").split()
    if found:
        model, url = model or found[0], ollama_url(upstream)
        exact = tuple(ModelEntry(name, "chat_completions", name, f"{url}/v1") for name in found)
        other = ModelEntry("*", "chat_completions", model, f"{url}/v1")
        return (*exact, other), model, "an Ollama runs on this machine" if url == OLLAMA_URL else "OLLAMA_HOST names an Ollama"
    reason = "no model is configured: neither models.toml nor MOORAGE_UPSTREAM_URL, OPENAI_API_KEY or ANTHROPIC_API_KEY names one"
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
        if upstream.get(name) and (lack := why_no_key(name, upstream)) is not None:
            reason += f", and {name} {lack}"
    return (ModelEntry("*", "demo", "demo"),), "demo", reason


def _points_here(upstream: Mapping[str, str]) -> bool:
    """Whether OPENAI_API_KEY is for a server on this machine. OpenAI must not get that key."""
    host = urlsplit(upstream.get("OPENAI_BASE_URL", "")).hostname
    return host is not None and host in ("127.0.0.1", "localhost", "::1")


def _from_upstream_variables(upstream: Mapping[str, str]) -> tuple[tuple[ModelEntry, ...], str, str]:
    kind = upstream.get("MOORAGE_UPSTREAM_KIND") or "chat_completions"
    if kind not in get_args(ProviderKind):
        raise SettingsConflict(f"MOORAGE_UPSTREAM_KIND is '{kind}'; it takes {', '.join(get_args(ProviderKind))}.")
    url = upstream.get("MOORAGE_UPSTREAM_URL", "")
    if url and urlsplit(url).scheme not in ("http", "https"):
        raise SettingsConflict(f"MOORAGE_UPSTREAM_URL is '{url}'; it takes an http or https URL such as http://127.0.0.1:8000/v1.")
    if not url and kind not in ("bedrock_converse", "demo"):
        raise SettingsConflict(f"MOORAGE_UPSTREAM_KIND is '{kind}'; it needs MOORAGE_UPSTREAM_URL, the server's address.")
    if upstream.get("MOORAGE_UPSTREAM_KEY") and (lack := why_no_key("MOORAGE_UPSTREAM_KEY", upstream)) is not None:
        raise SettingsConflict(f"MOORAGE_UPSTREAM_KEY {lack}; it takes the key of the server at MOORAGE_UPSTREAM_URL.")
    model = upstream.get("MOORAGE_UPSTREAM_MODEL")
    if kind == "bedrock_converse" and not model:
        raise SettingsConflict("MOORAGE_UPSTREAM_MODEL is not set; bedrock_converse needs a model or inference profile id.")
    entry = ModelEntry(
        "*",
        kind,  # type: ignore[arg-type]
        model or "*",
        url,
        "env:MOORAGE_UPSTREAM_KEY" if upstream.get("MOORAGE_UPSTREAM_KEY") else None,
    )
    reason = "MOORAGE_UPSTREAM_URL is set" if url else "MOORAGE_UPSTREAM_KIND is set"
    return (entry,), model or "default", reason


def ollama_url(environ: Mapping[str, str]) -> str:
    """The address of Ollama: ``OLLAMA_HOST`` as Ollama's own client reads it, by default this machine.

    A server that listens at all addresses is told so by the same variable, and is asked on this machine. Raises
    :class:`SettingsConflict`.
    """
    text = environ.get("OLLAMA_HOST") or OLLAMA_URL
    try:
        parts = urlsplit(text if "://" in text else f"http://{text}")
        port = parts.port or ({"http": 80, "https": 443}.get(parts.scheme) if "://" in text else 11434)
    except ValueError:
        port = None
    if port is None or not parts.hostname:
        raise SettingsConflict(f"OLLAMA_HOST is '{text}'; it takes a host with a port, such as 127.0.0.1:11434.")
    host = "127.0.0.1" if parts.hostname in ("0.0.0.0", "::") else parts.hostname  # noqa: S104
    return f"{parts.scheme}://{f'[{host}]' if ':' in host else host}:{port}"


def probe_ollama(url: str = OLLAMA_URL) -> list[str]:
    """Names of the models that an Ollama on this machine has; none if there is no Ollama. Takes 200 ms at most."""
    try:
        answer = asyncio.run(_asked(f"{url}/api/tags"))
        return [str(model["name"]) for model in answer.json()["models"]] if answer.status_code == 200 else []
    except (httpx.HTTPError, ValueError, KeyError, TypeError):
        return []


async def _asked(url: str) -> httpx.Response:
    async with httpx.AsyncClient(transport=UpstreamTransport(), timeout=_OLLAMA_SECONDS, trust_env=False) as client:
        return await client.get(url)
