"""Rights that follow from ``models.toml``: to keys in Secrets Manager, to the key that they are under, to guardrails."""

import json
from pathlib import Path
from typing import Any

import aws_cdk as cdk
import pytest

from infra.config import Config, ConfigError
from infra.stacks import build
from tests.infra.conftest import COMPANY
from tests.twin.template import Template

SHARED = "arn:aws:secretsmanager:us-east-1:111122223333:secret:shared-Ab12Cd"
KEY = COMPANY["kms_key_arn"]
FILE = f"""
[[models]]
name = "gpt"
provider = "openai_responses"
key = "secretsmanager:/moorage/openai"

[[models]]
name = "other"
provider = "openai_responses"
key = "secretsmanager:{SHARED}"

[[embedding]]
name = "small"
provider = "openai"
key = "secretsmanager:/moorage/embedding"
"""
NAMED = "arn:aws:secretsmanager:us-east-1:111122223333:secret:/moorage/"


def statements(models: str, folder: Path, **settings: Any) -> list[tuple[str, dict[str, Any]]]:
    """By function, without the network, which no model key has to do with."""
    (folder / "models.toml").write_text(models)
    app = cdk.App(context={"aws:cdk:bundling-stacks": []}, outdir=str(folder / "out"))
    env = cdk.Environment(account="111122223333", region="us-east-1")
    build(app, Config(provisioner="none", **settings), models_file=folder / "models.toml", env=env)
    app.synth()
    stacks = ("moorage-state", "moorage")
    template = Template.of(*(json.loads((folder / "out" / f"{name}.template.json").read_text()) for name in stacks))
    return [
        (name.partition("Role")[0].removeprefix("Functions"), statement)
        for name, policy in template.of_type("AWS::IAM::Policy")
        for statement in policy["PolicyDocument"]["Statement"]
    ]


def test_those_who_ask_models_read_the_named_secrets_and_no_others(tmp_path: Path) -> None:
    found = statements(FILE, tmp_path, model_keys_kms_arn=KEY)
    readable = {
        function: {arn for arn in listed(statement["Resource"]) if not arn.startswith("<StateContentKey")}
        for function, statement in found
        if statement["Action"] == "secretsmanager:GetSecretValue" and NAMED in str(statement["Resource"])
    }
    embedding, answering = f"{NAMED}embedding-??????", f"{NAMED}openai-??????"
    every = {SHARED, embedding, answering}
    assert readable == {"Responses": every, "ModelStep": every, "ServiceStep": {embedding}, "IndexStep": {embedding}}
    opened = {function: statement["Condition"] for function, statement in found if statement["Resource"] == KEY}
    through = {"StringEquals": {"kms:ViaService": ["secretsmanager.us-east-1.amazonaws.com", "ssm.us-east-1.amazonaws.com"]}}
    assert opened == dict.fromkeys(readable, through)


GUARDED = """
[[models]]
name = "near"
provider = "bedrock_converse"
guardrail = "abc123:1"

[[models]]
name = "far"
provider = "bedrock_converse"
region = "us-west-2"
guardrail = "def456:DRAFT"

[[models]]
name = "shared"
provider = "bedrock_converse"
guardrail = "arn:aws:bedrock:us-east-1:444455556666:guardrail/ghi789:2"
"""


def test_those_who_ask_models_may_apply_the_named_guardrails_and_no_others(tmp_path: Path) -> None:
    found = statements(GUARDED, tmp_path)
    applied = {function: set(listed(each["Resource"])) for function, each in found if each["Action"] == "bedrock:ApplyGuardrail"}
    named = {
        "arn:aws:bedrock:us-east-1:111122223333:guardrail/abc123",
        "arn:aws:bedrock:us-west-2:111122223333:guardrail/def456",
        "arn:aws:bedrock:us-east-1:444455556666:guardrail/ghi789",
    }
    assert applied == {"Responses": named, "ModelStep": named}


def listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def test_without_model_keys_nobody_gets_a_right_to_their_key(tmp_path: Path) -> None:
    assert KEY not in json.dumps(statements("", tmp_path, model_keys_kms_arn=KEY))


def test_a_secret_of_another_region_is_refused_with_one_sentence(tmp_path: Path) -> None:
    far = FILE.replace("us-east-1", "eu-west-1")
    with pytest.raises(ConfigError, match=r"^models\.toml: the secret arn:\S+ is in eu-west-1, and [^\n]+ to us-east-1\.$"):
        statements(far, tmp_path)
