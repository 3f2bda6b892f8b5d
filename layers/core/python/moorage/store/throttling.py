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

_NO_REASON: Final = "None"
"""Of a write that could have been made, had it not been for the others."""
_REASONS: Final = frozenset({"TransactionConflict", "ProvisionedThroughputExceeded", "ThrottlingError"})
"""For which DynamoDB cancels a transaction that it would take a moment later (API reference, TransactWriteItems). botocore does not try
again: to it each cancelled one is final."""


def is_throttle(error: BaseException) -> bool:
    return isinstance(error, ClientError) and (error.response["Error"]["Code"] in _CODES or is_cancelled_for_now(error))


def is_cancelled_for_now(error: ClientError) -> bool:
    """Whether a transaction was cancelled for nothing that it asked for."""
    reasons = {reason.get("Code", _NO_REASON) for reason in error.response.get("CancellationReasons", [])} - {_NO_REASON}
    return bool(reasons) and reasons <= _REASONS
