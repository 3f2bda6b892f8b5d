"""What the templates deploy in front of the functions: routes, streaming, times, who may call, and who is counted."""

import json
from typing import Any

import pytest
from moorage.settings import usage_key

from tests.infra.conftest import NAMED, PRIVATE, Stacks, shared


def each_method(stacks: Stacks) -> dict[tuple[str, str], dict[str, Any]]:
    """API methods by path and verb."""
    resources = stacks.of_type("AWS::ApiGateway::Resource")

    def path(reference: dict[str, Any]) -> str:
        resource = resources.get(reference.get("Ref", ""))
        return f"{path(resource['ParentId'])}/{resource['PathPart']}" if resource else ""

    return {(path(m["ResourceId"]), m["HttpMethod"]): m for m in stacks.of_type("AWS::ApiGateway::Method").values()}


def methods(stacks: Stacks) -> dict[str, dict[str, Any]]:
    """The same by path, without preflights."""
    return {path: method for (path, verb), method in each_method(stacks).items() if verb != "OPTIONS"}


def test_responses_are_streamed_for_as_long_as_lambda_lives(stacks: Stacks) -> None:
    integration = methods(stacks)["/v1/{proxy+}"]["Integration"]
    assert integration["ResponseTransferMode"] == "STREAM"
    assert integration["TimeoutInMillis"] == 900_000
    assert "/response-streaming-invocations" in json.dumps(integration["Uri"])
    streaming = stacks.function("Responses")
    assert int(streaming["Environment"]["Variables"]["MOORAGE_STREAM_SECONDS_MAX"]) + 20 < streaming["Timeout"] == 900


@pytest.mark.parametrize("path", ["containers", "sessions", "processes", "files", "uploads", "skills"])
def test_resources_are_answered_in_one_piece(stacks: Stacks, path: str) -> None:
    for method in (methods(stacks)[f"/v1/{path}"], methods(stacks)[f"/v1/{path}/{{proxy+}}"]):
        assert "ResponseTransferMode" not in method["Integration"]
        assert method["Integration"]["TimeoutInMillis"] == 29_000


def test_uploads_reach_their_function_as_they_are_and_json_as_text(stacks: Stacks) -> None:
    """API Gateway reads a body as UTF-8 unless its type is named here, and what is none is lost without a word."""
    assert stacks.one("AWS::ApiGateway::RestApi")["BinaryMediaTypes"] == ["multipart/form-data", "application/octet-stream"]


def test_the_authorizer_has_time_for_the_first_token_of_a_process(stacks: Stacks) -> None:
    """A function has one processor with 1,769 MB, and a part of it with less
    (https://docs.aws.amazon.com/lambda/latest/dg/configuration-memory.html).

    Imports for tokens, and their clients, took 0.54 seconds of one without byte code. The gateway waits 29 seconds.
    """
    authorizer = stacks.function("Authorizer")
    assert authorizer["Timeout"] * authorizer["MemorySize"] / 1_769 >= 2 * 0.54
    assert authorizer["Timeout"] < 29


def test_every_method_asks_the_authorizer(stacks: Stacks) -> None:
    every = stacks.of_type("AWS::ApiGateway::Method").values()
    without = sorted(method["HttpMethod"] for method in every if method["AuthorizationType"] != "CUSTOM")
    open_paths = {path for path, method in methods(stacks).items() if method["AuthorizationType"] != "CUSTOM"}
    assert open_paths == {"/console", "/console/{proxy+}", "/approve/{proxy+}"}  # files, and what bears its key
    assert without == ["GET", "GET", "GET", "HEAD", "POST"]
    authorizer = stacks.one("AWS::ApiGateway::Authorizer")
    assert (authorizer["Type"], authorizer["IdentitySource"]) == ("REQUEST", "method.request.header.Authorization")
    assert authorizer["AuthorizerResultTtlInSeconds"] == 300


def test_strangers_at_the_approval_page_do_not_use_up_what_keys_need(stacks: Stacks) -> None:
    """Its methods ask for no key; the rest of the stage's throttle is for the others."""
    settings = {(each["ResourcePath"], each["HttpMethod"]): each for each in stacks.one("AWS::ApiGateway::Stage")["MethodSettings"]}
    rates = {place: (each["ThrottlingRateLimit"], each["ThrottlingBurstLimit"]) for place, each in settings.items()}
    page = {("/~1approve~1{proxy+}", verb): (5, 20) for verb in ("GET", "HEAD", "POST")}
    assert rates == {("/*", "*"): (50, 100), **page}


def test_no_metric_of_a_method_or_a_route_is_paid_for(everything: Stacks) -> None:
    """https://docs.aws.amazon.com/apigateway/latest/developerguide/apigateway-websocket-api-logging.html"""
    assert {each["MetricsEnabled"] for each in everything.one("AWS::ApiGateway::Stage")["MethodSettings"]} == {False}
    assert everything.one("AWS::ApiGatewayV2::Stage")["DefaultRouteSettings"]["DetailedMetricsEnabled"] is False


