"""``moorage audit``: who made, revoked or used a key, changed a setting, answered an approval, signed in or out."""

import argparse
import datetime
import time
from collections.abc import Iterator, Mapping
from typing import Any, Final

import boto3
import orjson

from moorage.cli.at_end import at_end
from moorage.cli.durations import seconds_of
from moorage.cli.output import at_least_one, listing
from moorage.cli.target import AWS_CONFIG, Target, TargetError, find
from moorage.local.logs import parsed
from moorage.store.audit import AUDIT_FILE, AuditKind, audit_files

Line = dict[str, Any]
_LINES: Final = 100


def add_to(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Show the audit trail, oldest first: keys made, revoked and used by an administrator, settings changed at run time, approvals "
        "answered, sessions begun and ended. On AWS, MOORAGE_AUDIT_LOG_GROUP names the log group."
    )
    parser.add_argument("--tenant", default="", help="of this tenant alone")
    parser.add_argument("--kind", choices=[*AuditKind], default="", help="of this kind alone")
    parser.add_argument("--since", type=_since, default=0.0, metavar="TIME", help="from this time on: 12h, 30d, or 2026-11-28")
    parser.add_argument("-n", "--lines", type=at_least_one, default=_LINES, metavar="N", help=f"the last N; by default {_LINES}")
    parser.add_argument("--json", action="store_true", help="the lines as they were written, for programs")
    parser.set_defaults(run=_run)


def _since(text: str) -> float:
    """Unix seconds: a time before now, or a day or moment as ISO 8601 writes them (of this place unless it says otherwise)."""
    seconds = seconds_of(text)
    if seconds is not None:
        return time.time() - seconds
    try:
        return datetime.datetime.fromisoformat(text).timestamp()
    except ValueError:
        raise argparse.ArgumentTypeError(f"'{text[:40]}' is no time; for example 12h, 30d or 2026-11-28") from None


def _run(options: argparse.Namespace, environ: Mapping[str, str]) -> int:
    target = find(environ)
    chosen = [line for line in _lines(target, environ, options.since) if _is_asked_for(line, options)]
    return listing(
        options,
        chosen[-options.lines :],
        ("AT", "KIND", "WHO", "TENANT", "WHAT"),
        lambda line: (line.get("at", ""), line.get("kind", ""), _who(line), line.get("tenant", ""), _what(line)),
    )


def _lines(target: Target, environ: Mapping[str, str], since: float) -> Iterator[Line]:
    if target.state_dir is not None:
        for path in audit_files(target.state_dir / AUDIT_FILE):
            yield from parsed(path.read_bytes())
        return
    group = environ.get("MOORAGE_AUDIT_LOG_GROUP")
    if not group:
        raise TargetError("Set MOORAGE_AUDIT_LOG_GROUP: 'make deployed' shows it where audit_retention_days keeps a trail.")
    client = boto3.client("logs", **target.aws, config=AWS_CONFIG)
    at_end(client.close)
    pages = client.get_paginator("filter_log_events").paginate(logGroupName=group, startTime=int(since * 1000))
    events = sorted((event for page in pages for event in page["events"]), key=lambda event: event["timestamp"])
    for event in events:
        yield from parsed(event["message"].encode())


def _is_asked_for(line: Line, options: argparse.Namespace) -> bool:
    if options.tenant and line.get("tenant") != options.tenant:
        return False
    if options.kind and line.get("kind") != options.kind:
        return False
    return not options.since or _moment(line) >= options.since


def _moment(line: Line) -> float:
    try:
        return datetime.datetime.fromisoformat(str(line.get("at"))).timestamp()
    except ValueError:
        return 0.0


def _who(line: Line) -> str:
    return str(line.get("subject") or line.get("who", ""))


def _what(line: Line) -> str:
    what = line.get("what", {})
    return "  ".join(f"{name}={value if isinstance(value, str) else orjson.dumps(value).decode()}" for name, value in what.items())
