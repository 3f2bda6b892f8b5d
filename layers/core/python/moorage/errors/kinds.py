"""The kinds of errors, named for the engine's next step."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from moorage.limits import SANDBOX_HOST_POLL_SECONDS

INVALID_REQUEST: Final = "invalid_request_error"


class MoorageError(Exception):
    """The root of everything raised on purpose."""


class ApiError(MoorageError):
    """An error with an HTTP status and OpenAI's envelope.

    ``headers`` go out with the answer (``retry-after``, ``x-should-retry`` ...). The SDKs retry 408, 409, 429 and 5xx unless
    ``x-should-retry: false`` says otherwise.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        type: str = INVALID_REQUEST,
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.type = type
        self.param = param
        self.code = code
        self.headers = dict(headers or {})

    def envelope(self) -> dict[str, Any]:
        """The body of the HTTP answer."""
        return {"error": self.payload()}

    def payload(self) -> dict[str, Any]:
        """The nested error object, as it also stands in an ``error`` event."""
        return {"message": self.message, "type": self.type, "param": self.param, "code": self.code}


class ContainerLost(ApiError):
    """A container is not there any more, or was never there: deleted, erased because it was not used, or expired for good."""

    def __init__(self, status: int, message: str, container_id: str, *, code: str, param: str | None = None) -> None:
        super().__init__(status, message, param=param, code=code)
        self.container_id = container_id


def below(error: ApiError, path: str) -> ApiError:
    """The same about a body that stands at ``path`` of another one, such as ``agent``."""
    if error.param is None:
        return error
    param = f"{path}.{error.param}"
    message = error.message.replace(f"'{error.param}'", f"'{param}'")
    return ApiError(error.status, message, type=error.type, param=param, code=error.code, headers=error.headers)


def bad_request(message: str, *, param: str | None = None, code: str | None = None) -> ApiError:
    """400: the request can never work as it stands."""
    return ApiError(400, message, param=param, code=code)


def not_found(message: str, *, code: str, param: str | None = None) -> ApiError:
    """404: unknown, deleted, or another tenant's; the three look alike on purpose.

    ``param`` is the whole place of an id in the body, such as ``tools[0].environment.file_ids[1]``; None for one in the path."""
    return ApiError(404, message, param=param, code=code)


def server_error(
    message: str = "The server had an error while processing your request. Please retry.", *, is_retryable: bool = True
) -> ApiError:
    headers = None if is_retryable else {"x-should-retry": "false"}
    return ApiError(500, message, type="server_error", code="server_error", headers=headers)


_TYPE_OF: Final = {
    "rate_limit_exceeded": "rate_limit_error",
    "insufficient_quota": "insufficient_quota",
    "server_error": "server_error",
    "loop_limit_exceeded": "server_error",
    "container_unavailable": "server_error",
}


def type_of(code: str) -> str:
    """The ``type`` beside the code of a failed response; an error that is neither ours nor passing lies in the request."""
    return _TYPE_OF.get(code, INVALID_REQUEST)


class StorageFull(ApiError):
    """The disk that holds a local stack's state has no room: nothing of the write was kept."""

    def __init__(self) -> None:
        super().__init__(
            507,
            "The disk of this deployment is full: nothing of this request was stored. What is stored can still be read and deleted; "
            "make room and send it again.",
            type="server_error",
            code="insufficient_storage",
        )


@contextmanager
def passing_over_what_is_gone() -> Iterator[None]:
    """For work that is in vain if something was deleted meanwhile, or has expired. What failed here (5xx, such as a full disk) is
    raised: it is still to be done."""
    try:
        yield
    except ApiError as error:
        if error.status >= 500:
            raise


