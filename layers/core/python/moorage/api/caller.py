"""Every route's input: its caller, and the runtime that serves it."""

from typing import Annotated

from fastapi import Depends
from starlette.requests import HTTPConnection

from moorage.dataclass import dataclass
from moorage.loop.budget import draws_of
from moorage.runtime import Runtime
from moorage.store.api_keys import key_id_of


@dataclass(frozen=True, slots=True)
class _Caller:
    runtime: Runtime
    tenant_id: str
    """As the gate has found it by the request's key."""
    key_id: str
    draws_on: tuple[str, ...]
    """The budgets of its key and its tenant."""
    subject: str = ""
    """Of a token: who it was issued for."""


async def _caller(connection: HTTPConnection) -> _Caller:
    state = connection.state
    key_id = key_id_of(state.key_digest)
    draws_on = draws_of(state.tenant_id, key_id, state.budgets)
    return _Caller(connection.app.state.runtime, state.tenant_id, key_id, draws_on, state.subject)


Caller = Annotated[_Caller, Depends(_caller)]
