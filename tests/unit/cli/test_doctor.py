import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from botocore.exceptions import ClientError, NoRegionError
from moorage.cli.doctor import AwsClients, Finding, Level, model_finding, of_account, port_finding, python_finding

from tests.upstream import MockUpstream


class ParameterNotFound(ClientError):
    pass


def account(
    *, bootstrap: str | None = "28", lambdas: int = 1_000, vcpus: float = 64, models: int = 3, may_ask: bool = True
) -> Callable[[], AwsClients]:
    """An account as botocore's clients would show it."""

    def quota(**_: Any) -> Any:
        if not may_ask:
            raise ClientError({"Error": {"Code": "AccessDeniedException", "Message": "no"}}, "GetServiceQuota")
        return {"Quota": {"Value": vcpus}}

    def parameter(**_: Any) -> Any:
        if bootstrap is None:
            raise ParameterNotFound({"Error": {"Code": "ParameterNotFound", "Message": "none"}}, "GetParameter")
        return {"Parameter": {"Value": bootstrap}}

    paginator = SimpleNamespace(paginate=lambda **_: [{"Quotas": [{"QuotaName": "StateTransition rate", "Value": 5_000}]}])
    clients = AwsClients(
        "eu-west-1",
        sts=SimpleNamespace(get_caller_identity=lambda: {"Account": "123456789012", "Arn": "arn:aws:iam::123456789012:user/me"}),
        ssm=SimpleNamespace(get_parameter=parameter, exceptions=SimpleNamespace(ParameterNotFound=ParameterNotFound)),
        lambda_=SimpleNamespace(get_account_settings=lambda: {"AccountLimit": {"ConcurrentExecutions": lambdas}}),
        service_quotas=SimpleNamespace(get_service_quota=quota, get_paginator=lambda name: paginator),
        bedrock=SimpleNamespace(list_foundation_models=lambda **_: {"modelSummaries": [{}] * models}),
    )
    return lambda: clients


def levels(findings: Iterator[Finding]) -> list[str]:
    return [finding.level.value for finding in findings]


def test_a_good_account_is_found_good() -> None:
    findings = list(of_account(account()))
    assert [finding.what for finding in findings] == [
        "account 123456789012 in eu-west-1 as arn:aws:iam::123456789012:user/me",
        "CDK bootstrap version 28",
        "Lambda: 1000 concurrent executions",
        "Fargate: 64 vCPUs at once",
        "Step Functions: StateTransition rate 5000",
        "Bedrock: 3 text models in eu-west-1",
    ]
    assert {finding.level for finding in findings} == {Level.OK}


@pytest.mark.parametrize(
    ("situation", "connect", "at", "level"),
    [
        ("never bootstrapped", account(bootstrap=None), 1, "fail"),
        ("bootstrapped long ago", account(bootstrap="6"), 1, "fail"),
        ("a new account's Lambda quota", account(lambdas=10), 2, "warn"),
        ("a new account's Fargate quota", account(vcpus=6), 3, "warn"),
        ("quotas that may not be read", account(may_ask=False), 3, "warn"),
        ("a region without models", account(models=0), 5, "warn"),
    ],
)
def test_what_is_missing_is_named_with_what_to_do(situation: str, connect: Callable[[], AwsClients], at: int, level: str) -> None:
    findings = list(of_account(connect))
    assert [i for i, finding in enumerate(findings) if finding.level is not Level.OK] == [at], situation
    assert (findings[at].level.value, bool(findings[at].advice)) == (level, True)


def test_without_a_region_nothing_else_is_asked() -> None:
    def connect() -> AwsClients:
        raise NoRegionError

    assert levels(of_account(connect)) == ["fail"]


def test_an_old_python_is_refused() -> None:
    assert [python_finding(version).level for version in ((3, 10, 4), (3, 11, 0), (4, 0))] == [Level.FAIL, Level.OK, Level.OK]


def test_a_port_is_free_or_anothers_or_ours() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        server.close()
        assert port_finding(port).level is Level.OK


def test_a_port_that_another_program_holds_is_named() -> None:
    with MockUpstream() as other:
        port = int(other.url.split(":")[2].split("/")[0])
        assert port_finding(port).level is Level.FAIL


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
