"""Query strings of listings and retrievals."""

import datetime
import posixpath
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from moorage import errors, limits
from moorage.wire.types import INCLUDABLE

Query = Sequence[tuple[str, str]]
"""Names and values in the order sent: ``include[]=a&include[]=b`` repeats its name (both SDKs write the brackets)."""


@dataclass(frozen=True, slots=True)
class PageQuery:
    """The requested part of a list."""

    limit: int = limits.PAGE_ITEMS_DEFAULT
    order: Literal["asc", "desc"] = "desc"
    after: str | None = None
    before: str | None = None
    """Alone: what stands right before it, in the same order. With ``after``: what stands between them, from there."""
    include: tuple[str, ...] = ()

    @property
    def backward(self) -> "PageQuery | None":
        """The page that is read the other way round, and turned afterwards; None if this one is read as it is."""
        if self.before is None or self.after is not None:
            return None
        return replace(self, order="asc" if self.order == "desc" else "desc", after=self.before, before=None)


@dataclass(frozen=True, slots=True)
class Retrieval:
    """How a response is wanted: as an object, as it was after an event (``at``), or as its stream after one."""

    at: int | None = None
    stream: bool = False
    starting_after: int | None = None
    include_obfuscation: bool = True
    include: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ListQuery:
    """The filters of a list of responses; empty ones match everything."""

    statuses: frozenset[str] = frozenset()
    model: str = ""
    conversation: str = ""
    container: str = ""
    has_container: bool | None = None
    key: str = ""
    metadata: Mapping[str, str] = field(default_factory=dict)
    created_after: int | None = None
    created_before: int | None = None
    """Unix seconds, both included."""


@dataclass(frozen=True, slots=True)
class VaultQuery:
    """The filters of a list of vaults or credentials."""

    page: PageQuery
    takes_active: bool
    """Otherwise it takes archived ones alone, and there are none."""
    metadata: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class LogPage:
    """The requested part of a response's log."""

    after: int | None
    limit: int
    descending: bool
    types: frozenset[str]
    include: frozenset[str] = frozenset()
    """Beside what its request asked for."""


@dataclass(frozen=True, slots=True)
class UsageWanted:
    """The requested sums: their groups, and start and end (Unix seconds, both included)."""

    group_by: str
    since: int
    until: int
    split_by: str | None = None
    """What each day is told by, besides."""


@dataclass(frozen=True, slots=True)
class TreeWanted:
    """The requested part of a container's files."""

    path: str
    depth: int | None
    """Levels; None for all."""
    at: int | None = None
    """As of when, in Unix milliseconds; None for now."""


@dataclass(frozen=True, slots=True)
class FolderPage:
    """The requested files below a folder of an environment."""

    path: str
    limit: int
    order: Literal["asc", "desc"]
    page: str | None
    """The token of the page before."""


@dataclass(frozen=True, slots=True)
class SessionStream:
    """How the events of an agent's session are wanted."""

    after: str | None
    """The id of an event, or of a turn."""
    include_obfuscation: bool


@dataclass(frozen=True, slots=True)
class SessionRead:
    """The start of the requested output of a session, and the time to wait for it."""

    starting_after: int
    wait_ms: int


USAGE_GROUPS: Final = ("day", "model", "key", "tool")
USAGE_SPLITS: Final = ("model", "key", "tool")
STATUSES: Final = ("queued", "in_progress", "completed", "incomplete", "failed", "cancelled")
VAULT_STATUSES: Final = ("active", "archived")
_DATE: Final = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_DAY_SECONDS: Final = 24 * 3600
_METADATA: Final = re.compile(r"metadata\[(?P<key>.+)\]", re.DOTALL)
_FILTERS: Final = ("status", "model", "conversation", "container", "has_container", "key", "created_after", "created_before")


def parse_wanted(query: Query) -> tuple[PageQuery, ListQuery]:
    """The query of ``GET /v1/responses``. Raises :class:`~moorage.errors.ApiError`."""
    metadata, rest = _without_metadata(query)
    page = parse_page(rest, others=_FILTERS)
    values = dict(rest)
    statuses = _words(values.get("status", ""))
    for status in statuses:
        if status not in STATUSES:
            raise errors.invalid_choice("status", status[: limits.PARAM_NAME_CHARS_MAX], STATUSES)
    return page, ListQuery(
        statuses=frozenset(statuses),
        model=values.get("model", ""),
        conversation=values.get("conversation", ""),
        container=values.get("container", ""),
        has_container=_flag("has_container", values["has_container"]) if "has_container" in values else None,
        key=values.get("key", ""),
        metadata=metadata,
        created_after=_moment("created_after", values),
        created_before=_moment("created_before", values),
    )


