"""What the wire lets through, the egress check understands in the same way."""

from dataclasses import replace
from typing import Any

import pytest
from moorage.egress.policy import Policy, validate_request_policy
from moorage.egress.secrets import validate_domain_secrets
from moorage.wire.tools import parse_network_policy

CEILING = replace(Policy(), ceiling=("example.com", "*.example.com", "xn--bcher-kva.example"))

POLICIES: dict[str, dict[str, Any]] = {
    "no network": {"type": "disabled"},
    "domains in any case": {"type": "allowlist", "allowed_domains": ["API.Example.com.", "*.example.com", "bücher.example"]},
    "a secret of the request": {
        "type": "allowlist",
        "allowed_domains": ["api.example.com"],
        "domain_secrets": [{"domain": "api.example.com", "name": "TOKEN", "value": "v"}],
    },
    "a narrowed secret": {
        "type": "allowlist",
        "allowed_domains": ["*.example.com"],
        "domain_secrets": [
            {
                "domain": "api.example.com",
                "name": "TOKEN",
                "value": "v",
                "methods": ["GET", "POST"],
                "path_prefixes": ["/v1/"],
                "places": ["headers", "query"],
            }
        ],
    },
    "a secret of the operator": {
        "type": "allowlist",
        "allowed_domains": ["api.example.com"],
        "domain_secrets": [{"domain": "api.example.com", "name": "TOKEN"}],
    },
}


@pytest.mark.parametrize("given", POLICIES.values(), ids=POLICIES.keys())
def test_both_checks_read_a_policy_alike(given: dict[str, Any]) -> None:
    wire = parse_network_policy(given, "network_policy")
    egress = validate_request_policy(wire.to_json(), CEILING)
    secrets = validate_domain_secrets(wire.to_json(), egress)
    assert egress.domains == wire.allowed_domains
    assert [(each.domain, each.name, each.value, each.methods, each.path_prefixes) for each in secrets] == [
        (each.domain, each.name, each.value, each.methods, each.path_prefixes) for each in wire.domain_secrets
    ]
    assert [each.places for each in secrets] == [each.places or ("headers",) for each in wire.domain_secrets]
