"""The gateway of the default template, with functions that say what they were called with."""

import asyncio
import base64
import dataclasses
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from tests.twin.gateway import FunctionError, GatewayTwin, Streamed
from tests.twin.template import ACCOUNT, Template

PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 4
KEY = {"authorization": "Bearer sk-moorage-1"}
MULTIPART = {"content-type": "multipart/form-data; boundary=b"}
USAGE_KEY = "f" * 64


class Echo:
    """Functions that answer with what they got, and an authorizer that knows one key."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.answer: Any = {"statusCode": 200, "headers": {"content-type": "application/json"}, "body": "{}"}
        self.error: str | None = None
        self.is_slow = False
        self.usage_key = USAGE_KEY

    async def invoke(self, function: str, event: dict[str, Any]) -> Any:
        self.calls.append((function.removeprefix("Functions")[:-8], event))
        if "Authorizer" in function:
            if event["headers"].get("authorization") != KEY["authorization"]:
                raise FunctionError("Unauthorized")
            resource = "/".join(event["methodArn"].split("/")[:2]) + "/*"
            policy = {"Statement": [{"Effect": "Allow", "Action": "execute-api:Invoke", "Resource": resource}]}
            return {
                "principalId": "acme",
                "policyDocument": policy,
                "context": {"tenantId": "acme"},
                "usageIdentifierKey": self.usage_key,
            }
        if self.error:
            raise FunctionError(self.error)
        if self.is_slow:
            await asyncio.sleep(60)
        return self.answer

    async def stream(self, function: str, event: dict[str, Any]) -> Streamed:
        self.calls.append((function.removeprefix("Functions")[:-8], event))
        if self.error:
            raise FunctionError(self.error)

        async def body() -> AsyncIterator[bytes]:
            for text in (b"data: 1\n\n", b"data: 2\n\n"):
                yield text

        return Streamed(200, [("content-type", "text/event-stream"), ("connection", "close")], body())

    @property
    def last(self) -> dict[str, Any]:
        return self.calls[-1][1]

    @property
    def called(self) -> list[str]:
        return [name for name, _ in self.calls]


class Deployment:
    def __init__(self, template: Template) -> None:
        self.functions, self.seconds = Echo(), 1000.0
        self.gateway = GatewayTwin(template, self.functions, clock=lambda: self.seconds)

    async def call(self, method: str, path: str, headers: dict[str, str] | None = None, **more: Any) -> httpx.Response:
        transport = httpx.ASGITransport(app=self.gateway)  # type: ignore[arg-type]
        async with httpx.AsyncClient(transport=transport, base_url="http://gateway") as client:
            return await client.request(method, f"/api{path}", headers=KEY if headers is None else headers, **more)


@pytest.fixture
def api(default: Template) -> Deployment:
    return Deployment(default)


ROUTES = {
    "/v1/responses": "Responses",
    "/v1/responses/resp_1/cancel": "Responses",
    "/v1/models": "Responses",
    "/v1/conversations": "Responses",
    "/v1/containers": "Containers",
    "/v1/containers/cntr_1/files": "Containers",
    "/v1/containers/cntr_1/sessions": "Containers",
    "/v1/sessions/csess_1/output": "Sessions",
    "/v1/files": "Files",
    "/v1/files/file-1/content": "Files",
    "/v1/uploads/upload_1/parts": "Files",
    "/v1/skills": "Files",
}


@pytest.mark.parametrize(("path", "function"), ROUTES.items(), ids=ROUTES.keys())
async def test_each_path_comes_to_its_function(api: Deployment, path: str, function: str) -> None:
    answer = await api.call("GET", path)
    assert (answer.status_code, api.functions.called) == (200, ["Authorizer", function])
    assert (api.functions.last["path"], api.functions.last["requestContext"]["path"]) == (path, f"/api{path}")
    assert api.functions.last["requestContext"]["authorizer"]["tenantId"] == "acme"


SLASHES = {"/v1/files/": "Files", "/v1/containers/": "Containers", "/v1/files/file-1/": "Files", "/v1/models/": "Responses"}


@pytest.mark.parametrize(("path", "function"), SLASHES.items(), ids=SLASHES.keys())
async def test_a_slash_at_the_end_leads_nowhere_else_and_is_told(api: Deployment, path: str, function: str) -> None:
    assert (await api.call("GET", path)).status_code == 200
    assert api.functions.called == ["Authorizer", function]
    assert (api.functions.last["path"], api.functions.last["requestContext"]["path"]) == (path, f"/api{path}")


async def test_a_method_that_a_resource_does_not_take_is_looked_for_above_it(default: Template) -> None:
    resources = {
        name: {**r, "Properties": {**r["Properties"], "HttpMethod": "GET"}} if "filesANY" in name else r
        for name, r in default.resources.items()
    }
    assert resources != default.resources
    api = Deployment(dataclasses.replace(default, resources=resources))
    await api.call("GET", "/v1/files")
    await api.call("POST", "/v1/files")
    assert api.functions.called == ["Authorizer", "Files", "Responses"]


@pytest.mark.parametrize("path", ["/", "/responses", "/v2/responses"])
async def test_an_address_without_a_route_is_told_what_is_missing(api: Deployment, path: str) -> None:
    answer = await api.call("POST", path)
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "unknown_url")
    assert f"/api{path}" in answer.json()["error"]["message"]
    assert api.functions.calls == []


# --- Bodies ---


@pytest.mark.parametrize("kind", ["multipart/form-data; boundary=b", "application/octet-stream", "Multipart/Form-Data"])
async def test_an_upload_reaches_its_function_byte_for_byte(api: Deployment, kind: str) -> None:
    await api.call("POST", "/v1/files", {**KEY, "content-type": kind}, content=PNG)
    assert (base64.b64decode(api.functions.last["body"]), api.functions.last["isBase64Encoded"]) == (PNG, True)


async def test_json_reaches_its_function_as_text(api: Deployment) -> None:
    await api.call("POST", "/v1/responses", {**KEY, "content-type": "application/json"}, content='{"input": "Grüße"}'.encode())
    assert (api.functions.last["body"], api.functions.last["isBase64Encoded"]) == ('{"input": "Grüße"}', False)


async def test_without_binary_types_an_upload_is_lost_with_200(default: Template) -> None:
    """What a template without them did, and no emulator shows."""
    resources = {
        name: {**r, "Properties": {**r["Properties"], "BinaryMediaTypes": []}} if r["Type"] == "AWS::ApiGateway::RestApi" else r
        for name, r in default.resources.items()
    }
    api = Deployment(dataclasses.replace(default, resources=resources))
    answer = await api.call("POST", "/v1/files", {**KEY, **MULTIPART}, content=PNG)
    assert (answer.status_code, api.functions.last["isBase64Encoded"]) == (200, False)
    assert api.functions.last["body"].encode() != PNG


SIZES: dict[str, tuple[dict[str, str], int, int]] = {
    "text that Lambda takes": ({"content-type": "application/json"}, 5_900_000, 200),
    "text that the gateway takes and Lambda does not": ({"content-type": "application/json"}, 6_400_000, 413),
    "an upload that is too long once it is base64": (MULTIPART, 4_800_000, 413),
    "an upload that fits": (MULTIPART, 4_500_000, 200),
    "more than the gateway takes": ({"content-type": "application/json"}, 10_500_000, 413),
}


@pytest.mark.parametrize(("headers", "size", "status"), SIZES.values(), ids=SIZES.keys())
async def test_a_body_is_taken_up_to_what_lambda_takes(api: Deployment, headers: dict[str, str], size: int, status: int) -> None:
    answer = await api.call("POST", "/v1/files", {**KEY, **headers}, content=b"x" * size)
    assert answer.status_code == status
    if status == 413:
        assert answer.json()["error"]["code"] == "request_too_large"


# --- Answers ---


async def test_a_stream_comes_as_it_was_written(api: Deployment) -> None:
    answer = await api.call("POST", "/v1/responses", json={"stream": True})
    assert (answer.headers["content-type"], answer.content) == ("text/event-stream", b"data: 1\n\ndata: 2\n\n")
    assert "connection" not in answer.headers


async def test_a_redirection_to_the_bucket_comes_through(api: Deployment) -> None:
    headers = {"location": ["https://bucket"]}
    api.functions.answer = {"statusCode": 302, "multiValueHeaders": headers, "body": "", "isBase64Encoded": True}
    answer = await api.call("GET", "/v1/files/file-1/content", {**KEY, "accept": "application/binary"})
    assert (answer.status_code, answer.headers["location"], answer.content) == (302, "https://bucket", b"")


@pytest.mark.parametrize("path", ["/v1/files", "/v1/responses"])
async def test_a_function_that_breaks_is_an_error_in_openais_words(api: Deployment, path: str) -> None:
    api.functions.error = "RuntimeError"
    answer = await api.call("GET", path)
    assert (answer.status_code, answer.json()["error"]["code"]) == (500, "server_error")


@pytest.mark.parametrize("broken", [None, [], {"body": "no status"}, {"statusCode": 200, "body": "x" * 6_400_000}])
async def test_an_answer_that_is_none_is_an_error_in_openais_words(api: Deployment, broken: Any) -> None:
    api.functions.answer = broken
    answer = await api.call("GET", "/v1/files")
    assert (answer.status_code, answer.json()["error"]["code"]) == (500, "server_error")


async def test_a_gateways_timeout_is_an_error_in_openais_words(default: Template) -> None:
    api = Deployment(default)
    api.gateway = GatewayTwin(default, api.functions, clock=lambda: api.seconds, patience=0.001)  # 29 ms of 29 s
    api.functions.is_slow = True
    answer = await api.call("GET", "/v1/files")
    assert (answer.status_code, answer.json()["error"]["code"], answer.headers["retry-after"]) == (500, "server_error", "1")


# --- Keys ---


@pytest.mark.parametrize("headers", [{}, {"authorization": ""}])
async def test_without_a_key_nobody_is_asked(api: Deployment, headers: dict[str, str]) -> None:
    answer = await api.call("GET", "/v1/models", headers)
    assert (answer.status_code, answer.json()["error"]["code"], api.functions.calls) == (401, "invalid_api_key", [])


@pytest.mark.parametrize(("method", "path"), [("GET", "/console/index.html"), ("GET", "/approve/token"), ("POST", "/approve/token")])
async def test_what_people_open_needs_no_key(api: Deployment, method: str, path: str) -> None:
    assert (await api.call(method, path, {})).status_code == 200
    assert api.functions.called == ["Responses"]


async def test_the_consoles_files_can_only_be_read(api: Deployment) -> None:
    assert ((await api.call("POST", "/console/index.html", {})).status_code, api.functions.calls) == (404, [])


async def test_an_unknown_key_is_refused_before_any_other_function_runs(api: Deployment) -> None:
    answer = await api.call("GET", "/v1/models", {"authorization": "Bearer sk-moorage-2"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (401, "invalid_api_key")
    assert api.functions.called == ["Authorizer"]


async def test_one_answer_of_the_authorizer_opens_every_route_for_as_long_as_it_is_kept(api: Deployment) -> None:
    for path in ("/v1/models", "/v1/files", "/v1/containers/cntr_1"):
        assert (await api.call("GET", path)).status_code == 200
    assert api.functions.called.count("Authorizer") == 1
    api.seconds += 301
    await api.call("GET", "/v1/models")
    assert api.functions.called.count("Authorizer") == 2


async def test_what_clients_say_about_the_gateways_context_is_only_a_header(api: Deployment) -> None:
    await api.call("GET", "/v1/models", {**KEY, "x-amzn-request-context": '{"authorizer": {"tenantId": "other"}}'})
    assert api.functions.last["requestContext"]["authorizer"]["tenantId"] == "acme"
    assert api.functions.last["requestContext"]["accountId"] == ACCOUNT


# --- Throttling ---


async def test_the_stage_takes_a_burst_and_then_its_rate(api: Deployment) -> None:
    statuses = [(await api.call("GET", "/v1/models")).status_code for _ in range(101)]
    assert statuses == [200] * 100 + [429]
    refused = await api.call("GET", "/v1/models")
    assert (refused.json()["error"]["code"], refused.headers["retry-after"]) == ("rate_limit_exceeded", "1")
    api.seconds += 1
    assert (await api.call("GET", "/v1/models")).status_code == 200


async def test_strangers_at_the_approval_page_use_up_nothing_that_keys_need(api: Deployment) -> None:
    statuses = [(await api.call("GET", "/approve/token", {})).status_code for _ in range(121)]
    assert statuses == [200] * 20 + [429] * 101
    assert [(await api.call("GET", "/v1/models")).status_code for _ in range(100)] == [200] * 100


@pytest.mark.parametrize("path", ["/console", "/console/index.html", "/console/a/0123456789abcdef/pages/runs.js"])
async def test_a_browser_reads_the_console_before_it_has_a_key(api: Deployment, path: str) -> None:
    answer = await api.call("GET", path, headers={})
    assert (answer.status_code, api.functions.called) == (200, ["Responses"])


async def test_what_can_be_read_without_a_key_can_only_be_read(api: Deployment) -> None:
    answer = await api.call("POST", "/console/index.html", headers={})
    assert (answer.status_code, answer.json()["error"]["code"], api.functions.called) == (404, "unknown_url", [])


PAGE = {"origin": "https://desk.example.com:8443", "access-control-request-method": "POST"}
ORIGINS = {
    "https://app.example.com": "https://app.example.com",
    "https://desk.example.com:8443": "https://desk.example.com:8443",
    "https://desk.example.com": "https://app.example.com",  # none of them, so the page may not read what it is told
    "https://appXexample.com": "https://app.example.com",
    "null": "https://app.example.com",
}


@pytest.mark.parametrize(("origin", "told"), ORIGINS.items(), ids=ORIGINS.keys())
@pytest.mark.parametrize("path", ["/v1/responses", "/v1/responses/resp_1", "/v1/files", "/v1/containers/cntr_1/files"])
async def test_a_preflight_is_answered_by_the_gateway_itself(full: Template, path: str, origin: str, told: str) -> None:
    api = Deployment(full)
    answer = await api.call("OPTIONS", path, PAGE | {"origin": origin})
    assert (answer.status_code, answer.headers["access-control-allow-origin"], api.functions.called) == (204, told, [])
    assert (answer.headers["access-control-allow-headers"], answer.headers["vary"]) == ("authorization, *", "origin")
    assert "access-control-allow-credentials" not in answer.headers


async def test_a_page_can_read_that_its_key_is_wrong(full: Template) -> None:
    answer = await Deployment(full).call("GET", "/v1/models", {"origin": "https://app.example.com", "authorization": "Bearer no"})
    assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (401, "https://app.example.com")


async def test_without_named_origins_a_preflight_is_a_request_without_a_key(api: Deployment) -> None:
    answer = await api.call("OPTIONS", "/v1/responses", PAGE)
    assert (answer.status_code, [name for name in answer.headers if name.startswith("access-control")]) == (401, [])