def test_the_api_is_regional_because_edge_cuts_silent_streams(stacks: Stacks) -> None:
    assert stacks.one("AWS::ApiGateway::RestApi")["EndpointConfiguration"] == {"Types": ["REGIONAL"]}


def test_old_tls_is_refused_at_the_gateways_host_and_at_the_domain(everything: Stacks) -> None:
    """The handshake at a custom domain is by the policy of the API (API Gateway developer guide, "How to change a security policy")."""
    for kind in ("AWS::ApiGateway::RestApi", "AWS::ApiGateway::DomainName"):
        found = everything.one(kind)
        assert (found["SecurityPolicy"], found["EndpointAccessMode"]) == ("SecurityPolicy_TLS13_1_2_2021_06", "STRICT")
    assert everything.one("AWS::ApiGateway::RestApi")["DisableExecuteApiEndpoint"] is True
    assert everything.service["Outputs"].keys() >= {"DomainTarget", "WebSocketDomainTarget"}


def test_a_private_api_lets_in_what_comes_through_its_endpoints_alone(tmp_path_factory: pytest.TempPathFactory) -> None:
    api = shared({"private_api": ["vpce-0123456789abcdef0"]}, tmp_path_factory).one("AWS::ApiGateway::RestApi")
    assert api["EndpointConfiguration"] == {
        "Types": ["PRIVATE"],
        "IpAddressType": "dualstack",
        "VpcEndpointIds": ["vpce-0123456789abcdef0"],
    }
    (statement,) = api["Policy"]["Statement"]
    assert statement == {
        "Effect": "Allow",
        "Principal": "*",
        "Action": "execute-api:Invoke",
        "Resource": "execute-api:/*",
        "Condition": {"StringEquals": {"aws:SourceVpce": ["vpce-0123456789abcdef0"]}},
    }
    assert api["DisableExecuteApiEndpoint"] is False


def test_a_private_api_has_a_name_for_its_endpoints_alone(tmp_path_factory: pytest.TempPathFactory) -> None:
    """API and name have a policy each. The gateway's own host stays for the same endpoints."""
    stacks = shared({**PRIVATE, **NAMED, "tls_minimum": "1.2"}, tmp_path_factory)
    api, domain = stacks.one("AWS::ApiGateway::RestApi"), stacks.one("AWS::ApiGateway::DomainNameV2")
    assert json.loads(domain.pop("Policy")) == api["Policy"]
    assert domain == {
        "DomainName": NAMED["domain_name"],
        "CertificateArn": NAMED["certificate_arn"],
        "EndpointConfiguration": {"Types": ["PRIVATE"], "IpAddressType": "dualstack"},
        "SecurityPolicy": "TLS_1_2",
        "Tags": [{"Key": "moorage:deployment", "Value": "moorage"}],
    }
    (name,) = stacks.of_type("AWS::ApiGateway::DomainNameV2")
    arn = {"Fn::GetAtt": [name, "DomainNameArn"]}
    mapping = stacks.one("AWS::ApiGateway::BasePathMappingV2")
    assert (mapping["DomainNameArn"], "BasePath" in mapping) == (arn, False)
    lets_in = stacks.of_type("AWS::ApiGateway::DomainNameAccessAssociation").values()
    assert [(each["DomainNameArn"], each["AccessAssociationSource"]) for each in lets_in] == [
        (arn, each) for each in PRIVATE["private_api"]
    ]
    assert (api["DisableExecuteApiEndpoint"], stacks.of_type("AWS::ApiGateway::DomainName")) == (False, {})
    assert stacks.service["Outputs"]["BaseUrl"]["Value"] == f"https://{NAMED['domain_name']}/v1"


def test_the_gateways_own_errors_look_like_openais(stacks: Stacks) -> None:
    for answer in stacks.of_type("AWS::ApiGateway::GatewayResponse").values():
        template = answer["ResponseTemplates"]["application/json"]
        error = json.loads(template.replace("$context.error.messageString", '"..."'))["error"]
        assert set(error) == {"message", "type", "param", "code"}


def test_the_gateway_answers_throttled_requests_with_a_retry_time(stacks: Stacks) -> None:
    answers = {a["ResponseType"]: a for a in stacks.of_type("AWS::ApiGateway::GatewayResponse").values()}
    codes = {
        kind: (a.get("StatusCode"), json.loads(a["ResponseTemplates"]["application/json"])["error"]["code"])
        for kind, a in answers.items()
        if kind != "DEFAULT_4XX"
    }
    assert codes == {
        "ACCESS_DENIED": ("401", "invalid_api_key"),
        "DEFAULT_5XX": ("500", "server_error"),
        "MISSING_AUTHENTICATION_TOKEN": ("404", "unknown_url"),
        "QUOTA_EXCEEDED": ("429", "insufficient_quota"),
        "REQUEST_TOO_LARGE": ("413", "request_too_large"),
        "RESOURCE_NOT_FOUND": ("404", "unknown_url"),
        "THROTTLED": ("429", "rate_limit_exceeded"),
        "UNAUTHORIZED": ("401", "invalid_api_key"),
        "WAF_FILTERED": ("403", None),
    }
    assert answers["THROTTLED"]["ResponseParameters"] == {"gatewayresponse.header.retry-after": "'1'"}
    assert answers["QUOTA_EXCEEDED"]["ResponseParameters"] == {"gatewayresponse.header.x-should-retry": "'false'"}
    assert "StatusCode" not in answers["DEFAULT_4XX"]
    assert '"message": $context.error.messageString' in answers["DEFAULT_4XX"]["ResponseTemplates"]["application/json"]


