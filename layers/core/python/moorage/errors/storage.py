"""What can go wrong with how much is stored."""

from typing import Final

from moorage.errors.kinds import ApiError

STORAGE_LIMIT: Final = "storage_limit_reached"


def storage_limit_reached(used: int, most: int) -> ApiError:
    """429, which the SDKs need not send again: it takes a deletion, or an operator."""
    return ApiError(
        429,
        f"Your files, containers and vector stores hold {used} of {most} bytes, and this does not fit beside them. Delete some of them "
        "(GET /v1/me tells which kind holds how much), or ask the operator for more (MOORAGE_STORED_BYTES_MAX).",
        type="insufficient_quota",
        code=STORAGE_LIMIT,
        headers={"x-should-retry": "false"},
    )


def storage_busy() -> ApiError:
    return ApiError(
        503,
        "Too much is being stored for you at once to count it. Please retry.",
        type="server_error",
        code="storage_busy",
        headers={"retry-after": "1"},
    )