def parse_session_list(query: Query) -> tuple[PageQuery, str | None, Mapping[str, str]]:
    """The query of ``GET /v1/agents/sessions``: the page, an agent's id, and metadata that all must match. Raises
    :class:`~moorage.errors.ApiError`."""
    metadata, rest = _without_metadata(query)
    page = parse_page(rest, others=("agent_id",))
    return page, dict(rest).get("agent_id"), metadata


def parse_artifacts(query: Query) -> tuple[PageQuery, str | None]:
    """The query of ``GET /v1/agents/sessions/{id}/artifacts``: the page, and an environment's id. Raises
    :class:`~moorage.errors.ApiError`."""
    page = parse_page(query, others=("environment_id",))
    return page, dict(query).get("environment_id")


def parse_automations(query: Query) -> tuple[PageQuery, str | None]:
    """The query of ``GET /v1/agents/automations``: the page, and a session's id. Raises :class:`~moorage.errors.ApiError`."""
    page = parse_page(query, others=("session_id",))
    return page, dict(query).get("session_id")


def parse_session_stream(query: Query) -> SessionStream:
    """The query of ``GET /v1/agents/sessions/{id}/events``. Raises :class:`~moorage.errors.ApiError`."""
    values = _single(query, ("after", "include_obfuscation", "stream"))
    if "stream" in values and not _flag("stream", values["stream"]):
        raise errors.unsupported_value("stream", "false", "Events of a session come as a stream; its items are a list.")
    return SessionStream(values.get("after"), _flag("include_obfuscation", values.get("include_obfuscation", "true")))


def parse_session_delete(query: Query) -> bool:
    """The query of ``DELETE /v1/agents/sessions/{id}``: whether a session goes that is busy. Raises
    :class:`~moorage.errors.ApiError`."""
    return _flag("force", _single(query, ("force",)).get("force", "false"))


def parse_vaults(query: Query) -> VaultQuery:
    """The query of ``GET /v1/vaults`` and of a vault's credentials. Raises :class:`~moorage.errors.ApiError`."""
    metadata, rest = _without_metadata(query)
    statuses = [value for name, value in rest if name in ("status", "status[]")]
    page = parse_page([(name, value) for name, value in rest if name not in ("status", "status[]")])
    for status in statuses:
        if status not in VAULT_STATUSES:
            raise errors.invalid_choice("status", status[: limits.PARAM_NAME_CHARS_MAX], VAULT_STATUSES)
    return VaultQuery(page, not statuses or "active" in statuses, metadata)


def _without_metadata(query: Query) -> tuple[dict[str, str], Query]:
    """The filters of ``metadata[key]=value``, and the rest of the query."""
    metadata = {found["key"]: value for name, value in query if (found := _METADATA.fullmatch(name)) is not None}
    if len(metadata) > limits.METADATA_PAIRS_MAX:
        raise errors.too_many_properties("metadata", len(metadata), limits.METADATA_PAIRS_MAX)
    return metadata, [(name, value) for name, value in query if _METADATA.fullmatch(name) is None]


def parse_log_page(query: Query) -> LogPage:
    """The query of ``GET /v1/responses/{id}/events``. Raises :class:`~moorage.errors.ApiError`."""
    types = [word for name, value in query if name in ("types", "types[]") for word in _words(value)]
    rest = [(name, value) for name, value in query if name not in ("types", "types[]")]
    page = parse_page(rest, limit_max=limits.EVENTS_PAGE_MAX, order_default="asc", takes_include=True)
    after = None if page.after is None else _whole_number("after", page.after, 0, 2**53)
    return LogPage(after, page.limit, page.order == "desc", frozenset(types), frozenset(page.include))


