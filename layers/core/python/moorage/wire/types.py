"""The vocabulary: JSON objects of the protocol, as the rest of the code passes them on.

They are plain dictionaries in canonical form. What stands in each is declared once: in ``items.py``, ``tools.py`` and ``events.py``.
"""

from typing import Any, Final, Literal, get_args

Item = dict[str, Any]
"""One Responses item, for example ``{"type": "message", "role": "user", "content": [...]}``."""

Tool = dict[str, Any]
"""One tool definition."""

Event = dict[str, Any]
"""One event of a stream: ``type``, ``sequence_number`` and the fields of its type."""

Includable = Literal[
    "file_search_call.results",
    "web_search_call.results",
    "web_search_call.action.sources",
    "message.input_image.image_url",
    "computer_call_output.output.image_url",
    "code_interpreter_call.outputs",
    "reasoning.encrypted_content",
    "message.output_text.logprobs",
    "shell_call_output.output_files",
    "usage.cost",
]
INCLUDABLE: Final[tuple[str, ...]] = get_args(Includable)
"""What ``include`` may ask for; the last two are additions to the API."""


def type_name(value: Any) -> str:
    """The JSON type with its article, as the API words it."""
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case int():
            return "an integer"
        case float():
            return "a decimal"
        case str():
            return "a string"
        case list() | tuple():
            return "an array"
        case _:
            return "an object"
