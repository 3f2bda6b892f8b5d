"""Containers that live at a model's upstream, under ``/v1/containers``: requests about them are passed on, and the answers back.

Only those that a response of the same tenant has made are known here (``containers/upstream_store.py``); all others are 404.
"""

from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, Final
from urllib.parse import quote

import httpx
from fastapi import Request
from fastapi.routing import APIRoute
from starlette.responses import Response, StreamingResponse

from moorage.api.bodies import read_body
from moorage.api.foreground import failure
from moorage.api.multipart import is_multipart
from moorage.errors import ApiError, UpstreamError, body_too_large
from moorage.limits import REQUEST_BODY_BYTES_MAX
from moorage.model.relay import RelayedRequest, relay
from moorage.runtime import Runtime
from moorage.stores import Stores
from moorage.wire.resources import AddContainerFile
from moorage.wire.validation import JsonValidator

_KEPT: Final = ("content-type", "content-length", "content-range", "accept-ranges")
_DOWNLOAD: Final = {
    "content-type": "application/octet-stream",
    "content-disposition": "attachment",
    "x-content-type-options": "nosniff",
}
"""As of every file here: no browser may run it as a page of this origin."""
_parse_added: Final = JsonValidator[AddContainerFile](AddContainerFile)

_Handler = Callable[[Request], Coroutine[Any, Any, Response]]


class ContainerRoute(APIRoute):
    """A route about a container that may live elsewhere. It is asked here first: only a miss pays for the second look."""

    def get_route_handler(self) -> _Handler:
        here = super().get_route_handler()

        async def handle(request: Request) -> Response:
            try:
                return await here(request)
            except ApiError as error:
                names = {name: quote(value, safe="") for name, value in request.path_params.items()}
                is_there = error.status == 404 and "container_id" in names and not {".", ".."} & {*names.values()}
                path = self.path_format.removeprefix("/v1").format(**names)
                elsewhere = await _elsewhere(request, path) if is_there else None
                if elsewhere is None:
                    raise
                return elsewhere

        return handle


async def _elsewhere(request: Request, path: str) -> Response | None:
    """The upstream's answer; None if the container is not there, or not this tenant's."""
    runtime: Runtime = request.app.state.runtime
    container_id = request.path_params["container_id"]
    model = await runtime.stores.upstream_containers.model_of(request.state.tenant_id, container_id)
    if model is None:
        return None
    upstream = runtime.models.catalog.upstream_of(runtime.models.catalog.resolve(model), runtime.models.http)
    try:
        return _passed_back(request, await relay(upstream, await _passed(request, path, runtime.stores)))
    except UpstreamError as error:
        raise failure(error.code, error.message, error.param, error.retry_after_seconds) from error


async def _passed(request: Request, path: str, stores: Stores) -> RelayedRequest:
    headers = {name: request.headers[name] for name in ("range",) if name in request.headers}
    passed = RelayedRequest(request.method, path, request.url.query, headers=headers)
    if request.method != "POST":
        return passed
    if is_multipart(request):
        content, kind = await read_body(request), request.headers["content-type"]
    else:
        content, kind = await _as_form(stores, request.state.tenant_id, _parse_added.body(await read_body(request)).file_id)
    return RelayedRequest(request.method, path, content=content, headers={"content-type": kind})


async def _as_form(stores: Stores, tenant_id: str, file_id: str) -> tuple[bytes, str]:
    """A file of ours as an upload: the upstream does not know it."""
    file = await stores.files.get(tenant_id, file_id)
    if file.bytes > REQUEST_BODY_BYTES_MAX:
        raise body_too_large(REQUEST_BODY_BYTES_MAX)
    content = b"".join([chunk async for chunk in stores.files.content(file)])
    form = httpx.Request("POST", "http://upstream", files={"file": (file.filename, content, "application/octet-stream")})
    return form.read(), form.headers["content-type"]


def _passed_back(request: Request, answer: httpx.Response) -> Response:
    headers = {name: answer.headers[name] for name in _KEPT if name in answer.headers}
    if answer.status_code < 400 and request.url.path.endswith("/content"):
        headers |= _DOWNLOAD
    if answer.status_code >= 400:
        headers |= {name: answer.headers[name] for name in ("retry-after",) if name in answer.headers}
        return Response(answer.content, status_code=answer.status_code, headers=headers)
    return StreamingResponse(_body(answer), status_code=answer.status_code, headers=headers)


async def _body(answer: httpx.Response) -> AsyncIterator[bytes]:
    try:
        async for piece in answer.aiter_raw():
            yield piece
    finally:
        await answer.aclose()
