"""The openai SDK's parameter types, read as paths.

``shell.environment<container_auto>.file_ids[]``: a name for each field, ``[]`` for the entries of a list, and the ``type`` of a
variant in angle brackets. The variants of the outermost union begin their paths without brackets.
"""

import types
import typing
from collections.abc import Callable, Iterator
from typing import Any

import typing_extensions

Stop = Callable[[str], bool]
_WRAPPERS = (typing_extensions.Required, typing_extensions.NotRequired, typing.Required, typing.NotRequired, typing.Annotated)


def paths(annotation: Any, *, stop: Stop = lambda path: False) -> set[str]:
    """All paths below ``annotation``; what lies below a path that ``stop`` names is left out."""
    found: set[str] = set()
    for variant, is_list in variants(annotation):
        assert not is_list, "the outermost type is an object"
        tags = literal_tags(variant)
        for tag in tags or ("",):
            if tag:
                found.add(tag)
            if not (tag and stop(tag)):
                found |= _fields_below(variant, tag, bool(tags), stop)
    return found


def _fields_below(typed_dict: Any, prefix: str, is_tagged: bool, stop: Stop) -> set[str]:
    found = set()
    for name, hint in fields(typed_dict).items():
        if name == "type" and is_tagged:
            continue
        path = f"{prefix}.{name}" if prefix else name
        found.add(path)
        if not stop(path):
            found |= _below(hint, path, stop)
    return found


def _below(hint: Any, path: str, stop: Stop) -> set[str]:
    objects = [entry for entry in variants(hint) if typing_extensions.is_typeddict(entry[0])]
    found = set()
    for variant, is_list in objects:
        here = f"{path}[]" if is_list else path
        tags = literal_tags(variant)
        for tag in tags or ("",):
            variant_path = f"{here}<{tag}>" if tag else here
            if tag:
                found.add(variant_path)
            if not stop(variant_path):
                found |= _fields_below(variant, variant_path, bool(tags), stop)
    return found


def fields(typed_dict: Any) -> dict[str, Any]:
    return typing_extensions.get_type_hints(typed_dict)


def variants(annotation: Any, is_list: bool = False) -> Iterator[tuple[Any, bool]]:
    """The members of a union, through Optional, Required, lists and aliases, and whether they stand in a list."""
    annotation = _plain(annotation)
    origin = typing_extensions.get_origin(annotation)
    if origin in (typing.Union, types.UnionType):
        for argument in typing_extensions.get_args(annotation):
            yield from variants(argument, is_list)
    elif origin is None or origin is typing.Literal or (isinstance(origin, type) and issubclass(origin, dict)):
        yield annotation, is_list
    else:
        for argument in typing_extensions.get_args(annotation)[:1]:
            yield from variants(argument, True)


def literals(annotation: Any) -> set[str]:
    """All literal values of an annotation."""
    return {
        value
        for variant, _ in variants(annotation)
        if typing_extensions.get_origin(variant) is typing.Literal
        for value in typing_extensions.get_args(variant)
    }


def literal_tags(typed_dict: Any) -> tuple[str, ...]:
    """The values of ``type`` by which an object of this kind is known."""
    hint = fields(typed_dict).get("type")
    return tuple(sorted(str(tag) for tag in literals(hint))) if hint is not None else ()


def tags(annotation: Any) -> set[str]:
    """The ``type`` values of a union of objects."""
    return {tag for variant, _ in variants(annotation) if typing_extensions.is_typeddict(variant) for tag in literal_tags(variant)}


def _plain(annotation: Any) -> Any:
    while True:
        if typing_extensions.get_origin(annotation) in _WRAPPERS:
            annotation = typing_extensions.get_args(annotation)[0]
        elif isinstance(annotation, typing_extensions.TypeAliasType):
            annotation = annotation.__value__
        else:
            return annotation
