"""The types of the wire: what they make of a value, and the words in which they refuse one."""

from typing import Annotated, Any, Literal, Required

import pytest
from moorage import limits
from moorage.errors import ApiError
from moorage.wire.refusals import wrong_value
from moorage.wire.requests import parse_create
from moorage.wire.schema import components
from moorage.wire.validation import (
    Array,
    Body,
    Dropped,
    Either,
    Fields,
    Free,
    JsonValidator,
    Length,
    Name,
    Number,
    OneOf,
    Only,
    RefusedField,
    RefusedVariant,
    Text,
    build_validators,
    wire,
    wire_with,
)
from pydantic import Field
from typing_extensions import TypedDict


def _is_square(value: Fields) -> Fields:
    if value.get("height", value["width"]) != value["width"]:
        raise wrong_value("it must be as high as it is wide.", "height")
    return value


@wire_with(_is_square)
class Square(TypedDict, total=False):
    type: Required[Literal["square"]]
    width: Required[Annotated[int, Field(ge=1, le=9)]]
    height: int


@wire
class Label(TypedDict, total=False):
    type: Required[Literal["label"]]
    label: Required[Annotated[str, Field(min_length=2, max_length=4, pattern="^[a-z]+$")]]
    size: Annotated[Number, Field(ge=0, le=1)]
    bold: Annotated[bool, Only(False, "Nothing is bold here.")]
    align: Literal["left", "right"]
    note: Annotated[Text, Dropped]
    shadow: Annotated[Any, RefusedField("The sun does not shine.")]


SHAPES = OneOf({"square": Square, "label": Label, "circle": RefusedVariant("It rolls away.")})


@wire
class Drawing(TypedDict, total=False):
    shapes: Required[Annotated[list[Annotated[Any, SHAPES]], Length(3, minimum=1)]]
    title: Annotated[Any, Either("a string or an array", string=Text, array=Array[Name])]
    tags: Annotated[dict[Annotated[str, Field(max_length=3)], Text], Field(max_length=2)]
    data: Free
    background: Square


parse = JsonValidator[Fields](Drawing)
BUILT_WITH_OTHERS = JsonValidator[Fields](Drawing)
build_validators([BUILT_WITH_OTHERS, JsonValidator(Square), JsonValidator(list[Drawing]), JsonValidator(Text)])


@pytest.fixture(params=[parse, BUILT_WITH_OTHERS], ids=["alone", "with others"])
def check(request: pytest.FixtureRequest) -> JsonValidator[Fields]:
    validator: JsonValidator[Fields] = request.param
    return validator


LABEL = {"type": "label", "label": "abc"}


def drawn(**fields: Any) -> dict[str, Any]:
    return {"shapes": [{**LABEL, **fields}]}


def test_what_is_canonical_stays_as_it_is(check: JsonValidator[Fields]) -> None:
    drawing = {"shapes": [{"type": "square", "width": 3}, {**LABEL, "size": 0.5, "bold": False}], "title": ["a"], "data": {"x": None}}
    assert check(drawing) == drawing


def test_optional_nulls_and_fields_without_effect_are_left_out(check: JsonValidator[Fields]) -> None:
    assert check({**drawn(size=None, note="mine", shadow=None), "title": None}) == {"shapes": [LABEL]}
    assert check({**drawn(), "background": {"width": 1, "type": "square", "height": None}}) == {
        "shapes": [LABEL],
        "background": {"width": 1, "type": "square"},
    }


