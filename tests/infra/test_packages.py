"""What a package of functions keeps of what it is made of."""

import re
from pathlib import Path

from infra.bundling import BOTOCORE_SERVICES

ROOT = Path(__file__).resolve().parents[2]
ELSEWHERE = ("moorage/cli/", "moorage/local/", "functions/custom_resource/", "functions/egress_proxy/", "functions/sandbox/")
"""Not in packages, or with all of the runtime's own botocore."""


def test_a_package_describes_every_service_that_its_code_asks() -> None:
    folders = (ROOT / "layers" / "core" / "python" / "moorage", ROOT / "functions")
    files = [path for folder in folders for path in folder.rglob("*.py") if not any(part in path.as_posix() for part in ELSEWHERE)]
    asked = {service for path in files for service in re.findall(r'(?:boto3\.|aws_)client\(\s*"([a-z0-9-]+)"', path.read_text())}
    assert {"dynamodb", "secretsmanager", "s3vectors", "apigatewaymanagementapi"} <= asked
    assert asked - set(BOTOCORE_SERVICES) == set()
