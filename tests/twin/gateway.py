"""API Gateway as far as this deployment uses it, built from the synthesised template: an ASGI application in front of its functions.

It takes from the template what it would otherwise hide: binary media types, buffered or streamed integrations and their timeouts, the
authorizer with its cache, throttling and usage plans, the answers that the gateway gives by itself, and the leave that functions give
to be called. What AWS does with them is from the API Gateway developer guide:

* a body whose type is no binary one is read as UTF-8 text; what is no UTF-8 is replaced;
* an answer that says it is base64 is decoded only if the first type of ``Accept`` is a binary one;
* a request has at most 10 MB, and what Lambda is called with at most 6 MB;
* a slash at the end of a path changes nothing in where it leads, and stays in what the function is told;
* a path whose resource does not take the method is looked for among the greedy ones above it;
* a method with a throttle of its own does not use up the stage's;
* a path without a route is a missing token; a missing identity source is refused without asking the authorizer;
* a client that goes away does not end a stream: the function writes on.
"""

import asyncio
import base64
import json
import re
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Protocol
from urllib.parse import parse_qsl, unquote

from tests.twin.template import ACCOUNT, REGION, Template

REQUEST_BYTES_MAX = 10 * 1024 * 1024
LAMBDA_BYTES_MAX = 6 * 1024 * 1024
API_ID = "twin"
STAGE = "api"

_DEFAULTS = {
    "ACCESS_DENIED": (403, "User is not authorized to access this resource"),
    "AUTHORIZER_CONFIGURATION_ERROR": (500, "Internal server error"),
    "AUTHORIZER_FAILURE": (500, "Internal server error"),
    "INTEGRATION_FAILURE": (502, "Internal server error"),
    "INTEGRATION_TIMEOUT": (504, "Endpoint request timed out"),
    "INVALID_API_KEY": (403, "Forbidden"),
    "MISSING_AUTHENTICATION_TOKEN": (403, "Missing Authentication Token"),
    "QUOTA_EXCEEDED": (429, "Limit Exceeded"),
    "REQUEST_TOO_LARGE": (413, "Request Too Long"),
    "THROTTLED": (429, "Too Many Requests"),
    "UNAUTHORIZED": (401, "Unauthorized"),
}
_EVERY_METHOD = ("*", "*")
_NOT_PASSED_ON = {"connection", "transfer-encoding", "keep-alive", "content-length", "server", "date"}


class FunctionError(Exception):
    """The function raised; ``str()`` is its ``errorMessage``."""


@dataclass(frozen=True)
class Streamed:
    """What a streaming function answers: its prelude, and its body while it comes."""

    status: int
    headers: list[tuple[str, str]]
    body: AsyncIterator[bytes]


class Functions(Protocol):
    """The deployment's functions by logical id."""

    async def invoke(self, function: str, event: dict[str, Any]) -> Any:
        """Raises :class:`FunctionError`."""

    async def stream(self, function: str, event: dict[str, Any]) -> Streamed: ...


class Refused(Exception):
    """The gateway answers by itself."""

    def __init__(self, kind: str, message: str | None = None) -> None:
        self.status, default = _DEFAULTS[kind]
        super().__init__(message or default)
        self.kind = kind


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    query: str
    headers: list[tuple[str, str]]
    body: bytes

    def header(self, name: str) -> str | None:
        return next((value for key, value in self.headers if key.lower() == name.lower()), None)


@dataclass
class Bucket:
    """Tokens that come back with time."""

    rate: float
    burst: float
    clock: Callable[[], float]
    tokens: float = field(init=False)
    at: float = field(init=False)

    def __post_init__(self) -> None:
        self.tokens, self.at = self.burst, self.clock()

    def takes(self) -> bool:
        now = self.clock()
        self.tokens = min(self.burst, self.tokens + (now - self.at) * self.rate)
        self.at = now
        if self.tokens < 1:
            return False
        self.tokens -= 1
        return True


@dataclass(frozen=True)
class Route:
    resource: str
    method: str
    """``ANY``, or the one that it takes."""
    function: str
    is_streamed: bool
    timeout_seconds: float
    is_authorized: bool
    wants_key: bool
    mock: Mapping[str, Any] | None = None
    """The integration response of one that the gateway answers itself."""


