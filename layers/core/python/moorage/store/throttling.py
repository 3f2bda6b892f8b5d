"""Refusals of AWS that only waiting mends."""

from typing import Final

from botocore.exceptions import ClientError

_CODES: Final = frozenset(
    {
        *("ProvisionedThroughputExceededException", "RequestLimitExceeded", "SlowDown", "ThrottledException", "Throttling"),
        *("ThrottlingException", "TooManyRequestsException", "ThrottlingError", "TransactionInProgressException"),
        *("InternalServerError", "ServiceUnavailable", "503"),
    }
)
"""What the table, the bucket and Step Functions say when they are asked too much, or cannot answer for a moment; botocore has tried
five times by then."""


def is_throttle(error: BaseException) -> bool:
    return isinstance(error, ClientError) and error.response["Error"]["Code"] in _CODES
