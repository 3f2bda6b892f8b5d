"""Query strings of the lists of files, containers and what belongs to them."""

from typing import Annotated, Any

from fastapi import Depends, Request

from moorage import limits
from moorage.errors import unknown_parameter
from moorage.wire.queries import Page, parse_page


def page_with(
    *others: str, limit_default: int = limits.PAGE_ITEMS_DEFAULT, limit_max: int = limits.PAGE_ITEMS_MAX
) -> Any:
    """Which part of a list is wanted, by a query that may also hold ``others``. Lists of resources have no ``include``."""

    async def read(request: Request) -> Page:
        page = parse_page(request.query_params.multi_items(), limit_default=limit_default, limit_max=limit_max, others=others)
        if page.include:
            raise unknown_parameter("include")
        return page

    return Depends(read)


AnyPage = Annotated[Page, page_with()]
