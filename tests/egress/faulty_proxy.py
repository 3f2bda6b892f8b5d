"""The proxy, with a hook that fails: the file of ``FAULTY_HOOK_FILE`` holds the hook's name, or "body" for an answer's first bytes."""

import os
from pathlib import Path
from typing import Any, NoReturn

from mitmproxy import http

from functions.egress_proxy.addon import EgressAddon
from functions.egress_proxy.main import main

FILE = Path(os.environ.pop("FAULTY_HOOK_FILE"))


class FaultyGate(EgressAddon):
    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        return _fail if callable(found) and name == FILE.read_text() else found

    def responseheaders(self, flow: http.HTTPFlow) -> None:
        super().responseheaders(flow)
        if FILE.read_text() == "body" and flow.response is not None:
            whole, pieces = flow.response.stream, iter([_fail])
            flow.response.stream = lambda data: next(pieces, whole)(data)


def _fail(*_: object) -> NoReturn:
    raise RuntimeError("a fault in a hook")


if __name__ == "__main__":
    main(gate_class=FaultyGate)
