"""``/console/sign-in`` and ``/console/signed-in``: the way of a browser to the issuer and back.

The page that it comes back to has the token in its body, never in an address, and its script puts it where the console's pages keep
their key: in this tab, until it is closed or its person signs out.
"""

import html
from typing import Final

from fastapi import FastAPI, Request
from starlette.responses import RedirectResponse, Response

from moorage.api.console import HEADERS, Console
from moorage.errors import ApiError
from moorage.identity.ended_sessions import CALLBACK, session_digest
from moorage.identity.sign_in import SignIn
from moorage.runtime import Runtime
from moorage.store.api_keys import key_id_of
from moorage.store.audit import Actor, AuditKind, acting

_COOKIE: Final = "moorage-sign-in"
_ANSWERS: Final = HEADERS | {"cache-control": "no-store"}
_SIGNED_IN: Final = """\
<!doctype html><html lang="en"><meta charset="utf-8"><title>moorage</title>
<script type="module" src="a/{digest}/signed_in.js"></script>
<body data-key="{token}"><p>You are signed in.</p></body></html>
"""
_FAILED: Final = """\
<!doctype html><html lang="en"><meta charset="utf-8"><title>moorage</title>
<body><h1>You are not signed in.</h1><p>{message}</p><p><a href="./">Back to the console</a></p></body></html>
"""


def add_sign_in(app: FastAPI, sign_in: SignIn, console: Console) -> None:
    """Before the console's own routes: those take every address below theirs."""

    async def start() -> Response:
        try:
            place, cookie = await sign_in.start()
        except ApiError as error:
            return _failed(error)
        answer = RedirectResponse(place, 302, _ANSWERS)
        answer.set_cookie(_COOKIE, cookie, max_age=None, path="/", secure=sign_in.is_over_tls, httponly=True, samesite="lax")
        return answer

    async def callback(request: Request) -> Response:
        runtime: Runtime = request.app.state.runtime
        try:
            token, key = await sign_in.finish(request.cookies.get(_COOKIE, ""), dict(request.query_params))
        except ApiError as error:
            return _failed(error)
        with acting(Actor(key.key_id, key.tenant_id, request.state.request_id, key.subject)):
            await runtime.stores.audit.note(AuditKind.SIGNED_IN, {"by": "issuer", "session": key_id_of(session_digest(token))})
        page = _SIGNED_IN.format(digest=console.digest, token=html.escape(token, quote=True))
        return _forgetting(Response(page, 200, _ANSWERS, "text/html; charset=utf-8"))

    app.add_api_route("/console/sign-in", start, methods=["GET"])
    app.add_api_route(f"/console/{CALLBACK}", callback, methods=["GET"])


def _failed(error: ApiError) -> Response:
    return _forgetting(Response(_FAILED.format(message=html.escape(error.message)), error.status, _ANSWERS, "text/html; charset=utf-8"))


def _forgetting(answer: Response) -> Response:
    answer.delete_cookie(_COOKIE, path="/")
    return answer
