"""Errors of agents' archives."""

from moorage.errors.kinds import ApiError, bad_request


def broken_archive(problem: str) -> ApiError:
    return bad_request(f"The archive cannot be imported: {problem} Nothing of it was.", param="file_id", code="invalid_archive")


def export_busy(session_id: str) -> ApiError:
    """The SDKs retry a 409, and this one goes on until somebody cancels it."""
    message = f"Session '{session_id}' has a turn that runs, or input that waits: wait for its end, or cancel it."
    return ApiError(409, message, code="session_busy", headers={"x-should-retry": "false"})


def export_too_large(what: str, most: int) -> ApiError:
    return bad_request(f"An archive holds at most {most} {what}. Delete sessions that are not needed.", code="archive_too_large")
