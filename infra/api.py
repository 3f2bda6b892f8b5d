"""The front door: a regional REST API with four functions behind it.

``responses`` streams: API Gateway passes on what the function writes while it writes it, for up to 15 minutes. ``containers``,
``sessions`` and ``files`` answer in one piece. All serve the same application; they differ in memory, rights, time and place:
``sessions`` alone is inside the sandboxes' network, if there is one.
"""

import json
from dataclasses import dataclass
from typing import Final

import aws_cdk as cdk
from aws_cdk import aws_apigateway as apigateway
from aws_cdk import aws_certificatemanager as acm
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_wafv2 as wafv2
from constructs import Construct
from moorage import errors
from moorage.settings import usage_key

from infra.config import Config, UsagePlan
from infra.cors import answer_preflights, quoted, readable_by
from infra.custom_resource import CustomResources
from infra.endpoint import add_private_domain, set_domain, set_endpoint
from infra.functions import live, log_group
from infra.nag import acknowledge

STAGE: Final = "api"
STREAM_TIMEOUT: Final = cdk.Duration.minutes(15)
STREAM_SECONDS_MAX: Final = 870
"""When the function ends an answer by itself, after a whole event and with the rest handed over: before Lambda does at 900."""

BUFFERED_TIMEOUT: Final = cdk.Duration.seconds(29)
"""What API Gateway waits for an answer in one piece, without a quota increase."""

_BUFFERED: Final = {"containers": ("containers",), "sessions": ("sessions", "processes"), "files": ("files", "uploads", "skills")}
"""Path segments under ``/v1`` by function; everything else is ``responses``."""
_BUFFERED_OF_BOTH: Final = {"containers": ("containers", "sessions", "processes"), "files": ("files", "uploads", "skills")}
"""Where MicroVMs are beside Fargate: the function that reaches them is asked first (``moorage/api/inside_relay.py``)."""

LAMBDA_PAYLOAD_BYTES_MAX: Final = 6 * 1024 * 1024
"""Of one request (Lambda quotas). API Gateway takes 10 MB, so this is what a body meets."""

BINARY_MEDIA_TYPES: Final = ("multipart/form-data", "application/octet-stream")
"""Bodies that come to a function as they are. API Gateway reads all others as UTF-8 text, and what is none is lost on the way: uploads
have to be named here, also where other routes stream. ``*/*`` would take in JSON too, and base64 would leave 4.5 MB of the 6 MB."""

OTHERS: Final = "*"
"""The usage plan of all tenants without a tier, together."""


@dataclass(frozen=True)
class Handlers:
    responses: lambda_.Function
    containers: lambda_.Function
    sessions: lambda_.Function
    files: lambda_.Function
    authorizer: lambda_.Function | None

    @property
    def all(self) -> list[lambda_.Function]:
        return [each for each in (self.responses, self.containers, self.sessions, self.files, self.authorizer) if each]


