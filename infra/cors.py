"""What API Gateway itself says to pages of named origins: the answers to their preflights, and its errors.

A preflight comes without a key, so it reaches neither the authorizer nor a function. What the functions answer they name readable
themselves (``moorage/api/cors.py``).
"""

from collections.abc import Mapping, Sequence

from aws_cdk import aws_apigateway as apigateway
from moorage.wire.cross_origin import ALLOW_ORIGIN, PREFLIGHT, READABLE

from infra.nag import acknowledge


def answer_preflights(root: apigateway.Resource, origins: Sequence[str]) -> None:
    """``OPTIONS`` of this resource and of all below it."""
    for resource in [each for each in root.node.find_all() if isinstance(each, apigateway.Resource)]:
        method = resource.add_method(
            "OPTIONS",
            _integration(origins),
            authorization_type=apigateway.AuthorizationType.NONE,
            api_key_required=False,
            method_responses=[
                apigateway.MethodResponse(status_code="204", response_parameters={_header(name): True for name in _said(origins)})
            ],
        )
        reason = "A browser sends no key with a preflight, and the answer says nothing of anybody."
        acknowledge(method, "AwsSolutions-APIG4", reason)
        acknowledge(method, "AwsSolutions-COG4", reason)


def _integration(origins: Sequence[str]) -> apigateway.MockIntegration:
    """The first origin is told, unless the page has another one of them. The CDK's own template compares by a regular expression, in
    which a point is any character."""
    is_one = " || ".join(f'$origin == "{origin}"' for origin in origins)
    choice = (
        '#set($origin = $input.params().header.get("Origin"))\n'
        '#if(!$origin) #set($origin = $input.params().header.get("origin")) #end\n'
        f"#if({is_one})\n  #set($context.responseOverride.header.{ALLOW_ORIGIN} = $origin)\n#end\n"
    )
    return apigateway.MockIntegration(
        request_templates={"application/json": '{"statusCode": 204}'},
        integration_responses=[
            apigateway.IntegrationResponse(
                status_code="204",
                response_parameters={_header(name): value for name, value in quoted(_said(origins)).items()},
                response_templates={"application/json": choice},
            )
        ],
    )


def _said(origins: Sequence[str]) -> dict[str, str]:
    return {ALLOW_ORIGIN: origins[0], **PREFLIGHT}


def _header(name: str) -> str:
    return f"method.response.header.{name}"


def readable_by(origins: Sequence[str]) -> dict[str, str]:
    """Headers of the gateway's own errors. Its templates compare nothing there, so with several origins the page's own is said again,
    whichever it is: the errors hold nothing but the gateway's sentences."""
    if not origins:
        return {}
    origin = f"'{origins[0]}'" if len(origins) == 1 else "method.request.header.origin"
    return {ALLOW_ORIGIN: origin, **quoted({**READABLE, "vary": "origin"})}


def quoted(headers: Mapping[str, str]) -> dict[str, str]:
    """As static values of API Gateway."""
    return {name: f"'{value}'" for name, value in headers.items()}
