"""AWS Signature Version 4 for httpx: IAM credentials in place of an API key."""

from collections.abc import Callable, Generator
from dataclasses import field
from typing import Any

import httpx
from botocore.exceptions import BotoCoreError

from moorage.dataclass import dataclass
from moorage.errors import UpstreamError

_SIGNED_BY_SIGNER = ("authorization", "x-amz-date", "x-amz-security-token")


@dataclass
class AwsAuth(httpx.Auth):
    """Signs each request with the credentials of the moment, so that roles' short-lived ones stay fresh."""

    credentials: Callable[[], Any] = field(repr=False)
    """``botocore.session.Session.get_credentials``; gives None where there are none."""
    service: str
    region: str
    requires_request_body = True

    def signature(self, url: str, body: bytes) -> dict[str, str]:
        """The headers of a JSON body that is posted to a URL. Raises UpstreamError without credentials."""
        request = httpx.Request("POST", url, headers={"content-type": "application/json"}, content=body)
        next(self.auth_flow(request))
        names = ("content-type", *_SIGNED_BY_SIGNER)
        return {name: request.headers[name] for name in names if name in request.headers}

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        from botocore.auth import SigV4Auth  # Only who asks Bedrock needs it (net/aws.py).
        from botocore.awsrequest import AWSRequest

        try:
            found = self.credentials()
            frozen = found.get_frozen_credentials() if found is not None else None
        except BotoCoreError as error:
            raise UpstreamError("AWS credentials could not be loaded.", is_retryable=True) from error
        if frozen is None:
            raise UpstreamError("There are no AWS credentials to ask Bedrock with.", is_retryable=False)
        # Only what the signature has to cover: hops may change other headers.
        signed = AWSRequest(
            method=request.method,
            url=str(request.url),
            data=request.content,
            headers={"content-type": request.headers["content-type"], "host": request.url.netloc.decode()},
        )
        SigV4Auth(frozen, self.service, self.region).add_auth(signed)
        for name in _SIGNED_BY_SIGNER:
            if signed.headers.get(name):
                request.headers[name] = signed.headers[name]
        yield request
