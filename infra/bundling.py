"""Packages for Lambda without Docker: uv fetches wheels for the target, the rest is copied.

CDK calls :class:`LocalBundling` instead of starting a container; if it fails, synthesis fails with uv's own words. An asset's
hash is taken over what goes in (sources, lock file, target), so an unchanged package is neither built nor uploaded again.
"""

import hashlib
import os
import re
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal

import aws_cdk as cdk
import jsii
from aws_cdk import aws_lambda as lambda_

from infra.config import ConfigError

ROOT: Final = Path(__file__).resolve().parent.parent
CONSOLE_LIBRARIES: Final = ROOT / ".build" / "console" / "vendor"
RUNTIME: Final = lambda_.Runtime.PYTHON_3_13
_PLATFORM: Final = ("--python-platform", "aarch64-manylinux_2_28", "--python-version", "3.13", "--only-binary", ":all:")
"""Lambda's Python 3.13 runs on Amazon Linux 2023 (glibc 2.34), so wheels of manylinux 2.28 load."""

BOTOCORE_SERVICES: Final = (
    "apigatewaymanagementapi",
    "bedrock-runtime",
    "dynamodb",
    "ecs",
    "kms",
    "lambda",
    "lambda-core",
    "lambda-microvms",
    "logs",
    "s3",
    "s3vectors",
    "secretsmanager",
    "ssm",
    "stepfunctions",
    "sts",
)
"""botocore carries 27 MB of service descriptions; a package keeps those of the services that moorage calls."""

HOOK_SERVICES: Final = ("codebuild", "ec2", "ecs", "kms", "lambda", "lambda-microvms", "logs", "s3", "s3vectors", "secretsmanager")
"""What the function of custom resources calls. The SDK of Lambda's runtime depends on the region, and may know no service of this year
(Lambda developer guide, "Runtime-included SDK versions")."""

SDK_PACKAGES: Final = ("boto3", "botocore", "jmespath", "python-dateutil", "s3transfer", "six", "urllib3")

SEARCH_PACKAGES: Final = ("numpy",)
"""Half of all packages by size, in a layer for the functions that import it."""

RUNTIME_LOCK: Final = ROOT / "requirements" / "runtime.txt"
PIN: Final = re.compile(r"^([a-z0-9-]+)==.*\n(?:[ ]+.*\n)*", re.MULTILINE)
"""A package of a lock file, with its hashes."""

_IGNORED: Final = shutil.ignore_patterns("__pycache__", "*.pyc", "*.egg-info", ".mypy_cache", ".ruff_cache")
_NOT_IN_FUNCTIONS: Final = ("cli", "*/cli.py", "local")
"""Of the package: the command, and the stack on one machine."""

Target = Literal["lambda", "host"]


@jsii.implements(cdk.ILocalBundling)
class LocalBundling:
    """Runs ``build(output directory)`` in place of CDK's container."""

    def __init__(self, build: Callable[[Path], None]) -> None:
        self._build = build

    def try_bundle(self, output_dir: str, *_options: Any, **_more: Any) -> bool:
        self._build(Path(output_dir))
        let_all_read(Path(output_dir))
        return True


def let_all_read(folder: Path) -> None:
    """Files of an asset are uploaded with their modes, which the umask of this machine may have closed to all but their owner. Lambda
    runs functions as another user, and wants 644 for files and 755 for folders (its troubleshooting page, "Permission is denied"). The
    users of container images are others too."""
    for path in (folder, *folder.rglob("*")):
        if path.is_symlink():
            continue
        mode = stat.S_IMODE(path.stat().st_mode)
        wanted = 0o755 if mode & stat.S_IXUSR else 0o644
        if mode & wanted != wanted:
            path.chmod(mode | wanted)


def dependencies_layer(target: Target) -> lambda_.Code:
    """The packages of ``requirements/runtime.txt`` that every function needs, laid out as a layer."""
    return _packages_layer(target, lambda name: name not in SEARCH_PACKAGES, BOTOCORE_SERVICES)