class GatewayTwin:
    def __init__(
        self, template: Template, functions: Functions, *, clock: Callable[[], float] = time.monotonic, patience: float = 1
    ) -> None:
        """``patience`` stretches the timeouts: on a busy machine an emulator's functions take as long as they take."""
        self._template, self._functions, self._patience = template, functions, patience
        self._binary = [str(kind) for kind in template.one("AWS::ApiGateway::RestApi")[1].get("BinaryMediaTypes", [])]
        self._answers = {a["ResponseType"]: a for _, a in template.of_type("AWS::ApiGateway::GatewayResponse")}
        self._routes = _routes(template)
        self._authorizer = Authorizer(template, functions, clock) if any(r.is_authorized for r in self._routes.values()) else None
        self._throttles = _throttles(template, clock)
        self._plans = UsagePlans(template, clock)

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        request = await _read(scope, receive)
        try:
            await self._answer(request, send)
        except Refused as refused:
            await self._refuse(refused, request, send)

    async def _answer(self, request: Request, send: Any) -> None:
        if len(request.body) > REQUEST_BYTES_MAX:
            raise Refused("REQUEST_TOO_LARGE")
        route, parameters = self._route(request.method, request.path)
        throttle = self._throttles.get((route.resource, route.method)) or self._throttles.get(_EVERY_METHOD)
        if throttle and not throttle.takes():
            raise Refused("THROTTLED")
        if route.mock is not None:
            await _send(send, int(route.mock["StatusCode"]), _mocked(route.mock, request), b"")
            return
        allowed = await self._authorizer.check(request, route) if self._authorizer and route.is_authorized else {}
        if route.wants_key:
            self._plans.count(allowed.get("usageIdentifierKey"))
        event = self._event(request, route, parameters, allowed)
        if len(json.dumps(event)) > LAMBDA_BYTES_MAX:
            raise Refused("REQUEST_TOO_LARGE")
        if route.is_streamed:
            await self._stream(route, event, send)
        else:
            await self._buffer(route, event, request, send)

    def _route(self, method: str, path: str) -> tuple[Route, dict[str, str]]:
        """The most specific resource that takes the method: the whole path, else the longest prefix that has a greedy child."""
        segments = path.strip("/").split("/")
        for resource, parameters in _candidates(segments):
            route = self._routes.get((resource, method)) or self._routes.get((resource, "ANY"))
            if route is not None:
                return route, parameters
        raise Refused("MISSING_AUTHENTICATION_TOKEN")

    def _event(self, request: Request, route: Route, parameters: dict[str, str], allowed: Mapping[str, Any]) -> dict[str, Any]:
        is_binary = self._is_binary(request.header("content-type"))
        body = base64.b64encode(request.body).decode() if is_binary else request.body.decode("utf-8", "replace")
        context = {
            "resourcePath": route.resource,
            "httpMethod": request.method,
            "path": f"/{STAGE}{request.path}",
            "protocol": "HTTP/1.1",
            "stage": STAGE,
            "requestId": str(uuid.uuid4()),
            "accountId": ACCOUNT,
            "apiId": API_ID,
            "domainName": f"{API_ID}.execute-api.{REGION}.amazonaws.com",
            "requestTimeEpoch": int(time.time() * 1000),
            "identity": {"sourceIp": "203.0.113.7", "userAgent": request.header("user-agent")},
        }
        if allowed:
            context["authorizer"] = {**allowed.get("context", {}), "principalId": allowed["principalId"], "integrationLatency": 1}
        return _proxied(request, route) | {
            "pathParameters": parameters or None,
            "requestContext": context,
            "body": body or None,
            "isBase64Encoded": is_binary and bool(body),
        }

    def _is_binary(self, content_type: str | None) -> bool:
        kind = (content_type or "application/json").split(";")[0].strip().lower()
        return any(pattern in ("*/*", kind) for pattern in self._binary)

    async def _buffer(self, route: Route, event: dict[str, Any], request: Request, send: Any) -> None:
        try:
            answer = await asyncio.wait_for(self._functions.invoke(route.function, event), route.timeout_seconds * self._patience)
        except TimeoutError:
            raise Refused("INTEGRATION_TIMEOUT") from None
        except FunctionError:
            raise Refused("INTEGRATION_FAILURE") from None
        if not isinstance(answer, dict) or "statusCode" not in answer or len(json.dumps(answer)) > LAMBDA_BYTES_MAX:
            raise Refused("INTEGRATION_FAILURE")
        headers = [(name, value) for name, values in (answer.get("multiValueHeaders") or {}).items() for value in values]
        headers += [(n, str(v)) for n, v in (answer.get("headers") or {}).items() if n not in (answer.get("multiValueHeaders") or {})]
        body = (answer.get("body") or "").encode()
        if answer.get("isBase64Encoded") and self._is_binary((request.header("accept") or "").split(",")[0]):
            body = base64.b64decode(body)
        await _send(send, int(answer["statusCode"]), headers, body)

    async def _stream(self, route: Route, event: dict[str, Any], send: Any) -> None:
        deadline = asyncio.get_running_loop().time() + route.timeout_seconds
        try:
            answer = await asyncio.wait_for(self._functions.stream(route.function, event), route.timeout_seconds)
        except TimeoutError:
            raise Refused("INTEGRATION_TIMEOUT") from None
        except FunctionError:
            raise Refused("INTEGRATION_FAILURE") from None
        await send({"type": "http.response.start", "status": answer.status, "headers": _encoded(answer.headers)})
        async for chunk in answer.body:
            if asyncio.get_running_loop().time() > deadline:
                break
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    async def _refuse(self, refused: Refused, request: Request, send: Any) -> None:
        """The template's own answer for it, else the one for its class."""
        answer = self._answers.get(refused.kind) or self._answers.get(f"DEFAULT_{refused.status // 100}XX") or {}
        status = int(answer.get("StatusCode", refused.status))
        text = answer.get("ResponseTemplates", {}).get("application/json", '{"message":$context.error.messageString}')
        filled = (
            text.replace("$context.error.messageString", json.dumps(str(refused)))
            .replace("$context.httpMethod", request.method)
            .replace("$context.path", f"/{STAGE}{request.path}")
        )
        headers = [
            (name.removeprefix("gatewayresponse.header."), _mapped(value, request))
            for name, value in answer.get("ResponseParameters", {}).items()
        ]
        headers += [("content-type", "application/json"), ("x-amzn-errortype", refused.kind)]
        await _send(send, status, headers, filled.encode())


