"""What the doctor finds: an account by botocore's own model of the services, a deployment by what it answers, and this machine."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.exceptions import NoCredentialsError, NoRegionError
from botocore.stub import Stubber
from moorage.cli.checks.account import AwsClients, deployed_models, of_account
from moorage.cli.checks.deployment import of_deployment
from moorage.cli.checks.findings import Finding, Level, Waiting
from moorage.cli.checks.machine import disk_finding, model_finding, of_machine, port_finding, python_finding
from moorage.cli.main import main
from moorage.cli.target import TargetError, find

from tests.unit.cli.deployment import CONTAINER, MODELS, Answer, completed, printed, refusal, serving
from tests.unit.cli.test_commands import local_state
from tests.upstream import MockUpstream

REGION = "eu-west-1"
IDENTITY = {"Account": "123456789012", "Arn": "arn:aws:iam::123456789012:user/me", "UserId": "me"}
OPENAI = '[[models]]\nname = "gpt"\nprovider = "openai_responses"\nkey = "ssm:/moorage/OPENAI_API_KEY"\n'
BEDROCK = '[[models]]\nname = "nova"\nprovider = "bedrock_converse"\nupstream_model = "eu.amazon.nova-2"\n'

Said = tuple[str, dict[str, Any]]
"""What a service answers: the error's code and nothing, or "" and the answer."""


def yes(**answer: Any) -> Said:
    return "", answer


def no(code: str) -> Said:
    return code, {}


def available(**differently: str) -> Said:
    words = {"regionAvailability": "AVAILABLE", "authorizationStatus": "AUTHORIZED", "entitlementAvailability": "AVAILABLE"}
    words |= {"agreement": "AVAILABLE"} | differently
    return yes(modelId="amazon.nova-2", agreementAvailability={"status": words.pop("agreement")}, **words)


GOOD: dict[str, Said] = {
    "sts get_caller_identity": yes(**IDENTITY),
    "ssm get_parameter": yes(Parameter={"Value": "28"}),
    "lambda get_account_settings": yes(AccountLimit={"ConcurrentExecutions": 1_000}),
    "service-quotas get_service_quota": yes(Quota={"Value": 64.0}),
    "service-quotas list_service_quotas": yes(
        Quotas=[{"QuotaName": "StateTransition throttle token refill rate per second", "Value": 5_000.0}]
    ),
}


@contextmanager
def account(*said: dict[str, Said]) -> Iterator[Callable[[], AwsClients]]:
    """An account whose services answer as told, each call once, in order; botocore checks requests and answers."""
    with ExitStack() as stack:
        clients: dict[str, Any] = {}

        def client(name: str) -> Any:
            if name not in clients:
                made = boto3.client(name, region_name=REGION, aws_access_key_id="test", aws_secret_access_key="test")  # type: ignore[call-overload]
                clients[name] = made, stack.enter_context(Stubber(made))
            return clients[name]

        for call, (code, answer) in ((call, one) for calls in said for call, one in calls.items()):
            service, method = call.split()
            _, stubber = client(service)
            if code:
                stubber.add_client_error(method, code, f"{code} is what it said")
            else:
                stubber.add_response(method, answer)

        def connect() -> AwsClients:
            sts, ssm, lambda_, quotas = (client(name)[0] for name in ("sts", "ssm", "lambda", "service-quotas"))
            return AwsClients(REGION, sts, ssm, lambda_, quotas, bedrock=lambda region: client("bedrock")[0])

        yield connect


def findings_of(*said: dict[str, Said], models: str = "") -> list[Finding]:
    with account(*said) as connect:
        return list(of_account(connect, models))


def test_a_good_account_is_found_good() -> None:
    models = {"ssm get_parameter": yes(Parameter={"Value": "sealed"}), "bedrock get_foundation_model_availability": available()}
    findings = findings_of(GOOD, models, models=OPENAI + BEDROCK + '[[models]]\nname = "demo"\nprovider = "demo"\n')
    assert [finding.what for finding in findings] == [
        "account 123456789012 in eu-west-1 as arn:aws:iam::123456789012:user/me",
        "CDK bootstrap version 28",
        "Lambda: 1000 concurrent executions",
        "Fargate: 64 vCPUs at once",
        "Step Functions: StateTransition throttle token refill rate per second 5000",
        "model 'gpt': its key is the SSM parameter /moorage/OPENAI_API_KEY",
        "model 'nova': Bedrock's amazon.nova-2 in eu-west-1 may be used",
    ]
    assert {finding.level for finding in findings} == {Level.OK}


