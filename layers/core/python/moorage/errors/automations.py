"""Errors of automations."""

from moorage.errors.kinds import ApiError, not_found


def automation_not_found(automation_id: str) -> ApiError:
    return not_found(f"Automation with id '{automation_id}' not found.", code="automation_not_found")


def invocation_not_found(invocation_id: str) -> ApiError:
    return not_found(f"Invocation with id '{invocation_id}' not found in this automation.", code="invocation_not_found")


def automation_busy(automation_id: str) -> ApiError:
    """Worth a retry, and the SDKs do retry a 409."""
    message = f"Automation '{automation_id}' is being changed by too many requests at once. Please retry."
    return ApiError(409, message, code="automation_locked")
