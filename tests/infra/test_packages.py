"""What a package of functions keeps of what it is made of."""

import re
from pathlib import Path

from infra.bundling import BOTOCORE_SERVICES, PIN, RUNTIME_LOCK, SEARCH_PACKAGES
from tests.infra.conftest import Stacks

ROOT = Path(__file__).resolve().parents[2]
ELSEWHERE = ("moorage/cli/", "moorage/local/", "functions/custom_resource/", "functions/egress_proxy/", "functions/sandbox/")
"""Not in packages, or with all of the runtime's own botocore."""


def test_a_package_describes_every_service_that_its_code_asks() -> None:
    folders = (ROOT / "layers" / "core" / "python" / "moorage", ROOT / "functions")
    files = [path for folder in folders for path in folder.rglob("*.py") if not any(part in path.as_posix() for part in ELSEWHERE)]
    asked = {service for path in files for service in re.findall(r'(?:boto3\.|aws_)client\(\s*"([a-z0-9-]+)"', path.read_text())}
    assert {"dynamodb", "secretsmanager", "s3vectors", "apigatewaymanagementapi"} <= asked
    assert asked - set(BOTOCORE_SERVICES) == set()


def test_functions_that_search_have_the_packages_for_it(stacks: Stacks) -> None:
    searching = {
        re.sub(r"^Functions|^Loop|[0-9A-F]{8}$", "", name)
        for name, properties in stacks.of_type("AWS::Lambda::Function").items()
        if any("Search" in layer["Ref"] for layer in properties.get("Layers", []) if "Ref" in layer)
    }
    assert searching == {"Expiry", "IndexStep", "Responses", "ServiceStep"}


def test_a_lock_file_is_divided_between_the_layers() -> None:
    lines = [line for line in RUNTIME_LOCK.read_text().splitlines() if not line.startswith("#")]
    pins = list(PIN.finditer(RUNTIME_LOCK.read_text()))
    assert "".join(pin[0] for pin in pins).splitlines() == lines
    assert {*SEARCH_PACKAGES, "boto3", "fastapi", "pydantic"} <= {pin[1] for pin in pins}