class Api(Construct):
    """REST API, authorizer, throttling, access log, OpenAI-shaped gateway errors, and the optional usage plans, domain and firewall."""

    def __init__(self, scope: Construct, construct_id: str, *, config: Config, handlers: Handlers, hooks: CustomResources) -> None:
        super().__init__(scope, construct_id)
        self._config = config
        access_log = log_group(self, "AccessLog", config)
        self.rest_api = apigateway.RestApi(
            self,
            "RestApi",
            rest_api_name=config.name,
            description="The OpenAI Responses API, self-hosted",
            endpoint_types=[apigateway.EndpointType.REGIONAL],  # edge-optimised ones cut a silent stream after 30 s
            binary_media_types=[*BINARY_MEDIA_TYPES],
            api_key_source_type=apigateway.ApiKeySourceType.AUTHORIZER if config.usage_plans else None,
            cloud_watch_role=True,
            cloud_watch_role_removal_policy=cdk.RemovalPolicy.RETAIN,
            # A private API keeps its own host, for the same endpoints.
            disable_execute_api_endpoint=config.domain_name is not None and not config.private_api,
            deploy_options=apigateway.StageOptions(
                stage_name=STAGE,
                access_log_destination=apigateway.LogGroupLogDestination(access_log),
                access_log_format=apigateway.AccessLogFormat.custom(json.dumps(_ACCESS_LOG)),
                logging_level=apigateway.MethodLoggingLevel.ERROR,
                data_trace_enabled=False,
                # The API's own metrics cost nothing; those of each method would be custom metrics, $0.30 a month each.
                metrics_enabled=False,
                tracing_enabled=True,
                throttling_rate_limit=config.requests_per_second,
                throttling_burst_limit=config.request_burst,
                method_options=_approval_throttle(config),
            ),
        )
        set_endpoint(self.rest_api, config)
        self._bound_error_log(hooks)
        self._authorizer = self._make_authorizer(handlers.authorizer)
        v1 = self.rest_api.root.add_resource("v1")
        streaming = self._streaming(live(handlers.responses, provisioned=config.provisioned_concurrency))
        self._route(v1, streaming)
        self._console(streaming)
        self._approval_page(streaming)
        for name, segments in (_BUFFERED_OF_BOTH if config.has_both else _BUFFERED).items():
            function: lambda_.Function = getattr(handlers, name)
            integration = apigateway.LambdaIntegration(live(function), timeout=BUFFERED_TIMEOUT, allow_test_invoke=False)
            for segment in segments:
                resource = v1.add_resource(segment)
                self._methods(resource, integration)
                self._route(resource, integration)
        if config.settings.cors_origins:
            answer_preflights(v1, config.settings.cors_origins)
        self._gateway_errors()
        self._usage_plans()
        self._domain()
        self._firewall()
        acknowledge(
            self.rest_api,
            "AwsSolutions-APIG2",
            "Bodies are validated by the application, which answers in OpenAI's error shape and names the parameter.",
        )
        acknowledge(
            self.rest_api,
            "AwsSolutions-IAM4[Policy::arn:<AWS::Partition>:iam::aws:policy/service-role/AmazonAPIGatewayPushToCloudWatchLogs]",
            "API Gateway's account-wide logging role takes this managed policy (API Gateway developer guide).",
        )
        if not (config.waf or config.waf_acl_arn):
            acknowledge(
                self.rest_api.deployment_stage,
                "AwsSolutions-APIG3",
                "WAF is an option (waf: true): it costs $5 a month at rest, and every request needs a key anyway.",
            )

    @property
    def base_url(self) -> str:
        """The value of a client's ``base_url``."""
        if self._config.domain_name:
            return f"https://{self._config.domain_name}/v1"
        return self.rest_api.url_for_path("/v1")

    def _bound_error_log(self, hooks: CustomResources) -> None:
        """API Gateway chooses the name (its developer guide, "Execution logging for REST APIs")."""
        api_id = cdk.Stack.of(self).get_logical_id(self.rest_api.node.default_child)  # type: ignore[arg-type]
        name, printed = (f"API-Gateway-Execution-Logs_{each}/{STAGE}" for each in (self.rest_api.rest_api_id, f"<{api_id}>"))
        logs = hooks.stage_logs(name, days=self._config.log_retention_days, printed=printed)
        self.rest_api.deployment_stage.node.add_dependency(logs)

    def _streaming(self, function: lambda_.IFunction) -> apigateway.LambdaIntegration:
        if not self._config.streaming:
            return apigateway.LambdaIntegration(function, timeout=BUFFERED_TIMEOUT, allow_test_invoke=False)
        return apigateway.LambdaIntegration(
            function,
            response_transfer_mode=apigateway.ResponseTransferMode.STREAM,
            timeout=STREAM_TIMEOUT,
            allow_test_invoke=False,
        )

    def _route(self, resource: apigateway.Resource, integration: apigateway.LambdaIntegration) -> None:
        self._methods(resource.add_resource("{proxy+}"), integration)

    def _methods(self, resource: apigateway.Resource, integration: apigateway.LambdaIntegration) -> None:
        method = resource.add_method(
            "ANY",
            integration,
            authorizer=self._authorizer,
            authorization_type=apigateway.AuthorizationType.CUSTOM if self._authorizer else apigateway.AuthorizationType.NONE,
            api_key_required=True if self._config.usage_plans else None,
        )
        acknowledge(method, "AwsSolutions-COG4", "Callers are programs with keys of this deployment, not users of a Cognito pool.")
        if self._authorizer is None:
            acknowledge(method, "AwsSolutions-APIG4", "authorizer: false is for emulators; the application checks every key itself.")

    def _console(self, integration: apigateway.LambdaIntegration) -> None:
        """Files for browsers, before they have a key. They can be read and nothing else."""
        console = self.rest_api.root.add_resource("console")
        for resource in (console, console.add_resource("{proxy+}")):
            method = resource.add_method("GET", integration, authorization_type=apigateway.AuthorizationType.NONE)
            _leave_open(method, "The console's own files say nothing of anybody; what they show they ask of /v1, with a key.")

    def _approval_page(self, integration: apigateway.LambdaIntegration) -> None:
        """The pages behind a link: the link itself is the key, for one decision."""
        page = self.rest_api.root.add_resource("approve").add_resource("{proxy+}")
        reason = "The last part of the address is a sealed, expiring token for one decision, which the application opens and checks."
        for verb in _APPROVAL_METHODS:
            _leave_open(page.add_method(verb, integration, authorization_type=apigateway.AuthorizationType.NONE), reason)

    def _make_authorizer(self, function: lambda_.Function | None) -> apigateway.RequestAuthorizer | None:
        if function is None:
            return None
        return apigateway.RequestAuthorizer(
            self,
            "Authorizer",
            handler=function,
            identity_sources=[apigateway.IdentitySource.header("Authorization")],
            results_cache_ttl=cdk.Duration.seconds(self._config.authorizer_cache_seconds),
        )

    def _gateway_errors(self) -> None:
        """API Gateway's own answers look like OpenAI's errors too."""
        no_key = errors.invalid_api_key()
        no_route = errors.unknown_url("$context.httpMethod", "$context.path", ())
        kind = apigateway.ResponseType
        table = {
            "UNAUTHORIZED": (kind.UNAUTHORIZED, no_key),
            "ACCESS_DENIED": (kind.ACCESS_DENIED, no_key),
            # What the gateway calls a missing token is an address that it does not know, such as one without /v1.
            "MISSING_AUTHENTICATION_TOKEN": (kind.MISSING_AUTHENTICATION_TOKEN, no_route),
            "RESOURCE_NOT_FOUND": (kind.RESOURCE_NOT_FOUND, no_route),
            "THROTTLED": (
                kind.THROTTLED,
                errors.rate_limited("Too many requests reached this deployment at once. Please retry shortly.", 1),
            ),
            "QUOTA_EXCEEDED": (kind.QUOTA_EXCEEDED, errors.quota_used_up()),
            "REQUEST_TOO_LARGE": (kind.REQUEST_TOO_LARGE, errors.body_too_large(LAMBDA_PAYLOAD_BYTES_MAX)),
            "WAF_FILTERED": (kind.WAF_FILTERED, errors.ApiError(403, "The deployment's firewall refused this request.")),
            # Most often the function's share of the concurrency is used up (stacks.py: streams_percent); clients then try again.
            "DEFAULT_5XX": (kind.DEFAULT_5_XX, _after_a_second(errors.server_error())),
        }
        readable = readable_by(self._config.settings.cors_origins)
        for name, (response_type, error) in table.items():
            self.rest_api.add_gateway_response(
                f"Error{name.title().replace('_', '')}",
                type=response_type,
                status_code=str(error.status),
                response_headers={**quoted(error.headers), **readable} or None,
                templates={"application/json": json.dumps(error.envelope())},
            )
        # All others keep their status. The placeholder is API Gateway's own sentence, quotes included.
        others = json.dumps(errors.bad_request("<>").envelope()).replace('"<>"', "$context.error.messageString")
        self.rest_api.add_gateway_response(
            "ErrorDefault4Xx", type=kind.DEFAULT_4_XX, response_headers=readable or None, templates={"application/json": others}
        )

    def _usage_plans(self) -> None:
        """A plan for each tier, and one with its key for all tenants without a tier: the authorizer names the key of each request.

        The keys of tenants in a tier are no part of the template: ``moorage keys create --tier`` makes one with a tenant's first key.
        """
        plans = self._config.usage_plans
        if not plans:
            return
        for number, (name, plan) in enumerate({OTHERS: UsagePlan(), **plans}.items()):
            made = self.rest_api.add_usage_plan(
                f"UsagePlan{number}",
                name=f"{self._config.name}-{'others' if name == OTHERS else name}",
                description="Every tenant without a tier" if name == OTHERS else f"Each tenant of the tier {name}",
                throttle=apigateway.ThrottleSettings(rate_limit=plan.requests_per_second, burst_limit=plan.request_burst)
                if plan.requests_per_second
                else None,
                quota=apigateway.QuotaSettings(limit=plan.requests_per_day, period=apigateway.Period.DAY)
                if plan.requests_per_day
                else None,
                api_stages=[apigateway.UsagePlanPerApiStage(api=self.rest_api, stage=self.rest_api.deployment_stage)],
            )
            if name != OTHERS:
                continue
            key = self.rest_api.add_api_key(
                "UsageKeyOthers",
                api_key_name=f"{self._config.name}-others",
                description="Counts requests; nobody sends it, and it opens nothing",
                value=usage_key(self._config.name, OTHERS),
            )
            made.add_api_key(key)

    def _domain(self) -> None:
        if self._config.domain_name is None:
            return
        if self._config.private_api:
            add_private_domain(self, self.rest_api, self._config)
            return
        assert self._config.certificate_arn is not None
        domain = self.rest_api.add_domain_name(
            "Domain",
            domain_name=self._config.domain_name,
            certificate=acm.Certificate.from_certificate_arn(self, "Certificate", self._config.certificate_arn),
            endpoint_type=apigateway.EndpointType.REGIONAL,
            security_policy=apigateway.SecurityPolicy.TLS_1_2,
        )
        set_domain(domain, self._config)
        target = cdk.CfnOutput(self, "DomainTarget", value=domain.domain_name_alias_domain_name, description="CNAME of the domain")
        target.override_logical_id("DomainTarget")

    def _firewall(self) -> None:
        arn = self._make_firewall() if self._config.waf else self._config.waf_acl_arn
        if arn:
            stage = self.rest_api.deployment_stage.stage_arn
            wafv2.CfnWebACLAssociation(self, "FirewallAssociation", resource_arn=stage, web_acl_arn=arn)

    def _make_firewall(self) -> str:
        acl = wafv2.CfnWebACL
        made = acl(
            self,
            "Firewall",
            scope="REGIONAL",
            default_action=acl.DefaultActionProperty(allow={}),
            visibility_config=acl.VisibilityConfigProperty(
                cloud_watch_metrics_enabled=True, metric_name=self._config.name, sampled_requests_enabled=False
            ),
            rules=[
                acl.RuleProperty(
                    name=name,
                    priority=priority,
                    override_action=acl.OverrideActionProperty(none={}),
                    statement=acl.StatementProperty(
                        managed_rule_group_statement=acl.ManagedRuleGroupStatementProperty(name=name, vendor_name="AWS")
                    ),
                    visibility_config=acl.VisibilityConfigProperty(
                        cloud_watch_metrics_enabled=True, metric_name=name, sampled_requests_enabled=False
                    ),
                )
                # The core rule set is left out: it refuses bodies over 8 KB and code in them, which is what prompts are.
                for priority, name in enumerate(("AWSManagedRulesAmazonIpReputationList", "AWSManagedRulesKnownBadInputsRuleSet"), 1)
            ]
            + [_address_rule(self._config.waf_address_requests)],
            custom_response_bodies={
                _TOO_MANY: acl.CustomResponseBodyProperty(
                    content_type="APPLICATION_JSON", content=json.dumps({"error": _TOO_MANY_ERROR})
                )
            },
        )
        return made.attr_arn


