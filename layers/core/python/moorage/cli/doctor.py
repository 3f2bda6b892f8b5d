"""``moorage doctor``: what is in place, what is not, and what to do about it.

With ``--aws`` it looks at the account that a deploy would go to. Without, at this machine, or at the table of the deployment that the
environment names; and where a deployment answers, it asks for responses, starts a sandbox, and sees that the sandbox cannot get out.
It changes nothing and keeps nothing.
"""

import argparse
import asyncio
import ipaddress
import json
import re
import shutil
import socket
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import boto3
import httpx
import orjson
from botocore.exceptions import BotoCoreError, ClientError

from moorage.cli.show import paint
from moorage.cli.target import AWS_CONFIG, Target, TargetError, answer_of, aws_region, find, refused, unreachable
from moorage.errors import SandboxError, SettingsConflict
from moorage.local.environments import ENVIRONMENTS
from moorage.local.environments import environment as environment_of
from moorage.local.places import ROOT
from moorage.local.users import check_namespaces, has_disable_userns, may_run_as_other_users
from moorage.model.catalog import Catalog, ModelEntry
from moorage.settings import SettingsError, api_port, as_deployed
from moorage.store.api_keys import ApiKeys

_DISK_BYTES_MIN: Final = 2 * 1024**3
_BOOTSTRAP_PARAMETER: Final = "/cdk-bootstrap/hnb659fds/version"
_BOOTSTRAP_VERSION_MIN: Final = 21
_FARGATE_VCPU_QUOTA: Final = "L-3032A538"
"""Fargate On-Demand vCPU resource count; new accounts have 6."""
_FARGATE_VCPU_MIN: Final = 16
_LAMBDA_CONCURRENCY_MIN: Final = 100
"""A streaming turn holds two functions."""
_TRANSITIONS_MIN: Final = 100
"""State transitions a second; a round of the loop takes three or four."""
_SECONDS_MAX: Final = 10
_MODELS_ASKED_MAX: Final = 5
_MARK: Final = "moorage-doctor"
_INFERENCE_PROFILE: Final = re.compile(r"^(?:us-gov|us|eu|apac|global|jp|au|ca)\.")
"""What stands before a model's own id in that of a cross-region inference profile."""


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
    parser = commands.add_parser(
        "doctor",
        help="check this machine, an AWS account, and a running deployment",
        description="Check what moorage needs, a line for each thing, with what to do about it. It looks at this machine and the local "
        "stack; or, where MOORAGE_URL or MOORAGE_TABLE names another deployment, at that one: table, key, models, a sandbox, and "
        "that it cannot get out. Exit code 1 says that something failed.",
    )
    parser.add_argument("--aws", action="store_true", help="before a deploy: check the account and region that it would go to")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace, environ: Mapping[str, str]) -> int:
    """Prints a line for each check; 1 if one of them failed."""
    findings: list[Finding] = []
    for finding in before_deploy(environ) if options.aws else of_this(environ):
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


def before_deploy(environ: Mapping[str, str]) -> Iterator[Finding]:
    return of_account(lambda: AwsClients.of(environ), deployed_models(ROOT))


def of_this(environ: Mapping[str, str]) -> Iterator[Finding]:
    """The machine and its stack, or the deployment that the environment names."""
    try:
        target = find(environ)
    except TargetError as error:
        yield from of_machine(environ)
        yield warn("no deployment to ask", str(error))
        return
    if target.is_local:
        yield from of_machine(environ)
    elif target.table_name:
        yield table_finding(target)
    yield from of_deployment(target)


# --- this machine ----------------------------------------------------------------------------------------------------------------


def of_machine(environ: Mapping[str, str]) -> Iterator[Finding]:
    yield python_finding(sys.version_info[:3])
    yield _sandbox_finding()
    yield from _environment_findings()
    yield disk_finding(Path(environ.get("MOORAGE_STATE_DIR", ".moorage")))
    yield port_finding(environ)
    yield model_finding(environ)


def python_finding(version: tuple[int, ...]) -> Finding:
    shown = ".".join(map(str, version))
    return ok(f"Python {shown}") if version >= (3, 11) else fail(f"Python {shown}", "moorage needs Python 3.11 or newer.")


