"""Query strings of the lists of files, containers and conversations, and bodies of their POSTs."""

from typing import Any

from fastapi import Request

from moorage import limits
from moorage.api.bodies import read_body
from moorage.errors import unknown_parameter
from moorage.wire.queries import Page, parse_page
from moorage.wire.requests import parse_body
from moorage.wire.shapes import Shape


def page_of(
    request: Request,
    *,
    limit_default: int = limits.PAGE_ITEMS_DEFAULT,
    limit_max: int = limits.PAGE_ITEMS_MAX,
    others: tuple[str, ...] = (),
) -> Page:
    """Which part of a list is wanted; lists of resources have no ``include``."""
    page = parse_page(request.query_params.multi_items(), limit_default=limit_default, limit_max=limit_max, others=others)
    if page.include:
        raise unknown_parameter("include")
    return page


async def json_body(request: Request, shape: Shape) -> dict[str, Any]:
    """The body as ``shape`` says. Raises :class:`~moorage.errors.ApiError` that names the field."""
    return parse_body(await read_body(request), shape)
