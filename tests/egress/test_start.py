"""The proxy's process starts beside what it asks, and may be the earlier of the two."""

import subprocess
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.egress.conftest import ROOT

PYTHON = ROOT / ".venv-egress" / "bin" / "python"
_SLOW_SECONDS = 3
"""More than a policy may take to be read (``_READ_CONFIG``)."""


class _Slow(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        time.sleep(_SLOW_SECONDS)
        body = b'{"__type": "AccessDeniedException", "message": "slow, and then no"}'
        self.send_response(400)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing on the terminal."""


@pytest.fixture
def slow_aws() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Slow) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


@pytest.mark.skipif(not PYTHON.exists(), reason="the egress proxy's environment has not been made here")
def test_aws_may_be_slow_while_the_proxy_starts(slow_aws: str, tmp_path: Path) -> None:
    proxy = subprocess.run(
        [PYTHON, "-m", "functions.egress_proxy.main", "--listen", f"unix:{tmp_path}/proxy.sock"],
        cwd=ROOT,
        env={
            "PATH": "/usr/bin:/bin",
            "PYTHONPATH": f"{ROOT}:{ROOT}/layers/core/python",
            "AWS_ENDPOINT_URL": slow_aws,
            "AWS_ACCESS_KEY_ID": "a",
            "AWS_SECRET_ACCESS_KEY": "b",
            "AWS_DEFAULT_REGION": "eu-west-1",
            "MOORAGE_TABLE": "t",
            "MOORAGE_BUCKET": "b",
            "MOORAGE_EGRESS_KEY": "key",
        },
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert proxy.returncode == 1
    assert "slow, and then no" in proxy.stderr, "it waited for the answer"