def search_layer(target: Target) -> lambda_.Code:
    """The packages for functions that read and write indexes of vector stores."""
    return _packages_layer(target, lambda name: name in SEARCH_PACKAGES, (), *SEARCH_PACKAGES)


def sdk_layer(target: Target) -> lambda_.Code:
    """AWS's SDK alone, for the function of custom resources."""
    return _packages_layer(target, lambda name: name in SDK_PACKAGES, HOOK_SERVICES)


def _packages_layer(target: Target, takes: Callable[[str], bool], services: Sequence[str], *words: str) -> lambda_.Code:
    def build(output: Path) -> None:
        install(RUNTIME_LOCK, output / "python", target, takes)
        slim(output / "python", services)
        compile_modules(output, target, "/opt")

    return _asset(RUNTIME_LOCK.parent, _hash((RUNTIME_LOCK,), target, *services, *words, *_compiled(target)), build)


def core_layer(target: Target) -> lambda_.Code:
    """Our own package, as it lies in the repository, without what only a person's machine runs, and with what the console imports."""
    source = ROOT / "layers" / "core"
    package = source / "python" / "moorage"
    skipped = [path for name in _NOT_IN_FUNCTIONS for path in sorted(package.glob(name))]

    def build(output: Path) -> None:
        _copy(source, output)
        for path in skipped:
            copy = output / path.relative_to(source)
            shutil.rmtree(copy) if copy.is_dir() else copy.unlink()
        if CONSOLE_LIBRARIES.is_dir():  # Without, the console says what is missing.
            _copy(CONSOLE_LIBRARIES, output / "python" / "moorage" / "console" / "vendor")
        compile_modules(output, target, "/opt")

    shipped = [path for path in _files(source) if not any(path.is_relative_to(each) for each in skipped)]
    libraries = _files(CONSOLE_LIBRARIES) if CONSOLE_LIBRARIES.is_dir() else []
    return _asset(source, _hash([*shipped, *libraries], *_compiled(target)), build)


def function_code(name: str, beside: Mapping[str, str], target: Target) -> lambda_.Code:
    """``functions/<name>`` and text files beside it, such as the model catalogue: a function finds them in its working directory."""
    source = ROOT / "functions" / name

    def build(output: Path) -> None:
        _copy(source, output)
        for file, text in beside.items():
            (output / file).write_text(text)
        compile_modules(output, target, "/var/task")

    words = [word for each in beside.items() for word in each]
    return _asset(source, _hash(_files(source), *words, *_compiled(target)), build)


@cache
def python_of(target: Target) -> str | None:
    """An interpreter whose byte code the target reads: Python 3.13 for Lambda. None if this machine has none."""
    if target == "host":
        return sys.executable
    named = (os.environ.get("PYTHON313"), sys.executable, "python3.13", "python3")
    found = next((each for each in named if each and is_as_in_lambda(each)), None)
    if found is None:
        sys.stderr.write(
            "Functions will start slower: there is no Python 3.13 here to compile their modules (PYTHON313=... names one).\n"
        )
    return found


