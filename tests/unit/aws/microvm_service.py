"""Lambda MicroVMs for tests: boto3's own client, answered in this process.

Each call is held against botocore's model beyond what boto3 checks itself: longest texts and lists, patterns, words. What the model
does not say comes from reports of people with an account, as each place says. Faults can be put before calls.
"""

import itertools
import json
import re
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import parse_qsl, unquote, urlsplit

import boto3
import botocore.session
from botocore.awsrequest import AWSPreparedRequest, AWSResponse
from botocore.compat import HTTPHeaders
from botocore.config import Config

_MODELS: Final = [botocore.session.get_session().get_service_model(name) for name in ("lambda-microvms", "lambda-core")]
_OPERATIONS: Final = {name: model.operation_model(name) for model in _MODELS for name in model.operation_names}
STARTED_AT: Final = 1_767_312_000
OPEN_INTERNET: Final = "arn:aws:lambda:us-east-1:aws:network-connector:aws-network-connector:INTERNET_EGRESS"
PAGE: Final = 2
"""VMs of one page: so few that tests have several."""


class Refused(Exception):
    def __init__(self, code: str, message: str = "no", retry_after: int | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.retry_after = retry_after


class FakeMicrovms:
    """One account in one region."""

    def __init__(self) -> None:
        self.vms: dict[str, dict[str, Any]] = {}
        self.images: dict[str, str] = {}
        """The egress connector of an image's version, by ARN; ``INTERNET_EGRESS`` if it was made without."""
        self.versions: dict[str, dict[str, dict[str, Any]]] = {}
        """Of an image's ARN, by number."""
        self.tags: dict[str, dict[str, str]] = {}
        """Of images. A VM can have none: RunMicrovm takes none, and TagResource refuses its ARN (reported)."""
        self.faults: deque[tuple[str, Refused]] = deque()
        """By operation; each befalls one call."""
        self.calls: list[str] = []
        self.payloads: list[str] = []
        """What VMs were started with."""
        self.ignores_egress = False
        """RunMicrovm takes no notice of the field: no known fault, but the one that would be dearest."""
        self.starts_as = "PENDING"
        self.connectors: dict[str, str] = {}
        """The states of connectors by ARN; of others ``ACTIVE``. A VM takes no other connector than an active one (developer guide)."""
        self.refusal_of_connectors = "ConflictException"
        """Nothing published says which one it is."""
        self._by_token: dict[str, tuple[str, str]] = {}
        self._numbers = itertools.count(1)
        self.client, self.core = self._client("lambda-microvms"), self._client("lambda-core")

    def close(self) -> None:
        for each in (self.client, self.core):
            each.close()

    def _client(self, service: str) -> Any:
        client: Any = boto3.client(
            service,  # type: ignore[call-overload]
            region_name="us-east-1",
            aws_access_key_id="test",
            aws_secret_access_key="test",
            config=Config(retries={"mode": "standard", "total_max_attempts": 1}),
        )
        client.meta.events.register(f"before-send.{service}", self._answer)
        return client

    def becomes(self, state: str, vm_id: str | None = None) -> None:
        for each in self.vms.values() if vm_id is None else [self.vms[vm_id]]:
            each["state"] = state

    def builds(self, image: str, number: str, created_at: float, state: str = "SUCCESSFUL") -> None:
        """Another version of the image."""
        self.versions.setdefault(image, {})[number] = {
            "baseImageArn": "arn:aws:lambda:us-east-1:aws:microvm-image:al2023-1",
            "buildRoleArn": "arn:aws:iam::000000000000:role/build",
            "codeArtifact": {"uri": "s3://bucket/image.zip"},
            "imageArn": image,
            "imageVersion": number,
            "state": state,
            "status": "ACTIVE",
            "createdAt": created_at,
        }

    def states(self) -> list[str]:
        return [vm["state"] for vm in self.vms.values()]

    def _answer(self, request: AWSPreparedRequest, event_name: str, **_: Any) -> AWSResponse:
        name = event_name.rpartition(".")[2]
        self.calls.append(name)
        try:
            if self.faults and self.faults[0][0] == name:
                raise self.faults.popleft()[1]
            asked = asked_of(name, str(request.url), request.body if isinstance(request.body, bytes) else b"{}")
            return _response(request, 200, getattr(self, f"_{name}")(asked), {})
        except Refused as refusal:
            headers = {} if refusal.retry_after is None else {"retry-after": str(refusal.retry_after)}
            return _response(request, status_of(refusal.code), {"message": str(refusal)}, headers | {"x-amzn-ErrorType": refusal.code})

    def _RunMicrovm(self, asked: dict[str, Any]) -> dict[str, Any]:
        token, wish = asked.pop("clientToken"), json.dumps(asked, sort_keys=True)
        if token in self._by_token:
            vm_id, earlier = self._by_token[token]
            if earlier != wish:
                raise Refused("ConflictException", "The client token was used with other parameters.")
            return self.vms[vm_id] | {"state": "PENDING"}  # the answer of the first call
        if asked["imageIdentifier"] not in self.images:
            raise Refused("ResourceNotFoundException")
        version = asked.get("imageVersion", next(reversed(self.versions.get(asked["imageIdentifier"], {"1.0": {}}))))
        if version not in self.versions.get(asked["imageIdentifier"], {version: {}}):
            raise Refused("ResourceNotFoundException")
        vm_id = f"microvm-{next(self._numbers):08x}-0000-0000-0000-000000000000"
        # Left out or empty, it is the image version's connector: two reports, against what the documentation leads to expect.
        inherited = [self.images[asked["imageIdentifier"]]]
        egress = inherited if self.ignores_egress else asked.get("egressNetworkConnectors") or inherited
        for each in egress:
            if self.connectors.get(each, "ACTIVE") != "ACTIVE":
                raise Refused(self.refusal_of_connectors, f"{each} is not active.")
        self.vms[vm_id] = {
            "microvmId": vm_id,
            "state": self.starts_as,
            "endpoint": f"{vm_id}.lambda-microvm.us-east-1.on.aws",
            "imageArn": asked["imageIdentifier"],
            "imageVersion": version,
            "maximumDurationInSeconds": asked["maximumDurationInSeconds"],
            "startedAt": STARTED_AT,
            "egressNetworkConnectors": egress,
        }
        self._by_token[token] = (vm_id, wish)
        self.payloads.append(asked["runHookPayload"])
        return self.vms[vm_id]

    def _GetMicrovm(self, asked: dict[str, Any]) -> dict[str, Any]:
        return self._vm(asked)

    def _TerminateMicrovm(self, asked: dict[str, Any]) -> dict[str, Any]:
        self._vm(asked)["state"] = "TERMINATED"
        return {}

    def _CreateMicrovmAuthToken(self, asked: dict[str, Any]) -> dict[str, Any]:
        self._vm(asked)
        return {"authToken": {"X-aws-proxy-auth": f"token-{self.calls.count('CreateMicrovmAuthToken')}"}}

    def _GetNetworkConnector(self, asked: dict[str, Any]) -> dict[str, Any]:
        return {"Arn": asked["Identifier"], "State": self.connectors.get(asked["Identifier"], "ACTIVE")}

    def _ListTags(self, asked: dict[str, Any]) -> dict[str, Any]:
        return {"Tags": self.tags.get(asked["Resource"], {})}

    def _ListMicrovms(self, asked: dict[str, Any]) -> dict[str, Any]:
        # A page is cut before the filter applies, and ended VMs stay for 20 minutes or more: two reports.
        first = int(asked.get("nextToken", 0))
        page = [vm for vm in list(self.vms.values())[first : first + PAGE] if vm["imageArn"] == asked["imageIdentifier"]]
        items = [{name: vm[name] for name in ("microvmId", "state", "imageArn", "imageVersion", "startedAt")} for vm in page]
        return {"items": items} | ({"nextToken": str(first + PAGE)} if first + PAGE < len(self.vms) else {})

    def _ListMicrovmImageVersions(self, asked: dict[str, Any]) -> dict[str, Any]:
        first, versions = int(asked.get("nextToken", 0)), list(self.versions[asked["imageIdentifier"]].values())
        return {"items": versions[first : first + PAGE]} | ({"nextToken": str(first + PAGE)} if first + PAGE < len(versions) else {})

    def _DeleteMicrovmImageVersion(self, asked: dict[str, Any]) -> dict[str, Any]:
        versions = self.versions[asked["imageIdentifier"]]
        if asked["imageVersion"] not in versions:
            raise Refused("ResourceNotFoundException")
        if len(versions) == 1:  # reported
            raise Refused("ConflictException", "The last version cannot be deleted.")
        del versions[asked["imageVersion"]]
        return asked | {"state": "DELETING"}

    def _vm(self, asked: dict[str, Any]) -> dict[str, Any]:
        try:
            return self.vms[asked["microvmIdentifier"]]
        except KeyError:
            raise Refused("ResourceNotFoundException") from None


def operation_of(method: str, target: str) -> str:
    """Which one a request asks for."""
    path = urlsplit(target).path
    return next(name for name, each in _OPERATIONS.items() if each.http["method"] == method and _fits(name, path))


def status_of(code: str) -> int:
    """The HTTP status of an error."""
    shape = next(model.shape_for(code) for model in _MODELS if code in model.shape_names)
    status: int = shape.metadata["error"]["httpStatusCode"]
    return status


def _fits(name: str, path: str) -> re.Match[str] | None:
    return re.fullmatch(re.sub(r"\\{(\w+)\\}", r"(?P<\1>[^/]+)", re.escape(_OPERATIONS[name].http["requestUri"])), path)


def asked_of(name: str, target: str, body: bytes) -> dict[str, Any]:
    """A request's fields. Raises :class:`Refused` for one that the model refuses."""
    operation, url = _OPERATIONS[name], urlsplit(target)
    found = _fits(name, url.path)
    assert found is not None, url.path
    asked = {key: unquote(value) for key, value in found.groupdict().items()}
    asked |= dict(parse_qsl(url.query)) | json.loads(body or b"{}")
    if operation.input_shape is not None:
        _check(operation.input_shape, {key: value for key, value in asked.items() if key != "maxResults"}, name)
    return asked


def _check(shape: Any, value: Any, where: str) -> None:
    """Of the model's rules those that boto3 leaves to the service."""
    match shape.type_name:
        case "structure":
            for key, each in value.items():
                _check(shape.members[key], each, f"{where}.{key}")
        case "list":
            _at_most(shape, len(value), where)
            for each in value:
                _check(shape.member, each, where)
        case "string":
            _at_most(shape, len(value), where)
            pattern = shape.metadata.get("pattern")
            if (shape.enum and value not in shape.enum) or (pattern and not re.fullmatch(pattern, value, re.DOTALL)):
                raise Refused("ValidationException", f"{where} does not fit the model.")
        case "integer" | "long":
            _at_most(shape, value, where)


def _at_most(shape: Any, size: int, where: str) -> None:
    if (most := shape.metadata.get("max")) is not None and size > most:
        raise Refused("ValidationException", f"{where} is above {most}.")


class _Raw:
    """A body as botocore reads one."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    def stream(self, *_: Any, **__: Any) -> Sequence[bytes]:
        return [self._content]


def _response(request: AWSPreparedRequest, status: int, answer: Mapping[str, Any], headers: Mapping[str, str]) -> AWSResponse:
    body = json.dumps(answer).encode()
    return AWSResponse(request.url, status, HTTPHeaders.from_dict({"content-type": "application/json", **headers}), _Raw(body))
