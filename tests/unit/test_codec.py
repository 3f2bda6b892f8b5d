"""Records of dataclasses: what is written is read again, and what an older version wrote is read too."""

from dataclasses import dataclass, field
from enum import StrEnum

import pytest
from moorage.codec import Codec, FieldCodec


@dataclass(frozen=True)
class Lid:
    color: str
    dents: int = 0


@dataclass(frozen=True)
class Box:
    id: str
    lid: Lid | None = None
    labels: tuple[str, ...] = ()
    notes: dict[str, str] = field(default_factory=dict)


LID = Codec(Lid, sparse=("dents",))
BOX = Codec(Box, nested={"lid": LID})


class Size(StrEnum):
    SMALL = "small"


@dataclass(frozen=True)
class Shelf:
    tenant_id: str
    expires_at: int
    size: Size = Size.SMALL
    lids: tuple[Lid, ...] = ()
    notes: dict[str, str] = field(default_factory=dict)


SHELF = Codec(
    Shelf, names={"expires_at": "ttl"}, nested={"size": FieldCodec(str, Size), "lids": LID}, sparse=("notes",), beside=("tenant_id",)
)


@pytest.mark.parametrize(
    ("box", "record"),
    [
        (Box("b"), {"id": "b", "lid": None, "labels": [], "notes": {}}),
        (Box("b", Lid("red"), ("x",)), {"id": "b", "lid": {"color": "red"}, "labels": ["x"], "notes": {}}),
        (
            Box("b", Lid("red", 2), notes={"a": "b"}),
            {"id": "b", "lid": {"color": "red", "dents": 2}, "labels": [], "notes": {"a": "b"}},
        ),
    ],
)
def test_what_is_written_is_read_again(box: Box, record: dict[str, object]) -> None:
    assert BOX.pack(box) == record
    assert BOX.unpack({"PK": "p", "SK": "s", **record}) == box


def test_a_field_that_came_later_is_its_default() -> None:
    assert BOX.unpack({"id": "b"}) == Box("b")


def test_a_field_that_must_be_there_is_missed() -> None:
    with pytest.raises(KeyError, match="id"):
        BOX.unpack({"lid": None})


@pytest.mark.parametrize(
    ("shelf", "record"),
    [
        (Shelf("t", 7), {"ttl": 7, "size": "small", "lids": []}),
        (
            Shelf("t", 7, lids=(Lid("red"), Lid("blue", 1))),
            {"ttl": 7, "size": "small", "lids": [{"color": "red"}, {"color": "blue", "dents": 1}]},
        ),
        (Shelf("t", 7, notes={"a": "b"}), {"ttl": 7, "size": "small", "lids": [], "notes": {"a": "b"}}),
    ],
)
def test_fields_may_have_other_names_and_stand_beside_the_record(shelf: Shelf, record: dict[str, object]) -> None:
    assert SHELF.pack(shelf) == record
    assert SHELF.unpack(record, tenant_id="t") == shelf


def test_what_stands_beside_is_for_what_the_record_does_not_have() -> None:
    assert SHELF.unpack({"size": "small"}, tenant_id="t", expires_at=9) == Shelf("t", 9)
    assert SHELF.unpack({"size": "small", "ttl": 7}, tenant_id="t", expires_at=9) == Shelf("t", 7)
    with pytest.raises(KeyError, match="ttl"):
        SHELF.unpack({"size": "small"}, tenant_id="t")


def test_a_codec_knows_its_fields() -> None:
    with pytest.raises(AssertionError, match="Lid has no \\['color_of'\\]"):
        Codec(Lid, sparse=("color_of",))