def is_as_in_lambda(python: str) -> bool:
    """Whether a program is a Python of the runtime's version."""
    code = f"import sys; sys.exit('python%d.%d' % sys.version_info[:2] != {RUNTIME.name!r})"
    try:
        return subprocess.run([python, "-S", "-c", code], capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def _compiled(target: Target) -> tuple[str, ...]:
    return ("compiled",) if python_of(target) else ()


def compile_modules(folder: Path, target: Target, place: str) -> None:
    """Put the byte code of all modules beside them, which Lambda finds at ``place``. Raises :class:`ConfigError` if one has a fault.

    A function's code and layers are read-only there, so Python would compile each module anew at each cold start. Times of files get
    lost in archives, so the byte code is not compared with them.
    """
    python = python_of(target)
    if python is None:
        return
    command = [python, "-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash", "-s", str(folder), "-p", place, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ConfigError(f"The functions' modules could not be compiled: {(done.stdout + done.stderr).strip()[:500]}")


def install(lock: Path, destination: Path, target: Target, takes: Callable[[str], bool] = lambda name: True) -> None:
    """``uv pip install`` of the packages of a lock file that ``takes`` accepts, into ``destination``. Raises :class:`ConfigError` with
    uv's message."""
    uv = shutil.which("uv") or shutil.which("uv", path=str(Path(sys.executable).parent))
    if uv is None:
        raise ConfigError("uv is not installed; 'make setup' brings it.")
    platform = _PLATFORM if target == "lambda" else ("--python", sys.executable)
    done = subprocess.run(
        [uv, "pip", "install", "--quiet", "--require-hashes", "-r", "-", "--target", str(destination), *platform],
        input="".join(pin[0] for pin in PIN.finditer(lock.read_text()) if takes(pin[1])),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise ConfigError(f"uv could not install {lock.name}: {done.stderr.strip()}")


def slim(packages: Path, services: Sequence[str] = BOTOCORE_SERVICES) -> None:
    """Drop what no function loads: descriptions of other services and of old versions of these, Powertools' browser pages, type stubs,
    the packages' own tests, command-line wrappers."""
    for service in packages.glob("botocore/data/*/"):
        kept = sorted(service.iterdir())[-1:] if service.name in services else []
        for version in set(service.iterdir()) - set(kept):
            shutil.rmtree(version)
        if not kept:
            service.rmdir()
    shutil.rmtree(packages / "aws_lambda_powertools" / "event_handler" / "openapi" / "swagger_ui", ignore_errors=True)
    for tests in [*packages.glob("*/tests/"), *packages.glob("numpy/*/tests/")]:
        shutil.rmtree(tests)
    for stub in packages.rglob("*.pyi"):
        stub.unlink()
    for name in ("bin", ".lock"):
        path = packages / name
        shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)


def _asset(source: Path, digest: str, build: Callable[[Path], None]) -> lambda_.Code:
    return lambda_.Code.from_asset(
        str(source),
        asset_hash=digest,
        asset_hash_type=cdk.AssetHashType.CUSTOM,
        bundling=local_bundling(build),
    )


def local_bundling(build: Callable[[Path], None]) -> cdk.BundlingOptions:
    """Options that let ``build(output directory)`` make an asset."""
    return cdk.BundlingOptions(
        image=cdk.DockerImage.from_registry("never-pulled"),  # required by the type; local bundling answers first
        local=LocalBundling(build),
    )


def _copy(source: Path, output: Path) -> None:
    shutil.copytree(source, output, dirs_exist_ok=True, ignore=_IGNORED)


def _files(folder: Path) -> list[Path]:
    skipped = {"__pycache__", ".mypy_cache", ".ruff_cache"}
    return [
        path
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not any(part in skipped or part.endswith(".egg-info") for part in path.parts)
    ]


def _hash(files: Iterable[Path], *words: str) -> str:
    digest = hashlib.sha256(Path(__file__).read_bytes())
    for path in files:
        digest.update(str(path.relative_to(ROOT)).encode() + b"\0" + path.read_bytes() + b"\0")
    digest.update("\0".join((*words, f"{sys.version_info.major}.{sys.version_info.minor}" if "host" in words else "")).encode())
    return digest.hexdigest()


def context_hash(context: Mapping[str, Path], *words: str) -> str:
    """A hash over every file of a build context, and words that the build depends on, as hex."""
    return _hash([file for path in context.values() for file in (_files(path) if path.is_dir() else [path])], *context, *words)


def copy_context(context: Mapping[str, Path], output: Path) -> None:
    """Lay a build context out as a folder."""
    for place, source in context.items():
        target = output / place
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            _copy(source, target)
        else:
            shutil.copy(source, target)
