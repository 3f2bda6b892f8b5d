"""What pydantic found wrong with a request, in the API's own words.

pydantic checks the types of the wire (``validation.py``) and says where and why a value does not fit; here that becomes the sentence,
the code and the field's path (``input[3].content[0].type``) that OpenAI's API would answer with. Checks of our own bring their sentence
along (:func:`problem`). Only the first fault is told.
"""

import itertools
import math
import re
from collections.abc import Callable, Iterable
from typing import Any, Final

from pydantic import ValidationError
from pydantic_core import ErrorDetails, PydanticCustomError

from moorage import errors, limits
from moorage.errors import ApiError
from moorage.wire.types import type_name

Describe = Callable[[str], ApiError]

LABEL: Final = "\0"
"""Begins the name of a variant that is no field: pydantic puts the names of variants into its paths."""

_PROBLEM: Final = "problem"
VARIANT: Final = "variant"
KIND: Final = "kind"


def problem(describe: Describe, *at: str | int) -> PydanticCustomError:
    """For a check of our own: ``describe`` makes the answer once the field's place is known; ``at`` leads on from there."""
    return PydanticCustomError(_PROBLEM, "a problem", {"describe": describe, "at": at})


def wrong_value(message: str, *at: str | int) -> PydanticCustomError:
    return problem(lambda param: errors.invalid_value(param, message), *at)


def wrong_type(expected: str, value: Any, *at: str | int) -> PydanticCustomError:
    got = type_name(value)
    return problem(lambda param: errors.invalid_type(param, expected, got), *at)


def refusal(error: ValidationError, value: Any, check: Callable[[Any], object], known: Iterable[str] = ()) -> ApiError:
    """The answer to a ``value`` that ``check`` refused: its first fault in the client's own order, and in each object what is missing
    last (it may be there, misspelt). ``known`` are the names of the value's own fields."""
    if error.error_count() > limits.FAULTS_MAX:
        value = _pruned(value)
        try:
            check(value)
        except ValidationError as smaller:
            error = smaller
    located = [(_steps(value, fault), fault) for fault in error.errors(include_url=False)]
    steps, fault = min(located, key=lambda fault: _rank(value, fault[0]))
    return _describe(fault, steps, known)


def _pruned(value: Any) -> Any:
    """The same value with few fields in each object. No object of the protocol has so many, so it is as wrong as the whole; lists are
    checked up to their first fault only."""
    if isinstance(value, dict):
        return {name: _pruned(inner) for name, inner in itertools.islice(value.items(), limits.FIELDS_TOLD_MAX)}
    return [_pruned(inner) for inner in value] if isinstance(value, list) else value


def _rank(value: Any, steps: list[str | int]) -> list[float]:
    """Where a field stands in what the client sent; behind all others if it is not there."""
    rank: list[float] = []
    for step in steps:
        if isinstance(value, dict):
            rank.append(list(value).index(step) if step in value else math.inf)
            value = value.get(step)
        else:
            assert isinstance(step, int)
            rank.append(step)
            value = value[step]
    return rank


def _steps(value: Any, fault: ErrorDetails) -> list[str | int]:
    """pydantic's path without the names of variants. A name is the object's own ``type``, and then the first step inside it, or begins
    with :data:`LABEL`. The last step is a field's, unless a check of ours looked at the whole object."""
    steps: list[str | int] = []
    location = fault["loc"]
    is_inside = False
    for number, step in enumerate(location):
        is_last = number == len(location) - 1
        if isinstance(step, str) and step.startswith(LABEL) and not (isinstance(value, dict) and step in value):
            continue
        may_be_name = not is_inside and (not is_last or fault["type"] == _PROBLEM)
        if isinstance(value, dict) and may_be_name and value.get("type") == step:
            is_inside = True
            continue
        if isinstance(value, dict) and (step in value or is_last):
            value = value.get(step)
        elif isinstance(value, list) and isinstance(step, int):
            value = value[step]
        else:
            continue
        is_inside = False
        steps.append(step)
    return steps


def path_of(steps: Iterable[str | int], path: str = "") -> str:
    for step in steps:
        path += f"[{step}]" if isinstance(step, int) else f".{step}" if path else step
    return path


_TYPES: Final = {
    "string_type": "a string",
    "int_type": "an integer",
    "float_type": "a number",
    "bool_type": "a boolean",
    "list_type": "an array",
    "dict_type": "an object",
    "model_type": "an object",
    "model_attributes_type": "an object",
}

