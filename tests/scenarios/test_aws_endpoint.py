"""``AWS_ENDPOINT_URL``: the API, the loop and the sandboxes run here, the table and the bucket are AWS's, or an emulator's."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from moorage.store.schema import PARTITION_KEY

from tests.ministack import Ministack, aws_clients
from tests.stack import SHELL, Stack, at_endpoint, clean_environment, outputs, say, script, shell

TOOLS: Any = [SHELL]
NAMED = {"MOORAGE_TABLE": "named", "MOORAGE_BUCKET": "named"}


def keys_listed(stack: Stack, endpoint: str) -> str:
    command = [sys.executable, "-m", "moorage", "keys", "list"]
    place = {"MOORAGE_STATE_DIR": str(stack.state_dir), **at_endpoint(endpoint), **NAMED}
    return subprocess.run(command, env=clean_environment() | place, capture_output=True, text=True, check=True).stdout


def test_a_stack_keeps_its_table_and_bucket_where_the_endpoint_says(ministack: Ministack, tmp_path: Path) -> None:
    stack = Stack(tmp_path / "state", {**at_endpoint(ministack.endpoint), **NAMED}).start()
    try:
        client = stack.client()
        ran = client.responses.create(model="demo", input=script(shell("echo kept > note.txt; cat note.txt"), say("a")), tools=TOOLS)
        assert outputs(ran.output) == [[("kept\n", "", 0)]]
        large = os.urandom(9 * 1024 * 1024)
        uploaded = client.files.create(file=("in.bin", large), purpose="user_data")
        assert client.files.content(uploaded.id).read() == large
        assert "made at the first start" in keys_listed(stack, ministack.endpoint)
    finally:
        assert stack.stop() == 0
    assert not (stack.state_dir / "store").exists()
    aws = aws_clients(ministack.endpoint)
    items = aws.dynamodb.scan(TableName="named")["Items"]
    assert {ran.id} <= {str(item[PARTITION_KEY]["S"]).rpartition("#")[2] for item in items}
    assert aws.s3.list_objects_v2(Bucket="named")["KeyCount"] > 0
    for emulated in (aws.dynamodb, aws.s3, aws.stepfunctions, aws.lambda_):
        emulated.close()
    stack.start()
    try:
        assert stack.client().responses.retrieve(ran.id) == ran
    finally:
        assert stack.stop() == 0


def test_an_endpoint_where_nobody_answers_is_said(tmp_path: Path) -> None:
    place = {"MOORAGE_STATE_DIR": str(tmp_path / "state"), "MOORAGE_PORT": "0", **at_endpoint("http://127.0.0.1:9")}
    command = [sys.executable, "-m", "moorage.local.stack"]
    done = subprocess.run(command, env=clean_environment() | place, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "moorage: The table and the bucket that AWS_ENDPOINT_URL points to cannot be used: " in done.stderr
    assert "Traceback" not in done.stderr
