"""The endpoint of the REST API: its TLS, its addresses, and whether it is on the internet at all."""

import json
from typing import Any, Final

from aws_cdk import aws_apigateway as apigateway
from constructs import Construct

from infra.config import Config

TLS_POLICIES: Final = {"1.2": "SecurityPolicy_TLS13_1_2_2021_06", "1.3": "SecurityPolicy_TLS13_1_3_2025_09"}
"""Both take TLS 1.3 (API Gateway developer guide, "Supported security policies")."""
STRICT: Final = "STRICT"
"""A request has to name the host that its TLS handshake named. AWS advises it with these policies."""
DUAL_STACK: Final = "dualstack"
PRIVATE: Final = "PRIVATE"


def set_endpoint(api: apigateway.RestApi, config: Config) -> None:
    """Parts without a setting are not in the template."""
    resource = api.node.default_child
    assert isinstance(resource, apigateway.CfnRestApi)
    _set_tls(resource, config)
    if config.dual_stack:
        resource.add_property_override("EndpointConfiguration.IpAddressType", DUAL_STACK)
    if config.private_api:
        # A private API has both kinds of address, and no other.
        resource.add_property_override(
            "EndpointConfiguration", {"Types": [PRIVATE], "IpAddressType": DUAL_STACK, "VpcEndpointIds": list(config.private_api)}
        )
        resource.policy = _from(config.private_api)


def set_domain(domain: apigateway.DomainName, config: Config) -> None:
    """The same for the custom domain."""
    resource = domain.node.default_child
    assert isinstance(resource, apigateway.CfnDomainName)
    _set_tls(resource, config)
    if config.dual_stack:
        resource.add_property_override("EndpointConfiguration.IpAddressType", DUAL_STACK)


def add_private_domain(scope: Construct, api: apigateway.RestApi, config: Config) -> None:
    """A name inside of the VPCs. Its TLS is 1.2, and AWS takes no other (API Gateway developer guide, "Custom domain names for private
    APIs"). API, name and endpoint each have to let a caller in."""
    domain = apigateway.CfnDomainNameV2(
        scope,
        "PrivateDomain",
        domain_name=config.domain_name,
        certificate_arn=config.certificate_arn,
        endpoint_configuration=apigateway.CfnDomainNameV2.EndpointConfigurationProperty(types=[PRIVATE], ip_address_type=DUAL_STACK),
        policy=json.dumps(_from(config.private_api)),
        security_policy="TLS_1_2",
    )
    stage = api.deployment_stage
    mapping = apigateway.CfnBasePathMappingV2(
        scope, "PrivateMapping", domain_name_arn=domain.attr_domain_name_arn, rest_api_id=api.rest_api_id, stage=stage.stage_name
    )
    mapping.node.add_dependency(stage)
    for endpoint in config.private_api:
        access = apigateway.CfnDomainNameAccessAssociation(
            scope,
            f"Access{endpoint}",
            domain_name_arn=domain.attr_domain_name_arn,
            access_association_source=endpoint,
            access_association_source_type="VPCE",
        )
        # Other tags would make it anew, while the older one still ties the same two.
        access.add_property_deletion_override("Tags")


def _set_tls(resource: apigateway.CfnRestApi | apigateway.CfnDomainName, config: Config) -> None:
    if config.tls_minimum:
        resource.security_policy = TLS_POLICIES[config.tls_minimum]
        resource.endpoint_access_mode = STRICT


def _from(endpoints: tuple[str, ...]) -> dict[str, Any]:
    """Nobody is let in by another way. The authorizer is asked after that."""
    return {
        "Version": "2012-10-17",
        "Statement": [
            {
                "Effect": "Allow",
                "Principal": "*",
                "Action": "execute-api:Invoke",
                "Resource": "execute-api:/*",
                "Condition": {"StringEquals": {"aws:SourceVpce": list(endpoints)}},
            }
        ],
    }
