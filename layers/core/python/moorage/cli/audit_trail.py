"""How a command notes the operator's acts in the audit trail: the commands change the table themselves, without a server."""

import asyncio
import getpass
import os
import time
from collections.abc import Mapping
from typing import Any

import boto3
from botocore.exceptions import BotoCoreError, ClientError

from moorage.cli.at_end import at_end
from moorage.cli.target import AWS_CONFIG, Target
from moorage.store.audit import AUDIT_FILE, Actor, Audit, AuditFile, AuditKind, AuditLog, acting
from moorage.store.audit_log_group import AuditLogGroup


def note(target: Target, environ: Mapping[str, str], kind: AuditKind, what: Mapping[str, Any], *, tenant_id: str = "") -> None:
    """Write a line, if the deployment keeps a trail."""
    log, who = _trail(target, environ)
    with acting(Actor(who=f"operator {who}", tenant_id=tenant_id)):
        asyncio.run(Audit(log, time.time).note(kind, what))


def _trail(target: Target, environ: Mapping[str, str]) -> tuple[AuditLog | None, str]:
    """The file of the lines, and the operator's name."""
    if target.state_dir is not None:
        return AuditFile(target.state_dir / AUDIT_FILE), _user()
    group = environ.get("MOORAGE_AUDIT_LOG_GROUP")
    if not group:
        return None, ""
    logs, sts = (boto3.client(service, **target.aws, config=AWS_CONFIG) for service in ("logs", "sts"))
    at_end(logs.close)
    at_end(sts.close)
    return AuditLogGroup(logs, group, None), operator_of(sts)


def operator_of(sts: Any) -> str:
    """The ARN of the credentials. If STS does not answer, the user of this machine: what the line tells of is done already, and the
    command must still print a key that it made."""
    try:
        return str(sts.get_caller_identity()["Arn"])
    except (BotoCoreError, ClientError):
        return _user()


def _user() -> str:
    """A container may have a user without a name."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())
