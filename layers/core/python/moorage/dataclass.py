"""``@dataclass`` of the standard library, at a tenth of its price.

For each class the standard library writes the source of five or six methods and compiles it, in half a millisecond. At five hundred
classes that is a third of what it costs to import moorage. Here only ``__init__`` is compiled, when it is first looked up: a process
makes objects of few of its classes. The other methods are closures over the names of fields. All else is the standard library's.

Type checkers see ``dataclasses.dataclass``. There are the options that moorage uses.
"""

from collections.abc import Callable, Sequence
from dataclasses import MISSING, Field, FrozenInstanceError, fields
from operator import attrgetter
from reprlib import recursive_repr
from sys import modules
from typing import TYPE_CHECKING, Any, Final

Fields = tuple[Field[Any], ...]
Values = Callable[[Any], tuple[Any, ...]]

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:
    from dataclasses import dataclass as _with_fields

    def dataclass(cls=None, /, *, eq=True, frozen=False, kw_only=False, slots=False):
        """As ``dataclasses.dataclass``."""

        def made(cls):
            cls.__doc__ = cls.__doc__ or cls.__name__  # The standard library would look for the signature.
            # It compiles methods for each of these options.
            cls = _with_fields(cls, init=False, repr=False, eq=False, frozen=False, kw_only=kw_only, slots=slots)
            _add_methods(cls, fields(cls), has_eq=eq, is_frozen=frozen, has_slots=slots)
            return cls

        return made if cls is None else made(cls)


def _add_methods(cls: Any, own: Fields, *, has_eq: bool, is_frozen: bool, has_slots: bool) -> None:
    """Those that the class does not define itself."""
    methods: dict[str, Any] = {
        "__init__": _DeferredInit(cls, own, is_frozen),
        "__repr__": _repr([each.name for each in own if each.repr]),
    }
    if has_eq:
        values = _values([each.name for each in own if each.compare])
        methods["__eq__"] = _eq(values)
        if cls.__dict__.get("__hash__") is None:  # Python puts None there beside an __eq__ of the class.
            cls.__hash__ = _hash(values) if is_frozen else None
    if is_frozen:
        names = frozenset(each.name for each in own)
        methods |= {"__setattr__": _refused_assignment(cls, names), "__delattr__": _refused_deletion(cls, names)}
    if is_frozen and has_slots:
        methods |= {"__getstate__": _state, "__setstate__": _take_state}
    for name, method in methods.items():
        if name not in cls.__dict__:
            setattr(cls, name, method)


class _DeferredInit:
    """Stands for ``__init__`` until that is looked up, by whomever."""

    def __init__(self, cls: Any, own: Fields, is_frozen: bool) -> None:
        self._cls, self._fields, self._is_frozen = cls, own, is_frozen

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        init = _init(self._cls, self._fields, self._is_frozen)
        self._cls.__init__ = init
        return init.__get__(instance, owner)


_FROM_FACTORY: Final = object()
"""The default of a parameter whose value a factory makes."""


def _init(cls: Any, own: Fields, is_frozen: bool) -> Any:
    known = {"_FROM_FACTORY": _FROM_FACTORY, "_set": object.__setattr__}
    positional, by_name, body = ["self"], ["*"], list[str]()
    for each in own:
        name, value = each.name, each.name
        if each.default_factory is not MISSING:
            known[f"_make_{name}"] = each.default_factory
            value = f"_make_{name}() if {name} is _FROM_FACTORY else {name}" if each.init else f"_make_{name}()"
            default = "=_FROM_FACTORY"
        elif each.default is not MISSING:
            known[f"_default_{name}"] = each.default
            value = name if each.init else f"_default_{name}"
            default = f"=_default_{name}"
        else:
            default = ""
        if each.init:
            (by_name if each.kw_only else positional).append(name + default)
        if each.init or default:
            body.append(f"_set(self, {name!r}, {value})" if is_frozen else f"self.{name} = {value}")
    if hasattr(cls, "__post_init__"):
        body.append("self.__post_init__()")
    parameters = ", ".join(positional + (by_name if by_name[1:] else []))
    lines = "\n  ".join(body or ["pass"])
    text = f"def made({', '.join(known)}):\n def __init__({parameters}):\n  {lines}\n return __init__"
    found: dict[str, Any] = {}
    exec(text, vars(modules[cls.__module__]), found)  # noqa: S102  # As the standard library does: all of it is our own source.
    init = found["made"](**known)
    init.__qualname__ = f"{cls.__qualname__}.__init__"
    init.__annotations__ = {each.name: each.type for each in own if each.init} | {"return": None}
    return init


def _values(names: Sequence[str]) -> Values:
    """What reads these attributes of an object."""
    if len(names) > 1:
        return attrgetter(*names)
    return lambda self: tuple(getattr(self, name) for name in names)


def _eq(values: Values) -> Any:
    def __eq__(self: Any, other: object) -> Any:
        return values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented

    return __eq__


def _hash(values: Values) -> Any:
    def __hash__(self: Any) -> int:
        return hash(values(self))

    return __hash__


def _repr(names: Sequence[str]) -> Any:
    @recursive_repr()
    def __repr__(self: Any) -> str:
        return f"{self.__class__.__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"

    return __repr__


def _refused_assignment(cls: Any, names: frozenset[str]) -> Any:
    def __setattr__(self: Any, name: str, value: Any) -> None:
        if type(self) is cls or name in names:
            raise FrozenInstanceError(f"cannot assign to field {name!r}")
        super(cls, self).__setattr__(name, value)

    return __setattr__


def _refused_deletion(cls: Any, names: frozenset[str]) -> Any:
    def __delattr__(self: Any, name: str) -> None:
        if type(self) is cls or name in names:
            raise FrozenInstanceError(f"cannot delete field {name!r}")
        super(cls, self).__delattr__(name)

    return __delattr__


def _state(self: Any) -> list[Any]:
    """Of a copy or a pickle, which cannot assign to fields."""
    return [getattr(self, each.name) for each in fields(self)]


def _take_state(self: Any, state: Sequence[Any]) -> None:
    for each, value in zip(fields(self), state, strict=True):
        object.__setattr__(self, each.name, value)
