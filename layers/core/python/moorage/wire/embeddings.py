"""The body of ``POST /v1/embeddings``."""

from typing import Annotated, Any, Final, Literal, Required

from pydantic import AfterValidator, Field, WithJsonSchema
from typing_extensions import TypedDict

from moorage import errors, limits
from moorage.wire.refusals import problem, wrong_type, wrong_value
from moorage.wire.validation import Dropped, JsonValidator, Name, Text, wire

TOKENS_REASON: Final = (
    "Tokens are of one model's tokenizer, and each model here has its own: send the text (LangChain: check_embedding_ctx_length=False)."
)


def _texts(value: Any) -> list[str]:
    """One text or several."""
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list):
        raise wrong_type("a string or an array", value)
    if not 1 <= len(texts) <= limits.EMBEDDING_INPUTS_MAX:
        raise wrong_value(f"it holds 1 to {limits.EMBEDDING_INPUTS_MAX} texts.")
    for number, text in enumerate(texts):
        at = () if texts is not value else (number,)
        if isinstance(text, list) or (isinstance(text, int) and not isinstance(text, bool)):
            raise problem(lambda param: errors.unsupported_value(param, "tokens", TOKENS_REASON))
        if not isinstance(text, str):
            raise wrong_type("a string", text, *at)
        if not text:
            raise wrong_value("it is empty: there is nothing to embed.", *at)
    return texts


_SCHEMA: Final = {
    "anyOf": [
        {"type": "string", "minLength": 1},
        {
            "type": "array",
            "items": {"type": "string", "minLength": 1},
            "minItems": 1,
            "maxItems": limits.EMBEDDING_INPUTS_MAX,
        },
    ]
}


@wire
class CreateEmbedding(TypedDict, total=False):
    model: Required[Name]
    input: Required[Annotated[Any, AfterValidator(_texts), WithJsonSchema(_SCHEMA)]]
    dimensions: Annotated[int, Field(ge=1, le=limits.EMBEDDING_DIMENSIONS_MAX)]
    encoding_format: Literal["float", "base64"]
    user: Annotated[Text, Dropped]


EMBEDDING: Final = JsonValidator[dict[str, Any]](CreateEmbedding)
