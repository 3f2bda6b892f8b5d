"""The parts that a message's content, and a tool's output, consist of."""

import base64
from typing import Annotated, Any, Final, Literal, Required

from pydantic import AfterValidator, Field
from typing_extensions import TypeAliasType, TypedDict

from moorage import limits
from moorage.errors import invalid_base64_image
from moorage.wire.refusals import problem, wrong_value
from moorage.wire.validation import Array, Either, Fields, Id, Number, OneOf, Text, wire, wire_with

ImageDetail = Literal["low", "high", "auto", "original"]


@wire
class PromptCacheBreakpoint(TypedDict, total=False):
    mode: Required[Literal["explicit"]]
    ttl: Literal["30m", "12h"]


def check_one_source(part: Fields, *names: str) -> None:
    if sum(name in part for name in names) != 1:
        raise wrong_value(f"give exactly one of {', '.join(repr(name) for name in names)}.")


def _image_url(url: str) -> str:
    if not url.startswith(("data:image/", "https://", "http://")):
        raise wrong_value("it must be an http(s) URL or a data URL with an image ('data:image/png;base64,...').")
    if url.startswith("data:") and not _is_base64(url):
        raise problem(invalid_base64_image)
    return url


def _is_base64(url: str) -> bool:
    """Some encoders break lines, and every decoder passes over that."""
    head, _, data = url.partition(",")
    if not head.endswith(";base64") or not data:
        return False
    try:
        return bool(base64.b64decode("".join(data.split()) if "\n" in data else data, validate=True))
    except ValueError:
        return False


ImageUrl = Annotated[
    str,
    Field(min_length=1, max_length=limits.IMAGE_URL_CHARS_MAX, json_schema_extra={"pattern": "^(data:image/|https?://)"}),
    AfterValidator(_image_url),
]


def _file_url(url: str) -> str:
    if not url.startswith(("https://", "http://")):
        raise wrong_value("it must be an http(s) URL; inline content goes into 'file_data'.")
    return url


FileUrl = Annotated[
    str,
    Field(min_length=1, max_length=limits.FILE_URL_CHARS_MAX, json_schema_extra={"pattern": "^https?://"}),
    AfterValidator(_file_url),
]

# --- What is put in ---------------------------------------------------------------------------------------------------


@wire
class InputText(TypedDict, total=False):
    type: Required[Literal["input_text"]]
    text: Required[Text]
    prompt_cache_breakpoint: PromptCacheBreakpoint


def _complete_image(part: Fields) -> Fields:
    check_one_source(part, "image_url", "file_id")
    part.setdefault("detail", "auto")
    return part


@wire_with(_complete_image)
class InputImage(TypedDict, total=False):
    type: Required[Literal["input_image"]]
    image_url: ImageUrl
    file_id: Id
    detail: ImageDetail
    prompt_cache_breakpoint: PromptCacheBreakpoint


def _complete_file(part: Fields) -> Fields:
    check_one_source(part, "file_data", "file_id", "file_url")
    return part


@wire_with(_complete_file)
class InputFile(TypedDict, total=False):
    type: Required[Literal["input_file"]]
    file_data: Annotated[str, Field(min_length=1, max_length=limits.FILE_DATA_CHARS_MAX)]
    file_id: Id
    file_url: FileUrl
    filename: Annotated[str, Field(max_length=limits.INPUT_FILE_NAME_CHARS_MAX)]
    detail: Literal["auto", "low", "high"]
    prompt_cache_breakpoint: PromptCacheBreakpoint


InputContent = TypeAliasType(
    "InputContent", Annotated[Any, OneOf({"input_text": InputText, "input_image": InputImage, "input_file": InputFile})]
)

# --- What a model has said --------------------------------------------------------------------------------------------


@wire
class FileCitation(TypedDict, total=False):
    type: Required[Literal["file_citation"]]
    file_id: Required[Text]
    index: Required[int]
    filename: Text


@wire
class UrlCitation(TypedDict):
    type: Literal["url_citation"]
    url: Text
    title: Text
    start_index: int
    end_index: int


@wire
class ContainerFileCitation(TypedDict, total=False):
    type: Required[Literal["container_file_citation"]]
    container_id: Required[Text]
    file_id: Required[Text]
    start_index: Required[int]
    end_index: Required[int]
    filename: Text


@wire
class FilePath(TypedDict):
    type: Literal["file_path"]
    file_id: Text
    index: int


_ANNOTATIONS: Final = OneOf(
    {
        "file_citation": FileCitation,
        "url_citation": UrlCitation,
        "container_file_citation": ContainerFileCitation,
        "file_path": FilePath,
    }
)


@wire
class TopLogprob(TypedDict, total=False):
    token: Text
    logprob: Number
    bytes: Array[int]


@wire
class Logprob(TypedDict, total=False):
    token: Required[Text]
    logprob: Required[Number]
    bytes: Array[int]
    top_logprobs: Array[TopLogprob]


def _complete_text(part: Fields) -> Fields:
    part.setdefault("annotations", [])
    return part


@wire_with(_complete_text)
class OutputText(TypedDict, total=False):
    type: Required[Literal["output_text"]]
    text: Required[Text]
    annotations: Array[Annotated[FileCitation | UrlCitation | ContainerFileCitation | FilePath, _ANNOTATIONS]]
    logprobs: Array[Logprob]


@wire
class Refusal(TypedDict):
    type: Literal["refusal"]
    refusal: Text


def _output_text(text: str) -> Fields:
    return {"type": "output_text", "text": text, "annotations": []}


def _said_by_assistant(part: Fields) -> Fields:
    return _output_text(part["text"])


SaidByAssistant = Annotated[InputText, AfterValidator(_said_by_assistant)]
"""Easy messages may bring an assistant's earlier words as ``input_text``; a model's words are ``output_text``."""

OutputContent = TypeAliasType(
    "OutputContent", Annotated[Any, OneOf({"output_text": OutputText, "refusal": Refusal, "input_text": SaidByAssistant})]
)

# --- Content ----------------------------------------------------------------------------------------------------------


def input_text(text: str) -> list[Fields]:
    return [{"type": "input_text", "text": text}]


def _answer(text: str) -> list[Fields]:
    return [_output_text(text)]


def _content(string: Any, part: Any) -> Either:
    """A list of parts, or a string: one part of text."""
    return Either("a string or an array", string=string, array=Array[part])


SaidContent = Annotated[list[Fields], _content(Annotated[Text, AfterValidator(input_text)], InputContent)]
AnsweredContent = Annotated[list[Fields], _content(Annotated[Text, AfterValidator(_answer)], OutputContent)]
ToolOutput = Annotated[str | list[Fields], _content(Text, InputContent)]
"""Text, or parts of text, image and file."""
