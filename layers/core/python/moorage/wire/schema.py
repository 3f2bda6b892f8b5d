"""JSON Schema of the wire's types, for the OpenAPI document."""

from collections.abc import Mapping
from typing import Any, Final

from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import CoreSchema, PydanticOmit, core_schema

from moorage.wire.validation import JsonValidator

JsonSchema = dict[str, Any]

COMPONENTS: Final = "#/components/schemas/"
JSON: Final = "application/json"

STRING: Final[JsonSchema] = {"type": "string"}
BOOLEAN: Final[JsonSchema] = {"type": "boolean"}
COUNT: Final[JsonSchema] = {"type": "integer", "minimum": 0}
SECONDS: Final[JsonSchema] = {"type": "integer", "description": "Unix seconds"}


def ref(name: str) -> JsonSchema:
    return {"$ref": COMPONENTS + name}


def record(**properties: JsonSchema) -> JsonSchema:
    """An answer: every field is always there, and more may come with a new version."""
    return {"type": "object", "properties": properties, "required": list(properties)}


class _Generator(GenerateJsonSchema):
    """pydantic's, without its titles, and without what is refused."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def handle_invalid_for_json_schema(self, schema: CoreSchema, error_info: str) -> JsonSchemaValue:
        raise PydanticOmit

    def literal_schema(self, schema: core_schema.LiteralSchema) -> JsonSchemaValue:
        return {"type": "string", "enum": list(schema["expected"])}

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        """A field with a default may be left out, or null."""
        inner = self.generate_inner(schema["schema"])
        return inner if "anyOf" in inner and {"type": "null"} in inner["anyOf"] else {"anyOf": [inner, {"type": "null"}]}


def components(types: Mapping[str, JsonValidator[Any]]) -> dict[str, JsonSchema]:
    """The schemas of these types by name, and of all objects that they consist of by the names of their classes."""
    generator = _Generator(ref_template=COMPONENTS + "{model}")
    named, shared = generator.generate_definitions([(name, "validation", parser.schema) for name, parser in types.items()])
    own = {name: schema for (name, _), schema in named.items() if schema.get("$ref") != COMPONENTS + name}
    schemas: dict[str, JsonSchema] = _untitled(dict(shared) | own)
    return schemas


def _untitled(schema: Any) -> Any:
    """Titles would repeat the names of the classes. (A property may be called ``title``; it is an object, not a string.)"""
    if isinstance(schema, dict):
        return {key: _untitled(inner) for key, inner in schema.items() if key != "title" or not isinstance(inner, str)}
    return [_untitled(inner) for inner in schema] if isinstance(schema, list) else schema
