"""Errors of automations."""

from moorage.errors.kinds import ApiError, bad_request, not_found


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
