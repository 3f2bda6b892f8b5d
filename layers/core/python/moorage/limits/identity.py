"""Bounds of tokens of an issuer, and of signing in with it."""

from typing import Final

from moorage.limits.units import KIB

ISSUER_ANSWER_BYTES_MAX: Final = 256 * KIB
"""Of its document, its keys, or its answer to a code. Large issuers publish some ten keys of 2 KB each."""

ISSUER_KEYS_MAX: Final = 64
"""Of one issuer at a time; with more, none of them is taken."""

ISSUER_SECONDS_MAX: Final = 3
"""For one answer of it. The authorizer's function has five seconds, and most often asks for nothing."""

ISSUER_FRESH_SECONDS: Final = 3_600
"""How long its document and its keys are not asked for again."""

ISSUER_STALE_SECONDS: Final = 24 * 3_600
"""How long they are used when it cannot be reached. Its tokens expire by themselves meanwhile."""

ISSUER_REFRESHES_MAX: Final = 4
ISSUER_REFRESHES_SECONDS: Final = 60
"""A process asks the issuer at most four times a minute, whatever keys the tokens name."""

TOKEN_CHARS_MAX: Final = 16 * KIB
"""Of a token. Those with hundreds of groups have 10 KB; the head of a request has a bound besides."""

TOKEN_LEEWAY_SECONDS: Final = 60
"""By how much the issuer's clock may differ."""

TOKEN_AGE_SECONDS_MAX: Final = 12 * 3_600
"""Of a token, whatever its issuer says: as long as a key of the console lives."""

TOKENS_KEPT_MAX: Final = 10_000
TOKEN_KEPT_SECONDS: Final = 30
"""How long an ended session may go on in a process that has just seen it; as with keys."""

SUBJECT_CHARS_MAX: Final = 255
"""OpenID Connect Core 1.0, section 2: a subject has 255 ASCII characters at most."""

SIGN_IN_SECONDS: Final = 600
"""From leaving for the issuer to coming back."""

RSA_BITS_MIN: Final = 2_048
"""RFC 7518, section 3.3."""
