"""The second door: a WebSocket API, because API Gateway's REST APIs carry no WebSocket.

Every handshake, frame and end is an invocation of a small function; what runs on a connection runs in another one, which sends events
back through the gateway's management API. The stage is called ``responses``: a WebSocket API has no paths, and SDKs put that word
behind the address that they are given.
"""

from typing import Final

import aws_cdk as cdk
from aws_cdk import aws_apigatewayv2 as gateway
from aws_cdk import aws_certificatemanager as acm
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk.aws_apigatewayv2_authorizers import WebSocketLambdaAuthorizer
from aws_cdk.aws_apigatewayv2_integrations import WebSocketLambdaIntegration
from constructs import Construct, IConstruct

from infra.config import Config
from infra.endpoint import DUAL_STACK
from infra.functions import live, log_group
from infra.nag import acknowledge, acknowledge_wildcard

STAGE: Final = "responses"
DOOR_TIMEOUT: Final = cdk.Duration.seconds(29)
"""What the gateway waits for; a frame takes some milliseconds."""

WORK_ATTEMPTS: Final = 1
"""Beyond the first: the second run of a worker that has died closes its connection."""

WORK_AGE_MAX: Final = cdk.Duration.minutes(2)
"""Of a call for a worker that Lambda has no room for; its client waits meanwhile."""


class WebSocketDoor(Construct):
    """The API and its stage; the functions are joined to it when they are made, because they are told its address."""

    def __init__(self, scope: Construct, construct_id: str, *, config: Config, after: IConstruct) -> None:
        """``after`` is the REST API: it sets the role that API Gateway writes logs with, for all of the account."""
        super().__init__(scope, construct_id)
        self.api = gateway.WebSocketApi(
            self,
            "Api",
            api_name=f"{config.name}-websocket",
            description="The OpenAI Responses API over WebSocket",
            route_selection_expression="$request.body.type",  # no route has such a name: all frames are $default's
        )
        access_log = log_group(self, "AccessLog", config)
        self.stage = gateway.CfnStage(
            self,
            "Stage",
            api_id=self.api.api_id,
            stage_name=STAGE,
            auto_deploy=True,
            access_log_settings=gateway.CfnStage.AccessLogSettingsProperty(
                destination_arn=access_log.log_group_arn, format=cdk.Stack.of(self).to_json_string(_ACCESS_LOG)
            ),
            default_route_settings=gateway.CfnStage.RouteSettingsProperty(
                throttling_rate_limit=config.requests_per_second,
                throttling_burst_limit=config.request_burst,
                # Those of each route would be billed, as those of the REST API's methods (infra/api.py).
                detailed_metrics_enabled=False,
                logging_level="ERROR",
                data_trace_enabled=False,
            ),
        )

        self.stage.node.add_dependency(after)
        self._config = config
        if config.dual_stack:
            self._resource.ip_address_type = DUAL_STACK
        if config.websocket_domain_name:
            self._name(config.websocket_domain_name)

    @property
    def _resource(self) -> gateway.CfnApi:
        resource = self.api.node.default_child
        assert isinstance(resource, gateway.CfnApi)
        return resource

    def _name(self, name: str) -> None:
        """Close the gateway's own host. The stage stays the path, because SDKs go on with it."""
        assert self._config.websocket_certificate_arn is not None
        self._resource.disable_execute_api_endpoint = True
        domain = gateway.DomainName(
            self,
            "Domain",
            domain_name=name,
            certificate=acm.Certificate.from_certificate_arn(self, "Certificate", self._config.websocket_certificate_arn),
            security_policy=gateway.SecurityPolicy.TLS_1_2,
            ip_address_type=gateway.IpAddressType.DUAL_STACK if self._config.dual_stack else None,
        )
        mapping = gateway.CfnApiMapping(
            self, "Mapping", api_id=self.api.api_id, domain_name=domain.name, stage=STAGE, api_mapping_key=STAGE
        )
        mapping.node.add_dependency(self.stage)
        target = cdk.CfnOutput(self, "DomainTarget", value=domain.regional_domain_name, description="CNAME for WebSocket clients")
        target.override_logical_id("WebSocketDomainTarget")

    @property
    def address(self) -> str:
        """The address for clients."""
        name = self._config.websocket_domain_name
        return f"wss://{name}/{STAGE}" if name else f"{self.api.api_endpoint}/{STAGE}"

    @property
    def environment(self) -> dict[str, str]:
        """What both functions are told: a host that is closed answers the management API neither."""
        stack = cdk.Stack.of(self)
        host = self._config.websocket_domain_name or f"{self.api.api_id}.execute-api.{stack.region}.{stack.url_suffix}"
        return {"MOORAGE_WEBSOCKET_ENDPOINT": f"https://{host}/{STAGE}"}

    def join(self, door: lambda_.Function, work: lambda_.Function, authorizer: lambda_.Function | None) -> None:
        """Routes to the door, and the rights of both functions to connections."""
        integration = WebSocketLambdaIntegration("Door", live(door))
        identity = ["route.request.header.Authorization"]
        checked = WebSocketLambdaAuthorizer("Authorizer", authorizer, identity_source=identity) if authorizer else None
        for name in ("$connect", "$disconnect", "$default"):
            route = self.api.add_route(name, integration=integration, authorizer=checked if name == "$connect" else None)
            if name != "$connect":
                acknowledge(route, "AwsSolutions-APIG4", "A WebSocket API asks for the key at $connect; other routes follow from it.")
            elif checked is None:
                acknowledge(route, "AwsSolutions-APIG4", "authorizer: false is for emulators; the function checks every key itself.")
        for function in (door, work):
            self._allow_sending(function)
        worker = work.node.find_child("Live")
        assert isinstance(worker, lambda_.Alias)
        worker.grant_invoke(door)

    def _allow_sending(self, function: lambda_.Function) -> None:
        stack = cdk.Stack.of(self)
        connections = stack.format_arn(service="execute-api", resource=self.api.api_id, resource_name=f"{STAGE}/*/@connections/*")
        function.add_to_role_policy(iam.PolicyStatement(actions=["execute-api:ManageConnections"], resources=[connections]))
        assert function.role is not None
        acknowledge_wildcard(
            function.role,
            f"Resource::arn:{stack.partition}:execute-api:{stack.region}:{stack.account}:"
            f"<{stack.get_logical_id(self._resource)}>/{STAGE}/*/@connections/*",
            "Connections are named by the gateway when they are opened.",
        )


_ACCESS_LOG: Final = {
    "request_id": "$context.requestId",
    "time": "$context.requestTime",
    "event": "$context.eventType",
    "connection_id": "$context.connectionId",
    "status": "$context.status",
    "tenant_id": "$context.authorizer.tenantId",
    "integration_ms": "$context.integrationLatency",
    "error": "$context.error.responseType",
}
