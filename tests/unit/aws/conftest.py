import contextlib
import threading
from collections.abc import Iterator

import pytest

from tests.unit.aws.custom_resources import Account, ResponseUrl


@pytest.fixture
def url() -> Iterator[ResponseUrl]:
    server = ResponseUrl()
    thread = threading.Thread(target=server.server.serve_forever, args=(0.01,))
    thread.start()
    yield server
    server.server.shutdown()
    thread.join()
    server.server.server_close()


@pytest.fixture
def account() -> Iterator[Account]:
    account = Account()
    clients = (account.codebuild, account.ec2, account.ecs, account.kms)
    stubs = (*clients, account.functions, account.vectors, account.secrets, account.s3, account.microvms, account.logs)
    with contextlib.ExitStack() as stack:
        for stub in stubs:
            stack.enter_context(stub)
        yield account
        for stub in stubs:
            stub.assert_no_pending_responses()
    for client in account.clients.values():
        client.close()
