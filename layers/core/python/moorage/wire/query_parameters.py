"""Parameters of query strings, as the OpenAPI document tells of them. ``queries.py`` reads them."""

from typing import Final

from moorage import limits
from moorage.wire.schema import STRING, JsonSchema
from moorage.wire.types import INCLUDABLE

QueryParameters = tuple[tuple[str, JsonSchema], ...]
"""Names with their schemas."""

ORDER: Final = ("order", {"type": "string", "enum": ["asc", "desc"], "default": "desc"})
OLDEST_FIRST: Final = ("order", {"type": "string", "enum": ["asc", "desc"], "default": "asc"})
AFTER: Final = ("after", STRING)
BEFORE: Final = ("before", STRING)
INCLUDE: Final = ("include[]", {"type": "array", "items": {"type": "string", "enum": list(INCLUDABLE)}})


def limit(maximum: int = limits.PAGE_ITEMS_MAX, default: int = limits.PAGE_ITEMS_DEFAULT) -> tuple[str, JsonSchema]:
    return ("limit", {"type": "integer", "minimum": 1, "maximum": maximum, "default": default})


PAGE: Final[QueryParameters] = (limit(), ORDER, AFTER)
