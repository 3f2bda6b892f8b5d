"""LocalStack in host mode, with what it would fetch from the internet handed to it; ``tests/localstack_asl/ring.py`` starts this.

    .venv-localstack/bin/python tests/localstack_asl/host.py DYNAMODB_JARS

Two things are replaced. Its DynamoDB runs from the jars that Maven has brought, by the Java of this machine: LocalStack would download
both. And a task of a state machine goes to the functions' own address (``FUNCTIONS_URL``), because its Lambda needs Docker.
"""

import os
import sys
from typing import Any

import boto3
from localstack.runtime.main import main
from localstack.services.dynamodb.server import DynamodbServer
from localstack.services.stepfunctions.asl.component.state.state_execution.state_task import lambda_eval_utils
from localstack.utils.common import TMP_THREADS, ShellCommandThread

MAIN = "com.amazonaws.services.dynamodbv2.local.main.ServerRunner"


def begin(server: DynamodbServer) -> ShellCommandThread:
    jars = sys.argv[1]
    command = ["java", "-Xmx256m", f"-Djava.library.path={jars}", "-cp", f"{jars}/*", MAIN]
    command += ["-inMemory", "-disableTelemetry", "-port", str(server.port)]
    thread = ShellCommandThread(command, auto_restart=True, name="dynamodb-local", env_vars={"DDB_LOCAL_TELEMETRY": "0"})
    TMP_THREADS.append(thread)
    thread.start()
    return thread


def client_for(**_: Any) -> Any:
    return boto3.client("lambda", endpoint_url=os.environ["FUNCTIONS_URL"])


if __name__ == "__main__":
    DynamodbServer.do_start_thread = begin
    lambda_eval_utils.boto_client_for = client_for
    main()
