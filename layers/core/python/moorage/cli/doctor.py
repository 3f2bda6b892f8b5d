"""``moorage doctor``: what is in place, what is not, and what to do about it.

Before a start it looks at this machine, or, with ``--aws``, at the account that a deploy would go to. Where a deployment answers it
also asks for a response, starts a sandbox with it, and sees that the sandbox cannot get out. It changes nothing and keeps nothing.
"""

import argparse
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import boto3
import httpx
from botocore.exceptions import BotoCoreError, ClientError

from moorage.cli.show import paint
from moorage.cli.target import Target, TargetError, find
from moorage.cli.up import ROOT
from moorage.errors import SettingsConflict
from moorage.model.catalog import Catalog
from moorage.settings import SettingsError

_DISK_BYTES_MIN: Final = 2 * 1024**3
_BOOTSTRAP_PARAMETER: Final = "/cdk-bootstrap/hnb659fds/version"
_BOOTSTRAP_VERSION_MIN: Final = 21
_FARGATE_VCPU_QUOTA: Final = "L-3032A538"
"""Fargate On-Demand vCPU resource count; new accounts have 6."""
_FARGATE_VCPU_MIN: Final = 16
_LAMBDA_CONCURRENCY_MIN: Final = 100
"""A streaming turn holds two functions."""
_SECONDS_MAX: Final = 10
_MARK: Final = "moorage-doctor"


class Level(StrEnum):
    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Finding:
    level: Level
    what: str
    advice: str = ""
    """What to do; empty where nothing is."""


def ok(what: str) -> Finding:
    return Finding(Level.OK, what)


def warn(what: str, advice: str) -> Finding:
    return Finding(Level.WARN, what, advice)


def fail(what: str, advice: str) -> Finding:
    return Finding(Level.FAIL, what, advice)


def add_to(commands: Any) -> None:
    parser = commands.add_parser("doctor", help="check this machine, an AWS account, and a running deployment")
    parser.add_argument("--aws", action="store_true", help="check the account and region that a deploy would go to")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace, environ: Mapping[str, str]) -> int:
    """Prints a line for each check; 1 if one of them failed."""
    findings: list[Finding] = []
    for finding in _findings(environ, is_aws=options.aws or "MOORAGE_TABLE" in environ):
        findings.append(finding)
        _print(finding)
    failed = sum(finding.level is Level.FAIL for finding in findings)
    print(f"\n{len(findings)} checks, {failed} failed.")
    return 1 if failed else 0


def _print(finding: Finding) -> None:
    colour = {Level.OK: "green", Level.WARN: "yellow", Level.FAIL: "red"}[finding.level]
    print(f"{paint(f'{finding.level:<4}', colour, sys.stdout)}  {finding.what}", flush=True)
    if finding.advice:
        print(f"      {finding.advice}", flush=True)


def _findings(environ: Mapping[str, str], *, is_aws: bool) -> Iterator[Finding]:
    if is_aws:
        yield from of_account(AwsClients.from_environment)
    else:
        yield from of_machine(environ)
    try:
        target = find(environ)
    except TargetError as error:
        yield warn("no deployment to ask", str(error))
        return
    if not target.url or not target.api_key:
        yield warn("the deployment was not asked", "Set MOORAGE_URL and MOORAGE_API_KEY to check it too.")
        return
    yield from of_deployment(target)


# --- this machine ----------------------------------------------------------------------------------------------------------------


def of_machine(environ: Mapping[str, str]) -> Iterator[Finding]:
    yield python_finding(sys.version_info[:3])
    yield from _sandbox_findings()
    yield from _environment_findings()
    yield _disk_finding(Path(environ.get("MOORAGE_STATE_DIR", ".moorage")))
    yield port_finding(int(environ.get("MOORAGE_PORT", "8080")))
    yield model_finding(environ)


def python_finding(version: tuple[int, ...]) -> Finding:
    shown = ".".join(map(str, version))
    return ok(f"Python {shown}") if version >= (3, 11) else fail(f"Python {shown}", "moorage needs Python 3.11 or newer.")


def _sandbox_findings() -> Iterator[Finding]:
    if shutil.which("bwrap") is None:
        yield fail("bubblewrap is not installed", "Install it: 'apt-get install bubblewrap' or your system's package of that name.")
        return
    yield ok("bubblewrap is installed")
    tried = subprocess.run(
        ["bwrap", "--ro-bind", "/", "/", "--unshare-all", "--die-with-parent", "true"],
        capture_output=True,
        timeout=_SECONDS_MAX,
        check=False,
    )
    if tried.returncode == 0:
        yield ok("sandboxes have namespaces of their own")
    else:
        said = tried.stderr.decode(errors="replace").strip()
        yield fail(
            f"no namespaces for sandboxes: {said}",
            "Allow unprivileged user namespaces (sysctl kernel.unprivileged_userns_clone=1, or "
            "kernel.apparmor_restrict_unprivileged_userns=0 on Ubuntu), or run as root.",
        )


