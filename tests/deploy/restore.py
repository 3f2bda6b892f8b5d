"""The commands of docs/aws.md, "Restore", typed on an emulator: what was deleted is there again, in a table that the stack adopts.

``aws`` is not installed for it. Its commands have the names that botocore gives to the same calls, in another spelling.
"""

import re
import shlex
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import boto3
import httpx
import pytest
from botocore import xform_name
from botocore.exceptions import ClientError

from localstack.deploy import Deployer
from tests.deploy.conftest import REGION, ROOT, running_emulator, synthesise
from tests.deploy.life_cycle import OFF, Account
from tests.deploy.test_ring import in_background, script, shell

pytestmark = pytest.mark.timeout(900)


def documented(table: str, bucket: str, moment: datetime) -> tuple[list[list[str]], dict[str, Any]]:
    """The ``aws`` commands, in words, and the settings of the deployment after them."""
    section = (ROOT / "docs" / "aws.md").read_text().partition("\n## Restore\n")[2].partition("\n## ")[0]
    lines = section.partition("```console\n")[2].partition("```")[0].replace("\\\n", " ").splitlines()
    told = {"TABLE": table, "BUCKET": bucket, "2026-11-22T10:00:00Z": moment.isoformat()}
    *commands, deploy = [shlex.split(line.removeprefix("$ ")) for line in lines]
    assert deploy[:2] == ["make", "deploy"], deploy
    settings = dict(re.findall(r"-c moorage:(\w+)=(\S+)", deploy[2]))
    return [[told.get(word, word) for word in each] for each in commands], {k: told.get(v, v) for k, v in settings.items()}


def typed(deployer: Deployer, words: list[str]) -> None:
    """``aws`` with these words."""
    program, service, command, *rest = words
    assert program == "aws"
    client = deployer.client(service)
    if command == "wait":
        client.get_waiter(rest[0].replace("-", "_")).wait(**_options(rest[1:]), WaiterConfig={"Delay": 1})
        return
    names = {xform_name(name, "-"): name for name in client.meta.service_model.operation_names}
    getattr(client, xform_name(names[command]))(**_options(rest))


def _options(words: list[str]) -> dict[str, Any]:
    told: dict[str, Any] = {}
    for place, word in enumerate(words):
        if word.startswith("--"):
            following = words[place + 1] if place + 1 < len(words) else "--"
            name = "".join(part.capitalize() for part in word.removeprefix("--").removesuffix("-enabled").split("-"))
            told[f"{name}Enabled" if word.endswith("-enabled") else name] = True if following.startswith("--") else _value(following)
    return told


def _value(word: str) -> Any:
    """Also in the shorthand, as ``Enabled=true,AttributeName=ttl``."""
    if "=" not in word:
        return {"true": True}.get(word, word)
    return {name: _value(value) for name, value in (pair.split("=") for pair in word.split(","))}


@pytest.fixture
def account(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Account]:
    with running_emulator(tmp_path_factory.mktemp("emulator")) as endpoint:
        deployer = Deployer(boto3.Session("test", "test", region_name=REGION), endpoint)
        yield Account(deployer)
        deployer.close()


def settings_of(deployer: Deployer, table: str) -> dict[str, Any]:
    """What a restored table does not have by itself."""
    client = deployer.client("dynamodb")
    backups = client.describe_continuous_backups(TableName=table)["ContinuousBackupsDescription"]
    return {
        "ttl": client.describe_time_to_live(TableName=table)["TimeToLiveDescription"]["TimeToLiveStatus"],
        "recovery": backups["PointInTimeRecoveryDescription"]["PointInTimeRecoveryStatus"],
        "protection": client.describe_table(TableName=table)["Table"]["DeletionProtectionEnabled"],
    }


def deleted(api: httpx.Client, response_id: str) -> bool:
    return api.get(f"responses/{response_id}").status_code == 404


def test_what_was_deleted_is_there_again_in_a_restored_table(account: Account, tmp_path: Path) -> None:
    deployer, own = account.deployer, synthesise(tmp_path / "own", OFF)
    with account.deployed(own) as api:
        said = in_background(api, script(shell("echo kept > /mnt/data/note"), {"say": "Noted."}))
        moment = datetime.now(UTC)
        assert api.delete(f"responses/{said['id']}").is_success
        assert deleted(api, said["id"])
        later = in_background(api, script({"say": "Later."}))

    outputs = {each["OutputKey"]: each["OutputValue"] for each in _outputs(deployer)}
    commands, settings = documented(outputs["TableName"], outputs["BucketName"], moment)
    for words in commands:
        typed(deployer, words)
    restored = settings["table_name"]
    assert settings_of(deployer, restored) == settings_of(deployer, outputs["TableName"])
    with pytest.raises(ClientError, match="TableAlreadyExistsException"):
        typed(deployer, commands[0])

    with account.deployed(synthesise(tmp_path / "adopted", OFF | settings)) as api:
        assert api.get(f"responses/{said['id']}").raise_for_status().json()["output"] == said["output"]
        assert deleted(api, later["id"])
        container = {"type": "container_reference", "container_id": said["output"][0]["environment"]["container_id"]}
        again = in_background(
            api,
            script(shell("cat /mnt/data/note"), {"say": "Read."}),
            previous_response_id=said["id"],
            tools=[{"type": "shell", "environment": container}],
        )
        assert again["output"][1]["output"][0]["stdout"] == "kept\n"

    with account.deployed(own) as api:
        assert [deleted(api, each["id"]) for each in (said, later, again)] == [True, False, True]


def _outputs(deployer: Deployer) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = deployer.client("cloudformation").describe_stacks(StackName="moorage")["Stacks"][0]["Outputs"]
    return found


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        ({"SourceTableName": "no-recovery", "UseLatestRestorableTime": True}, "PointInTimeRecoveryUnavailableException"),
        ({"SourceTableName": "recovery", "RestoreDateTime": 0}, "InvalidRestoreTimeException"),
        ({"SourceTableName": "recovery", "RestoreDateTime": 4_000_000_000}, "InvalidRestoreTimeException"),
        ({"SourceTableName": "recovery"}, "ValidationException"),
    ],
    ids=["recovery is off", "before it was on", "the future", "no moment"],
)
def test_a_restore_is_refused_as_dynamodb_refuses_it(account: Account, request_: dict[str, Any], code: str) -> None:
    client = account.deployer.client("dynamodb")
    keys = [{"AttributeName": "PK", "KeyType": "HASH"}]
    kinds = [{"AttributeName": "PK", "AttributeType": "S"}]
    for name in ("recovery", "no-recovery"):
        client.create_table(TableName=name, KeySchema=keys, AttributeDefinitions=kinds, BillingMode="PAY_PER_REQUEST")
    client.update_continuous_backups(TableName="recovery", PointInTimeRecoverySpecification={"PointInTimeRecoveryEnabled": True})
    with pytest.raises(ClientError, match=code):
        client.restore_table_to_point_in_time(TargetTableName="restored", **request_)
    client.restore_table_to_point_in_time(TargetTableName="restored", SourceTableName="recovery", UseLatestRestorableTime=True)
    with pytest.raises(ClientError, match="ResourceInUseException"):
        client.update_time_to_live(TableName="restored", TimeToLiveSpecification={"Enabled": True, "AttributeName": "ttl"})