def parse_usage(query: Query, *, now: int) -> UsageWanted:
    """The query of ``GET /v1/usage``. Raises :class:`~moorage.errors.ApiError`."""
    values = _single(query, ("group_by", "split_by", "from", "to"))
    group_by = values.get("group_by", "day")
    if group_by not in USAGE_GROUPS:
        raise errors.invalid_choice("group_by", group_by[: limits.PARAM_NAME_CHARS_MAX], USAGE_GROUPS)
    split_by = values.get("split_by")
    if split_by is not None and split_by not in USAGE_SPLITS:
        raise errors.invalid_choice("split_by", split_by[: limits.PARAM_NAME_CHARS_MAX], USAGE_SPLITS)
    if split_by is not None and group_by != "day":
        raise errors.invalid_value("split_by", "only days are split: leave it out, or group by day.")
    until = _day_or_moment("to", values["to"], end=True) if "to" in values else now
    default = max(0, until - (limits.USAGE_DAYS_DEFAULT - 1) * _DAY_SECONDS)
    since = _day_or_moment("from", values["from"], end=False) if "from" in values else default - default % _DAY_SECONDS
    if since > until:
        raise errors.invalid_value("from", "it lies behind 'to'.")
    if until - since > limits.USAGE_DAYS_MAX * _DAY_SECONDS:
        raise errors.invalid_value("from", f"at most {limits.USAGE_DAYS_MAX} days are added up at once.")
    return UsageWanted(group_by, since, until, split_by)


def parse_tree(query: Query) -> TreeWanted:
    """The query of ``GET /v1/containers/{id}/tree``. Raises :class:`~moorage.errors.ApiError`."""
    values = _single(query, ("path", "depth", "at"))
    depth = _whole_number("depth", values["depth"], 1, limits.TREE_DEPTH_MAX) if "depth" in values else None
    at = _whole_number("at", values["at"], 0, 2**53) if "at" in values else None
    return TreeWanted(values.get("path", "/mnt/data"), depth, at)


def parse_archive(query: Query) -> int | None:
    """The query of ``GET /v1/archives/{id}``: as of when, in Unix milliseconds; None for now. Raises
    :class:`~moorage.errors.ApiError`."""
    values = _single(query, ("at",))
    return _whole_number("at", values["at"], 0, 2**53) if "at" in values else None


def parse_content(query: Query) -> int | None:
    """The query of ``GET /v1/containers/{id}/files/{file_id}/content``: as of when, in Unix milliseconds; None for now.

    Other parameters are ignored, as always. Raises :class:`~moorage.errors.ApiError`.
    """
    values = _single([(name, value) for name, value in query if name == "at"], ("at",))
    return _whole_number("at", values["at"], 0, 2**53) if "at" in values else None


def _day_or_moment(name: str, value: str, *, end: bool) -> int:
    """``2026-11-22`` (the day in UTC, its first or its last second), or Unix seconds."""
    if _DATE.fullmatch(value) is None:
        return _whole_number(name, value, 0, 10**11)
    try:
        day = datetime.datetime.fromisoformat(value).replace(tzinfo=datetime.UTC)
    except ValueError as error:
        raise errors.invalid_value(name, "there is no such day.") from error
    return int(day.timestamp()) + (_DAY_SECONDS - 1 if end else 0)


def _words(value: str) -> list[str]:
    return [word.strip() for word in value.split(",") if word.strip()]


def _moment(name: str, values: Mapping[str, str]) -> int | None:
    return _whole_number(name, values[name], 0, 10**11) if name in values else None


def parse_page(
    query: Query,
    *,
    limit_default: int = limits.PAGE_ITEMS_DEFAULT,
    limit_max: int = limits.PAGE_ITEMS_MAX,
    order_default: Literal["asc", "desc"] = "desc",
    others: tuple[str, ...] = (),
    goes_back: bool = False,
    takes_include: bool = False,
) -> PageQuery:
    """``limit``, ``order`` and ``after``; ``before`` too if a list ``goes_back``, and ``include`` if it ``takes_include``. ``others``
    are names that the route reads itself.

    Raises :class:`~moorage.errors.ApiError` for anything else.
    """
    values = _single(query, ("limit", "order", "after", "before", *others), takes_include=takes_include)
    if values.get("before") and not goes_back:
        raise errors.unsupported_parameter("before", "Go through the list with 'after' and 'order'.")
    order = values.get("order", order_default)
    if order not in ("asc", "desc"):
        raise errors.invalid_choice("order", order[: limits.PARAM_NAME_CHARS_MAX], ("asc", "desc"))
    return PageQuery(
        limit=_whole_number("limit", values["limit"], 1, limit_max) if "limit" in values else limit_default,
        order="asc" if order == "asc" else "desc",
        after=values.get("after") or None,
        before=values.get("before") or None,
        include=_include(query),
    )


