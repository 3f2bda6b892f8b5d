"""Records of dataclasses: what is written is read again, and what an older version wrote is read too."""

from dataclasses import dataclass, field

import pytest
from moorage.store.codec import Codec


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
