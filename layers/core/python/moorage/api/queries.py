"""Query strings, read by their dataclasses: ``async def tree(wanted: Annotated[TreeQuery, query_of(TreeQuery)])``."""

from typing import Annotated, Any

from fastapi import Depends, Request

from moorage.wire.queries import PageQuery
from moorage.wire.query_strings import QueryReader


def query_of(kind: type[Any], *, ignores_others: bool = False) -> Any:
    """The query as ``kind`` describes it. FastAPI's own reading of queries ignores what it does not know."""
    reader: QueryReader[Any] = QueryReader(kind, ignores_others=ignores_others)

    async def read(request: Request) -> Any:
        return reader(request.query_params.multi_items())

    read.query = reader  # type: ignore[attr-defined]  # what the OpenAPI document tells of it
    return Depends(read)


AnyPage = Annotated[PageQuery, query_of(PageQuery)]
