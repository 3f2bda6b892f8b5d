"""What IAM lets the functions of a deployment with MicroVMs do to them, by the synthesised template."""

from collections.abc import Callable
from functools import cache
from typing import Final

import pytest

from tests.infra.conftest import MICROVMS, shared
from tests.twin.iam import Account
from tests.twin.microvms.service import ACCOUNT as TWIN
from tests.twin.microvms.service import CLOSED, POLICY
from tests.twin.template import ACCOUNT, REGION, Template

ROLES: Final = ("ToolStep", "Expiry")
"""Who starts, reaches and ends VMs, and who looks for lost ones: a local stack does both."""


def rights(folder: pytest.TempPathFactory) -> Callable[[str, str], bool]:
    """Whether one of both may do this to that, which the twin names in its own account."""
    stacks = shared({**MICROVMS, "allowed_egress_domains": ["pkg.example.com"]}, folder)
    account = Account(Template.of(stacks.state, stacks.service))
    connectors = {name.rpartition("-")[0].rpartition("-")[2]: arn for name, arn in connectors_of(account).items()}
    here = {CLOSED: connectors["closed"], POLICY: connectors["policy"]}
    roles = [account.roles()[name] for name in ROLES]

    @cache
    def may(action: str, resource: str) -> bool:
        arn = here.get(
            resource, resource.replace(TWIN, f"arn:aws:lambda:{REGION}:{ACCOUNT}").replace(":us-east-1:aws:", f":{REGION}:aws:")
        )
        return any(account.decides(role, action, arn, {}) for role in roles)

    return may


def connectors_of(account: Account) -> dict[str, str]:
    """The deployment's, by their names: ``moorage-closed-<edition>``."""
    return {properties["Name"]: f"<{name}.Arn>" for name, properties in account.template.of_type("AWS::Lambda::NetworkConnector")}
