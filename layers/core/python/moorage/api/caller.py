"""What every route asks for: who calls, and what serves them."""

from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends
from starlette.requests import HTTPConnection

from moorage.runtime import Runtime


@dataclass(frozen=True, slots=True)
class _Caller:
    runtime: Runtime
    tenant_id: str
    """As the gate has found it by the request's key."""


async def _caller(connection: HTTPConnection) -> _Caller:
    return _Caller(connection.app.state.runtime, connection.state.tenant_id)


Caller = Annotated[_Caller, Depends(_caller)]
