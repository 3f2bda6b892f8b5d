"""Query strings of the lists of files, containers and their parts."""

from typing import Annotated, Any

from fastapi import Depends, Request

from moorage import limits
from moorage.wire.queries import PageQuery, parse_page


def page_with(
    *others: str, limit_default: int = limits.PAGE_ITEMS_DEFAULT, limit_max: int = limits.PAGE_ITEMS_MAX, goes_back: bool = False
) -> Any:
    """Which part of a list is wanted, by a query that may also hold ``others``. Lists of resources have no ``include``; those that
    ``goes_back`` is said of have ``before``."""

    async def read(request: Request) -> PageQuery:
        query = request.query_params.multi_items()
        return parse_page(query, limit_default=limit_default, limit_max=limit_max, others=others, goes_back=goes_back)

    return Depends(read)


AnyPage = Annotated[PageQuery, page_with()]
