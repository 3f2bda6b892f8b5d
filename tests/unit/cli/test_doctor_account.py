"""What the doctor finds in an account, by botocore's own model of the services."""

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.exceptions import NoCredentialsError, NoRegionError
from botocore.stub import Stubber
from moorage.cli.checks.account import AwsClients, deployed_models, of_account
from moorage.cli.checks.findings import Finding, Level
from moorage.cli.target import TargetError

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
def account(*said: dict[str, Said], asked: dict[str, Any] | None = None) -> Iterator[Callable[[], AwsClients]]:
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
                stubber.add_response(method, answer, asked.get(call) if asked else None)

        def connect() -> AwsClients:
            names = ("sts", "ssm", "secretsmanager", "iam", "lambda", "service-quotas")
            sts, ssm, secrets, iam, lambda_, quotas = (client(name)[0] for name in names)
            return AwsClients(REGION, sts, ssm, secrets, iam, lambda_, quotas, bedrock=lambda region: client("bedrock")[0])

        yield connect


def findings_of(
    *said: dict[str, Said], models: str = "", context: dict[str, Any] | None = None, asked: dict[str, Any] | None = None
) -> list[Finding]:
    """``asked`` are the parameters that some calls must have."""
    with account(*said, asked=asked) as connect:
        return list(of_account(connect, models, context or {}))


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


COMPANY = {"@aws-cdk/core:bootstrapQualifier": "platform", "@aws-cdk/core:permissionsBoundary": {"name": "Developers"}}
BOUNDARY = "arn:aws:iam::123456789012:policy/Developers"
ASKED = {"ssm get_parameter": {"Name": "/cdk-bootstrap/platform/version"}, "iam get_policy": {"PolicyArn": BOUNDARY}}


def test_a_companys_qualifier_and_boundary_are_looked_up_as_cdk_json_names_them() -> None:
    findings = findings_of({**GOOD, "iam get_policy": yes(Policy={})}, context=COMPANY, asked=ASKED)
    assert findings[1:3] == [Finding(Level.OK, "CDK bootstrap version 28"), Finding(Level.OK, f"permissions boundary {BOUNDARY}")]


def test_a_missing_boundary_and_a_bootstrap_of_another_qualifier_stop_a_deploy() -> None:
    missing = {"ssm get_parameter": no("ParameterNotFound"), "iam get_policy": no("NoSuchEntity")}
    context = {**COMPANY, "@aws-cdk/core:permissionsBoundary": {"arn": BOUNDARY}}
    assert findings_of({**GOOD, **missing}, context=context, asked=ASKED)[1:3] == [
        Finding(
            Level.FAIL,
            "CDK is not bootstrapped in this region with the qualifier 'platform'",
            "Run 'make bootstrap' with AWS_REGION=eu-west-1.",
        ),
        Finding(
            Level.FAIL,
            f"the permissions boundary {BOUNDARY} is not there",
            "Make the policy, or correct @aws-cdk/core:permissionsBoundary in cdk.json.",
        ),
    ]


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
        Finding(Level.WARN, "models.toml names no model: the scripted demo model would answer", "docs/models.md says how to name one."),
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
    "a key that is a secret": (
        OPENAI.replace("ssm:", "secretsmanager:"),
        {"secretsmanager describe_secret": yes(Name="/moorage/OPENAI_API_KEY")},
        Finding(Level.OK, "model 'gpt': its key is the secret /moorage/OPENAI_API_KEY"),
    ),
    "a secret that is not stored": (
        OPENAI.replace("ssm:", "secretsmanager:"),
        {"secretsmanager describe_secret": no("ResourceNotFoundException")},
        Finding(
            Level.FAIL,
            "model 'gpt' has no key: Secrets Manager has no secret /moorage/OPENAI_API_KEY",
            "Run 'aws secretsmanager create-secret --name /moorage/OPENAI_API_KEY --secret-string ...'.",
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

    assert list(of_account(connect, "", {})) == [Finding(Level.FAIL, "AWS cannot be asked", advice)]


def test_the_deployments_models_are_those_of_the_checkout_with_keys_in_ssm(tmp_path: Path) -> None:
    (tmp_path / "cdk.json").write_text(json.dumps({"context": {"moorage": {"name": "mine"}}}))
    (tmp_path / "models.toml").write_text("key = 'env:OPENAI_API_KEY'\n")
    assert deployed_models(tmp_path) == 'key = "ssm:/mine/OPENAI_API_KEY"\n'


def test_what_would_be_deployed_has_to_be_there(tmp_path: Path) -> None:
    with pytest.raises(TargetError, match=r"reads cdk\.json and models\.toml of a checkout"):
        deployed_models(tmp_path)