@pytest.mark.parametrize(
    ("value", "param", "code", "words"),
    [
        ([], "", "invalid_type", "expected an object, but got an array"),
        ({}, "shapes", "missing_required_parameter", "Missing required parameter: 'shapes'."),
        ({"shapes": None}, "shapes", "invalid_type", "expected an array, but got null"),
        ({"shapes": []}, "shapes", "array_below_min_length", "Expected an array with minimum length 1, but got an array with length 0"),
        ({"shapes": [LABEL] * 4}, "shapes", "array_above_max_length", "Expected an array with maximum length 3, but got an array with"),
        ({"shapes": [3]}, "shapes[0]", "invalid_type", "expected an object, but got an integer"),
        ({"shapes": [{}]}, "shapes[0].type", "missing_required_parameter", "Missing"),
        ({"shapes": [{"type": 3}]}, "shapes[0].type", "invalid_type", "expected a string, but got an integer"),
        ({"shapes": [{"type": "cube"}]}, "shapes[0].type", "invalid_value", "'cube'. Supported values are: 'square' and 'label'."),
        ({"shapes": [LABEL, {"type": "circle"}]}, "shapes[1].type", "unsupported_value", "It rolls away."),
        ({"shapes": [{"type": "square", "width": 3, "height": 4}]}, "shapes[0].height", "invalid_value", "as high as it is wide"),
        ({"shapes": [{"type": "square", "width": 0}]}, "shapes[0].width", "integer_below_min_value", "a value >= 1, but got 0"),
        ({"shapes": [{"type": "square", "width": True}]}, "shapes[0].width", "invalid_type", "an integer, but got a boolean"),
        (drawn(label="a"), "shapes[0].label", "string_below_min_length", "minimum length 2, but got a string with length 1"),
        (drawn(label="abcde"), "shapes[0].label", "string_above_max_length", "maximum length 4, but got a string with length 5"),
        (drawn(label="AB"), "shapes[0].label", "invalid_value", "matches the pattern '[a-z]+', but got 'AB'"),
        (drawn(label=3), "shapes[0].label", "invalid_type", "expected a string, but got an integer"),
        (drawn(size=2), "shapes[0].size", "decimal_above_max_value", "a value <= 1, but got 2 instead"),
        (drawn(size=float("nan")), "shapes[0].size", "invalid_value", "finite"),
        (drawn(size="2"), "shapes[0].size", "invalid_type", "expected a number, but got a string"),
        (drawn(bold=True), "shapes[0].bold", "unsupported_value", "'true' for 'shapes[0].bold'. Nothing is bold here."),
        (drawn(bold=0), "shapes[0].bold", "invalid_type", "expected a boolean, but got an integer"),
        (drawn(align="top"), "shapes[0].align", "invalid_value", "'top'. Supported values are: 'left' and 'right'."),
        (drawn(align=[]), "shapes[0].align", "invalid_type", "expected a string, but got an array"),
        (drawn(note=3), "shapes[0].note", "invalid_type", "a string"),
        (drawn(shadow={}), "shapes[0].shadow", "unsupported_parameter", "The sun does not shine."),
        (drawn(color="red"), "shapes[0].color", "unknown_parameter", "Unknown parameter: 'shapes[0].color'."),
        (drawn(**{"c" * 999: 1}), f"shapes[0].{'c' * limits.PARAM_NAME_CHARS_MAX}", "unknown_parameter", "Unknown"),
        ({"shapes": [{"type": "label", "lable": "abc"}]}, "shapes[0].lable", "unknown_parameter", "Unknown"),
        ({**drawn(), "title": 3}, "title", "invalid_type", "expected a string or an array, but got an integer"),
        ({**drawn(), "title": ["a", 3]}, "title[1]", "invalid_type", "expected a string"),
        ({**drawn(), "tags": {"a": 3}}, "tags.a", "invalid_type", "expected a string"),
        ({**drawn(), "tags": {"abcd": "x"}}, "tags", "invalid_value", "keys have at most 3 characters, but one has 4."),
        ({**drawn(), "tags": {"a": "", "b": "", "c": ""}}, "tags", "object_above_max_properties", "at most 2 properties"),
        ({**drawn(), "data": [float("inf")]}, "data", "invalid_value", "nested deeper"),
    ],
)
def test_a_wrong_value_is_refused_at_its_place_in_the_words_of_the_api(
    check: JsonValidator[Fields], value: Any, param: str, code: str, words: str
) -> None:
    with pytest.raises(ApiError) as refused:
        check(value)
    assert (refused.value.status, refused.value.param, refused.value.code) == (400, param, code)
    assert words in refused.value.message


@pytest.mark.parametrize(
    ("value", "param"),
    [
        ({"shapes": [{"type": "square", "height": "x", "width": 0}], "tags": 3}, "shapes[0].height"),
        ({"tags": 3, "shapes": [{"type": "square", "height": "x", "width": 0}]}, "tags"),
        ({"unheard_of": 1, "data": 1, "tags": 3}, "unheard_of"),
        ({"tags": 3}, "tags"),
    ],
    ids=["inside first", "outside first", "an unknown field", "a missing field comes last"],
)
def test_the_first_fault_is_told_in_the_order_of_the_client(value: Any, param: str) -> None:
    with pytest.raises(ApiError) as refused:
        parse(value)
    assert refused.value.param == param


def test_many_faults_are_not_looked_through() -> None:
    """pydantic finds a fault in every unknown field; for the first, a few of them are looked at."""
    unknown = {f"x{number}": number for number in range(limits.FAULTS_MAX * 5)}
    with pytest.raises(ApiError) as refused:
        parse({"shapes": [LABEL, {**LABEL, **unknown}], **unknown})
    assert refused.value.param == "shapes[1].x0"


class Order(Body):
    name: Name
    count: int = 1


def test_a_body_is_an_object_with_defaults_and_null_is_the_same_as_nothing() -> None:
    assert JsonValidator[Order](Order).body(b'{"name": "x", "count": null}') == Order(name="x", count=1)


@pytest.mark.parametrize(
    ("body", "param", "code"),
    [
        (b'{"name": null}', "name", "invalid_type"),
        (b"{}", "name", "missing_required_parameter"),
        (b'{"name": "x", "colour": 1}', "colour", "unknown_parameter"),
        (b'{"name": "x", "count": 1.0}', "count", "invalid_type"),
        (b"[]", None, "invalid_json"),
        (b'{"name": NaN}', None, "invalid_json"),
    ],
)
def test_a_body_that_is_wrong_is_refused(body: bytes, param: str | None, code: str) -> None:
    with pytest.raises(ApiError) as refused:
        JsonValidator[Order](Order).body(body)
    assert (refused.value.status, refused.value.param, refused.value.code) == (400, param, code)


def test_the_schema_has_what_is_honoured() -> None:
    schemas = components({"Drawing": JsonValidator[Any](Drawing)})
    assert schemas.keys() == {"Drawing", "Label", "Square"}
    assert schemas["Label"]["properties"].keys() == {"type", "label", "size", "bold", "align", "note"}
    assert schemas["Square"] == {
        "type": "object",
        "properties": {
            "type": {"type": "string", "enum": ["square"]},
            "width": {"type": "integer", "minimum": 1, "maximum": 9},
            "height": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        },
        "required": ["type", "width"],
        "additionalProperties": False,
    }
    assert [variant["$ref"] for variant in schemas["Drawing"]["properties"]["shapes"]["items"]["oneOf"]] == [
        "#/components/schemas/Square",
        "#/components/schemas/Label",
    ]


def test_a_field_that_is_called_like_a_label_is_a_field() -> None:
    with pytest.raises(ApiError) as refused:
        parse_create(b'{"model": "m", "input": "hi", "\\u0000": null, "\\u0000text": 1}')
    assert refused.value.code == "unknown_parameter"
