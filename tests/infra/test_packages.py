"""What a package of functions keeps of what it is made of."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from infra import bundling
from infra.bundling import BOTOCORE_SERVICES, HOOK_SERVICES, PIN, RUNTIME_LOCK, SDK_PACKAGES, SEARCH_PACKAGES, slim
from infra.config import ConfigError
from tests.infra.conftest import Stacks

ROOT = Path(__file__).resolve().parents[2]
ELSEWHERE = ("moorage/cli/", "moorage/local/", "functions/custom_resource/", "functions/egress_proxy/", "functions/sandbox/")
"""Not in packages, or with others."""


def test_a_package_describes_every_service_that_its_code_asks() -> None:
    folders = (ROOT / "layers" / "core" / "python" / "moorage", ROOT / "functions")
    files = [path for folder in folders for path in folder.rglob("*.py") if not any(part in path.as_posix() for part in ELSEWHERE)]
    asked = {service for path in files for service in re.findall(r'(?:boto3\.|aws_)client\(\s*"([a-z0-9-]+)"', path.read_text())}
    assert {"dynamodb", "secretsmanager", "s3vectors", "apigatewaymanagementapi"} <= asked
    assert asked - set(BOTOCORE_SERVICES) == set()


def test_the_function_of_custom_resources_has_an_sdk_that_describes_what_it_asks() -> None:
    text = (ROOT / "functions" / "custom_resource" / "handler.py").read_text()
    asked = set(re.findall(r'client\("([a-z0-9-]+)"\)', text))
    assert {"ec2", "s3vectors", "lambda-microvms"} <= asked
    assert asked == set(HOOK_SERVICES)


@pytest.mark.parametrize("which", ["stacks", "everything"])
def test_no_function_relies_on_the_sdk_of_the_runtime(which: str, request: pytest.FixtureRequest) -> None:
    """Its version depends on runtime and region (https://docs.aws.amazon.com/lambda/latest/dg/lambda-python.html)."""
    found: Stacks = request.getfixturevalue(which)
    for name, properties in found.of_type("AWS::Lambda::Function").items():
        layers = [layer["Ref"] for layer in properties.get("Layers", []) if "Ref" in layer]
        assert any(re.match("FunctionsDependencies|HooksSdk", layer) for layer in layers), name


def test_packages_have_the_newest_description_of_each_service(tmp_path: Path) -> None:
    for place in ("ec2/2016-09-15", "ec2/2016-11-15", "kms/2014-11-01", "sqs/2012-11-05"):
        (tmp_path / "botocore" / "data" / place).mkdir(parents=True)
    slim(tmp_path, ("ec2", "kms"))
    assert sorted(str(each.relative_to(tmp_path)) for each in tmp_path.glob("botocore/data/*/*")) == [
        "botocore/data/ec2/2016-11-15",
        "botocore/data/kms/2014-11-01",
    ]
    assert {each.name for each in tmp_path.glob("botocore/data/*")} == {"ec2", "kms"}


def test_byte_code_is_taken_wherever_and_whenever_an_archive_is_unpacked(tmp_path: Path) -> None:
    """Lambda unpacks code and layers elsewhere, with other times, and lets nobody write there."""
    built, opt = tmp_path / "built", tmp_path / "opt"
    built.mkdir()
    (built / "module.py").write_text("TEXT = 'compiled'")
    bundling.compile_modules(built, "host", "/opt")
    built.rename(opt)
    (opt / "module.py").write_text("TEXT = 'read'")
    os.utime(opt / "module.py", (0, 0))
    command = [sys.executable, "-B", "-c", "import module; print(module.TEXT, module.__file__)"]
    assert subprocess.run(command, cwd=opt, capture_output=True, text=True, check=True).stdout == f"compiled {opt}/module.py\n"


def test_a_module_that_cannot_be_compiled_stops_synthesis(tmp_path: Path) -> None:
    (tmp_path / "module.py").write_text("TEXT = (")
    with pytest.raises(ConfigError, match="could not be compiled"):
        bundling.compile_modules(tmp_path, "host", "/opt")


def test_byte_code_for_lambda_is_made_by_its_own_version_of_python(tmp_path: Path) -> None:
    others = [tmp_path / "none", tmp_path / "other"]
    others[1].write_text("#!/bin/sh\nexit 1\n")
    others[1].chmod(0o755)
    assert [bundling.is_as_in_lambda(str(each)) for each in others] == [False, False]
    assert bundling.is_as_in_lambda(sys.executable) == (sys.version_info[:2] == (3, 13))


def test_files_of_an_asset_can_be_read_by_the_users_of_functions_and_images(tmp_path: Path) -> None:
    """Checked out and built with a umask of 077. Lambda unpacks the modes of an archive
    (https://docs.aws.amazon.com/lambda/latest/dg/troubleshooting-deployment.html)."""

    def build(output: Path) -> None:
        (output / "package").mkdir(mode=0o700)
        for name, mode in (("package/module.py", 0o600), ("run.sh", 0o700), ("open.py", 0o644)):
            (output / name).write_text("")
            (output / name).chmod(mode)
        (output / "link").symlink_to("nowhere")

    tmp_path.chmod(0o700)
    assert bundling.LocalBundling(build).try_bundle(str(tmp_path))
    modes = {str(path.relative_to(tmp_path)): path.lstat().st_mode & 0o777 for path in (tmp_path, *tmp_path.rglob("*"))}
    assert modes == {".": 0o755, "package": 0o755, "package/module.py": 0o644, "run.sh": 0o755, "open.py": 0o644, "link": 0o777}


def test_no_code_is_uploaded_as_it_lies_in_the_checkout() -> None:
    assert [path.name for path in sorted((ROOT / "infra").glob("*.py")) if "from_asset(" in path.read_text()] == ["bundling.py"]


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
    assert {*SEARCH_PACKAGES, *SDK_PACKAGES, "fastapi", "pydantic"} <= {pin[1] for pin in pins}