class UpstreamError(MoorageError):
    """A model provider refused, failed, or broke off.

    ``is_retryable`` errors before the first delta are tried again after ``retry_after_seconds`` (or a backoff); after visible
    output the open item is closed as ``incomplete`` and the step runs again as a new attempt.
    """

    def __init__(
        self,
        message: str,
        *,
        code: str = "server_error",
        status: int | None = None,
        param: str | None = None,
        is_retryable: bool,
        retry_after_seconds: float | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.status = status
        self.param = param
        self.is_retryable = is_retryable
        self.retry_after_seconds = retry_after_seconds

    def again(self, *, is_retryable: bool) -> "UpstreamError":
        """The same words, without the frames that it came from."""
        return UpstreamError(
            self.message,
            code=self.code,
            status=self.status,
            param=self.param,
            is_retryable=is_retryable,
            retry_after_seconds=self.retry_after_seconds,
        )


class VectorBucketError(UpstreamError):
    """S3 Vectors refused or failed; ``reason`` is its own name for why."""

    def __init__(self, operation: str, reason: str, *, is_retryable: bool) -> None:
        told = "is busy or away; try again later" if is_retryable else "refuses this: its operator finds why in the logs"
        super().__init__(f"The vector bucket {told} ({reason}).", is_retryable=is_retryable)
        self.operation = operation
        self.reason = reason


class SandboxError(MoorageError):
    """A container could not do its task; ``message`` may be shown to the model and to the user."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class SandboxStarting(SandboxError):
    """The sandbox is on its way: ask again after ``retry_after_seconds``."""

    def __init__(self, retry_after_seconds: float, message: str = "The container is starting.") -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds


class SandboxSettingUp(SandboxStarting):
    """Somebody else starts it, and its setup commands may take long (``SETUP_SECONDS_MAX``)."""


class SandboxOrdered(SandboxStarting):
    """The same, and its address will be noted (``Sandboxes.announce``): there is no need to ask again."""

    def __init__(self, sandbox_id: str) -> None:
        super().__init__(0)
        self.sandbox_id = sandbox_id


class SandboxElsewhere(SandboxStarting):
    """Only a process in another place can take the next step: the call goes round again, by way of one."""

    def __init__(self) -> None:
        super().__init__(0)


class SandboxHostAway(SandboxStarting):
    """The provisioner does not answer. That says nothing of the container: the call waits until it is there again."""

    def __init__(self) -> None:
        super().__init__(SANDBOX_HOST_POLL_SECONDS, "What starts sandboxes on this machine does not answer.")


class SandboxUnreachable(SandboxStarting):
    """The proxy before the sandbox answered in its place. That says nothing of the container: it is asked again, and not ended."""

    def __init__(self) -> None:
        super().__init__(SANDBOX_HOST_POLL_SECONDS, "The way to the container is busy.")


class SandboxGone(SandboxError):
    """The sandbox died or was stopped; its processes are lost, its saved files are not."""


class SandboxCapacity(SandboxError):
    """No sandbox can be had now (quota, capacity, memory)."""


class TenantCapacity(SandboxCapacity):
    """The tenant has as many as one may have."""


class SetupFailed(SandboxError):
    """A setup command of the container has failed: it never comes to run."""


class SandboxFileMissing(SandboxError):
    """There is no such file under /mnt/data, or it is not a regular file (a link, a device, a directory)."""


class DeskUnavailable(SandboxError):
    """There is no browser for this sandbox; ``message`` gives the reason and the remedy."""


class DeskNotStarted(SandboxError):
    """The browser of this sandbox does not run."""


class DeskHeld(SandboxError):
    """Another person has control of the browser, or the caller has none."""


class Superseded(MoorageError):
    """Another attempt of this step took over: stop, write nothing more."""


class CancelRequested(MoorageError):
    """Somebody asked for the end of the response."""


class LostSight(MoorageError):
    """For too long nobody could tell whether the response was cancelled: stop in good order, kill nothing; another run goes on."""


class ConditionFailed(MoorageError):
    """A conditional write met another state than its condition; ``item`` is the present record, if the table returned it."""

    def __init__(self, item: dict[str, Any] | None = None) -> None:
        super().__init__("The conditional write did not apply.")
        self.item = item


class SettingsConflict(MoorageError):
    """An operator's command or configuration cannot work as given; the message gives the remedy."""


class UnfitAnswer(UpstreamError):
    """A model has answered, and not in the form that was asked for, though it was told. Whoever sends the request again pays again for
    what has failed twice."""

    def __init__(self, message: str) -> None:
        super().__init__(message, is_retryable=False)
