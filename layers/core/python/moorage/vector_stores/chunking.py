"""A text cut into chunks of so many tokens at most, each beginning with the end of the one before. Pure.

Chunks end where sentences or lines do, if one ends in time, else between words. Tokens are estimated (``model/tokens.py``): which
tokenizer an embedding model has is its own matter, and what is promised is a size.
"""

import re
from collections.abc import Iterator
from itertools import accumulate
from typing import Final

from moorage.model.tokens import weight
from moorage.vector_stores.records import Chunking

_SENTENCE: Final = re.compile(r"[^\n.!?。！？]*(?:[.!?。！？]+|\n|$)[^\S\n]*\n*")
_WORD: Final = re.compile(r"\S{1,40}\s{0,8}|\s{1,8}")
"""Each takes what it finds: no text is looked at twice, whatever it is made of."""
_PARTS: Final = 8
"""A sentence that takes more than this part of a chunk is cut into words."""


def chunks_of(text: str, chunking: Chunking) -> list[str]:
    """None of a text without a word."""
    units = list(_units(text, chunking.max_chunk_size_tokens / _PARTS))
    sums = [0.0, *accumulate(map(weight, units))]
    found: list[str] = []
    start = end = 0
    while end < len(units):
        before = end
        while end < len(units) and (end == start or sums[end + 1] - sums[start] <= chunking.max_chunk_size_tokens):
            end += 1
        if end == before:
            start += 1  # the overlap leaves no room for what comes next
            end = before
            continue
        chunk = "".join(units[start:end]).strip()
        if chunk:
            found.append(chunk)
        start = _overlap(sums, start, end, chunking.chunk_overlap_tokens)
    return found


def _overlap(sums: list[float], start: int, end: int, tokens: int) -> int:
    """The start of the next chunk: so much before the end of this one, and behind its beginning."""
    begin = end
    while begin - 1 > start and sums[end] - sums[begin - 1] <= tokens:
        begin -= 1
    return begin


def _units(text: str, tokens: float) -> Iterator[str]:
    for match in _SENTENCE.finditer(text):
        sentence = match[0]
        if not sentence:
            continue
        if weight(sentence) <= tokens:
            yield sentence
        else:
            yield from _WORD.findall(sentence)
