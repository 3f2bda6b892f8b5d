"""The words of a text, as full-text search compares them: in one case and one form, without the ``s`` of English plurals.

Scripts that put no spaces between words are cut into pairs of characters. A word is a number of 32 bits, so that an index holds no
vocabulary; two of a million words share theirs with a probability of one in four thousand for each of them, and a search that meets
such a pair finds a chunk too many.
"""

import re
import unicodedata
import zlib
from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from typing import Final

_WORDS: Final = re.compile(r"[^\W_]+")
_UNSPACED: Final = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3041-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\U00020000-\U0003ffff]+"
)
"""Thai, Lao, Burmese, Khmer, kana, Han; and Hangul, whose endings stand at the words."""
_WORD_CHARS_MAX: Final = 64
"""What is longer is no word: a key, a hash, a line of base64. Its beginning is kept."""


def counts(text: str) -> Counter[int]:
    """How often each word occurs."""
    words = Counter(_words(text))
    found: Counter[int] = Counter()
    for word, times in words.items():
        found[_number(word)] += times
    return found


def _words(text: str) -> Iterator[str]:
    for word in _WORDS.findall(unicodedata.normalize("NFKC", text).casefold()):
        if word.isascii():
            yield word
        else:
            yield from _cut(word)


def _cut(word: str) -> Iterator[str]:
    at = 0
    for unspaced in _UNSPACED.finditer(word):
        if unspaced.start() > at:
            yield word[at : unspaced.start()]
        run, at = unspaced[0], unspaced.end()
        yield from (run[start : start + 2] for start in range(len(run) - 1)) if len(run) > 1 else (run,)
    if at < len(word):
        yield word[at:]


@lru_cache(maxsize=65_536)
def _number(word: str) -> int:
    return zlib.crc32(_stem(word[:_WORD_CHARS_MAX]).encode())


def _stem(word: str) -> str:
    """Harman's S stemmer ("How effective is suffixing?", 1991): plurals, and nothing that changes a word's meaning."""
    if len(word) < 4 or not word.endswith("s") or word.endswith(("ss", "us")):
        return word
    if word.endswith("ies") and not word.endswith(("eies", "aies")):
        return f"{word[:-3]}y"
    return word[:-1]
