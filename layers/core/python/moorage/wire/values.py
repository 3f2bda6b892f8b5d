"""How many values a body of JSON holds, before anything is made of them.

An object with a million fields of seven bytes is 7 MB to read and hundreds of MB once parsed, and parsing it holds up every other
request of the process. So the values are counted first, a window at a time and no further than they may go, by what builds them:
commas, and brackets that open.
"""

from typing import Final

_WINDOW_BYTES: Final = 256 * 1024
_BUILDING: Final = (b",", b"{", b"[")


def holds_more(body: bytes, most: int) -> bool:
    """Whether there are more values in it than this. What is no JSON is counted up to its fault at least, which is as far as a parser
    would read it."""
    if _building(body) <= most:
        return False  # Even if all of them build something: in texts they do not.
    if b"\\" in body:
        body = body.replace(b"\\\\", b"").replace(b'\\"', b"")
    count, is_inside = 0, 0
    for start in range(0, len(body), _WINDOW_BYTES):
        pieces = body[start : start + _WINDOW_BYTES].split(b'"')
        count += _building(b"".join(pieces[is_inside::2]))
        if count > most:
            return True
        is_inside ^= (len(pieces) - 1) & 1
    return False


def _building(text: bytes) -> int:
    return sum(map(text.count, _BUILDING))