def _environment_findings() -> Iterator[Finding]:
    for folder, use in ((".venv-toolbox", "Python packages in sandboxes"), (".venv-egress", "the egress proxy")):
        if (ROOT / folder / "bin" / "python").exists():
            yield ok(f"{use}: {folder} is there")
        else:
            yield warn(f"{use}: {folder} is missing", "'make setup' makes it; without it that part does not work.")


def _disk_finding(state_dir: Path) -> Finding:
    folder = next(path for path in (state_dir.absolute(), *state_dir.absolute().parents) if path.exists())
    free = shutil.disk_usage(folder).free
    shown = f"{free / 1024**3:.1f} GiB free for {state_dir}"
    return ok(shown) if free >= _DISK_BYTES_MIN else warn(shown, "Files, artifacts and sandboxes lie there: make room.")


def port_finding(port: int) -> Finding:
    """Free, or ours already."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            pass
        else:
            return ok(f"port {port} is free")
    try:
        if httpx.get(f"http://127.0.0.1:{port}/healthz", timeout=_SECONDS_MAX).json() == {"status": "ok"}:
            return ok(f"port {port} is moorage's")
    except (httpx.HTTPError, ValueError):
        pass
    return fail(f"port {port} is taken by another program", "MOORAGE_PORT=8090 (or any free port) chooses another.")


def model_finding(environ: Mapping[str, str]) -> Finding:
    """Which model would answer, and whether its server does."""
    models_file = environ.get("MOORAGE_MODELS_FILE", str(ROOT / "models.toml"))
    try:
        catalog = Catalog.load(Path(models_file), environ)
        entry = catalog.resolve(None)
    except (SettingsError, SettingsConflict) as error:
        return fail(f"models: {error}", f"Correct {models_file} or the variable that it names.")
    said = catalog.describe_default()
    if entry.provider_kind == "demo":
        return warn(said, "Set OPENAI_API_KEY, ANTHROPIC_API_KEY or MOORAGE_UPSTREAM_URL, or fill in models.toml, for a real model.")
    if not entry.base_url:
        return ok(said)
    try:
        httpx.get(entry.base_url, timeout=_SECONDS_MAX)
    except httpx.HTTPError as error:
        return fail(f"{said} It does not answer: {error}.", "Start that server, or correct its address.")
    return ok(f"{said} It answers.")


# --- an AWS account --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AwsClients:
    """What the checks ask."""

    region: str | None
    sts: Any
    ssm: Any
    lambda_: Any
    service_quotas: Any
    bedrock: Any

    @classmethod
    def from_environment(cls) -> "AwsClients":
        session = boto3.Session()
        return cls(
            session.region_name,
            *(session.client(name) for name in ("sts", "ssm", "lambda", "service-quotas", "bedrock")),
        )


def of_account(connect: Callable[[], AwsClients]) -> Iterator[Finding]:
    """Before a deploy: who, where, bootstrapped, and how much of everything there is."""
    try:
        aws = connect()
    except BotoCoreError as error:
        yield fail(f"no AWS region: {error}", "Set AWS_REGION, or a region in your AWS profile.")
        return
    try:
        identity = aws.sts.get_caller_identity()
    except (ClientError, BotoCoreError) as error:
        yield fail(f"no AWS credentials: {error}", "'aws sso login' or AWS_PROFILE; 'aws sts get-caller-identity' shows who you are.")
        return
    yield ok(f"account {identity['Account']} in {aws.region} as {identity['Arn']}")
    for check in (_bootstrap, _lambda_concurrency, _fargate_vcpus, _step_functions, _models):
        yield _asked(check, aws)


def _asked(check: Callable[[AwsClients], Finding], aws: AwsClients) -> Finding:
    """A check, or why it could not be made."""
    try:
        return check(aws)
    except (ClientError, BotoCoreError) as error:
        return warn(f"{check.__name__.strip('_').replace('_', ' ')}: {error}", "It could not be checked with these permissions.")


def _bootstrap(aws: AwsClients) -> Finding:
    advice = f"Run 'npx aws-cdk@2.1148.1 bootstrap' for {aws.region}."
    try:
        version = int(aws.ssm.get_parameter(Name=_BOOTSTRAP_PARAMETER)["Parameter"]["Value"])
    except aws.ssm.exceptions.ParameterNotFound:
        return fail("CDK is not bootstrapped in this region", advice)
    shown = f"CDK bootstrap version {version}"
    return ok(shown) if version >= _BOOTSTRAP_VERSION_MIN else fail(f"{shown} is too old", advice)


def _lambda_concurrency(aws: AwsClients) -> Finding:
    limit = aws.lambda_.get_account_settings()["AccountLimit"]["ConcurrentExecutions"]
    shown = f"Lambda: {limit} concurrent executions"
    if limit >= _LAMBDA_CONCURRENCY_MIN:
        return ok(shown)
    return warn(shown, f"Each streaming turn holds two: about {limit // 2} at once. Ask for more at Service Quotas.")


def _fargate_vcpus(aws: AwsClients) -> Finding:
    quota = aws.service_quotas.get_service_quota(ServiceCode="fargate", QuotaCode=_FARGATE_VCPU_QUOTA)
    vcpus = quota["Quota"]["Value"]
    shown = f"Fargate: {vcpus:g} vCPUs at once"
    if vcpus >= _FARGATE_VCPU_MIN:
        return ok(shown)
    return warn(shown, f"So many sandboxes of 1 vCPU can run. Ask for more at Service Quotas (fargate, {_FARGATE_VCPU_QUOTA}).")


def _step_functions(aws: AwsClients) -> Finding:
    pages = aws.service_quotas.get_paginator("list_service_quotas").paginate(ServiceCode="states")
    rates = {
        quota["QuotaName"]: quota["Value"]
        for page in pages
        for quota in page["Quotas"]
        if "tatetransition" in quota["QuotaName"].replace(" ", "").lower()
    }
    if not rates:
        return ok("Step Functions: default quotas")
    name, rate = min(rates.items(), key=lambda pair: pair[1])
    shown = f"Step Functions: {name} {rate:g}"
    return ok(shown) if rate >= 100 else warn(shown, "Each round of the loop takes about 4. Ask for more at Service Quotas.")


def _models(aws: AwsClients) -> Finding:
    listed = aws.bedrock.list_foundation_models(byOutputModality="TEXT")["modelSummaries"]
    if listed:
        return ok(f"Bedrock: {len(listed)} text models in {aws.region}")
    return warn(f"Bedrock has no models in {aws.region}", "Choose another region, or another provider in models.toml.")


# --- a deployment that answers ---------------------------------------------------------------------------------------------------


def of_deployment(target: Target) -> Iterator[Finding]:
    """A response, a sandbox, and that the sandbox cannot get out."""
    with target.http() as http:
        try:
            listed = http.get("/models")
        except httpx.TransportError as error:
            start = "'moorage up' starts it." if target.is_local else "Check MOORAGE_URL, and the API's logs."
            yield warn(f"{target.url} does not answer: {error}", start)
            return
        if listed.status_code == 401:
            yield fail("the API key is not accepted", "'moorage keys create --tenant NAME' makes one.")
            return
        names = [model["id"] for model in listed.json()["data"]]
        yield ok(f"{target.url} answers; models: {', '.join(names)}")
        yield _plain_answer(http, names[0])
        yield from _sandbox_answer(http, names[0], _own_address(target))


def _plain_answer(http: httpx.Client, model: str) -> Finding:
    answer = http.post("/responses", json={"model": model, "input": "Answer with one word: ready.", "store": False})
    if answer.is_success and answer.json()["status"] == "completed":
        return ok(f"'{model}' answered a request in {answer.elapsed.total_seconds():.2f} s")
    return fail(f"'{model}' did not answer: {_said(answer)}", "Check its key and address in models.toml; the API's log has more.")


def _own_address(target: Target) -> tuple[str, int]:
    """The API's own host and port: somewhere that this machine reaches and a sandbox must not."""
    assert target.url is not None
    parts = urlsplit(target.url)
    return parts.hostname or "127.0.0.1", parts.port or (443 if parts.scheme == "https" else 80)


