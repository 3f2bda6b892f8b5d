"""One request and its answer as they pass: counted, and searched for echoes of secrets without being held back."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace

from mitmproxy import http
from moorage import limits
from moorage.egress.policy import EgressReason, sentence
from moorage.egress.redaction import Scrubber
from moorage.egress.secrets import OpenSecret
from moorage.egress.store import EgressLogEntry
from moorage.egress.substitution import in_form

from functions.egress_proxy.messages import refusal, status_of
from functions.egress_proxy.unpacking import WITH_WINDOW, Unpacker, codings, unpacker

_OF_THE_PACKED_BODY = ("content-encoding", "content-length", "etag", "digest", "content-digest", "content-md5", "repr-digest")
_EXCHANGE = "moorage"
"""Where a flow carries its :class:`Exchange`."""


def exchange_of(flow: http.HTTPFlow) -> "Exchange | None":
    found: Exchange | None = flow.metadata.get(_EXCHANGE)
    return found


class Windows:
    """How many bodies are being unpacked by what keeps megabytes for each: so many in all, and for one tenant fewer."""

    def __init__(self) -> None:
        self._open: Counter[str] = Counter()

    def take(self, tenant_id: str, count: int) -> bool:
        is_free = self._open.total() + count <= limits.EGRESS_WINDOWS_MAX
        if not is_free or self._open[tenant_id] + count > limits.EGRESS_WINDOWS_PER_TENANT_MAX:
            return False
        self._open[tenant_id] += count
        return True

    def give_back(self, tenant_id: str, count: int) -> None:
        self._open[tenant_id] -= count
        if not self._open[tenant_id]:
            del self._open[tenant_id]


@dataclass(slots=True)
class Exchange:
    entry: EgressLogEntry
    scrubber: Scrubber = field(repr=False)
    windows: Windows = field(repr=False)
    forms: tuple[OpenSecret, ...] = field(default=(), repr=False)
    """Secrets that may stand in the request's body, which is held until it is whole."""
    bytes_sent: int = 0
    bytes_received: int = 0
    _windows_taken: int = 0

    def attach(self, flow: http.HTTPFlow) -> None:
        flow.metadata[_EXCHANGE] = self

    def detach(self, flow: http.HTTPFlow) -> None:
        """The exchange is over."""
        flow.metadata.pop(_EXCHANGE)
        if self._windows_taken:
            self.windows.give_back(self.entry.tenant_id, self._windows_taken)
            self._windows_taken = 0

    def count_request(self, data: bytes) -> bytes:
        self.bytes_sent += len(data)
        return data

    def fill_form(self, request: http.Request) -> tuple[str, ...]:
        """Put the secrets into the body that was held; their names. Raises :class:`ValuesTooLarge`."""
        secrets, self.forms = self.forms, ()
        body = request.raw_content or b""
        filled = in_form(secrets, request.headers.get("content-type", ""), body)
        if filled.names:
            request.raw_content = filled.body
            request.headers["content-length"] = str(len(filled.body))
            self.entry = replace(self.entry, secrets=tuple(dict.fromkeys((*self.entry.secrets, *filled.names))))
        self.bytes_sent += len(filled.body)
        return filled.names

    def receive_head(self, flow: http.HTTPFlow) -> None:
        """Mask echoes in the status line and the headers, and let the body follow through this exchange."""
        response = flow.response
        assert response is not None
        if self.scrubber:
            response.data.reason = self.scrubber.text(response.data.reason)
            fields = response.headers.fields
            response.headers.fields = tuple((self.scrubber.text(name), self.scrubber.text(value)) for name, value in fields)
        if response.status_code != 101:
            response.stream = self._body(flow.request, response)

    def _body(self, request: http.Request, response: http.Response) -> Callable[[bytes], Iterable[bytes]]:
        """The function that the body streams through. A packed one is unpacked, since an echo in it could not be seen."""
        fields = response.headers.get_all("content-encoding")
        if not self.scrubber or not any(fields) or not _has_body(request, response):
            return self._plain
        packed = codings(fields)
        # A part of a packed body begins in its middle.
        if packed is None or (packed and response.status_code == 206):
            return self._refused(response, EgressReason.UNREADABLE_BODY) if self.entry.secrets else self._plain
        if not packed:
            return self._plain
        count = sum(coding in WITH_WINDOW for coding in packed)
        if count and not self.windows.take(self.entry.tenant_id, count):
            return self._refused(response, EgressReason.TOO_MANY_UNPACKED)
        self._windows_taken = count
        for name in _OF_THE_PACKED_BODY:
            response.headers.pop(name, None)
        if not request.is_http2:
            response.headers["transfer-encoding"] = "chunked"
        unpack = unpacker(packed)
        return lambda data: self._unpacked(unpack, data)

    def _plain(self, data: bytes) -> Iterator[bytes]:
        self.bytes_received += len(data)
        yield self.scrubber.chunk(data) if self.scrubber else data

    def _unpacked(self, unpack: Unpacker, data: bytes) -> Iterator[bytes]:
        self.bytes_received += len(data)
        for piece in unpack(data):
            yield self.scrubber.chunk(piece) if piece else b""
        if not data:
            yield self.scrubber.chunk(b"")

    def _refused(self, response: http.Response, reason: EgressReason) -> Callable[[bytes], Iterable[bytes]]:
        """The host's answer becomes the proxy's: its head is overwritten, and of its body nothing is passed on."""
        status, text = status_of(reason), sentence(reason, self.entry.host, self.entry.port)
        self.entry = replace(self.entry, decision="denied", reason=reason)
        ours = refusal(status, text, reason)
        response.status_code, response.reason, response.headers = status, text, ours.headers
        left = [ours.content or b""]

        def pass_on(data: bytes) -> Iterator[bytes]:
            self.bytes_received += len(data)
            while left:
                yield left.pop()

        return pass_on


def _has_body(request: http.Request, response: http.Response) -> bool:
    return request.method.upper() != "HEAD" and response.status_code not in (204, 304)
