"""What can go wrong with a session of a container."""

from moorage.errors.kinds import ApiError, SandboxError, TenantCapacity, not_found


def session_not_found(session_id: str) -> ApiError:
    return not_found(f"Session with id '{session_id}' not found.")


def session_not_running(session_id: str, why: str) -> ApiError:
    return ApiError(409, f"Session '{session_id}' {why}.", code="session_not_running", headers={"x-should-retry": "false"})


def too_many_sessions(most: int) -> ApiError:
    return ApiError(
        429,
        f"{most} sessions of this container are open, as many as there may be. Close one of them: DELETE /v1/sessions/{{session_id}}.",
        type="rate_limit_error",
        code="too_many_sessions",
        headers={"x-should-retry": "false"},
    )


def session_input_full(session_id: str) -> ApiError:
    return ApiError(
        429,
        f"The program of session '{session_id}' does not read what was typed before. Send it again later.",
        type="rate_limit_error",
        code="session_input_full",
        headers={"retry-after": "1"},
    )


def unavailable(error: SandboxError) -> ApiError:
    """The container has no sandbox, and can have none now."""
    if isinstance(error, TenantCapacity):
        return ApiError(429, error.message, type="rate_limit_error", code="too_many_sandboxes", headers={"x-should-retry": "false"})
    return container_unavailable(error.message)


def container_unavailable(message: str) -> ApiError:
    return ApiError(503, message, type="server_error", code="container_unavailable", headers={"retry-after": "5"})
