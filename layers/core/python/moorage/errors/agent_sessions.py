"""Errors of sessions of agents."""

from moorage.errors.kinds import ApiError, bad_request, not_found


def agent_session_not_found(session_id: str, *, param: str | None = None) -> ApiError:
    return not_found(f"Session with id '{session_id}' not found.", code="session_not_found", param=param)


def turn_not_found(turn_id: str) -> ApiError:
    return not_found(f"Turn with id '{turn_id}' not found in this session.", code="turn_not_found")


def subagent_not_found(subagent_id: str) -> ApiError:
    return not_found(f"Subagent with id '{subagent_id}' not found in this session.", code="subagent_not_found")


def agent_session_busy(session_id: str) -> ApiError:
    """The SDKs retry a 409, and this one goes on until somebody cancels it."""
    message = f"Session '{session_id}' has a turn that has not ended: cancel it first, or delete the session with '?force=true'."
    return ApiError(409, message, code="session_busy", headers={"x-should-retry": "false"})


def artifact_not_found(artifact_id: str) -> ApiError:
    return not_found(f"Artifact with id '{artifact_id}' not found in this session.", code="artifact_not_found")


def unknown_tool_call(call_id: str) -> ApiError:
    """The SDK's helpers send a result again, and again, if they read this sentence."""
    return bad_request(f"Unknown pending tool call: {call_id}", code="invalid_request_error")