def parse_retrieval(query: Query) -> Retrieval:
    """The query of ``GET /v1/responses/{id}``. Raises :class:`~moorage.errors.ApiError`."""
    values = _single(query, ("stream", "starting_after", "include_obfuscation", "at"), takes_include=True)
    is_stream = _flag("stream", values.get("stream", "false"))
    if "at" in values and is_stream:
        raise errors.invalid_value("at", "a stream begins with 'starting_after'; 'at' is of a response as one object.")
    if "starting_after" in values and not is_stream:
        raise errors.invalid_value("starting_after", "it is only allowed together with 'stream=true'.")
    return Retrieval(
        at=_whole_number("at", values["at"], 0, 2**53) if "at" in values else None,
        stream=is_stream,
        starting_after=_whole_number("starting_after", values["starting_after"], 0, 2**53) if "starting_after" in values else None,
        include_obfuscation=_flag("include_obfuscation", values.get("include_obfuscation", "true")),
        include=_include(query),
    )


def parse_session_read(query: Query) -> SessionRead:
    """The query of ``GET /v1/sessions/{id}/output``. Raises :class:`~moorage.errors.ApiError`."""
    values = _single(query, ("starting_after", "wait_ms"))
    most = limits.SESSION_READ_MS_MAX
    return SessionRead(
        starting_after=_whole_number("starting_after", values.get("starting_after", "0"), 0, 2**53),
        wait_ms=_whole_number("wait_ms", values.get("wait_ms", str(most)), 0, most),
    )


def parse_screen(query: Query) -> SessionRead:
    """The query of ``GET /v1/containers/{id}/screen``: the number of the picture that the client has.

    Raises :class:`~moorage.errors.ApiError`.
    """
    values = _single(query, ("starting_after", "wait_ms"))
    return SessionRead(
        starting_after=_whole_number("starting_after", values.get("starting_after", "0"), 0, 2**53),
        wait_ms=_whole_number("wait_ms", values.get("wait_ms", "0"), 0, limits.SCREEN_READ_MS_MAX),
    )


def parse_agent_version(query: Query) -> int | None:
    """The query of ``GET /v1/agents/{id}``: a version, or None for the latest. Raises :class:`~moorage.errors.ApiError`."""
    values = _single(query, ("version",))
    return _whole_number("version", values["version"], 1, limits.AGENT_VERSIONS_MAX) if "version" in values else None


def parse_environment_files(query: Query) -> FolderPage:
    """The query of ``GET /v1/agents/environments/{id}/files``. Raises :class:`~moorage.errors.ApiError`."""
    page = parse_page(query, others=("path", "page"))
    if page.after is not None:
        raise errors.unsupported_parameter("after", "Go through the list with 'page', which is the 'next' of the page before.")
    values = dict(query)
    path = posixpath.normpath(values.get("path") or "/workspace")
    if not f"{path}/".startswith("/workspace/"):
        raise errors.invalid_value("path", "it must be '/workspace' or a folder below it.")
    return FolderPage(path, page.limit, page.order, values.get("page"))


_BETA: Final = ("beta", "true")
"""What the SDK's beta methods put behind every address. What is new in their bodies has to be refused by its own name."""


def _single(query: Query, known: tuple[str, ...], *, takes_include: bool = False) -> dict[str, str]:
    values = {}
    for name, value in query:
        if (name, value) == _BETA:
            continue
        if name in ("include", "include[]"):
            if value and not takes_include:
                raise errors.unknown_parameter("include")
            continue
        if name not in known:
            raise errors.unknown_parameter(name[: limits.PARAM_NAME_CHARS_MAX], known=known)
        values[name] = value
    return values


def _include(query: Query) -> tuple[str, ...]:
    wanted = [part for name, value in query if name in ("include", "include[]") for part in value.split(",") if part]
    for index, value in enumerate(wanted):
        if value not in INCLUDABLE:
            raise errors.invalid_choice(f"include[{index}]", value[: limits.PARAM_NAME_CHARS_MAX], INCLUDABLE)
    return tuple(dict.fromkeys(wanted))


def _whole_number(name: str, value: str, minimum: int, maximum: int) -> int:
    if not (value.isascii() and value.removeprefix("-").isdigit() and len(value) <= limits.QUERY_DIGITS_MAX):
        raise errors.invalid_type(name, "an integer", "a string")
    number = int(value)
    if number < minimum:
        raise errors.below_minimum(name, "integer", number, minimum)
    if number > maximum:
        raise errors.above_maximum(name, "integer", number, maximum)
    return number


def _flag(name: str, value: str) -> bool:
    match value.lower():
        case "true" | "1":
            return True
        case "false" | "0":
            return False
        case _:
            raise errors.invalid_type(name, "a boolean", "a string")
