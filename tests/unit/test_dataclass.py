"""Our ``@dataclass`` makes what the standard library's makes."""

import copy
import dataclasses
import inspect
import pickle
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any, ClassVar

import pytest
from moorage.dataclass import dataclass


def kinds(dataclass: Any) -> dict[str, Any]:
    """The same classes by either decorator."""

    @dataclass(frozen=True, slots=True)
    class Place:
        """Where something stands."""

        row: int
        column: int = 7
        notes: list[str] = dataclasses.field(default_factory=list, repr=False)
        seen: int = dataclasses.field(default=0, compare=False)
        known: ClassVar[int] = 1

    @dataclass(frozen=True, slots=True)
    class NamedPlace(Place):
        name: str = "here"
        inner: Any = None

    @dataclass(frozen=True)
    class Open:
        width: int

        @property
        def doubled(self) -> int:
            return 2 * self.width

    @dataclass(slots=True)
    class Counter:
        start: int
        seen: list[int] = dataclasses.field(default_factory=list, init=False)
        total: int = dataclasses.field(default=3, init=False)

        def __post_init__(self) -> None:
            self.total += self.start

    @dataclass
    class Plain:
        text: str = "a"

        def __eq__(self, other: object) -> bool:
            return True

        def __hash__(self) -> int:
            return 5

    @dataclass(slots=True, eq=False)
    class Itself:
        number: int = 1

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Named:
        left: int
        right: int = 2

    @dataclass(frozen=True, slots=True)
    class HalfNamed:
        left: int
        _: dataclasses.KW_ONLY
        right: int = 2

        def __repr__(self) -> str:
            return "half"

    @dataclass(frozen=True, slots=True)
    class Empty:
        pass

    return {name: value for name, value in locals().items() if name != "dataclass"}


OURS, THEIRS = kinds(dataclass), kinds(dataclasses.dataclass)
CASES: dict[str, Callable[[dict[str, Any]], Any]] = {
    "an object shows its fields": lambda of: repr(of["NamedPlace"](1, notes=["x"], inner=of["Empty"]())),
    "an object that holds itself is shown": lambda of: repr(recursive(of["Counter"](1))),
    "a representation of its own stays": lambda of: repr(of["HalfNamed"](1)),
    "equal fields are equal": lambda of: of["Place"](1, 2, seen=1) == of["Place"](1, 2, seen=2),
    "other fields are not equal": lambda of: of["Place"](1) == of["Place"](2),
    "another class is not equal": lambda of: of["Place"](1) == of["NamedPlace"](1),
    "a class without fields is equal": lambda of: (of["Empty"]() == of["Empty"](), hash(of["Empty"]())),
    "a comparison of its own stays": lambda of: (of["Plain"]("a") == of["Plain"]("b"), hash(of["Plain"]())),
    "objects may be equal only to themselves": lambda of: of["Itself"]() == of["Itself"](),
    "one field has a hash": lambda of: hash(of["Open"](4)),
    "two fields have a hash": lambda of: hash(of["Named"](left=1)),
    "a list has no hash": lambda of: hash(of["Place"](1)),
    "an object that changes has no hash": lambda of: hash(of["Counter"](1)),
    "a factory makes a value for each": lambda of: of["Place"](1).notes is of["Place"](1).notes,
    "a last step follows": lambda of: (of["Counter"](4).total, of["Counter"](4).seen),
    "fields are matched in order": lambda of: [kind.__match_args__ for kind in of.values()],
    "fields are known": lambda of: [[each.name for each in dataclasses.fields(kind)] for kind in of.values()],
    "slots hold the fields": lambda of: [kind.__dict__.get("__slots__") for kind in of.values()],
    "signatures say the fields": lambda of: [
        [(each.name, each.kind, each.annotation) for each in inspect.signature(kind).parameters.values()] for kind in of.values()
    ],
    "defaults are in signatures": lambda of: inspect.signature(of["HalfNamed"]).parameters["right"].default,
    "a docstring stays": lambda of: of["Place"].__doc__,
    "a frozen field is not assigned": lambda of: setattr(of["Place"](1), "row", 2),
    "a frozen field is not deleted": lambda of: delattr(of["Place"](1), "row"),
    "a frozen object has no more fields": lambda of: setattr(of["Open"](1), "height", 2),
    "an inherited field is frozen": lambda of: setattr(of["NamedPlace"](1), "row", 2),
    "a heir's field of its own is not": lambda of: heir(of["Open"]),
    "fields change": lambda of: changed(of["Counter"](1)),
    "another value replaces one": lambda of: repr(dataclasses.replace(of["NamedPlace"](1), row=3)),
    "fields are a dictionary": lambda of: dataclasses.asdict(of["NamedPlace"](1, inner=of["Empty"]())),
    "a copy has all": lambda of: repr(copy.copy(of["NamedPlace"](1, 2, name="there"))),
    "a deep copy has its own": lambda of: repr(copy.deepcopy(of["NamedPlace"](1, 2, ["n"], inner=[1]))),
    "a frozen object without slots is copied": lambda of: repr(copy.deepcopy(of["Open"](1))),
    "a field is missing": lambda of: of["Place"](),
    "there are too many": lambda of: of["Open"](1, 2),
    "names are asked for": lambda of: of["Named"](1),
    "a name is unknown": lambda of: of["Named"](left=1, middle=2),
}


def recursive(counter: Any) -> Any:
    counter.seen.append(counter)
    return counter


def heir(kind: Any) -> int:
    class Heir(kind):  # type: ignore[misc]
        pass

    one = Heir(1)
    one.height = 4
    return int(one.height)


def changed(counter: Any) -> str:
    counter.start = 9
    return repr(counter)


def outcome(case: Callable[[dict[str, Any]], Any], all_kinds: dict[str, Any]) -> Any:
    try:
        return case(all_kinds)
    except Exception as error:
        return type(error), str(error)


@pytest.mark.parametrize("name", CASES)
def test_it_does_as_the_standard_library_does(name: str) -> None:
    assert outcome(CASES[name], OURS) == outcome(CASES[name], THEIRS)


@dataclass(frozen=True, slots=True)
class Pickled:
    row: int
    column: int = 2


def test_a_frozen_object_is_pickled() -> None:
    assert pickle.loads(pickle.dumps(Pickled(1, 5))) == Pickled(1, 5)


def test_its_first_object_compiles_it() -> None:
    """And no other part of an import does."""
    kind = kinds(dataclass)["Open"]
    before = type(vars(kind)["__init__"]).__name__
    kind(1)
    assert (before, type(vars(kind)["__init__"]).__name__) == ("_DeferredInit", "function")


def loaded() -> list[ModuleType]:
    return [module for name, module in sorted(sys.modules.items()) if name.startswith("moorage.")]


def test_every_class_of_the_api_can_be_compiled() -> None:
    import moorage.local.server  # noqa: F401

    found = {
        each
        for module in loaded()
        for each in vars(module).values()
        if isinstance(each, type) and "__dataclass_fields__" in vars(each) and each.__module__.startswith("moorage.")
    }
    names = {each: [field.name for field in dataclasses.fields(each) if field.init] for each in found}
    assert len(found) > 100
    assert {each: sorted(inspect.signature(each).parameters) for each in found} == {each: sorted(names[each]) for each in found}
