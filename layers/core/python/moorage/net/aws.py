"""Clients of AWS, as every process makes them.

The SDK is imported with the first client: a stack that keeps its store on this machine needs none, and without the SDK each of its
processes holds 9 MiB less.
"""

from collections.abc import Callable
from typing import Any, Final

from moorage import __version__

READ_SECONDS: Final = 30


def aws_client(service: str, *, endpoint_url: str | None = None, checks_parameters: bool = True, **options: Any) -> Any:
    """boto3's client of a service. ``options`` are of ``botocore.config.Config``.

    ``endpoint_url``: of a service without an address for all of a region.
    ``checks_parameters``: whether botocore compares what is sent with the service's model, which takes a fifth of a call.
    """
    import boto3
    from botocore.config import Config

    config = Config(
        retries={"mode": "standard", "total_max_attempts": 5},
        max_pool_connections=64,
        connect_timeout=5,
        read_timeout=READ_SECONDS,
        tcp_keepalive=True,
        # botocore's own is put together anew for every request, which takes longer than signing it.
        user_agent=f"moorage/{__version__}",
        parameter_validation=checks_parameters,
        **options,
    )
    make: Callable[..., Any] = boto3.client
    return make(service, endpoint_url=endpoint_url, config=config)