LESS: dict[str, tuple[dict[str, Said], int, Finding]] = {
    "credentials that have expired": (
        {"sts get_caller_identity": no("ExpiredToken")},
        0,
        Finding(
            Level.FAIL,
            "AWS cannot be asked",
            "AWS does not accept these credentials: An error occurred (ExpiredToken) when calling the GetCallerIdentity operation: "
            "ExpiredToken is what it said. 'aws sts get-caller-identity' shows who you are.",
        ),
    ),
    "never bootstrapped": (
        {"ssm get_parameter": no("ParameterNotFound")},
        1,
        Finding(Level.FAIL, "CDK is not bootstrapped in this region", "Run 'make bootstrap' with AWS_REGION=eu-west-1."),
    ),
    "bootstrapped long ago": (
        {"ssm get_parameter": yes(Parameter={"Value": "6"})},
        1,
        Finding(Level.FAIL, "CDK bootstrap version 6 is too old", "Run 'make bootstrap' with AWS_REGION=eu-west-1."),
    ),
    "a new account's Lambda quota": (
        {"lambda get_account_settings": yes(AccountLimit={"ConcurrentExecutions": 10})},
        2,
        Finding(
            Level.WARN,
            "Lambda: 10 concurrent executions",
            "Each streaming turn holds two: about 5 at once. Ask for more at Service Quotas.",
        ),
    ),
    "a new account's Fargate quota": (
        {"service-quotas get_service_quota": yes(Quota={"Value": 6.0})},
        3,
        Finding(
            Level.WARN,
            "Fargate: 6 vCPUs at once",
            "So many sandboxes of 1 vCPU can run. Ask for more at Service Quotas (fargate, L-3032A538).",
        ),
    ),
    "quotas that may not be read": (
        {"service-quotas get_service_quota": no("AccessDeniedException")},
        3,
        Finding(
            Level.WARN,
            "fargate vcpus: An error occurred (AccessDeniedException) when calling the GetServiceQuota operation: "
            "AccessDeniedException is what it said",
            "It could not be checked; the permission for it may be missing.",
        ),
    ),
    "a new account's Step Functions quota": (
        {"service-quotas list_service_quotas": yes(Quotas=[{"QuotaName": "StateTransition rate", "Value": 20.0}])},
        4,
        Finding(
            Level.WARN,
            "Step Functions: StateTransition rate 20",
            "Each round of the loop takes three or four. Ask for more at Service Quotas.",
        ),
    ),
}


@pytest.mark.parametrize(("differently", "at", "finding"), LESS.values(), ids=LESS.keys())
def test_what_an_account_lacks_is_named_with_what_to_do(differently: dict[str, Said], at: int, finding: Finding) -> None:
    findings = findings_of(GOOD | differently, models='[[models]]\nname = "demo"\nprovider = "demo"\n')
    assert findings[at] == finding
    assert {other.level for other in findings[:at] + findings[at + 1 : 5]} <= {Level.OK}


def test_without_quotas_of_its_own_an_account_has_the_default_ones() -> None:
    findings = findings_of(GOOD | {"service-quotas list_service_quotas": yes(Quotas=[])})
    assert findings[4] == Finding(Level.OK, "Step Functions: default quotas")


