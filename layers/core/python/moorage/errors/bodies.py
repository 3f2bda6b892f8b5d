"""What is wrong with a body before anybody looks at its fields."""

from moorage.errors.kinds import ApiError, bad_request


def too_many_values(most: int) -> ApiError:
    return bad_request(f"The request body holds more than {most} values (fields and elements).", code="too_many_values")