def test_tenants_of_a_tier_are_counted_apart_from_all_others(everything: Stacks) -> None:
    plans = everything.of_type("AWS::ApiGateway::UsagePlan")
    keys = everything.of_type("AWS::ApiGateway::ApiKey")
    held = {
        plans[tie["UsagePlanId"]["Ref"]]["UsagePlanName"]: keys[tie["KeyId"]["Ref"]]["Value"]
        for tie in everything.of_type("AWS::ApiGateway::UsagePlanKey").values()
    }
    limits = {plan["UsagePlanName"]: (plan.get("Throttle"), plan.get("Quota")) for plan in plans.values()}
    assert limits == {
        "moorage-others": (None, None),
        "moorage-research": ({"RateLimit": 5, "BurstLimit": 10}, {"Limit": 1000, "Period": "DAY"}),
    }
    assert held == {"moorage-others": usage_key("moorage", "*")}  # the others' are made by 'moorage keys create --tier'
    assert everything.one("AWS::ApiGateway::RestApi")["ApiKeySourceType"] == "AUTHORIZER"
    assert {m["ApiKeyRequired"] for path, m in methods(everything).items() if not path.startswith(("/console", "/approve"))} == {True}
    assert everything.function("Authorizer")["Environment"]["Variables"]["MOORAGE_USAGE_PLANS"] == "*,research"


def test_without_usage_plans_no_method_wants_a_key_of_the_gateways(stacks: Stacks) -> None:
    assert stacks.of_type("AWS::ApiGateway::UsagePlan") == {}
    assert not any(method.get("ApiKeyRequired") for method in methods(stacks).values())


def test_started_environments_wait_behind_the_streaming_route(everything: Stacks, stacks: Stacks) -> None:
    def kept(stacks: Stacks) -> Any:
        return stacks.one("AWS::Lambda::Alias", "Responses").get("ProvisionedConcurrencyConfig")

    uri = json.dumps(methods(everything)["/v1/{proxy+}"]["Integration"]["Uri"])
    assert kept(everything) == {"ProvisionedConcurrentExecutions": 2}
    assert "FunctionsResponsesLive" in uri
    assert "/response-streaming-invocations" in uri
    assert kept(stacks) is None


def test_the_firewall_bounds_each_address_and_says_so_as_the_api_does(everything: Stacks) -> None:
    """The stage's throttle counts all callers together, so one address could use it up for everybody."""
    firewall = everything.one("AWS::WAFv2::WebACL")
    rule = min(firewall["Rules"], key=lambda each: each["Priority"])
    block = rule["Action"]["Block"]["CustomResponse"]
    body = json.loads(firewall["CustomResponseBodies"][block["CustomResponseBodyKey"]]["Content"])
    assert (rule["Statement"]["RateBasedStatement"], block["ResponseCode"], body["error"]["code"]) == (
        {"AggregateKeyType": "IP", "EvaluationWindowSec": 300, "Limit": 2000},
        429,
        "rate_limit_exceeded",
    )


def test_preflights_are_answered_without_a_key_for_named_origins_alone(everything: Stacks, stacks: Stacks) -> None:
    """Below ``/v1``, on streaming and buffered routes. The comparison is of whole texts: a point in an origin is a point."""

    def preflights(stacks: Stacks) -> dict[str, dict[str, Any]]:
        return {path: method for (path, verb), method in each_method(stacks).items() if verb == "OPTIONS"}

    taking = {path for (path, verb) in each_method(everything) if path.startswith("/v1") and verb == "ANY"}
    answered = preflights(everything)
    assert (set(answered) - {"/v1"}, preflights(stacks)) == (taking, {})
    for method in answered.values():
        (response,) = method["Integration"]["IntegrationResponses"]
        assert (method["AuthorizationType"], method["ApiKeyRequired"], method["Integration"]["Type"]) == ("NONE", False, "MOCK")
        assert response["ResponseParameters"] == {
            "method.response.header.access-control-allow-origin": "'https://app.example.com'",
            "method.response.header.access-control-allow-methods": "'GET, HEAD, POST, DELETE'",
            "method.response.header.access-control-allow-headers": "'authorization, *'",
            "method.response.header.access-control-max-age": "'7200'",
            "method.response.header.vary": "'origin'",
        }
        assert (
            '#if($origin == "https://app.example.com" || $origin == "https://desk.example.com:8443")'
            in (response["ResponseTemplates"]["application/json"])
        )
    readable = {
        "gatewayresponse.header.access-control-allow-origin": "method.request.header.origin",
        "gatewayresponse.header.vary": "'origin'",
    }
    for answer in everything.of_type("AWS::ApiGateway::GatewayResponse").values():
        assert readable.items() <= answer["ResponseParameters"].items()