def _mapped(value: str, request: Request) -> str:
    """A static value, or a header of the request."""
    if value.startswith("'"):
        return value.strip("'")
    return request.header(value.removeprefix("method.request.header.")) or ""


_CHOICE = re.compile(r"#if\((?P<conditions>[^)]*)\)\s*#set\(\$context\.responseOverride\.header\.(?P<name>\S+) = \$origin\)")


def _mocked(response: Mapping[str, Any], request: Request) -> list[tuple[str, str]]:
    """Headers of a mock integration: its static ones, and the one that its template sets to the origin if that is a listed one."""
    headers = {
        name.removeprefix("method.response.header."): _mapped(value, request)
        for name, value in response.get("ResponseParameters", {}).items()
    }
    for text in response.get("ResponseTemplates", {}).values():
        found = _CHOICE.search(text)
        assert found, text
        if request.header("origin") in re.findall(r'\$origin == "([^"]*)"', found["conditions"]):
            headers[found["name"]] = request.header("origin") or ""
    return list(headers.items())


class Authorizer:
    """A REQUEST authorizer, whose answers are kept for as long as the template says under the values of the identity sources."""

    def __init__(self, template: Template, functions: Functions, clock: Callable[[], float]) -> None:
        _, properties = template.one("AWS::ApiGateway::Authorizer")
        assert properties["Type"] == "REQUEST"
        self._sources = [source.removeprefix("method.request.header.") for source in properties["IdentitySource"].split(",")]
        self._ttl = float(properties.get("AuthorizerResultTtlInSeconds", 300))
        self._function = _function_of(template, properties["AuthorizerUri"])
        self._functions, self._clock = functions, clock
        self._kept: dict[tuple[str, ...], tuple[float, dict[str, Any]]] = {}

    async def check(self, request: Request, route: Route) -> dict[str, Any]:
        identity = tuple(request.header(source) or "" for source in self._sources)
        if not all(identity):
            raise Refused("UNAUTHORIZED")
        method_arn = f"arn:aws:execute-api:{REGION}:{ACCOUNT}:{API_ID}/{STAGE}/{request.method}{request.path}"
        expires_at, answer = self._kept.get(identity, (0.0, {}))
        if self._clock() >= expires_at:
            answer = await self._ask(request, route, method_arn)
            self._kept[identity] = (self._clock() + self._ttl, answer)
        if not is_allowed(answer["policyDocument"], method_arn):
            raise Refused("ACCESS_DENIED")
        return answer

    async def _ask(self, request: Request, route: Route, method_arn: str) -> dict[str, Any]:
        event = _proxied(request, route) | {"type": "REQUEST", "methodArn": method_arn}
        try:
            answer = await self._functions.invoke(self._function, event)
        except FunctionError as error:
            raise Refused("UNAUTHORIZED" if str(error) == "Unauthorized" else "AUTHORIZER_FAILURE") from None
        if not isinstance(answer, dict) or not {"principalId", "policyDocument"} <= answer.keys():
            raise Refused("AUTHORIZER_CONFIGURATION_ERROR")
        if not all(isinstance(value, str | int | float | bool) for value in answer.get("context", {}).values()):
            raise Refused("AUTHORIZER_CONFIGURATION_ERROR")
        return answer