def _sandbox_finding() -> Finding:
    """The same looks that the stack takes at its start."""
    try:
        has_disable_userns()
        check_namespaces(may_run_as_other_users())
    except SandboxError as error:
        return fail("this machine can have no sandboxes", error.message)
    return ok("bubblewrap makes sandboxes here")


def _environment_findings() -> Iterator[Finding]:
    for known in map(environment_of, ENVIRONMENTS):
        if known.is_made:
            yield ok(f"{known.use} are installed in {known.folder}")
        else:
            yield warn(f"{known.use} are not installed", f"'moorage up' installs what it needs into {known.folder}, once.")


def disk_finding(state_dir: Path, bytes_min: int = _DISK_BYTES_MIN) -> Finding:
    folder = next(path for path in (state_dir.absolute(), *state_dir.absolute().parents) if path.exists())
    free = shutil.disk_usage(folder).free
    shown = f"{free / 1024**3:.1f} GiB free for {state_dir}"
    return ok(shown) if free >= bytes_min else warn(shown, "Files, artifacts and sandboxes lie there: make room.")


def port_finding(environ: Mapping[str, str]) -> Finding:
    """Free, or ours already."""
    try:
        port = api_port(environ)
    except SettingsError as error:
        return fail("no port for the API", str(error))
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except PermissionError:
            return fail(f"port {port} is not for this user", "MOORAGE_PORT=8080 (or any above 1023) chooses another.")
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

    region: str
    sts: Any
    ssm: Any
    lambda_: Any
    service_quotas: Any
    bedrock: Callable[[str], Any]
    """Of a region: models may be asked for in another than the deployment's."""

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> "AwsClients":
        session = boto3.Session(region_name=aws_region(environ))

        def client(name: str, region: str | None = None) -> Any:
            return session.client(name, region_name=region, config=AWS_CONFIG)  # type: ignore[call-overload]

        return cls(
            session.region_name,
            client("sts"),
            client("ssm"),
            client("lambda"),
            client("service-quotas"),
            lambda region: client("bedrock", region),
        )


def deployed_models(root: Path) -> str:
    """The text of ``models.toml`` as the next deploy takes it."""
    try:
        settings = json.loads((root / "cdk.json").read_text())["context"].get("moorage", {})
        return as_deployed((root / "models.toml").read_text(), settings.get("name", "moorage"))
    except (OSError, ValueError) as error:
        raise TargetError(f"'moorage doctor --aws' reads cdk.json and models.toml of a checkout: {error}") from error


def of_account(connect: Callable[[], AwsClients], models_toml: str) -> Iterator[Finding]:
    """Before a deploy: who, where, bootstrapped, and how much of everything there is."""
    try:
        aws = connect()
        identity = aws.sts.get_caller_identity()
    except (ClientError, BotoCoreError) as error:
        yield fail("AWS cannot be asked", refused(error))
        return
    yield ok(f"account {identity['Account']} in {aws.region} as {identity['Arn']}")
    for check in (_bootstrap, _lambda_concurrency, _fargate_vcpus, _step_functions):
        yield _asked(check.__name__, partial(check, aws))
    yield from _models(aws, models_toml)


def _asked(name: str, check: Callable[[], Finding]) -> Finding:
    """A check, or why it could not be made."""
    try:
        return check()
    except (ClientError, BotoCoreError) as error:
        return warn(f"{name.strip('_').replace('_', ' ')}: {error}", "It could not be checked; the permission for it may be missing.")


def _bootstrap(aws: AwsClients) -> Finding:
    advice = f"Run 'make bootstrap' with AWS_REGION={aws.region}."
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
        if "statetransition" in quota["QuotaName"].replace(" ", "").lower()
    }
    if not rates:
        return ok("Step Functions: default quotas")
    name, rate = min(rates.items(), key=lambda pair: pair[1])
    shown = f"Step Functions: {name} {rate:g}"
    if rate >= _TRANSITIONS_MIN:
        return ok(shown)
    return warn(shown, "Each round of the loop takes three or four. Ask for more at Service Quotas.")


