"""What is used of ministack beyond its address (``local/aws/seams.py``, ``expressions.py``) is still there, and still means the same.

A new ministack that fails here has moved something: look at the seam before the test.
"""

import base64
import inspect
import io
import json
import re
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ministack import app
from ministack.core import lambda_runtime
from ministack.services import cloudwatch_logs, eventbridge, kms, lambda_svc, stepfunctions
from moorage.local.aws import expressions, forks, seams, workers
from moorage.local.places import LOOP


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


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_invocation_is_answered_without_waiting_for_words(function: Callable[[str], str], monkeypatch: pytest.MonkeyPatch) -> None:
    """They are in its log as far as they are there, and in a later one's otherwise."""
    monkeypatch.setattr(lambda_runtime.Worker, "_drain_stderr_bounded", lambda_runtime.Worker._drain_stderr_bounded)
    assert inspect.getsource(lambda_runtime.Worker).count("self._drain_stderr_bounded()") == 1
    seams.wait_for_no_words()
    workers.bound_workers(1, 1)
    logs: list[str] = []
    monkeypatch.setattr(lambda_svc, "_emit_lambda_logs", lambda *said, **_: logs.append(str(said[2])))
    silent = function("def handle(event, context):\n    return 'answered'\n")
    assert stepfunctions._call_lambda(silent, {}) == "answered"
    naps: list[float] = []
    monkeypatch.setattr(lambda_runtime, "time", SimpleNamespace(**{**vars(time), "sleep": naps.append}))
    assert stepfunctions._call_lambda(silent, {}) == "answered"
    assert (naps, set(logs)) == ([], {""})


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


def test_events_that_tell_of_executions_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(eventbridge._events_log, "_data", {})
    dates = {"startDate": "2026-01-01T00:00:00.000Z", "stopDate": "2026-01-01T00:00:01.000Z"}
    execution = {"executionArn": "arn:1", "stateMachineArn": "arn:0", "name": "resp_1", "status": "SUCCEEDED", "input": "{}", **dates}
    stepfunctions._emit_execution_status_event(execution)
    ((kept,),) = eventbridge._events_log._data.values()
    assert (kept["DetailType"], kept["Resources"]) == ("Step Functions Execution Status Change", ["arn:1"])
    seams.forget_what_ended()
    assert eventbridge._events_log._data == {}


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


left_open = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
"""ministack closes no pipe of a process that it ends."""


@pytest.fixture
def function(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], str]]:
    """Makes functions of given code, and puts back what bounds them."""
    for name in ("_ACCOUNT_CONCURRENCY_CAP", "_execute_function_warm", "acquire_worker"):
        monkeypatch.setattr(lambda_svc, name, getattr(lambda_svc, name))
    monkeypatch.setattr(lambda_runtime, "_workers", {})

    def make(code: str) -> str:
        archive = io.BytesIO()
        with zipfile.ZipFile(archive, "w") as made:
            made.writestr("handler.py", code)
        name = f"f{len(lambda_svc._functions._data)}"
        body = {
            "FunctionName": name,
            "Runtime": "python3.13",
            "Role": "arn:aws:iam::000000000000:role/r",
            "Handler": "handler.handle",
            "Code": {"ZipFile": base64.b64encode(archive.getvalue()).decode()},
            "Timeout": 60,
        }
        return str(_json(lambda_svc._create_function(body))["FunctionArn"])

    yield make
    lambda_runtime.kill_workers([worker for entries in lambda_runtime._workers.values() for worker in entries])


@left_open
def test_calls_beyond_the_bound_wait_and_share_its_processes(function: Callable[[str], str]) -> None:
    slow = function("import os, time\ndef handle(event, context):\n    time.sleep(0.3)\n    return os.getpid()\n")
    workers.bound_workers(2, 1)
    with ThreadPoolExecutor(6) as threads:
        answered_by = list(threads.map(lambda _: stepfunctions._call_lambda(slow, {}), range(6)))
    assert len(set(answered_by)) == 2


