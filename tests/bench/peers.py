"""Gateways that ``make bench-peers`` installs under ``.build/``, to be measured beside moorage in front of the same mock upstream."""

import contextlib
import os
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.bench.load import Endpoint

BUILD = Path(__file__).resolve().parents[2] / ".build"
_START_SECONDS_MAX = 120
_KEY = "sk-bench-0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
"""LiteLLM wants a key that looks like one."""


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@dataclass
class Peer:
    name: str
    program: str
    """Below its virtual environment in ``.build/peer-<name>``."""
    configuration: Callable[[str, Path], str]
    """Base URL of the upstream and a folder to keep state in -> the text of its configuration file."""
    arguments: Callable[[Path, int], list[str]]
    environment: Mapping[str, str]
    model: str
    path: str = "/v1/responses"
    port: int = 0

    @property
    def _binary(self) -> Path:
        return BUILD / f"peer-{self.name}" / "bin" / self.program

    def is_installed(self) -> bool:
        return self._binary.exists()

    def endpoint(self) -> Endpoint:
        return Endpoint(self.name, f"http://127.0.0.1:{self.port}{self.path}", {"model": self.model, "input": "hi"}, _KEY)

    @contextlib.contextmanager
    def start(self, base_url: str, folder: Path) -> Iterator[int]:
        """Runs it; yields its process id once it answers."""
        folder.mkdir(parents=True, exist_ok=True)
        self.port = _free_port()
        path = folder / "config.yaml"
        path.write_text(self.configuration(base_url, folder))
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(
                [str(self._binary), *self.arguments(path, self.port)],
                env=dict(os.environ) | dict(self.environment) | {"HOME": str(folder)},
                stdout=log,
                stderr=log,
            )
        try:
            self._await_answer(process, folder / "log")
            yield process.pid
        finally:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _await_answer(self, process: "subprocess.Popen[bytes]", log: Path) -> None:
        deadline = time.monotonic() + _START_SECONDS_MAX
        while time.monotonic() < deadline and process.poll() is None:
            with contextlib.suppress(urllib.error.URLError, OSError):
                request = urllib.request.Request(
                    self.endpoint().url,
                    data=f'{{"model": "{self.model}", "input": "hi"}}'.encode(),
                    headers={"content-type": "application/json", "authorization": f"Bearer {_KEY}"},
                )
                urllib.request.urlopen(request, timeout=10).close()
                return
            time.sleep(0.5)
        raise RuntimeError(f"{self.name} did not start:\n{log.read_text()[-3000:]}")


def _litellm(base_url: str, folder: Path) -> str:
    return (
        "model_list:\n  - model_name: mock\n    litellm_params:\n      model: openai/mock\n"
        f"      api_base: {base_url}\n      api_key: none\n      use_chat_completions_api: true\n"
    )


def _ogx(base_url: str, folder: Path) -> str:
    return f"""
version: 2
distro_name: bench
apis: [files, inference, responses, tool_runtime, vector_io, conversations]
providers:
  inference:
    - provider_id: mock
      provider_type: remote::openai
      config: {{base_url: "{base_url}", api_key: none}}
  files:
    - provider_id: local
      provider_type: inline::localfs
      config: {{storage_dir: {folder}/files, metadata_store: {{backend: sql_default, table_name: files}}}}
  responses:
    - provider_id: builtin
      provider_type: inline::builtin
      config:
        persistence:
          agent_state: {{backend: kv_default, namespace: agents}}
          responses: {{backend: sql_default, table_name: responses}}
  tool_runtime: []
  vector_io: []
storage:
  backends:
    kv_default: {{type: kv_sqlite, db_path: {folder}/kv.db}}
    sql_default: {{type: sql_sqlite, db_path: {folder}/sql.db}}
  stores:
    metadata: {{backend: kv_default, namespace: registry}}
    inference: {{backend: sql_default, table_name: inference}}
    conversations: {{backend: sql_default, table_name: conversations}}
    prompts: {{backend: sql_default, table_name: prompts}}
registered_resources:
  models:
    - {{model_id: mock, provider_id: mock, model_type: llm}}
server: {{port: 8321}}
"""


_TOKENIZERS = next(iter(BUILD.glob("peer-litellm/lib/*/site-packages/litellm/litellm_core_utils/tokenizers")), BUILD)
"""ogx wants a tokenizer that it would download; LiteLLM brings it along."""

PEERS = (
    Peer(
        "litellm",
        "litellm",
        _litellm,
        lambda path, port: ["--config", str(path), "--host", "127.0.0.1", "--port", str(port)],
        {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_MASTER_KEY": _KEY},
        "mock",
    ),
    Peer(
        "ogx",
        "ogx",
        _ogx,
        lambda path, port: ["run", str(path), "--port", str(port), "--insecure"],
        {"OPENAI_API_KEY": "none", "TIKTOKEN_CACHE_DIR": str(_TOKENIZERS)},
        "mock/mock",
    ),
)
