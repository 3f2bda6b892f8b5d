"""What is refused to who looks at what has been."""

from moorage.errors.kinds import ApiError, bad_request, not_found


def archive_too_large(bytes_max: int) -> ApiError:
    return bad_request(
        f"The files of this container have more than the {bytes_max} bytes that fit into one archive. Take them one by one.",
        code="archive_too_large",
    )


def step_not_found(step_id: str) -> ApiError:
    return not_found(f"The response has no step '{step_id}' that asked a model. '/steps' lists them; those of type 'model' did.")


def response_not_ended(response_id: str) -> ApiError:
    return bad_request(f"Response '{response_id}' is still running. Its trace is whole when it has ended.", code="response_not_ended")