def _models(aws: AwsClients, models_toml: str) -> Iterator[Finding]:
    """Whether what ``models.toml`` names can be reached from AWS: keys that are stored, models that may be used."""
    try:
        entries = Catalog.load(f"{models_toml}\n", {}, secret=lambda name: name).entries
    except SettingsConflict as error:
        yield fail(str(error), "Correct models.toml: it is deployed as it is.")
        return
    real = [entry for entry in entries if entry.provider_kind != "demo"]
    if not real:
        yield warn("models.toml names no model: the scripted demo model would answer", "docs/models.md says how to name one.")
    for entry in real:
        yield _asked(f"model '{entry.name}'", partial(_model, aws, entry))


def _model(aws: AwsClients, entry: ModelEntry) -> Finding:
    if entry.key is not None:
        return _key(aws, entry, entry.key.removeprefix("ssm:"))
    if entry.provider_kind == "bedrock_converse" or entry.auth == "sigv4":
        return _bedrock(aws, entry)
    if not _is_public(urlsplit(entry.base_url).hostname or ""):
        return fail(
            f"model '{entry.name}' is at {entry.base_url}, and functions on AWS reach public addresses only",
            "Give it an address that the internet reaches, over https and with a key; or leave it out.",
        )
    return ok(f"model '{entry.name}' at {entry.base_url} needs no key")


def _key(aws: AwsClients, entry: ModelEntry, parameter: str) -> Finding:
    try:
        aws.ssm.get_parameter(Name=parameter)
    except aws.ssm.exceptions.ParameterNotFound:
        return fail(
            f"model '{entry.name}' has no key: there is no SSM parameter {parameter}",
            f"Run 'aws ssm put-parameter --type SecureString --name {parameter} --value ...'.",
        )
    return ok(f"model '{entry.name}': its key is the SSM parameter {parameter}")


def _bedrock(aws: AwsClients, entry: ModelEntry) -> Finding:
    region = entry.region or aws.region
    model = _INFERENCE_PROFILE.sub("", entry.upstream_model)
    shown = f"model '{entry.name}': Bedrock's {model} in {region}"
    if "*" in model or model.startswith("arn:"):
        return ok(f"{shown}, which is not looked up")
    try:
        found = aws.bedrock(region).get_foundation_model_availability(modelId=model)
    except ClientError as error:
        if error.response["Error"]["Code"] not in ("ResourceNotFoundException", "ValidationException"):
            raise
        return fail(f"{shown} is unknown", "Correct models.toml; 'aws bedrock list-foundation-models' shows what there is.")
    if found["regionAvailability"] != "AVAILABLE":
        return fail(f"{shown} is not offered there", "Name another region in models.toml, or another model.")
    if found["agreementAvailability"]["status"] != "AVAILABLE" or found["entitlementAvailability"] != "AVAILABLE":
        return fail(f"{shown}: its terms are not accepted", "Ask for it once under 'Model access' in the Bedrock console.")
    if found["authorizationStatus"] != "AUTHORIZED":
        return fail(f"{shown}: this account may not use it", "A policy of the account or its organization forbids bedrock:InvokeModel.")
    return ok(f"{shown} may be used")


