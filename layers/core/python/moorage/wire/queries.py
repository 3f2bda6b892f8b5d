"""Queries of listings and retrievals that belong to no resource's folder."""

import datetime
import re
from collections.abc import Mapping
from dataclasses import field, replace
from typing import Annotated, Final, Literal

from moorage import errors, limits
from moorage.dataclass import dataclass
from moorage.wire.query_strings import (
    CURSOR,
    FLAG,
    INCLUDE,
    METADATA,
    TEXT,
    Parameter,
    Query,
    choice,
    last,
    number_of,
    refused,
    whole_number,
    words,
)
from moorage.wire.schema import SECONDS, STRING

ORDER: Final = choice("asc", "desc")
STATUSES: Final = ("queued", "in_progress", "completed", "incomplete", "failed", "cancelled")
_SECONDS_MAX: Final = 10**11
_DATE: Final = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_DAY_SECONDS: Final = 24 * 3600


@dataclass(frozen=True, slots=True)
class PageQuery:
    """The requested part of a list."""

    limit: Annotated[int, whole_number(1, limits.PAGE_ITEMS_MAX)] = limits.PAGE_ITEMS_DEFAULT
    order: Annotated[Literal["asc", "desc"], ORDER] = "desc"
    after: Annotated[str | None, CURSOR] = None
    before: Annotated[str | None, refused("Go through the list with 'after' and 'order'.")] = None
    """Alone: what stands right before it, in the same order. With ``after``: what stands between them, from there."""

    @property
    def backward(self) -> "PageQuery | None":
        """The page that is read the other way round, and turned afterwards; None if this one is read as it is."""
        if self.before is None or self.after is not None:
            return None
        return replace(self, order="asc" if self.order == "desc" else "desc", after=self.before, before=None)


@dataclass(frozen=True, slots=True)
class OldestFirstPage(PageQuery):
    order: Annotated[Literal["asc", "desc"], ORDER] = "asc"


@dataclass(frozen=True, slots=True)
class PageWithIncludes(PageQuery):
    include: Annotated[tuple[str, ...], INCLUDE] = ()


@dataclass(frozen=True, slots=True)
class IncludeQuery:
    include: Annotated[tuple[str, ...], INCLUDE] = ()


@dataclass(frozen=True, slots=True)
class Retrieval:
    """How a response is wanted: as an object, as it was after an event (``at``), or as its stream after one."""

    stream: Annotated[bool, FLAG] = False
    starting_after: Annotated[int | None, whole_number()] = None
    include_obfuscation: Annotated[bool, FLAG] = True
    at: Annotated[int | None, whole_number()] = None
    include: Annotated[tuple[str, ...], INCLUDE] = ()

    def __post_init__(self) -> None:
        if self.at is not None and self.stream:
            raise errors.invalid_value("at", "a stream begins with 'starting_after'; 'at' is of a response as one object.")
        if self.starting_after is not None and not self.stream:
            raise errors.invalid_value("starting_after", "it is only allowed together with 'stream=true'.")


_MOMENT: Final = Parameter(SECONDS, lambda name, sent: number_of(name, last(sent), 0, _SECONDS_MAX))


@dataclass(frozen=True, slots=True)
class ResponsesPage(PageQuery):
    """The requested part of the list of responses, and its filters; empty ones match everything."""

    statuses: Annotated[frozenset[str], replace(words(*STATUSES), name="status")] = frozenset()
    model: Annotated[str, TEXT] = ""
    conversation: Annotated[str, TEXT] = ""
    container: Annotated[str, TEXT] = ""
    has_container: Annotated[bool | None, FLAG] = None
    key: Annotated[str, TEXT] = ""
    created_after: Annotated[int | None, _MOMENT] = None
    created_before: Annotated[int | None, _MOMENT] = None
    """Unix seconds, both included."""
    metadata: Annotated[Mapping[str, str], METADATA] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LogPage:
    """The requested part of a response's log."""

    limit: Annotated[int, whole_number(1, limits.EVENTS_PAGE_MAX)] = limits.PAGE_ITEMS_DEFAULT
    order: Annotated[Literal["asc", "desc"], ORDER] = "asc"
    after: Annotated[int | None, whole_number()] = None
    types: Annotated[frozenset[str], words()] = frozenset()
    include: Annotated[tuple[str, ...], INCLUDE] = ()
    """Beside what its request asked for."""


def _day_or_moment(name: str, value: str, *, end: bool) -> int:
    """``2026-11-22`` (the day in UTC, its first or its last second), or Unix seconds."""
    if _DATE.fullmatch(value) is None:
        return number_of(name, value, 0, _SECONDS_MAX)
    try:
        day = datetime.datetime.fromisoformat(value).replace(tzinfo=datetime.UTC)
    except ValueError as error:
        raise errors.invalid_value(name, "there is no such day.") from error
    return int(day.timestamp()) + (_DAY_SECONDS - 1 if end else 0)


def _since(name: str, sent: Query) -> int:
    return _day_or_moment(name, last(sent), end=False)


def _until(name: str, sent: Query) -> int:
    return _day_or_moment(name, last(sent), end=True)


@dataclass(frozen=True, slots=True)
class UsageQuery:
    """The requested sums."""

    group_by: Annotated[str, choice("day", "model", "key", "tool")] = "day"
    split_by: Annotated[str | None, choice("model", "key", "tool")] = None
    """What each day is told by, besides."""
    since: Annotated[int | None, Parameter(STRING, _since, name="from")] = None
    until: Annotated[int | None, Parameter(STRING, _until, name="to")] = None

    def __post_init__(self) -> None:
        if self.split_by is not None and self.group_by != "day":
            raise errors.invalid_value("split_by", "only days are split: leave it out, or group by day.")

    def span(self, now: int) -> tuple[int, int]:
        """Its start and end (Unix seconds, both included). Raises :class:`~moorage.errors.ApiError`."""
        until = now if self.until is None else self.until
        first = max(0, until - (limits.USAGE_DAYS_DEFAULT - 1) * _DAY_SECONDS)
        since = first - first % _DAY_SECONDS if self.since is None else self.since
        if since > until:
            raise errors.invalid_value("from", "it lies behind 'to'.")
        if until - since > limits.USAGE_DAYS_MAX * _DAY_SECONDS:
            raise errors.invalid_value("from", f"at most {limits.USAGE_DAYS_MAX} days are added up at once.")
        return since, until


@dataclass(frozen=True, slots=True)
class TreeQuery:
    """The requested part of a container's files."""

    path: Annotated[str, TEXT] = "/mnt/data"
    depth: Annotated[int | None, whole_number(1, limits.TREE_DEPTH_MAX)] = None
    """Levels; None for all."""
    at: Annotated[int | None, whole_number()] = None
    """As of when, in Unix milliseconds; None for now."""


@dataclass(frozen=True, slots=True)
class AtQuery:
    at: Annotated[int | None, whole_number()] = None
    """As of when, in Unix milliseconds; None for now."""


@dataclass(frozen=True, slots=True)
class ContainersPage(PageQuery):
    name: Annotated[str | None, TEXT] = None
