"""The front door: a regional REST API with three functions behind it.

``responses`` streams: API Gateway passes on what the function writes while it writes it, for up to 15 minutes. ``containers`` and
``files`` answer in one piece. All three serve the same application; they differ in memory, rights and time.
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

from infra.config import Config
from infra.functions import log_group
from infra.nag import acknowledge

STAGE: Final = "api"
STREAM_TIMEOUT: Final = cdk.Duration.minutes(15)
STREAM_SECONDS_MAX: Final = 870
"""When the function ends an answer by itself, after a whole event and with the rest handed over: before Lambda does at 900."""

BUFFERED_TIMEOUT: Final = cdk.Duration.seconds(29)
"""What API Gateway waits for an answer in one piece, without a quota increase."""

_BUFFERED: Final = {"containers": ("containers",), "files": ("files", "uploads", "skills")}
"""Path segments under ``/v1`` by function; everything else is ``responses``."""


@dataclass(frozen=True)
class Handlers:
    responses: lambda_.Function
    containers: lambda_.Function
    files: lambda_.Function
    authorizer: lambda_.Function | None


class Api(Construct):
    """REST API, authorizer, throttling, access log, OpenAI-shaped gateway errors, and the optional domain and firewall."""

    def __init__(self, scope: Construct, construct_id: str, *, config: Config, handlers: Handlers) -> None:
        super().__init__(scope, construct_id)
        self._config = config
        access_log = log_group(self, "AccessLog", config)
        self.rest_api = apigateway.RestApi(
            self,
            "RestApi",
            rest_api_name=config.name,
            description="The OpenAI Responses API, self-hosted",
            endpoint_types=[apigateway.EndpointType.REGIONAL],  # edge-optimised ones cut a silent stream after 30 s
            binary_media_types=[] if config.streaming else ["*/*"],
            cloud_watch_role=True,
            cloud_watch_role_removal_policy=cdk.RemovalPolicy.RETAIN,
            disable_execute_api_endpoint=config.domain_name is not None,
            deploy_options=apigateway.StageOptions(
                stage_name=STAGE,
                access_log_destination=apigateway.LogGroupLogDestination(access_log),
                access_log_format=apigateway.AccessLogFormat.custom(json.dumps(_ACCESS_LOG)),
                logging_level=apigateway.MethodLoggingLevel.ERROR,
                data_trace_enabled=False,
                metrics_enabled=True,
                tracing_enabled=True,
                throttling_rate_limit=config.requests_per_second,
                throttling_burst_limit=config.request_burst,
            ),
        )
        self._authorizer = self._make_authorizer(handlers.authorizer)
        v1 = self.rest_api.root.add_resource("v1")
        self._route(v1, self._streaming(handlers.responses))
        for name, segments in _BUFFERED.items():
            function: lambda_.Function = getattr(handlers, name)
            integration = apigateway.LambdaIntegration(function, timeout=BUFFERED_TIMEOUT, allow_test_invoke=False)
            for segment in segments:
                resource = v1.add_resource(segment)
                self._methods(resource, integration)
                self._route(resource, integration)
        self._gateway_errors()
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
        if not config.waf:
            acknowledge(
                self.rest_api.deployment_stage,
                "AwsSolutions-APIG3",
                "WAF is an option (waf: true): it costs $5 a month at rest, and every request needs a key anyway.",
            )

    @property
    def base_url(self) -> str:
        """What a client's ``base_url`` is set to."""
        if self._config.domain_name:
            return f"https://{self._config.domain_name}/v1"
        return self.rest_api.url_for_path("/v1")

    def _streaming(self, function: lambda_.Function) -> apigateway.LambdaIntegration:
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
        )
        acknowledge(method, "AwsSolutions-COG4", "Callers are programs with keys of this deployment, not users of a Cognito pool.")
        if self._authorizer is None:
            acknowledge(method, "AwsSolutions-APIG4", "authorizer: false is for emulators; the application checks every key itself.")

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
        """What API Gateway answers by itself looks like OpenAI's errors too."""
        no_key = errors.invalid_api_key()
        table = {
            "UNAUTHORIZED": (apigateway.ResponseType.UNAUTHORIZED, no_key),
            "ACCESS_DENIED": (apigateway.ResponseType.ACCESS_DENIED, no_key),
            "THROTTLED": (
                apigateway.ResponseType.THROTTLED,
                errors.rate_limited("Too many requests reached this deployment at once. Please retry shortly.", 1),
            ),
            "REQUEST_TOO_LARGE": (apigateway.ResponseType.REQUEST_TOO_LARGE, errors.body_too_large(10 * 1000 * 1000)),
            # What the gateway calls a missing token is an address that it does not know, such as one without /v1.
            "UNKNOWN_URL": (
                apigateway.ResponseType.MISSING_AUTHENTICATION_TOKEN,
                errors.unknown_url("$context.httpMethod", "$context.path", ()),
            ),
            "DEFAULT_5XX": (apigateway.ResponseType.DEFAULT_5_XX, errors.server_error()),
        }
        for name, (kind, error) in table.items():
            self.rest_api.add_gateway_response(
                f"Error{name.title().replace('_', '')}",
                type=kind,
                status_code=str(error.status),
                templates={"application/json": json.dumps(error.envelope())},
            )

    def _domain(self) -> None:
        if self._config.domain_name is None:
            return
        assert self._config.certificate_arn is not None
        domain = self.rest_api.add_domain_name(
            "Domain",
            domain_name=self._config.domain_name,
            certificate=acm.Certificate.from_certificate_arn(self, "Certificate", self._config.certificate_arn),
            endpoint_type=apigateway.EndpointType.REGIONAL,
            security_policy=apigateway.SecurityPolicy.TLS_1_2,
        )
        cdk.CfnOutput(self, "DomainTarget", value=domain.domain_name_alias_domain_name, description="CNAME of the domain")

    def _firewall(self) -> None:
        if not self._config.waf:
            return
        acl = wafv2.CfnWebACL
        rules = acl(
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
                for priority, name in enumerate(("AWSManagedRulesAmazonIpReputationList", "AWSManagedRulesKnownBadInputsRuleSet"))
            ],
        )
        wafv2.CfnWebACLAssociation(
            self, "FirewallAssociation", resource_arn=self.rest_api.deployment_stage.stage_arn, web_acl_arn=rules.attr_arn
        )


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