MODELS_AT_FAULT: dict[str, tuple[str, dict[str, Said], Finding]] = {
    "none": (
        "",
        {},
        Finding(
            Level.WARN, "models.toml names no model: the scripted demo model would answer", "docs/models.md says how to name one."
        ),
    ),
    "a file that cannot be read": (
        "[[models",
        {},
        Finding(
            Level.FAIL,
            "models.toml is not TOML: Expected ']]' at the end of an array declaration (at line 1, column 9).",
            "Correct models.toml: it is deployed as it is.",
        ),
    ),
    "a key that is not stored": (
        OPENAI,
        {"ssm get_parameter": no("ParameterNotFound")},
        Finding(
            Level.FAIL,
            "model 'gpt' has no key: there is no SSM parameter /moorage/OPENAI_API_KEY",
            "Run 'aws ssm put-parameter --type SecureString --name /moorage/OPENAI_API_KEY --value ...'.",
        ),
    ),
    "a server on the laptop": (
        '[[models]]\nname = "local"\nprovider = "chat_completions"\nbase_url = "http://127.0.0.1:8000/v1"\n',
        {},
        Finding(
            Level.FAIL,
            "model 'local' is at http://127.0.0.1:8000/v1, and functions on AWS reach public addresses only",
            "Give it an address that the internet reaches, over https and with a key; or leave it out.",
        ),
    ),
    "a server that needs no key": (
        '[[models]]\nname = "open"\nprovider = "chat_completions"\nbase_url = "https://models.example.com/v1"\n',
        {},
        Finding(Level.OK, "model 'open' at https://models.example.com/v1 needs no key"),
    ),
    "a model that Bedrock does not know": (
        BEDROCK,
        {"bedrock get_foundation_model_availability": no("ResourceNotFoundException")},
        Finding(
            Level.FAIL,
            "model 'nova': Bedrock's amazon.nova-2 in eu-west-1 is unknown",
            "Correct models.toml; 'aws bedrock list-foundation-models' shows what there is.",
        ),
    ),
    "a model of another region": (
        BEDROCK,
        {"bedrock get_foundation_model_availability": available(regionAvailability="NOT_AVAILABLE")},
        Finding(
            Level.FAIL,
            "model 'nova': Bedrock's amazon.nova-2 in eu-west-1 is not offered there",
            "Name another region in models.toml, or another model.",
        ),
    ),
    "a model whose terms are open": (
        BEDROCK,
        {"bedrock get_foundation_model_availability": available(agreement="NOT_AVAILABLE")},
        Finding(
            Level.FAIL,
            "model 'nova': Bedrock's amazon.nova-2 in eu-west-1: its terms are not accepted",
            "Ask for it once under 'Model access' in the Bedrock console.",
        ),
    ),
    "a model that the account may not use": (
        BEDROCK,
        {"bedrock get_foundation_model_availability": available(authorizationStatus="NOT_AUTHORIZED")},
        Finding(
            Level.FAIL,
            "model 'nova': Bedrock's amazon.nova-2 in eu-west-1: this account may not use it",
            "A policy of the account or its organization forbids bedrock:InvokeModel.",
        ),
    ),
    "a model that may not be looked up": (
        BEDROCK,
        {"bedrock get_foundation_model_availability": no("AccessDeniedException")},
        Finding(
            Level.WARN,
            "model 'nova': An error occurred (AccessDeniedException) when calling the GetFoundationModelAvailability operation: "
            "AccessDeniedException is what it said",
            "It could not be checked; the permission for it may be missing.",
        ),
    ),
    "any model of Bedrock": (
        BEDROCK.replace("eu.amazon.nova-2", "*").replace("nova", "*"),
        {},
        Finding(Level.OK, "model '*': Bedrock's * in eu-west-1, which is not looked up"),
    ),
}


ENGINES = """
[web_search]
kind = "brave"
key = "ssm:/mine/BRAVE"
[image_generation]
kind = "bedrock"
model = "stability.stable-image-ultra-v1:1"
key = "ssm:/mine/BEDROCK"
"""


def test_the_keys_of_the_search_engine_and_the_image_model_are_looked_for() -> None:
    there = {"ssm get_parameter": yes(Parameter={"Value": "sealed"})}
    assert [finding.what for finding in findings_of(GOOD, there, there, models=ENGINES)[-2:]] == [
        "the search engine: its key is the SSM parameter /mine/BRAVE",
        "the image model: its key is the SSM parameter /mine/BEDROCK",
    ]
    gone = findings_of(GOOD, {"ssm get_parameter": no("ParameterNotFound")}, there, models=ENGINES)[-2]
    assert gone == Finding(
        Level.FAIL,
        "the search engine has no key: there is no SSM parameter /mine/BRAVE",
        "Run 'aws ssm put-parameter --type SecureString --name /mine/BRAVE --value ...'.",
    )


