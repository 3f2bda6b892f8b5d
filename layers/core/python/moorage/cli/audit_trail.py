"""How a command notes in the audit trail what the operator did: the commands change the table themselves, and ask no server to."""

import asyncio
import getpass
import os
import time
from collections.abc import Mapping
from typing import Any

import boto3

from moorage.cli.at_end import at_end
from moorage.cli.target import AWS_CONFIG, Target
from moorage.store.audit import AUDIT_FILE, Actor, Audit, AuditFile, AuditKind, AuditLog, acting
from moorage.store.audit_log_group import AuditLogGroup


def note(target: Target, environ: Mapping[str, str], kind: AuditKind, what: Mapping[str, Any], *, tenant_id: str = "") -> None:
    """Write a line, where the deployment keeps a trail."""
    log, who = _trail(target, environ)
    with acting(Actor(who=f"operator {who}", tenant_id=tenant_id)):
        asyncio.run(Audit(log, time.time).note(kind, what))


def _trail(target: Target, environ: Mapping[str, str]) -> tuple[AuditLog | None, str]:
    """On AWS the operator is who AWS says that the credentials are."""
    if target.state_dir is not None:
        return AuditFile(target.state_dir / AUDIT_FILE), _user()
    group = environ.get("MOORAGE_AUDIT_LOG_GROUP")
    if not group:
        return None, ""
    logs, sts = (boto3.client(service, **target.aws, config=AWS_CONFIG) for service in ("logs", "sts"))
    at_end(logs.close)
    at_end(sts.close)
    return AuditLogGroup(logs, group, None), str(sts.get_caller_identity()["Arn"])


def _user() -> str:
    """A container may have a user without a name."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())
