"""Web search on the wire: its definitions, its item, and its events in their order."""

from types import MappingProxyType
from typing import Annotated, Any, Final, Literal, Required

from pydantic import AfterValidator, Field
from typing_extensions import TypedDict

from moorage import limits
from moorage.hosts import normalise
from moorage.wire.item import Common, an_item
from moorage.wire.refusals import wrong_value
from moorage.wire.tools import RequireApproval
from moorage.wire.validation import Array, Id, Length, OneOf, Text, wire

PREFIXES: Final = MappingProxyType({"web_search_call": "ws"})

TYPES: Final = ("web_search", "web_search_2025_08_26", "web_search_preview", "web_search_preview_2025_03_11")
PREVIEWS: Final = TYPES[2:]


def _domain(given: str) -> str:
    domain = normalise(given)
    if domain is None:
        raise wrong_value("it must be the name of a domain such as 'example.com', without scheme, path or wildcard.")
    return domain


def _country(given: str) -> str:
    if len(given) != 2 or not (given.isascii() and given.isalpha()):
        raise wrong_value("it must be a country's two letters (ISO 3166-1), such as 'NO'.")
    return given.upper()


# --- the tool -----------------------------------------------------------------------------------------------------------------


@wire
class UserLocation(TypedDict, total=False):
    type: Literal["approximate"]
    city: Annotated[str, Field(max_length=limits.NAME_CHARS_MAX)]
    country: Annotated[str, AfterValidator(_country)]
    region: Annotated[str, Field(max_length=limits.NAME_CHARS_MAX)]
    timezone: Annotated[str, Field(max_length=limits.NAME_CHARS_MAX)]


_Domains = Annotated[list[Annotated[str, AfterValidator(_domain)]], Length(limits.WEB_DOMAINS_MAX)]


@wire
class Filters(TypedDict, total=False):
    allowed_domains: _Domains
    blocked_domains: _Domains


class _CommonTool(TypedDict, total=False):
    search_context_size: Literal["low", "medium", "high"]
    search_content_types: Array[Literal["text", "image"]]
    user_location: UserLocation
    external_web_access: bool
    require_approval: RequireApproval


@wire
class WebSearchTool(_CommonTool, total=False):
    """``search_content_types`` belongs to the preview types, but Codex CLI 0.169 sends it with ``web_search`` too."""

    type: Required[Literal["web_search", "web_search_2025_08_26"]]
    filters: Filters


@wire
class WebSearchPreviewTool(_CommonTool, total=False):
    """``external_web_access`` belongs to the newer types; with it a client says that it can do without."""

    type: Required[Literal["web_search_preview", "web_search_preview_2025_03_11"]]


TOOLS: Final[MappingProxyType[str, Any]] = MappingProxyType(
    {kind: WebSearchPreviewTool if kind in PREVIEWS else WebSearchTool for kind in TYPES}
)


# --- the item -----------------------------------------------------------------------------------------------------------------


@wire
class Source(TypedDict):
    type: Literal["url"]
    url: Text


@wire
class Search(TypedDict, total=False):
    type: Required[Literal["search"]]
    query: Text
    queries: Array[Text]
    sources: Array[Source]


@wire
class OpenPage(TypedDict, total=False):
    type: Required[Literal["open_page"]]
    url: Text


@wire
class FindInPage(TypedDict, total=False):
    type: Required[Literal["find_in_page"]]
    url: Required[Text]
    pattern: Required[Text]


@wire
class WebResult(TypedDict, total=False):
    url: Required[Text]
    title: Text
    text: Text
    published_at: Text


@an_item(PREFIXES["web_search_call"])
class WebSearchCall(Common, total=False):
    """``results`` are what the model has read. ``error`` says why there are none, and ``hosts`` which servers of pages were asked; both
    are additions to the API."""

    type: Required[Literal["web_search_call"]]
    action: Required[Annotated[Any, OneOf({"search": Search, "open_page": OpenPage, "find_in_page": FindInPage})]]
    status: Literal["in_progress", "searching", "completed", "failed", "incomplete"]
    results: Array[WebResult]
    error: Text
    hosts: Array[Text]
    approval_request_id: Id


# --- events -------------------------------------------------------------------------------------------------------------------

_ITEM: Final = ("item_id", "output_index")

EVENTS: Final = MappingProxyType(
    {"web_search_call.in_progress": _ITEM, "web_search_call.searching": _ITEM, "web_search_call.completed": _ITEM}
)
"""In the order in which they come."""
