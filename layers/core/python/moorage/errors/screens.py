"""Errors of people at the screen of a container."""

from moorage.errors.kinds import ApiError, bad_request


def screen_unavailable(message: str) -> ApiError:
    """There can be no browser beside this container."""
    return bad_request(message, code="screen_unavailable")


def screen_closed(message: str) -> ApiError:
    return ApiError(409, message, code="screen_closed", headers={"x-should-retry": "false"})


def screen_held(message: str) -> ApiError:
    """Somebody else has control, or the caller has none."""
    return ApiError(409, message, code="screen_held", headers={"x-should-retry": "false"})