_APPROVAL_METHODS: Final = ("GET", "HEAD", "POST")
_APPROVALS_PER_SECOND: Final = 5
_APPROVALS_BURST: Final = 20
"""Of people who open a link, or send a decision."""


def _approval_throttle(config: Config) -> dict[str, apigateway.MethodDeploymentOptions]:
    """What asks for no key gets a part of the stage's throttle: strangers who call it cannot use up what keys need."""
    options = apigateway.MethodDeploymentOptions(
        logging_level=apigateway.MethodLoggingLevel.ERROR,
        data_trace_enabled=False,
        metrics_enabled=False,
        throttling_rate_limit=min(_APPROVALS_PER_SECOND, config.requests_per_second),
        throttling_burst_limit=min(_APPROVALS_BURST, config.request_burst),
    )
    return {f"/approve/{{proxy+}}/{verb}": options for verb in _APPROVAL_METHODS}


_TOO_MANY: Final = "TooManyRequests"
_TOO_MANY_ERROR: Final = {
    "message": "Too many requests came from this address. Wait some minutes and send it again.",
    "type": "rate_limit_error",
    "param": None,
    "code": "rate_limit_exceeded",
}


def _address_rule(requests_max: int) -> wafv2.CfnWebACL.RuleProperty:
    """Bound each address in five minutes: the stage's throttle counts all callers together, those without a key too."""
    acl = wafv2.CfnWebACL
    response = acl.CustomResponseProperty(response_code=429, custom_response_body_key=_TOO_MANY)
    return acl.RuleProperty(
        name="Addresses",
        priority=0,
        action=acl.RuleActionProperty(block=acl.BlockActionProperty(custom_response=response)),
        statement=acl.StatementProperty(
            rate_based_statement=acl.RateBasedStatementProperty(limit=requests_max, aggregate_key_type="IP", evaluation_window_sec=300)
        ),
        visibility_config=acl.VisibilityConfigProperty(
            cloud_watch_metrics_enabled=True, metric_name="Addresses", sampled_requests_enabled=False
        ),
    )


def _leave_open(method: apigateway.Method, reason: str) -> None:
    """Tell both linters why it has no authorizer. checkov's word stands in the template, and for this method alone."""
    acknowledge(method, "AwsSolutions-APIG4", reason)
    acknowledge(method, "AwsSolutions-COG4", reason)
    resource = method.node.default_child
    assert isinstance(resource, cdk.CfnResource)
    resource.add_metadata("checkov", {"skip": [{"id": "CKV_AWS_59", "comment": reason}]})


def _after_a_second(error: errors.ApiError) -> errors.ApiError:
    return errors.ApiError(error.status, error.message, type=error.type, code=error.code, headers={"retry-after": "1"})


_ACCESS_LOG: Final = {
    "request_id": "$context.requestId",
    "time": "$context.requestTime",
    "method": "$context.httpMethod",
    "path": "$context.resourcePath",
    "status": "$context.status",
    "tenant_id": "$context.authorizer.tenantId",
    "duration_ms": "$context.responseLatency",
    "integration_ms": "$context.integration.latency",
    "bytes": "$context.responseLength",
    "error": "$context.error.responseType",
}