_OF_CHAT_COMPLETIONS: Final = {
    name: f" This is a name of chat completions: the Responses API has '{here}' for it."
    for name, here in {
        "messages": "input",
        "max_tokens": "max_output_tokens",
        "max_completion_tokens": "max_output_tokens",
        "response_format": "text.format",
        "reasoning_effort": "reasoning.effort",
        "verbosity": "text.verbosity",
    }.items()
}
"""What a program that comes from there still sends."""

_PARTS_OF_CHAT_COMPLETIONS: Final = {
    name: f" This is a content part of chat completions: the Responses API has '{here}' for it."
    for name, here in {
        "text": "input_text",
        "image_url": "input_image",
        "file": "input_file",
        "input_audio": "input_file",
    }.items()
}
_ROLES_OF_CHAT_COMPLETIONS: Final = {
    "tool": " This is a role of chat completions: the Responses API has an item of type 'function_call_output' for it.",
    "function": " This is a role of chat completions: the Responses API has an item of type 'function_call_output' for it.",
}


def _describe(fault: ErrorDetails, steps: list[str | int], known: Iterable[str]) -> ApiError:
    kind, value, context = fault["type"], fault["input"], fault.get("ctx", {})
    if kind == _PROBLEM:
        describe: Describe = context["describe"]
        return describe(path_of([*steps, *context["at"]]))
    if kind == "extra_forbidden":
        unknown = path_of([*steps[:-1], str(steps[-1])[: limits.PARAM_NAME_CHARS_MAX]])
        return errors.unknown_parameter(unknown, _OF_CHAT_COMPLETIONS.get(unknown, ""), known if len(steps) == 1 else ())
    if fault["loc"] and fault["loc"][-1] == "[key]":
        longest = context["max_length"]
        sentence = f"keys have at most {longest} characters, but one has {len(value)}."
        return errors.invalid_value(path_of(steps[:-1]), sentence)
    param = path_of(steps)
    if kind in _TYPES:
        return errors.invalid_type(param, _TYPES[kind], type_name(value))
    if kind == KIND:
        return errors.invalid_type(param, context["expected"], type_name(value))
    if kind == VARIANT:
        return _no_variant(param, value, context["supported"])
    return _out_of_bounds(kind, param, value, context)


def _out_of_bounds(kind: str, param: str, value: Any, context: dict[str, Any]) -> ApiError:
    """The type is right, the value is not."""
    is_role = param.endswith(".role")
    match kind:
        case "missing":
            return errors.missing_parameter(param)
        case "literal_error" if not isinstance(value, str):
            return errors.invalid_type(param, "a string", type_name(value))
        case "literal_error":
            choices = tuple(re.findall(r"'([^']*)'", context["expected"]))
            return errors.invalid_choice(param, value[:80], choices, _ROLES_OF_CHAT_COMPLETIONS.get(value, "") if is_role else "")
        case "string_too_long" | "too_long" if not isinstance(value, dict):
            return errors.invalid_length(param, _noun(value), len(value), 0, context["max_length"])
        case "string_too_short" | "too_short":
            return errors.invalid_length(param, _noun(value), len(value), context["min_length"], len(value))
        case "too_long":
            return errors.too_many_properties(param, len(value), context["max_length"])
        case "string_pattern_mismatch":
            return errors.invalid_pattern(param, value[:80], context["pattern"].removeprefix("^").removesuffix("$"))
        case "greater_than_equal":
            return errors.below_minimum(param, _number(context["ge"]), value, _whole(context["ge"]))
        case "less_than_equal":
            return errors.above_maximum(param, _number(context["le"]), value, _whole(context["le"]))
        case "finite_number":
            return errors.invalid_value(param, "it must be a finite number.")
        case _:
            raise AssertionError(f"no words for pydantic's error '{kind}'")


def _noun(value: Any) -> str:
    return "string" if isinstance(value, str) else "array"


def _number(bound: float) -> str:
    return "integer" if isinstance(bound, int) else "decimal"


def _whole(bound: float) -> float:
    return int(bound) if bound == int(bound) else bound


def _no_variant(param: str, value: Any, supported: tuple[str, ...]) -> ApiError:
    """``value`` is none of the objects that are told apart by ``type``."""
    if not isinstance(value, dict):
        return errors.invalid_type(param, "an object", type_name(value))
    tag, place = value.get("type"), path_of(["type"], param)
    if tag is None:
        return errors.missing_parameter(place)
    if not isinstance(tag, str):
        return errors.invalid_type(place, "a string", type_name(tag))
    advice = _PARTS_OF_CHAT_COMPLETIONS.get(tag, "") if "input_text" in supported else ""
    return errors.invalid_choice(place, tag[:80], supported, advice)
