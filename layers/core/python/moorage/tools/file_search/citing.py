"""The sources of an answer: ``file_citation`` annotations, at the places of the marks that were taken out of the text."""

from collections.abc import Iterable, Sequence
from typing import Any

from moorage import limits
from moorage.tools.file_search.words import MARK
from moorage.tools.source_marks import SourceMark
from moorage.wire.types import Item


def citations(marks: Iterable[SourceMark], items: Sequence[Item]) -> list[dict[str, Any]]:
    """By place. Only files that calls of this conversation have brought are cited; a file is cited once at a place."""
    names = _names(items)
    found = dict.fromkeys((mark.index, mark.content) for mark in marks if mark.kind == MARK and mark.content in names)
    return [
        {"type": "file_citation", "index": index, "file_id": file_id, "filename": names[file_id]}
        for index, file_id in list(found)[: limits.CITATIONS_MAX]
    ]


def _names(items: Iterable[Item]) -> dict[str, str]:
    """Of the files that calls have brought, by their ids."""
    return {
        result["file_id"]: result.get("filename") or result["file_id"]
        for item in items
        if item["type"] == "file_search_call"
        for result in item.get("results") or ()
        if result.get("file_id")
    }