def test_embedding_models_are_looked_for_like_the_others() -> None:
    titan = '[[embedding]]\nname = "titan"\nprovider = "bedrock_titan"\n'
    far = '[[embedding]]\nname = "far"\nprovider = "openai"\nkey = "ssm:/mine/FAR"\nbase_url = "https://far.example"\ndimension = 3\n'
    said = {"bedrock get_foundation_model_availability": available(), "ssm get_parameter": no("ParameterNotFound")}
    found = findings_of(GOOD, said, models=titan + far)[-2:]
    assert [(one.level, one.what) for one in found] == [
        (Level.OK, f"model 'titan': Bedrock's amazon.titan-embed-text-v2:0 in {REGION} may be used"),
        (Level.FAIL, "model 'far' has no key: there is no SSM parameter /mine/FAR"),
    ]


@pytest.mark.parametrize(("models", "said", "finding"), MODELS_AT_FAULT.values(), ids=MODELS_AT_FAULT.keys())
def test_each_model_is_looked_for(models: str, said: dict[str, Said], finding: Finding) -> None:
    default = 'default = "any"\n' if 'name = "*"' in models else ""
    assert findings_of(GOOD, said, models=default + models)[5:] == [finding]


@pytest.mark.parametrize(
    ("error", "advice"),
    [
        (NoRegionError(), "No AWS region is set: set AWS_REGION, or a region in your AWS profile."),
        (
            NoCredentialsError(),
            "There are no AWS credentials: 'aws sso login', AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY.",
        ),
    ],
    ids=["region", "credentials"],
)
def test_without_a_region_or_credentials_nothing_else_is_asked(error: Exception, advice: str) -> None:
    def connect() -> AwsClients:
        raise error

    assert list(of_account(connect, "")) == [Finding(Level.FAIL, "AWS cannot be asked", advice)]


def test_the_deployments_models_are_those_of_the_checkout_with_keys_in_ssm(tmp_path: Path) -> None:
    (tmp_path / "cdk.json").write_text(json.dumps({"context": {"moorage": {"name": "mine"}}}))
    (tmp_path / "models.toml").write_text("key = 'env:OPENAI_API_KEY'\n")
    assert deployed_models(tmp_path) == 'key = "ssm:/mine/OPENAI_API_KEY"\n'


def test_what_would_be_deployed_has_to_be_there(tmp_path: Path) -> None:
    with pytest.raises(TargetError, match=r"reads cdk\.json and models\.toml of a checkout"):
        deployed_models(tmp_path)


# --- a deployment ----------------------------------------------------------------------------------------------------------------


REAL: Answer = (200, {"object": "list", "data": [{"id": "gpt", "object": "model", "created": 0, "owned_by": "moorage"}]})


EMBEDDER = {"id": "static-256", "object": "model", "created": 0, "owned_by": "moorage-embeddings"}
BOTH: Answer = (200, {**REAL[1], "data": [*REAL[1]["data"], EMBEDDER]})


def answers(
    models: Answer = REAL, stream: Answer | None = None, shell: Answer | None = None, vector: Answer | None = None
) -> dict[str, Answer | list[Answer]]:
    return {
        "POST /v1/embeddings": vector or (200, {"data": [{"embedding": [0.5] * 256}]}),
        "GET /v1/models": models,
        "POST /v1/responses": [stream or completed(), shell or printed("moorage-doctor done\n")],
        "POST /v1/containers": CONTAINER,
        "DELETE /v1/containers/cntr_1": (200, {"id": "cntr_1", "deleted": True}),
    }


def of(
    models: Answer = REAL, stream: Answer | None = None, shell: Answer | None = None, vector: Answer | None = None
) -> list[Finding]:
    """What is found where a deployment answers so."""
    with serving(answers(models, stream, shell, vector)) as deployment:
        said = list(of_deployment(find(deployment.environ), {}))
        findings = [one for one in said if isinstance(one, Finding)]
        return [Finding(one.level, one.what.replace(deployment.url, "URL"), one.advice) for one in findings]


def test_a_good_deployment_is_found_good() -> None:
    findings = of()
    assert [finding.level for finding in findings] == [Level.OK] * 4
    assert findings[0].what == "URL answers; models: gpt"
    assert findings[1].what.startswith("'gpt' answered in 0.")
    assert findings[2].what.startswith("a sandbox started, ran a command and answered in 0.")
    assert findings[3].what == "a sandbox without a policy cannot get out"


