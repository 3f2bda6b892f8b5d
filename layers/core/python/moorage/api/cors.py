"""Pages of named origins in front of ``/v1`` (the Fetch standard, "HTTP-CORS protocol").

An origin is compared as a whole, and no answer allows credentials: a page sends a key or a token itself, and never a cookie. A browser
asks before such a request (a preflight) without the key, so the answer to that question says nothing of anybody. API Gateway answers it
by itself (``infra/cors.py``), with the same words.
"""

from collections.abc import Collection, Mapping
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from moorage.api.answers import JsonResponse
from moorage.errors import ApiError
from moorage.wire.cross_origin import ALLOW_ORIGIN, PREFLIGHT, READABLE


class CrossOriginPages:
    """In front of authentication, so that a page can read a refusal too."""

    def __init__(self, app: ASGIApp, origins: Collection[str]) -> None:
        self._app = app
        self._origins = frozenset(origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not scope["path"].startswith("/v1"):
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        origin = headers.get("origin", "")
        allowed = {ALLOW_ORIGIN: origin} if origin in self._origins else {}
        if scope["method"] == "OPTIONS" and "access-control-request-method" in headers:
            await _preflight(allowed)(scope, receive, send)
            return

        async def send_readable(message: Message) -> None:
            if message["type"] == "http.response.start":
                answer = MutableHeaders(scope=message)
                answer.update({**allowed, **READABLE} if allowed else {})
                answer.add_vary_header("origin")
            await send(message)

        await self._app(scope, receive, send_readable)


def _preflight(allowed: Mapping[str, str]) -> Any:
    if not allowed:
        message = "Pages of this origin may not call this API. MOORAGE_CORS_ORIGINS names those that may."
        refusal = ApiError(403, message, code="foreign_origin")
        return JsonResponse(refusal.envelope(), status_code=refusal.status, headers={"vary": "origin"})
    return Response(status_code=204, headers={**PREFLIGHT, **allowed})
