"""Delta debugging (Zeller and Hildebrandt, 2002): the shortest part of a list that still does it."""

from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")


def shrink(events: Sequence[T], still_fails: Callable[[list[T]], bool]) -> list[T]:
    """A part of the events without any piece that could be left out; ``still_fails`` may say no to what it will not try any more."""
    kept, pieces = list(events), 2
    while len(kept) > 1:
        size = -(-len(kept) // pieces)
        without = [kept[:start] + kept[start + size :] for start in range(0, len(kept), size)]
        shorter = next((one for one in without if one and still_fails(one)), None)
        if shorter is not None:
            kept, pieces = shorter, max(2, pieces - 1)
        elif size == 1:
            break
        else:
            pieces = min(len(kept), pieces * 2)
    return kept
