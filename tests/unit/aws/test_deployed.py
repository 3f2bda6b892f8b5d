"""What ``make deploy`` says at its end. That its commands work as they stand is shown in tests/deploy."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from infra.config import ConfigError
from infra.deployed import closing

ROOT = Path(__file__).parents[3]
URL = "https://abc123.execute-api.eu-west-1.amazonaws.com/api/v1"
OUTPUTS = {
    "mine-state": {"ExportsOutputRefStateTable": "mine-state-StateTable-1"},
    "mine": {
        "BaseUrl": URL,
        "ApiId": "abc123",
        "TableName": "mine-state-StateTable-1",
        "BucketName": "mine-state-bucket",
        "StateMachineArn": "arn:aws:states:eu-west-1:123456789012:stateMachine:mine-agent-loop",
    },
}
HEAD = f"""
moorage is deployed.

  URL     {URL}
  table   mine-state-StateTable-1
  region  eu-west-1
"""
NO_MODEL = """
models.toml names no model: the scripted demo model answers. docs/models.md says how to name one.
"""
KEYS = """
Store the keys that models.toml refers to, once:

  aws ssm put-parameter --type SecureString --name /mine/OPENAI_API_KEY --value ...
"""
SECRETS = """
Store the keys that models.toml refers to, once:

  aws secretsmanager create-secret --name /mine/openai --secret-string ...
"""
NEXT = f"""
Make a key, and see whether all of it works:

  export AWS_REGION=eu-west-1 MOORAGE_TABLE=mine-state-StateTable-1 MOORAGE_URL={URL}
  export MOORAGE_API_KEY=$(.venv/bin/moorage keys create --tenant default)
  .venv/bin/moorage doctor

Call it from Python:

import openai, os
client = openai.OpenAI(base_url=os.environ["MOORAGE_URL"], api_key=os.environ["MOORAGE_API_KEY"])
print(client.responses.create(model=client.models.list().data[0].id, input="hello").output_text)

'make deployed' shows this again, 'make destroy' takes the deployment down."""


@pytest.mark.parametrize(
    ("models", "between"),
    [
        ("", NO_MODEL),
        ('[[models]]\nname = "gpt"\nprovider = "openai_responses"\nkey = "env:OPENAI_API_KEY"\n', KEYS),
        ('[[models]]\nname = "gpt"\nprovider = "openai_responses"\nkey = "secretsmanager:/mine/openai"\n', SECRETS),
        ('[[models]]\nname = "nova"\nprovider = "bedrock_converse"\n', ""),
    ],
    ids=["no model", "a model with a key", "a model with a secret", "a model without one"],
)
def test_a_deployment_ends_with_where_it_is_and_what_to_do(models: str, between: str, tmp_path: Path) -> None:
    (tmp_path / "models.toml").write_text(models)
    assert closing(OUTPUTS, tmp_path / "models.toml") == HEAD + between + NEXT


def test_the_key_of_secrets_is_shown_where_there_is_one() -> None:
    arn = "arn:aws:kms:eu-west-1:123456789012:key/1"
    assert f" MOORAGE_URL={URL} MOORAGE_EGRESS_KEY={arn}\n" in closing({"mine": OUTPUTS["mine"] | {"SecretsKeyArn": arn}})


def test_domains_are_told_where_to_point() -> None:
    """Outputs are named as in the template of a deployment that has both."""
    template = json.loads((ROOT / "tests" / "infra" / "snapshots" / "everything-service.json").read_text())
    targets = {name: f"{name.lower()}.example.com" for name in template["Outputs"] if "Target" in name}
    said = closing({"mine": OUTPUTS["mine"] | targets})
    assert [line for line in said.splitlines() if "CNAME" in line] == [
        "  CNAME   domaintarget.example.com is where the name of the URL has to point",
        "  CNAME   websocketdomaintarget.example.com is where the name of the WebSocket API has to point",
    ]


def test_outputs_of_something_else_are_refused() -> None:
    with pytest.raises(ConfigError, match="'make deploy' makes one"):
        closing({"other": {"Url": "https://api.example.com"}})


def test_the_program_reads_the_file_of_the_cdk(tmp_path: Path) -> None:
    def run(path: Path) -> tuple[int, str, str]:
        command = [sys.executable, "-m", "infra.deployed", str(path)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout, done.stderr

    path = tmp_path / "deployed.json"
    assert run(path) == (1, "", f"There is no {path}: 'make deploy' writes it.\n")
    path.write_text(json.dumps(OUTPUTS))
    assert run(path) == (0, f"{closing(OUTPUTS)}\n", "")


@pytest.mark.parametrize("target", ["synth", "bootstrap", "deploy", "destroy"])
def test_a_deploy_asks_nothing_of_the_machine_that_only_sandboxes_need(target: str) -> None:
    """It runs on macOS and in CI, where there is no bubblewrap."""
    said = subprocess.run(["make", "--dry-run", "--always-make", target], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert "requirements/dev.txt" in said
    assert not [word for word in ("bubblewrap", "toolbox", "egress", "system_packages") if word in said]