def _sandbox_answer(http: httpx.Client, model: str, address: tuple[str, int]) -> Iterator[Finding]:
    dial = f"python3 -c \"import socket; socket.create_connection(('{address[0]}', {address[1]}), 5)\""
    command = f"echo {_MARK}; if {dial} 2>/dev/null; then echo OPEN; else echo CLOSED; fi"
    answer = http.post("/responses", json=_probe(model, command))
    printed = _printed(answer.json()["output"]) if answer.is_success else ""
    if _MARK not in printed:
        yield fail(f"no sandbox ran a command: {_said(answer)}", "The log of the launcher, or of Fargate, says why.")
        return
    yield ok(f"a sandbox started, ran a command and answered in {answer.elapsed.total_seconds():.2f} s")
    if "CLOSED" in printed:
        yield ok("a sandbox without a policy cannot get out")
    else:
        yield fail("a sandbox without a policy reached the API's own address", "Check the sandboxes' security group and subnets.")


def _probe(model: str, command: str) -> dict[str, Any]:
    """A request that makes any model run one command: the scripted one by its script, others because they must call the tool."""
    script = f'```moorage-script\n[{{"shell": {{"commands": [{_quoted(command)}]}}}}, {{"say": "done"}}]\n```'
    asked = f"Run exactly this shell command, once, then answer 'done':\n{command}"
    return {
        "model": model,
        "input": script if model == "demo" else asked,
        "tools": [{"type": "shell", "environment": {"type": "container_auto"}}],
        "tool_choice": {"type": "shell"},
        "store": False,
    }


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _printed(output: Iterable[dict[str, Any]]) -> str:
    return "".join(
        one["stdout"] + one["stderr"] for item in output if item["type"] == "shell_call_output" for one in item["output"]
    )


def _said(answer: httpx.Response) -> str:
    try:
        error = answer.json().get("error") or {}
    except ValueError:
        error = {}
    return str(error.get("message") or f"HTTP {answer.status_code}")
