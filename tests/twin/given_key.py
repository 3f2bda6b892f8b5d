"""The policy of a key that an owner gives a deployment (``kms_key_arn``): no template has it, so docs/aws_company.md does."""

import json
from typing import Any

from tests.infra.conftest import COMPANY, ROOT
from tests.twin.template import ACCOUNT, REGION

PAGE = ROOT / "docs" / "aws_company.md"
ARN: str = COMPANY["kms_key_arn"]


def policy() -> dict[str, Any]:
    """As the page has it, for the twin's account and region."""
    block = PAGE.read_text().partition("### The key's policy")[2].partition("```json\n")[2].partition("```")[0]
    found: dict[str, Any] = json.loads(block.replace("REGION", REGION).replace("ACCOUNT", ACCOUNT))
    return found