def test_an_embedding_model_is_asked_for_one_vector() -> None:
    (well,) = [one for one in of(models=BOTH) if "embed" in one.what]
    assert (well.level, well.what.endswith("its vectors have 256 numbers")) == (Level.OK, True)
    (away,) = [one for one in of(models=BOTH, vector=refusal(502, "It is away.")) if "embed" in one.what]
    assert away == Finding(
        Level.FAIL,
        "'static-256' did not embed: It is away.",
        "Correct its [[embedding]] in models.toml: files wait for it, and stores that were made with it cannot be searched.",
    )


def test_what_takes_time_is_named_before_it_is_waited_for() -> None:
    with serving(answers()) as deployment:
        said = list(of_deployment(find(deployment.environ), {}))
    waits = [one.what for one in said if isinstance(one, Waiting)]
    assert waits == ["'gpt' is asked for an answer", "a sandbox is started and runs a command"]


def test_the_sandbox_is_probed_without_a_real_model_in_a_container_that_is_deleted_again() -> None:
    for shell in (printed("moorage-doctor done\n"), refusal(500, "It broke.")):
        with serving(answers(shell=shell)) as deployment:
            list(of_deployment(find(deployment.environ), {}))
        made, asked, deleted = deployment.requests[-3:]
        assert made == ("POST /v1/containers", {"name": "moorage-doctor"})
        assert (asked[1]["model"], asked[1]["store"]) == ("demo", False)
        assert asked[1]["tools"] == [{"type": "shell", "environment": {"type": "container_reference", "container_id": "cntr_1"}}]
        assert deleted[0] == "DELETE /v1/containers/cntr_1"


def test_a_deployment_with_the_scripted_model_alone_is_warned_of() -> None:
    assert of(models=MODELS)[1] == Finding(
        Level.WARN, "the scripted demo model answers: no other is configured", "docs/models.md says how a real one is named."
    )


NO_ANSWER = "Check its key and address (models.toml, MOORAGE_UPSTREAM_URL). Here 'moorage logs' shows why, on AWS the function's log."
NO_SANDBOX = "The log says why: 'moorage logs' here, the tool step's on AWS, where 'moorage doctor --aws' shows quotas."


@pytest.mark.parametrize(
    ("findings", "at", "finding"),
    [
        pytest.param(
            lambda: of(models=refusal(401, "Incorrect API key provided.")),
            0,
            Finding(Level.FAIL, "URL refuses to list its models", "Incorrect API key provided."),
            id="a wrong key",
        ),
        pytest.param(
            lambda: of(stream=refusal(400, "The upstream refuses the key.")),
            1,
            Finding(Level.FAIL, "'gpt' did not answer: The upstream refuses the key.", NO_ANSWER),
            id="a model that refuses",
        ),
        pytest.param(
            lambda: of(stream=(200, [{"type": "response.failed", "response": {"error": {"message": "It broke."}}}])),
            1,
            Finding(Level.FAIL, "'gpt' did not answer: It broke.", NO_ANSWER),
            id="a model that fails",
        ),
        pytest.param(
            lambda: of(shell=refusal(400, "No sandbox can be had now.")),
            2,
            Finding(Level.FAIL, "no sandbox ran a command: No sandbox can be had now.", NO_SANDBOX),
            id="no sandbox",
        ),
        pytest.param(
            lambda: of(shell=printed("This deployment has no sandboxes of 1 GiB (memory_tiers in cdk.json).\n")),
            2,
            Finding(
                Level.WARN,
                "This deployment has no sandboxes of 1 GiB (memory_tiers in cdk.json).",
                "Hosted tools that run commands are refused: 'provisioner' and 'memory_tiers' in cdk.json say so.",
            ),
            id="a deployment without sandboxes",
        ),
        pytest.param(
            lambda: of(shell=printed("python3: not found\n")),
            2,
            Finding(Level.FAIL, "no sandbox ran a command: python3: not found", NO_SANDBOX),
            id="a sandbox in which the command fails",
        ),
        pytest.param(
            lambda: of(shell=printed("moorage-doctor reached DNS\nmoorage-doctor reached 203.0.113.7:443\nmoorage-doctor done\n")),
            3,
            Finding(
                Level.FAIL,
                "a sandbox without a policy reached 203.0.113.7:443, DNS",
                "Nothing but its exec server may be reachable: check the sandboxes' security group, subnets and DNS firewall.",
            ),
            id="a sandbox that gets out",
        ),
    ],
)
def test_what_a_deployment_cannot_do_is_named_with_what_to_do(findings: Callable[[], list[Finding]], at: int, finding: Finding) -> None:
    found = findings()
    assert found[at] == finding
    assert {other.level for other in found[:at] + found[at + 1 :]} <= {Level.OK}


