"""Who may ask the emulator: whoever signs with the credentials of this start, and nobody else.

An address on the loopback is open to every user of the machine and to every web page in its browsers. So each request must carry a
valid AWS signature (version 4) over its body, made with a key that this start drew by lot and gave to its own children alone; must be
meant for this address (``Host``, against names that were rebound to 127.0.0.1); and must not say that it comes from a page (``Origin``,
``Sec-Fetch-Site``). Nothing is answered that would let a page read it. A socket file would do as well, but botocore knows none.
"""

import hashlib
import hmac
import re
import secrets
import time
from calendar import timegm
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import quote

_ALGORITHM: Final = "AWS4-HMAC-SHA256"
_AUTHORIZATION: Final = re.compile(
    rf"^{_ALGORITHM} Credential=(?P<key>[^/,]+)/(?P<date>\d{{8}})/(?P<region>[^/,]+)/(?P<service>[^/,]+)/aws4_request, *"
    r"SignedHeaders=(?P<signed>[^,]+), *Signature=(?P<signature>[0-9a-f]{64})$"
)
_SKEW_SECONDS_MAX: Final = 15 * 60
"""As on AWS. The clock is the same on both sides, but it may be set."""
_UNSIGNED: Final = "UNSIGNED-PAYLOAD"


@dataclass(frozen=True, slots=True)
class Credentials:
    """What one start of a stack signs with."""

    access_key_id: str
    secret_access_key: str = field(repr=False)

    @classmethod
    def new(cls) -> "Credentials":
        return cls(f"MOORAGE{secrets.token_hex(8).upper()}", secrets.token_urlsafe(32))


@dataclass(frozen=True, slots=True)
class Asked:
    """A request, as far as the gate looks at it; header names are lower case."""

    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Gate:
    credentials: Credentials
    authority: str
    """``host:port`` of this start."""

    def refusal(self, asked: Asked, now: float | None = None) -> str | None:
        """Why the request must not pass; None if it may."""
        headers = asked.headers
        if headers.get("host") != self.authority:
            return "This address is known by one name."
        if "origin" in headers or headers.get("sec-fetch-site", "none") != "none":
            return "No web page is served here."
        found = _AUTHORIZATION.match(headers.get("authorization", ""))
        if found is None or not hmac.compare_digest(found["key"], self.credentials.access_key_id):
            return "The request is not signed with the credentials of this start."
        stated = headers.get("x-amz-content-sha256")
        actual = hashlib.sha256(asked.body).hexdigest()
        if stated is not None and stated not in (actual, _UNSIGNED):
            return "The body is not the one that was signed."
        at = headers.get("x-amz-date", "")
        if not _is_recent(at, time.time() if now is None else now):
            return "The signature has expired, or the clock was set."
        signed = found["signed"].split(";")
        if not {"host", "x-amz-date"} <= set(signed):
            return "The signature covers too little."
        expected = self._signature(asked, found, signed, at, stated or actual)
        return None if hmac.compare_digest(expected, found["signature"]) else "The signature does not fit the request."

    def _signature(self, asked: Asked, found: "re.Match[str]", signed: list[str], at: str, payload: str) -> str:
        path = asked.path if found["service"] == "s3" else quote(asked.path, safe="/~")
        query = "&".join(f"{name}={value}" for name, _, value in sorted(part.partition("=") for part in asked.query.split("&") if part))
        lines = [f"{name}:{' '.join(asked.headers.get(name, '').split())}" for name in signed]
        canonical = "\n".join([asked.method, path, query, *lines, "", found["signed"], payload])
        scope = f"{found['date']}/{found['region']}/{found['service']}/aws4_request"
        to_sign = "\n".join([_ALGORITHM, at, scope, hashlib.sha256(canonical.encode()).hexdigest()])
        key = f"AWS4{self.credentials.secret_access_key}".encode()
        for part in (found["date"], found["region"], found["service"], "aws4_request"):
            key = hmac.digest(key, part.encode(), "sha256")
        return hmac.digest(key, to_sign.encode(), "sha256").hex()


def _is_recent(at: str, now: float) -> bool:
    try:
        return abs(timegm(time.strptime(at, "%Y%m%dT%H%M%SZ")) - now) <= _SKEW_SECONDS_MAX
    except ValueError:
        return False
