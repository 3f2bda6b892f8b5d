"""The findings of a check: a line for each thing, and the remedy."""

from enum import StrEnum

from moorage.dataclass import dataclass


class Level(StrEnum):
    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Finding:
    level: Level
    what: str
    advice: str = ""
    """What to do; empty where nothing is."""


def ok(what: str) -> Finding:
    return Finding(Level.OK, what)


def warn(what: str, advice: str) -> Finding:
    return Finding(Level.WARN, what, advice)


def fail(what: str, advice: str) -> Finding:
    return Finding(Level.FAIL, what, advice)


@dataclass(frozen=True, slots=True)
class CheckProgress:
    """The subject of the next finding, for its time."""

    what: str


Said = Finding | CheckProgress
