"""The audit trail: whole lines, of many processes, in bounded files; and a log group."""

import getpass
import io
import json
import multiprocessing
import os
from pathlib import Path
from typing import Any

from botocore.exceptions import ClientError, EndpointConnectionError
from moorage import limits
from moorage.cli.audit_trail import operator_of
from moorage.store.audit import Actor, Audit, AuditFile, AuditKind, acting, append, audit_files
from moorage.store.audit_log_group import AuditLogGroup
from moorage.telemetry import open_log

from tests.opened_logs import close_log

LINES = 200


def add_lines(path: Path, name: str) -> None:
    for number in range(LINES):
        append(path, f"{name}-{number}\n".encode())


def test_processes_add_whole_lines_side_by_side(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=add_lines, args=(path, name)) for name in ("a", "b", "c")]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0, 0]
    assert sorted(path.read_text().split()) == sorted(f"{name}-{number}" for name in ("a", "b", "c") for number in range(LINES))


def test_a_full_file_is_put_aside_and_the_oldest_is_dropped(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    line = b"x" * (limits.AUDIT_FILE_BYTES_MAX - 1) + b"\n"
    for number in range(limits.AUDIT_FILES_MAX + 2):
        append(path, b"%d" % number + line[1:])
    assert [file.read_bytes()[:1] for file in audit_files(path)] == [b"2", b"3", b"4", b"5"]
    assert {os.stat(file).st_mode & 0o777 for file in audit_files(path)} == {0o600}


async def test_a_trail_that_cannot_be_written_is_told_and_stops_nothing(tmp_path: Path) -> None:
    handler = open_log(out := io.StringIO())
    try:
        await Audit(AuditFile(tmp_path / "gone" / "audit.log"), lambda: 0.0).note(AuditKind.KEY_REVOKED, {"key_id": "key_1"})
    finally:
        close_log(handler)
    (told,) = [json.loads(line) for line in out.getvalue().splitlines()]
    assert (told["level"], told["message"]) == ("ERROR", "a line of the audit trail could not be written")


class Logs:
    """CloudWatch Logs as far as the trail asks it."""

    def __init__(self) -> None:
        self.streams: list[tuple[str, str]] = []
        self.events: list[dict[str, Any]] = []
        self.refuses = False

    def create_log_stream(self, *, logGroupName: str, logStreamName: str) -> None:
        self.streams.append((logGroupName, logStreamName))

    def put_log_events(self, *, logGroupName: str, logStreamName: str, logEvents: list[dict[str, Any]]) -> None:
        if self.refuses:
            raise ClientError({"Error": {"Code": "ServiceUnavailableException", "Message": ""}}, "PutLogEvents")
        assert (logGroupName, logStreamName) in self.streams
        self.events += logEvents


def test_an_operator_has_a_name_although_sts_does_not_answer() -> None:
    class Sts:
        def get_caller_identity(self) -> dict[str, str]:
            raise EndpointConnectionError(endpoint_url="https://sts.example")

    assert operator_of(Sts()) == getpass.getuser()


async def test_a_process_writes_a_stream_of_its_own_in_the_log_group() -> None:
    client = Logs()
    audit = Audit(AuditLogGroup(client, "group", None), lambda: 1_800_000_000.5)
    with acting(Actor("key_1", "acme", "req_1")):
        await audit.note(AuditKind.SIGNED_IN, {"by": "code"})
        client.refuses = True
        await audit.note(AuditKind.SIGNED_OUT, {})  # told in the function's own log
    (event,) = client.events
    assert len(client.streams) == 1
    assert json.loads(event["message"]) == {
        "at": "2027-01-15T08:00:00.500Z",
        "kind": "session.begun",
        "who": "key_1",
        "tenant": "acme",
        "what": {"by": "code"},
        "request_id": "req_1",
    }