@pytest.mark.parametrize(("host", "tries"), [("127.0.0.1", ["create_connection"]), ("localhost", ["create_connection", "getaddrinfo"])])
def test_a_sandbox_is_made_to_try_the_apis_address_and_its_name(host: str, tries: list[str]) -> None:
    with serving(answers()) as deployment:
        url = deployment.url.replace("127.0.0.1", host)
        list(of_deployment(find({"MOORAGE_URL": url, "MOORAGE_API_KEY": "sk-moorage-test"}), {}))
    (step, _) = json.loads(deployment.requests[-2][1]["input"].splitlines()[1])
    (command,) = step["shell"]["commands"]
    assert [name for name in ("create_connection", "getaddrinfo") if name in command] == tries


def test_an_address_that_is_not_the_apis_is_named() -> None:
    (finding,) = of(models=(200, "<html>Welcome</html>"))
    assert (finding.level, finding.what) == (Level.FAIL, "URL refuses to list its models")
    assert finding.advice.endswith("MOORAGE_URL is the address that SDKs take as base_url; it ends with /v1.")


def test_a_deployment_that_is_not_there_fails(free_port: int) -> None:
    url = f"http://127.0.0.1:{free_port}/v1"
    (finding,) = of_deployment(find({"MOORAGE_URL": url, "MOORAGE_API_KEY": "sk-moorage-test"}), {})
    assert finding == Finding(
        Level.FAIL,
        "the deployment does not answer",
        f"{url}/models cannot be reached: [Errno 111] Connection refused. 'moorage up' starts a local stack; "
        "MOORAGE_URL names another.",
    )


@pytest.mark.parametrize(
    ("shell", "code", "last"),
    [(printed("moorage-doctor done\n"), 0, "4 checks, 0 failed."), (refusal(400, "None."), 1, "3 checks, 1 failed.")],
)
def test_the_command_ends_with_1_if_anything_failed(shell: Answer, code: int, last: str, capsys: pytest.CaptureFixture[str]) -> None:
    with serving(answers(shell=shell)) as deployment:
        assert main(["doctor"], deployment.environ) == code
    assert capsys.readouterr().out.splitlines()[-1] == last


def test_programs_get_a_finding_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    with serving(answers(models=refusal(401, "Incorrect API key provided."))) as deployment:
        assert main(["doctor", "--json"], deployment.environ) == 1
    (line,) = capsys.readouterr().out.splitlines()
    said = {"level": "fail", "what": f"{deployment.url} refuses to list its models", "advice": "Incorrect API key provided."}
    assert json.loads(line) == said


def running_here(folder: Path, url: str) -> dict[str, str]:
    """What a stack that runs from another terminal has left in this folder."""
    local_state(folder)
    (folder / "env").write_text(f"OPENAI_BASE_URL={url}\nOPENAI_API_KEY=sk-moorage-test\n")
    return {"MOORAGE_STATE_DIR": str(folder)}