@left_open
def test_processes_of_steps_are_forked(function: Callable[[str], str], monkeypatch: pytest.MonkeyPatch) -> None:
    """ministack starts them in one place, in the words that ``forks.py`` understands, and asks no more of them than a fork has."""
    source = inspect.getsource(lambda_runtime.Worker)
    assert (source.count("subprocess."), source.count("subprocess.Popen(\n            [binary, worker_path],")) == (4, 1)
    asked_of_them = set(re.findall(r"\b_?proc\.(\w+)", source + inspect.getsource(lambda_runtime._signal)))
    asked_of_them |= set(re.findall(r"\b_?proc\.(\w+)", inspect.getsource(lambda_runtime._collect)))
    assert asked_of_them == {"stdin", "stdout", "stderr", "poll", "terminate", "wait", "kill"}
    monkeypatch.setattr(lambda_runtime, "subprocess", lambda_runtime.subprocess)
    forks.take_in_orphans()
    nursery = forks.Nursery()
    try:
        forks.fork_workers(nursery)
        workers.bound_workers(2, 2)
        told = function("import os, sys\ndef handle(event, context):\n    return event, os.getpid(), 'steps' in sys.modules\n")
        event, pid, has_steps = stepfunctions._call_lambda(told, {"asked": 1})
        (worker,) = (each for entries in lambda_runtime._workers.values() for each in entries)
        assert (event, has_steps, pid) == ({"asked": 1}, True, worker._proc.pid)
    finally:
        lambda_runtime.kill_workers([worker for entries in lambda_runtime._workers.values() for worker in entries])
        nursery.stop()
        forks.take_in_orphans(False)


@left_open
def test_who_waited_too_long_is_throttled_in_the_words_that_the_machine_knows(function: Callable[[str], str]) -> None:
    slow = function("import time\ndef handle(event, context):\n    time.sleep(3)\n")
    workers.bound_workers(1, 1, wait_seconds=0.1)
    with ThreadPoolExecutor(1) as threads:
        first = threads.submit(stepfunctions._call_lambda, slow, {})
        while not lambda_runtime.workers_in_use():
            assert not first.done()
        with pytest.raises(stepfunctions._ExecutionError) as told:
            stepfunctions._call_lambda(slow, {})
        assert first.result() is None
    assert told.value.error == workers.THROTTLED
    retried = json.loads(LOOP.read_text())["States"]["ModelStep"]["Retry"][0]
    assert workers.THROTTLED in retried["ErrorEquals"]


@left_open
def test_a_process_that_cannot_start_ends_no_other_one(function: Callable[[str], str]) -> None:
    """Its call is repeated; ministack ends all of its function."""
    code = """
import os, pathlib, time
if pathlib.Path({full!r}).exists():
    os._exit(1)
def handle(event, context):
    time.sleep(1)
    return "answered"
"""
    with tempfile.TemporaryDirectory() as folder:
        full = Path(folder, "full")
        slow = function(code.format(full=str(full)))
        workers.bound_workers(2, 2)
        with ThreadPoolExecutor(1) as threads:
            first = threads.submit(stepfunctions._call_lambda, slow, {})
            while not any(worker._start_time for entries in lambda_runtime._workers.values() for worker in entries):
                assert not first.done()
            full.touch()
            with pytest.raises(stepfunctions._ExecutionError) as told:
                stepfunctions._call_lambda(slow, {})
            assert (first.result(), told.value.error) == ("answered", workers.THROTTLED)
        full.unlink()
        assert stepfunctions._call_lambda(slow, {}) == "answered"
    assert lambda_runtime.workers_in_use() == 0


def test_a_small_machine_runs_a_few_steps_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    gigabyte = 1024**3
    monkeypatch.setattr(lambda_svc, "_memory_budget_bytes", lambda: gigabyte // 2)
    assert workers.workers_max() == workers.WORKERS_MIN
    monkeypatch.setattr(lambda_svc, "_memory_budget_bytes", lambda: 8 * gigabyte)
    assert workers.workers_max() == 102


def _json(answer: Any) -> Any:
    return json.loads(answer[2])