def _is_public(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_global
    except ValueError:
        return host != "localhost" and "." in host


# --- a deployment that answers ---------------------------------------------------------------------------------------------------


def table_finding(target: Target) -> Finding:
    try:
        keys = asyncio.run(ApiKeys(target.table(), clock=time.time).page())
    except (ClientError, BotoCoreError) as error:
        return fail(f"the table {target.table_name} cannot be read", refused(error))
    if not keys:
        return warn(f"the table {target.table_name} holds no key yet", "'moorage keys create --tenant NAME' makes one.")
    return ok(f"the table {target.table_name} holds {len(keys)} {'key' if len(keys) == 1 else 'keys'}")


def of_deployment(target: Target) -> Iterator[Finding]:
    """The models' answers, a sandbox, and that the sandbox cannot get out."""
    try:
        http = target.http()
    except TargetError as error:
        yield warn("the deployment was not asked", str(error))
        return
    with http:
        try:
            names = [model["id"] for model in answer_of(http.get("/models"))["data"]]
        except httpx.TransportError as error:
            yield (warn if target.is_local else fail)("the deployment does not answer", unreachable(error))
            return
        except TargetError as error:
            yield fail(f"{target.url} refuses to list its models", str(error))
            return
        yield ok(f"{target.url} answers; models: {', '.join(names)}")
        for name in names[:_MODELS_ASKED_MAX]:
            yield _answer(http, name)
        yield from _sandbox(http, names[0], str(target.url))


def _answer(http: httpx.Client, model: str) -> Finding:
    """A streamed answer of a model."""
    request = {"model": model, "input": "Answer with one word: ready.", "stream": True, "store": False}
    began, first, last = time.monotonic(), 0.0, {}
    try:
        with http.stream("POST", "/responses", json=request) as answer:
            if not answer.is_success:
                answer.read()
                answer_of(answer)
            for line in answer.iter_lines():
                if line.startswith("data: {"):
                    first = first or time.monotonic() - began
                    last = orjson.loads(line.removeprefix("data: "))
    except (httpx.TransportError, TargetError) as error:
        return _no_answer(model, str(error))
    if last.get("type") != "response.completed":
        return _no_answer(model, _error_of(last.get("response") or {}))
    seconds = time.monotonic() - began
    return ok(f"'{model}' answered in {seconds:.2f} s; the stream began after {first:.2f} s")


def _no_answer(model: str, said: str) -> Finding:
    return fail(f"'{model}' did not answer: {said}", "Check its key and address in models.toml; the log of the API has more.")


def _sandbox(http: httpx.Client, model: str, url: str) -> Iterator[Finding]:
    began = time.monotonic()
    try:
        response = answer_of(http.post("/responses", json=_probe(model, _dials(url))))
    except (httpx.TransportError, TargetError) as error:
        yield _no_sandbox(str(error) or type(error).__name__)
        return
    printed = _printed(response["output"])
    if f"{_MARK} done" not in printed:
        yield _no_sandbox(printed.strip() or _error_of(response))
        return
    yield ok(f"a sandbox started, ran a command and answered in {time.monotonic() - began:.2f} s")
    reached = sorted(re.findall(rf"{_MARK} reached (\S+)", printed))
    if reached:
        yield fail(
            f"a sandbox without a policy reached {', '.join(reached)}",
            "Nothing but its exec server may be reachable: check the sandboxes' security group, subnets and DNS firewall.",
        )
    else:
        yield ok("a sandbox without a policy cannot get out")


def _no_sandbox(said: str) -> Finding:
    if "This deployment has no sandboxes" in said:
        return warn(said, "Hosted tools that run commands are refused: 'provisioner' and 'memory_tiers' in cdk.json say so.")
    return fail(
        f"no sandbox ran a command: {said}",
        "The log says why: .moorage/launcher.log here, the tool step's on AWS, where 'moorage doctor --aws' shows quotas.",
    )


def _dials(url: str) -> str:
    """A command that tells whether it reaches the API, as this machine does, and whether it can ask for names: DNS is a way out too."""
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
    address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][4][0]
    tries = {f"{address}:{port}": f"socket.create_connection(('{address}', {port}), 5)"}
    if address != host:
        tries["DNS"] = f"socket.getaddrinfo('{host}', {port})"
    shells = [f'(python3 -c "import socket; {dial}" 2>/dev/null && echo {_MARK} reached {name}) &' for name, dial in tries.items()]
    return " ".join(["export RES_OPTIONS='timeout:3 attempts:1';", *shells, f"wait; echo {_MARK} done"])


def _probe(model: str, command: str) -> dict[str, Any]:
    """A request that makes any model run one command: the scripted one by its script, others because they must call the tool."""
    script = f"```moorage-script\n{json.dumps([{'shell': {'commands': [command]}}, {'say': 'done'}])}\n```"
    asked = f"Run exactly this shell command, once, then answer 'done':\n{command}"
    return {
        "model": model,
        "input": script if model == "demo" else asked,
        "tools": [{"type": "shell", "environment": {"type": "container_auto"}}],
        "tool_choice": {"type": "shell"},
        "store": False,
    }


def _printed(output: Iterable[dict[str, Any]]) -> str:
    return "".join(
        one["stdout"] + one["stderr"] for item in output if item["type"] == "shell_call_output" for one in item["output"]
    )


def _error_of(response: Mapping[str, Any]) -> str:
    error = response.get("error") or response.get("incomplete_details") or {}
    return str(error.get("message") or error.get("reason") or "it made no such call")
