"""The common part of clients that speak to a sandbox, or to its owner, over one HTTP client."""

from types import TracebackType
from typing import Self

import httpx


class OverHttp:
    _http: httpx.AsyncClient

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        await self._http.aclose()
