"""What is used of ministack beyond its address (``local/aws/seams.py``, ``expressions.py``) is still there, and still means the same.

A new ministack that fails here has moved something: look at the seam before the test.
"""

import inspect
import json
import time
from importlib.metadata import version
from typing import Any

import pytest
from ministack import app
from ministack.core import lambda_runtime
from ministack.services import cloudwatch_logs, kms, lambda_svc, stepfunctions
from moorage.local.aws import expressions, seams


def test_the_version_is_the_one_that_was_looked_at() -> None:
    assert version("ministack") == "1.5.33"


def test_an_execution_sleeps_once_for_so_long_before_its_first_state() -> None:
    source = inspect.getsource(stepfunctions._run_execution)
    assert source.count(f"time.sleep({seams.FIRST_PAUSE_SECONDS})") == 1
    assert inspect.getsource(stepfunctions).count(f"time.sleep({seams.FIRST_PAUSE_SECONDS})") == 1


def test_the_pause_is_taken_out_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stepfunctions, "time", stepfunctions.time)
    seams.begin_executions_at_once()
    began = time.monotonic()
    stepfunctions.time.sleep(seams.FIRST_PAUSE_SECONDS)
    assert time.monotonic() - began < seams.FIRST_PAUSE_SECONDS
    began_at = time.monotonic()
    stepfunctions.time.sleep(0.02)
    assert time.monotonic() - began_at >= 0.02
    assert stepfunctions.time.time() == pytest.approx(time.time(), abs=5)


def test_workers_are_given_the_credentials_of_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lambda_runtime, "execution_credentials", lambda_runtime.execution_credentials)
    assert "spawn_env.update(execution_credentials(self.config))" in inspect.getsource(lambda_runtime)
    seams.give_credentials("id", "secret")
    assert lambda_runtime.execution_credentials({}) == {"AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "secret"}


def test_executions_that_ended_are_forgotten_and_running_ones_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seams, "EXECUTIONS_KEPT_MAX", 2)
    executions: dict[Any, Any] = {n: {"status": "RUNNING" if n == 0 else "SUCCEEDED"} for n in range(6)}
    monkeypatch.setattr(stepfunctions._executions, "_data", executions)
    seams.forget_what_ended()
    assert list(executions) == [0, 4, 5]
    assert '_executions[exec_arn] = {' in inspect.getsource(stepfunctions)


def test_words_of_functions_are_kept_in_bounded_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seams, "LOG_STREAMS_KEPT_MAX", 3)
    monkeypatch.setattr(cloudwatch_logs._log_groups, "_data", {})
    for n in range(10):
        lambda_svc._emit_lambda_logs({"config": {"FunctionName": "f"}}, f"request-{n}", f"line {n}", False, 1)
    ((group),) = cloudwatch_logs._log_groups._data.values()
    assert len(group["streams"]) == 10
    seams.forget_what_ended()
    last = [stream["events"] for stream in group["streams"].values()]
    assert len(last) == 3
    assert "line 9" in repr(last[-1])


def test_keys_survive_as_a_document(monkeypatch: pytest.MonkeyPatch) -> None:
    made = kms._create_key({"Description": "kept"})
    key_id = _json(made)["KeyMetadata"]["KeyId"]
    sealed = _json(kms._encrypt({"KeyId": key_id, "Plaintext": "c2VjcmV0"}))["CiphertextBlob"]
    document = seams.keys_document()
    kms._keys._data.clear()
    seams.restore_keys(document)
    assert _json(kms._decrypt({"CiphertextBlob": sealed}))["Plaintext"] == "c2VjcmV0"


@pytest.mark.parametrize("operation", ["CreateKey", "ScheduleKeyDeletion", "DisableKey", "EnableKeyRotation", "CreateAlias"])
def test_what_changes_keys_is_kept(operation: str) -> None:
    assert seams.changes_keys(operation)


@pytest.mark.parametrize("operation", ["GenerateDataKey", "Decrypt", "Encrypt", "DescribeKey"])
def test_what_only_uses_keys_costs_no_write(operation: str) -> None:
    assert not seams.changes_keys(operation)


def test_the_server_needs_its_loop_to_be_told() -> None:
    assert hasattr(app, "_MAIN_LOOP")
    assert callable(app.app)


@pytest.mark.parametrize(
    ("expression", "item", "is_held"),
    [
        ("attribute_not_exists(#a)", {}, True),
        ("attribute_not_exists(#a)", {"x": {"S": "1"}}, False),
        ("#a = :v", {"x": {"S": "1"}}, True),
        ("#a = :v", {"x": {"S": "2"}}, False),
        ("#a = :v AND attribute_exists(#b)", {"x": {"S": "1"}}, False),
        ("#a < :v OR #a > :v", {"x": {"S": "2"}}, True),
    ],
)
def test_conditions(expression: str, item: dict[str, Any], is_held: bool) -> None:
    names, values = {"#a": "x", "#b": "y"}, {":v": {"S": "1"}}
    request = {
        "ExpressionAttributeNames": {k: v for k, v in names.items() if k in expression},
        "ExpressionAttributeValues": {k: v for k, v in values.items() if k in expression},
    }
    assert expressions.holds(expression, item, request) is is_held


def test_updates_leave_their_item_alone_and_do_what_they_say() -> None:
    item = {"n": {"N": "1"}, "gone": {"S": "x"}}
    request = {
        "UpdateExpression": "SET #s = :s, #o = if_not_exists(#o, :s) ADD #n :one REMOVE #g",
        "ExpressionAttributeNames": {"#s": "s", "#o": "o", "#n": "n", "#g": "gone"},
        "ExpressionAttributeValues": {":s": {"S": "new"}, ":one": {"N": "1"}},
    }
    assert expressions.apply_update(item, request) == {"n": {"N": "2"}, "s": {"S": "new"}, "o": {"S": "new"}}
    assert item == {"n": {"N": "1"}, "gone": {"S": "x"}}


def test_items_have_a_size() -> None:
    key = {"PK": {"S": "p"}, "SK": {"S": "s"}}
    assert expressions.item_error(key | {"b": {"S": "x" * 1000}}, "PK", "SK") is None
    assert "size" in str(expressions.item_error(key | {"b": {"S": "x" * 410_000}}, "PK", "SK"))


def _json(answer: Any) -> Any:
    return json.loads(answer[2])
