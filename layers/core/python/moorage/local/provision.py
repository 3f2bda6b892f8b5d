"""The table, the bucket, the step functions and the state machine on the emulator, from the same files as on AWS."""

import contextlib
import io
import json
import zipfile

import boto3
from botocore.exceptions import ClientError

from moorage.local.emulator import REGION
from moorage.local.places import LOOP, ROOT
from moorage.local.worker import WARM
from moorage.store.schema import create_table

TABLE = "moorage"
BUCKET = "moorage"
STATE_MACHINE = "moorage-agent-loop"
TASKS = {
    "ModelStepArn": "model_step",
    "ToolStepArn": "tool_step",
    "ServiceStepArn": "service_step",
    "ContinueStepArn": "continue_step",
    "FailResponseArn": "fail_response",
    "IndexStepArn": "index_step",
    "ParseStepArn": "parse_step",
}
"""Placeholder in the state machine's definition -> function of ``functions/steps/handler.py``."""
_HANDLER = f"""import steps
from moorage.local import worker

worker.end_with_parent()
for name in {tuple(TASKS.values())}:
    globals()[name] = worker.warmed(getattr(steps, name), steps._runtime)
"""
_ROLE = "arn:aws:iam::000000000000:role/moorage"


def provision(environment: dict[str, str]) -> None:
    """Table, bucket, step functions and state machine, from the same files as on AWS. Harmless to repeat."""
    create_table(boto3.client("dynamodb"), TABLE)
    with contextlib.suppress(ClientError):
        boto3.client("s3").create_bucket(Bucket=BUCKET)
    definition = LOOP.read_text()
    code = _function_zip()
    for placeholder, function in TASKS.items():
        definition = definition.replace(f"${{{placeholder}}}", _put_function(function, code, environment))
    _put_state_machine(definition)


def warm() -> None:
    """Start the functions that the first response with a tool calls."""
    functions = boto3.client("lambda")
    for name in ("model_step", "tool_step"):
        functions.invoke(FunctionName=f"moorage-{name}", Payload=json.dumps({WARM: True}))
    functions.close()


def _function_zip() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.write(ROOT / "functions" / "steps" / "handler.py", "steps.py")
        archive.writestr("handler.py", _HANDLER)
    return buffer.getvalue()


def _put_function(name: str, code: bytes, environment: dict[str, str]) -> str:
    """An emulator that has started knows none; one that is there is this start's own, and may be at work."""
    functions = boto3.client("lambda")
    try:
        made = functions.create_function(
            FunctionName=f"moorage-{name}",
            Runtime="python3.13",
            Role=_ROLE,
            Handler=f"handler.{name}",
            Code={"ZipFile": code},
            Timeout=900,
            MemorySize=1024,
            Environment={"Variables": environment},
        )
    except functions.exceptions.ResourceConflictException:
        made = functions.get_function_configuration(FunctionName=f"moorage-{name}")
    return str(made["FunctionArn"])


def _put_state_machine(definition: str) -> None:
    machines = boto3.client("stepfunctions")
    arn = f"arn:aws:states:{REGION}:000000000000:stateMachine:{STATE_MACHINE}"
    try:
        machines.update_state_machine(stateMachineArn=arn, definition=definition, roleArn=_ROLE)
    except ClientError:
        machines.create_state_machine(name=STATE_MACHINE, definition=definition, roleArn=_ROLE)
