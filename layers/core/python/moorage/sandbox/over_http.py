"""The common part of clients that speak to a sandbox, or to its owner."""

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self

import httpx


class AsyncClosing(ABC):
    """Is closed at the end of ``async with``."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.aclose()

    @abstractmethod
    async def aclose(self) -> None: ...


class OverHttp(AsyncClosing):
    _http: httpx.AsyncClient

    async def aclose(self) -> None:
        await self._http.aclose()
