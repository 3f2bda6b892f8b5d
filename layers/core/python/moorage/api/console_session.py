"""``POST /v1/console/session``: a code of ``moorage console`` for the key that it stands for. An extension of ours.

The command line writes both into the table, the key sealed under the code (``store/console_codes.py``), because no server may write
keys. What is done here is to see that a code is used once.
"""

from fastapi import Request

from moorage.api.caller import Caller
from moorage.api.credentials import secret_of
from moorage.api.routing import Router
from moorage.errors import bad_request
from moorage.identity.ended_sessions import session_digest
from moorage.store.api_keys import CODE, hash_of, key_id_of
from moorage.store.audit import AuditKind
from moorage.store.console_codes import ConsoleCodes
from moorage.wire.operator_answers import ConsoleSession, ConsoleSessionEnded

router = Router()


@router.post("/console/session", "exchangeConsoleCode", "A code of `moorage console` for the key that it stands for", statuses=(403,))
async def exchange(request: Request, caller: Caller) -> ConsoleSession:
    code = secret_of(request.headers)
    found = await caller.runtime.identity.api_keys.find(code)
    if found is None or found.scope != CODE:
        raise bad_request("This takes a code of 'moorage console' as its key. A key can be used as it is.")
    key = await ConsoleCodes(caller.runtime.stores.table, caller.runtime.identity.api_keys, caller.runtime.clock).exchange(code, found)
    await caller.runtime.stores.audit.note(AuditKind.SIGNED_IN, {"by": "code of 'moorage console'", "key_id": key_id_of(hash_of(key))})
    return {"object": "console.session", "key": key}


@router.delete("/console/session", "endConsoleSession", "End the session of the console that asks, or of a token")
async def end(request: Request, caller: Caller) -> ConsoleSessionEnded:
    """A key that somebody made and keeps is none of a session: it goes on, and the page forgets it."""
    runtime, secret = caller.runtime, secret_of(request.headers)
    found = await runtime.identity.caller_of(secret)
    if found is None or not found.parent:
        return {"object": "console.session.ended", "ended": False, "logout_url": None}
    digest = session_digest(secret)
    await runtime.identity.ended.end(digest, found.expires_at)
    await runtime.stores.audit.note(AuditKind.SIGNED_OUT, {"session": key_id_of(digest)})
    sign_in = request.app.state.sign_in
    logout_url = await sign_in.logout_url() if sign_in is not None and found.subject else None
    return {"object": "console.session.ended", "ended": True, "logout_url": logout_url}
