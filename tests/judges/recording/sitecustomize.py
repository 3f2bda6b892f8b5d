"""Loaded by every Python process of a stack that ``make judges`` starts, and acts in one: the AWS emulator's own gives its table away.

Each request for the table goes to DynamoDB Local (JUDGE_TABLE), and is noted, with what was answered, in the file that JUDGE_NOTES
names. A line is ``[database, operation, request, status]``; each state folder has a database of its own, which a second start finds.
"""

import hashlib
import os
import sys

_EMULATOR = "moorage.local.aws.server"
_TABLE = os.environ.get("JUDGE_TABLE")


def _install(url: str, notes: str, state_dir: str) -> None:
    import httpx
    import orjson
    from moorage.local.aws import leftovers, table

    database = hashlib.sha256(state_dir.encode()).hexdigest()[:16]
    signed = f"AWS4-HMAC-SHA256 Credential={database}/20260101/us-east-1/dynamodb/aws4_request, SignedHeaders=host, Signature=0"
    headers = {"content-type": "application/x-amz-json-1.0", "authorization": signed}
    client = httpx.AsyncClient(base_url=url, headers=headers, timeout=60, trust_env=False)
    lines = open(notes, "ab", buffering=0)  # noqa: SIM115  (it lives as long as the process)

    async def handle(self: object, operation: str, body: bytes) -> table.Answer:
        answer = await client.post("/", content=body, headers={"x-amz-target": f"DynamoDB_20120810.{operation}"})
        lines.write(orjson.dumps([database, operation, orjson.loads(body or b"{}"), answer.status_code]) + b"\n")
        return answer.status_code, orjson.loads(answer.content)

    async def nothing(self: object, now: float) -> int:
        """Rows that have expired are DynamoDB's own business, and whose objects are left over cannot be seen from here."""
        return 0

    table.TableService.handle = handle  # type: ignore[method-assign]
    leftovers.Leftovers.expire = nothing  # type: ignore[method-assign]
    leftovers.Leftovers.sweep = nothing  # type: ignore[method-assign]


if _TABLE and _EMULATOR in sys.orig_argv:
    _install(_TABLE, os.environ["JUDGE_NOTES"], sys.orig_argv[sys.orig_argv.index(_EMULATOR) + 1])
