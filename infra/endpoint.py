"""How the REST API is reached: by which TLS, by which addresses, and whether from the internet at all."""

from typing import Any, Final

from aws_cdk import aws_apigateway as apigateway

from infra.config import Config

TLS_POLICIES: Final = {"1.2": "SecurityPolicy_TLS13_1_2_2021_06", "1.3": "SecurityPolicy_TLS13_1_3_2025_09"}
"""Both take TLS 1.3 (API Gateway developer guide, "Supported security policies")."""
STRICT: Final = "STRICT"
"""A request has to name the host that its TLS handshake named. AWS advises it with these policies."""
DUAL_STACK: Final = "dualstack"


def set_endpoint(api: apigateway.RestApi, config: Config) -> None:
    """What is not asked for is not in the template."""
    resource = api.node.default_child
    assert isinstance(resource, apigateway.CfnRestApi)
    _set_tls(resource, config)
    if config.dual_stack:
        resource.add_property_override("EndpointConfiguration.IpAddressType", DUAL_STACK)
    if config.private_api:
        # A private API has both kinds of address, and no other.
        resource.add_property_override(
            "EndpointConfiguration", {"Types": ["PRIVATE"], "IpAddressType": DUAL_STACK, "VpcEndpointIds": list(config.private_api)}
        )
        resource.policy = _from(config.private_api)


def set_domain(domain: apigateway.DomainName, config: Config) -> None:
    """The same for the custom domain."""
    resource = domain.node.default_child
    assert isinstance(resource, apigateway.CfnDomainName)
    _set_tls(resource, config)
    if config.dual_stack:
        resource.add_property_override("EndpointConfiguration.IpAddressType", DUAL_STACK)


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
