"""What can be wrong with values that only OpenAI's API has names for: schemas, pictures, ids of other kinds."""

from moorage.errors.kinds import ApiError, bad_request


def wrong_id(param: str, value: str, prefix: str) -> ApiError:
    """An id of another kind, where the kind is told by how it begins."""
    return bad_request(
        f"Invalid '{param}': '{value[:80]}'. Expected an ID that begins with '{prefix}'.", param=param, code="invalid_value"
    )


def invalid_base64_image(param: str) -> ApiError:
    return bad_request(
        f"Invalid value for '{param}': a data URL of an image is 'data:image/png;base64,' and base64 that can be decoded.",
        param=param,
        code="invalid_base64_image",
    )


def invalid_json_schema(param: str, name: str, why: str) -> ApiError:
    """Of ``text.format``."""
    return bad_request(f"Invalid schema for response_format '{name}': {why}", param=param, code="invalid_json_schema")


def invalid_function_parameters(param: str, name: str, why: str) -> ApiError:
    """Of a function tool."""
    return bad_request(f"Invalid schema for function '{name}': {why}", param=param, code="invalid_function_parameters")