class UsagePlans:
    """Rates and quotas of the keys that the authorizer names."""

    def __init__(self, template: Template, clock: Callable[[], float]) -> None:
        plans = dict(template.of_type("AWS::ApiGateway::UsagePlan"))
        keys = dict(template.of_type("AWS::ApiGateway::ApiKey"))
        self._plan_of: dict[str, str] = {}
        for _, tie in template.of_type("AWS::ApiGateway::UsagePlanKey"):
            self._plan_of[keys[tie["KeyId"].strip("<>")]["Value"]] = tie["UsagePlanId"].strip("<>")
        self._quotas = {name: plan["Quota"]["Limit"] for name, plan in plans.items() if "Quota" in plan}
        self._throttles = {
            name: Bucket(plan["Throttle"]["RateLimit"], plan["Throttle"]["BurstLimit"], clock)
            for name, plan in plans.items()
            if "Throttle" in plan
        }
        self._used: dict[str, int] = {}

    def count(self, key: str | None) -> None:
        plan = self._plan_of.get(key or "")
        if plan is None:
            raise Refused("INVALID_API_KEY")
        if plan in self._throttles and not self._throttles[plan].takes():
            raise Refused("THROTTLED")
        self._used[plan] = self._used.get(plan, 0) + 1
        if self._used[plan] > self._quotas.get(plan, float("inf")):
            raise Refused("QUOTA_EXCEEDED")


def _candidates(segments: list[str]) -> Iterator[tuple[str, dict[str, str]]]:
    """Resources that a path may mean, the most specific first, and what they make of its rest."""
    yield f"/{'/'.join(segments)}", {}
    for length in range(len(segments) - 1, -1, -1):
        prefix = "".join(f"/{segment}" for segment in segments[:length])
        yield f"{prefix}/{{proxy+}}", {"proxy": "/".join(segments[length:])}


def _routes(template: Template) -> dict[tuple[str, str], Route]:
    """By resource and method."""
    resources = dict(template.of_type("AWS::ApiGateway::Resource"))

    def path(reference: str) -> str:
        properties = resources.get(reference.strip("<>"))
        return f"{path(properties['ParentId'])}/{properties['PathPart']}" if properties else ""

    callable_by_gateway = {
        _function_of(template, permission["FunctionName"])
        for _, permission in template.of_type("AWS::Lambda::Permission")
        if permission["Principal"] == "apigateway.amazonaws.com"
    }
    found = {}
    for _, method in template.of_type("AWS::ApiGateway::Method"):
        integration = method["Integration"]
        if integration["Type"] == "MOCK":
            (mock,) = integration["IntegrationResponses"]
            resource = path(method["ResourceId"])
            found[resource, method["HttpMethod"]] = Route(resource, method["HttpMethod"], "", False, 0, False, False, mock)
            continue
        function = _function_of(template, integration["Uri"])
        is_streamed = integration.get("ResponseTransferMode") == "STREAM"
        assert is_streamed == ("response-streaming-invocations" in integration["Uri"]), integration["Uri"]
        assert integration["Type"] == "AWS_PROXY"
        assert function in callable_by_gateway, f"{function} lets nobody call it"
        resource = path(method["ResourceId"])
        found[resource, method["HttpMethod"]] = Route(
            resource=resource,
            method=method["HttpMethod"],
            function=function,
            is_streamed=is_streamed,
            timeout_seconds=integration.get("TimeoutInMillis", 29_000) / 1000,
            is_authorized=method["AuthorizationType"] == "CUSTOM",
            wants_key=bool(method.get("ApiKeyRequired")),
        )
    return found


