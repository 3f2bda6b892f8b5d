"""DynamoDB Local, AWS's own DynamoDB for one machine, as a child process on 127.0.0.1."""

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx
import orjson

ROOT: Final = Path(__file__).resolve().parents[2]
JARS: Final = ROOT / ".build/judges/dynamodb"
_MAIN: Final = "com.amazonaws.services.dynamodbv2.local.main.ServerRunner"
_START_SECONDS_MAX: Final = 120
_VERSION: Final = "DynamoDB_20120810"


def reason_without() -> str | None:
    """Why it cannot be asked here."""
    if shutil.which("java") is None:
        return "DynamoDB Local needs Java 17"
    return None if (JARS / ".done").exists() else "DynamoDB Local is not here: `make judges` fetches it with Maven"


@dataclass(frozen=True, slots=True)
class DynamoDbLocal:
    """Without ``-sharedDb`` it keeps a database for each access key, so that runs do not meet."""

    url: str
    client: httpx.Client

    def ask(self, database: str, operation: str, request: Any) -> tuple[int, dict[str, Any]]:
        """``database`` takes letters and digits."""
        signed = f"AWS4-HMAC-SHA256 Credential={database}/20260101/us-east-1/dynamodb/aws4_request, SignedHeaders=host, Signature=0"
        headers = {"x-amz-target": f"{_VERSION}.{operation}", "content-type": "application/x-amz-json-1.0", "authorization": signed}
        answer = self.client.post("/", content=orjson.dumps(request), headers=headers)
        return answer.status_code, orjson.loads(answer.content)


@contextlib.contextmanager
def running() -> Iterator[DynamoDbLocal]:
    """In memory, with nothing told to anybody outside."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    options = ["-inMemory", "-disableTelemetry", "-port", str(port)]
    with tempfile.TemporaryDirectory(prefix="judge-") as folder, (Path(folder) / "log").open("wb") as log:
        process = subprocess.Popen(
            ["java", "-Xmx512m", f"-Djava.library.path={JARS}", "-cp", f"{JARS}/*", _MAIN, *options],
            cwd=folder,
            env={"PATH": os.environ["PATH"], "HOME": folder, "DDB_LOCAL_TELEMETRY": "0"},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
        try:
            with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60, trust_env=False) as client:
                judge = DynamoDbLocal(f"http://127.0.0.1:{port}", client)
                _await(judge, process, Path(folder) / "log")
                yield judge
        finally:
            process.kill()
            process.wait()


def _await(judge: DynamoDbLocal, process: "subprocess.Popen[bytes]", log: Path) -> None:
    deadline = time.monotonic() + _START_SECONDS_MAX
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(httpx.TransportError):
            if judge.ask("start", "ListTables", {})[0] == 200:
                return
        time.sleep(0.1)
    raise RuntimeError(f"DynamoDB Local did not start:\n{log.read_text(errors='replace')[-4000:]}")
