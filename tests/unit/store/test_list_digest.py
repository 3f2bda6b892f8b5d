"""Digests of the list of responses: what they tell where to look for, and that it is never too little."""

import random
import zlib
from itertools import pairwise

import orjson
import pytest
from moorage import limits
from moorage.store.list_digest import DigestRange, ListDigest
from moorage.store.response_list import DELETED, ListFilter, ResponseRow, tags_of

PLAIN = ResponseRow("completed", "m", "key_1", tags="")
FAILED = ResponseRow("failed", "m", "key_1", tags="")


def digest_of(*rows: tuple[int, ResponseRow]) -> ListDigest:
    digest = ListDigest()
    for created_at, row in rows:
        digest.add(created_at, row)
    return digest


def test_what_stands_close_together_is_one_stretch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "LIST_STRETCH_GAP_ROWS", 2)
    rows = [(100 + place, FAILED if place in (3, 5, 9) else PLAIN) for place in range(12)]
    assert digest_of(*rows).stretches(ListFilter(statuses=frozenset({"failed"}))) == [
        DigestRange(103, 105, 3),
        DigestRange(109, 109, 1),
    ]


def test_a_long_stretch_is_parted_but_never_within_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "LIST_STRETCH_ROWS_MAX", 3)
    rows = [(second, FAILED) for second in (1, 2, 3, 3, 3, 4)]
    assert digest_of(*rows).stretches(ListFilter(model="m")) == [DigestRange(1, 3, 5), DigestRange(4, 4, 1)]


def test_it_is_unpacked_as_it_was_packed_and_another_form_is_not_read() -> None:
    digest = digest_of((7, PLAIN), (7, FAILED), (9, ResponseRow("completed", "m", "key_1", conversation_id="conv_1", tags=None)))
    assert ListDigest.unpack(digest.pack()) == digest
    assert ListDigest.unpack(zlib.compress(orjson.dumps([2, "of a later version"]))) is None
    assert b"conv_1" not in zlib.decompress(digest.pack())


def test_what_was_deleted_is_not_looked_for() -> None:
    assert digest_of((7, ResponseRow(DELETED, "m", "key_1"))).stretches(ListFilter()) == []


@pytest.mark.parametrize("seed", range(20))
def test_all_that_a_filter_admits_lies_in_ranges_that_do_not_overlap(seed: int) -> None:
    chosen = random.Random(seed)
    rows = []
    second = 0
    for _ in range(chosen.choice((5, 300, 2000))):
        second += chosen.choice((0, 0, 1, 5))
        metadata = {"team": chosen.choice("ab")} if chosen.random() < 0.1 else {}
        row = ResponseRow(
            "failed" if chosen.random() < 0.01 else "completed",
            chosen.choice("mno"),
            "key_1",
            conversation_id=f"conv_{chosen.randrange(50)}" if chosen.random() < 0.5 else "",
            container_id="cntr_1" if chosen.random() < 0.02 else "",
            tags=None if chosen.random() < 0.05 else tags_of("t", metadata),
        )
        rows.append((second, row))
    half = len(rows) // 2
    digest = digest_of(*rows[:half])
    digest.join(digest_of(*rows[half:]))
    for sought in (
        ListFilter(statuses=frozenset({"failed"})),
        ListFilter(model="o"),
        ListFilter(conversation_id="conv_3"),
        ListFilter(container_id="cntr_1", model="m"),
        ListFilter(tags=tags_of("t", {"team": "a"})),
        ListFilter(key_id="key_2"),
    ):
        stretches = digest.stretches(sought)
        admitted = [at for at, row in rows if sought.admits(row.traits)]
        assert all(any(each.first <= at <= each.last for each in stretches) for at in admitted)
        assert all(before.last < after.first for before, after in pairwise(stretches))
