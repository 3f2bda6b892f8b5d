"""What ``make deploy`` says at its end: where the deployment is, and what to type first.

``python -m infra.deployed OUTPUTS``, where OUTPUTS is the file of ``cdk deploy --outputs-file``.
"""

import json
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from infra.config import Config, ConfigError, Models

_MODELS_FILE: Final = Path(__file__).resolve().parents[1] / "models.toml"


def closing(outputs: Mapping[str, Mapping[str, str]], models_file: Path = _MODELS_FILE) -> str:
    """The text for what CloudFormation put out, by stack. Raises :class:`ConfigError` if nothing of moorage's is among it."""
    name = next((stack for stack, values in outputs.items() if "BaseUrl" in values), None)
    if name is None:
        raise ConfigError("No deployment of moorage is among these outputs: 'make deploy' makes one.")
    own = outputs[name]
    region = own["StateMachineArn"].split(":")[3]
    return f"""
moorage is deployed.

  URL     {own["BaseUrl"]}
  table   {own["TableName"]}
  region  {region}
{_domain(own)}{_models(Models.from_file(models_file, Config(name=name)))}
Make a key, and see whether all of it works:

  export AWS_REGION={region} MOORAGE_TABLE={own["TableName"]} MOORAGE_URL={own["BaseUrl"]}{_secrets(own)}{_audit(own)}
  export MOORAGE_API_KEY=$(.venv/bin/moorage keys create --tenant default)
  .venv/bin/moorage doctor

Call it from Python:

import openai, os
client = openai.OpenAI(base_url=os.environ["MOORAGE_URL"], api_key=os.environ["MOORAGE_API_KEY"])
print(client.responses.create(model=client.models.list().data[0].id, input="hello").output_text)

'make deployed' shows this again, 'make destroy' takes the deployment down."""


def _secrets(own: Mapping[str, str]) -> str:
    return f" MOORAGE_EGRESS_KEY={own['SecretsKeyArn']}" if "SecretsKeyArn" in own else ""


def _audit(own: Mapping[str, str]) -> str:
    return f" MOORAGE_AUDIT_LOG_GROUP={own['AuditLogGroup']}" if "AuditLogGroup" in own else ""


def _domain(own: Mapping[str, str]) -> str:
    said = (("DomainTarget", "URL"), ("WebSocketDomainTarget", "WebSocket API"))
    return "".join(f"  CNAME   {own[name]} is where the name of the {what} has to point\n" for name, what in said if name in own)


def _models(models: Models) -> str:
    made = [name for name in models.secrets if not name.startswith("arn:")]
    lines = [f"  aws ssm put-parameter --type SecureString --name {name} --value ...\n" for name in models.parameters]
    lines += [f"  aws secretsmanager create-secret --name {name} --secret-string ...\n" for name in made]
    if lines:
        return "\nStore the keys that models.toml refers to, once:\n\n" + "".join(lines)
    if "models" in tomllib.loads(models.text):
        return ""
    return "\nmodels.toml names no model: the scripted demo model answers. docs/models.md says how to name one.\n"


def main() -> None:
    """Entry point."""
    path = Path(sys.argv[1])
    if not path.exists():
        sys.exit(f"There is no {path}: 'make deploy' writes it.")
    try:
        sys.stdout.write(f"{closing(json.loads(path.read_text()))}\n")
    except ConfigError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
