"""Errors of the Agents API: agents, their sessions, and automations."""

from moorage.errors.kinds import ApiError, bad_request, not_found


def broken_archive(problem: str) -> ApiError:
    return bad_request(f"The archive cannot be imported: {problem} Nothing of it was.", param="file_id", code="invalid_archive")


def export_busy(session_id: str) -> ApiError:
    """The SDKs retry a 409, and this one goes on until somebody cancels it."""
    message = f"Session '{session_id}' has a turn that runs, or input that waits: wait for its end, or cancel it."
    return ApiError(409, message, code="session_busy", headers={"x-should-retry": "false"})


def export_too_large(what: str, most: int) -> ApiError:
    return bad_request(f"An archive holds at most {most} {what}. Delete sessions that are not needed.", code="archive_too_large")


def agent_session_not_found(session_id: str, *, param: str | None = None) -> ApiError:
    return not_found(f"Session with id '{session_id}' not found.", code="session_not_found", param=param)


def turn_not_found(turn_id: str, param: str | None = None) -> ApiError:
    return not_found(f"Turn with id '{turn_id}' not found in this session.", param=param, code="turn_not_found")


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


def automation_not_found(automation_id: str) -> ApiError:
    return not_found(f"Automation with id '{automation_id}' not found.", code="automation_not_found")


def invocation_not_found(invocation_id: str) -> ApiError:
    return not_found(f"Invocation with id '{invocation_id}' not found in this automation.", code="invocation_not_found")


def too_many_automations(most: int) -> ApiError:
    message = (
        f"You have {most} automations, the most that a tenant of this deployment may have. Delete some, or ask its operator to raise "
        "MOORAGE_AUTOMATIONS_MAX."
    )
    return bad_request(message, code="automations_limit_reached")


def too_many_by_agent(most: int) -> ApiError:
    return bad_request(f"You have made {most} automations in this session today, the most that an agent may make.")


def automation_busy(automation_id: str) -> ApiError:
    """Worth a retry, and the SDKs do retry a 409."""
    message = f"Automation '{automation_id}' is being changed by too many requests at once. Please retry."
    return ApiError(409, message, code="automation_locked")