def test_a_stack_that_runs_is_judged_by_its_own_settings_and_not_by_this_shells(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(answers()) as deployment:
        assert main(["doctor"], running_here(tmp_path, deployment.url)) == 0
    said = capsys.readouterr().out
    assert "answers; models: gpt" in said
    assert "scripted" not in said
    assert " port " not in said


def test_a_stack_that_does_not_run_is_told_what_a_start_would_find(
    tmp_path: Path, free_port: int, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["doctor"], running_here(tmp_path, f"http://127.0.0.1:{free_port}/v1") | {"MOORAGE_PORT": str(free_port)})
    said = capsys.readouterr().out
    assert "warn  the deployment does not answer" in said
    assert f"ok    port {free_port} is free" in said
    assert "The model is 'demo'" in said


def test_a_mistyped_setting_is_named() -> None:
    findings = list(of_machine({"MOORAGE_UPSTREAM_URI": "http://127.0.0.1:8000/v1"}))
    assert findings[-1].what == "MOORAGE_UPSTREAM_URI is no setting; MOORAGE_UPSTREAM_URL is."


def test_a_table_that_cannot_be_read_is_named(free_port: int, capsys: pytest.CaptureFixture[str]) -> None:
    environ = {"MOORAGE_TABLE": "moorage", "AWS_REGION": REGION}
    aws = {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{free_port}", "AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}
    done = subprocess.run(
        [sys.executable, "-m", "moorage", "doctor"],
        env={"PATH": os.environ["PATH"]} | environ | aws,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout.splitlines()[0] == "fail  the table moorage cannot be read"
    assert done.stdout.splitlines()[2:4] == [
        "warn  the deployment was not asked",
        "      Set MOORAGE_URL (https://.../v1) and MOORAGE_API_KEY: they say where the API is and who asks.",
    ]
    assert (done.returncode, done.stderr) == (1, "")


# --- this machine ----------------------------------------------------------------------------------------------------------------


@pytest.fixture
def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
    return port


def test_an_old_python_is_refused() -> None:
    assert [python_finding(version).level for version in ((3, 10, 4), (3, 11, 0), (4, 0))] == [Level.FAIL, Level.OK, Level.OK]


@pytest.mark.parametrize(
    ("bwrap", "advice"),
    [
        (None, "bubblewrap is not installed ('apt install bubblewrap'): there can be no sandboxes."),
        ("exit 1", "bubblewrap can make no namespaces on this machine, so there can be no sandboxes."),
    ],
    ids=["no bubblewrap", "no namespaces"],
)
def test_a_machine_that_can_have_no_sandboxes_is_told_why(bwrap: str | None, advice: str, tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    if bwrap is not None:
        (tmp_path / "bwrap").write_text(f"#!/bin/sh\n{bwrap}\n")
        (tmp_path / "bwrap").chmod(0o755)
    done = subprocess.run(
        [sys.executable, "-m", "moorage", "doctor"],
        env={"PATH": str(tmp_path), "MOORAGE_STATE_DIR": str(tmp_path), "MOORAGE_PORT": "0"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    lines = done.stdout.splitlines()
    assert lines[1] == "fail  this machine can have no sandboxes"
    assert lines[2].startswith(f"      {advice}") or "The users of sandboxes cannot run" in lines[2]
    assert (done.returncode, done.stderr) == (1, "")


def test_a_full_disk_is_warned_of(tmp_path: Path) -> None:
    assert disk_finding(tmp_path / "none" / "yet").level is Level.OK
    assert disk_finding(tmp_path, bytes_min=2**62).advice == "Files, artifacts and sandboxes lie there: make room."


def test_a_port_is_free_or_wrong_or_anothers(free_port: int) -> None:
    assert port_finding({"MOORAGE_PORT": str(free_port)}) == Finding(Level.OK, f"port {free_port} is free")
    assert port_finding({"MOORAGE_PORT": "http"}) == Finding(
        Level.FAIL, "no port for the API", "MOORAGE_PORT must be a whole number, not 'http'."
    )
    with MockUpstream() as other:
        port = other.url.split(":")[2].split("/")[0]
        assert port_finding({"MOORAGE_PORT": port}) == Finding(
            Level.FAIL, f"port {port} is taken by another program", "MOORAGE_PORT=8090 (or any free port) chooses another."
        )


SILENT = '[[models]]\nname = "m"\nprovider = "chat_completions"\nbase_url = "http://127.0.0.1:9/v1"\n'


@pytest.mark.parametrize(
    ("situation", "text", "level"),
    [
        ("nothing is configured", "", "warn"),
        ("a server that does not answer", SILENT, "fail"),
        ("a file that cannot be read", "[[models", "fail"),
    ],
)
def test_the_model_that_would_answer_is_checked(tmp_path: Path, situation: str, text: str, level: str) -> None:
    path = tmp_path / "models.toml"
    path.write_text(text)
    finding = model_finding({"MOORAGE_MODELS_FILE": str(path)})
    assert (finding.level.value, bool(finding.advice)) == (level, True), situation


def test_a_model_server_that_answers_is_well(tmp_path: Path) -> None:
    (tmp_path / "models.toml").write_text("")
    with MockUpstream() as upstream:
        finding = model_finding({"MOORAGE_MODELS_FILE": str(tmp_path / "models.toml"), "MOORAGE_UPSTREAM_URL": upstream.url})
    assert finding.level is Level.OK