def _function_of(template: Template, text: str) -> str:
    """The logical id of the function that a URI or a reference names, through an alias if it names one."""
    for name in (part.split(">")[0].split(".")[0] for part in text.split("<")[1:]):
        resource = template.resources.get(name, {})
        if resource.get("Type") == "AWS::Lambda::Alias":
            return _function_of(template, str(template.resolve(resource["Properties"]["FunctionName"])))
        if resource.get("Type") == "AWS::Lambda::Function":
            return name
    raise AssertionError(f"no function in {text}")


def _throttles(template: Template, clock: Callable[[], float]) -> dict[tuple[str, str], Bucket]:
    """By resource and method. A method's own settings take the place of the stage's; ``~1`` is a slash in their paths."""
    _, stage = template.one("AWS::ApiGateway::Stage")
    return {
        (settings["ResourcePath"].removeprefix("/").replace("~1", "/"), settings["HttpMethod"]): Bucket(
            settings["ThrottlingRateLimit"], settings["ThrottlingBurstLimit"], clock
        )
        for settings in stage["MethodSettings"]
        if "ThrottlingRateLimit" in settings
    }


def is_allowed(policy: Mapping[str, Any], method_arn: str) -> bool:
    effects = {
        statement["Effect"]
        for statement in policy["Statement"]
        for resource in ([statement["Resource"]] if isinstance(statement["Resource"], str) else statement["Resource"])
        if fnmatchcase(method_arn, resource)
    }
    return "Allow" in effects and "Deny" not in effects


async def _read(scope: dict[str, Any], receive: Any) -> Request:
    body = b""
    while True:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body"):
            break
    headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in scope["headers"]]
    path = scope["path"].removeprefix(f"/{STAGE}") or "/"
    return Request(scope["method"], path, scope["query_string"].decode(), headers, body)


def _proxied(request: Request, route: Route) -> dict[str, Any]:
    """The part of an event that functions and authorizers get alike."""
    headers: dict[str, list[str]] = {}
    own = [
        ("X-Amzn-Trace-Id", f"Root=1-{int(time.time()):08x}-{uuid.uuid4().hex[:24]}"),
        ("X-Forwarded-For", "203.0.113.7"),
        ("X-Forwarded-Port", "443"),
        ("X-Forwarded-Proto", "https"),
    ]
    for name, value in [*request.headers, *own]:
        headers.setdefault(name, []).append(value)
    query: dict[str, list[str]] = {}
    for name, value in parse_qsl(request.query, keep_blank_values=True):
        query.setdefault(name, []).append(value)
    return {
        "resource": route.resource,
        "path": unquote(request.path),
        "httpMethod": request.method,
        "headers": {name: values[-1] for name, values in headers.items()},
        "multiValueHeaders": headers,
        "queryStringParameters": {name: values[-1] for name, values in query.items()} or None,
        "multiValueQueryStringParameters": query or None,
        "stageVariables": None,
    }


def _encoded(headers: list[tuple[str, str]]) -> list[tuple[bytes, bytes]]:
    return [(n.lower().encode("latin-1"), v.encode("latin-1")) for n, v in headers if n.lower() not in _NOT_PASSED_ON]


async def _send(send: Any, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
    await send({"type": "http.response.start", "status": status, "headers": _encoded([*headers])})
    await send({"type": "http.response.body", "body": body})
