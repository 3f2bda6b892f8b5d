"""moorage on one machine: ``make up``.

One terminal, no Docker, no Node, no account. This process serves the API; its children are ministack (DynamoDB, S3, Lambda and Step
Functions: it runs the same state machine and the same step functions as AWS) and the launcher (which owns the sandboxes). State lies
under ``.moorage/`` and is there at the next start. Ctrl-C and SIGTERM stop everything in order.
"""

import asyncio
import contextlib
import ctypes
import fcntl
import io
import json
import logging
import os
import secrets
import shlex
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import boto3
import uvicorn
from botocore.exceptions import ClientError
from moorage import limits
from moorage.api.app import create_app
from moorage.api.routers import ROUTERS
from moorage.errors import MoorageError, SettingsConflict
from moorage.loop.expire import expire
from moorage.loop.recover import recover
from moorage.model.catalog import Catalog, probe_ollama
from moorage.runtime import Runtime, build_runtime, relieve_collector
from moorage.settings import Settings, SettingsError, api_port
from moorage.store.api_keys import KEY_PREFIX
from moorage.store.schema import create_table
from moorage.telemetry import open_log

ROOT = Path(__file__).resolve().parent.parent
REGION = "us-east-1"
_EMULATOR_START_SECONDS_MAX = 30
_EMULATOR_STOP_SECONDS_MAX = 20
_PR_SET_PDEATHSIG = 1
TABLE = "moorage"
BUCKET = "moorage"
TENANT = "default"
STATE_MACHINE = "moorage-agent-loop"
TASKS = {
    "ModelStepArn": "model_step",
    "ToolStepArn": "tool_step",
    "ContinueStepArn": "continue_step",
    "FailResponseArn": "fail_response",
}
"""Placeholder in the state machine's definition -> function of ``functions/steps/handler.py``."""
_ROLE = "arn:aws:iam::000000000000:role/moorage"
_LAUNCHER_START_SECONDS_MAX = 30
_LAUNCHER_STOP_SECONDS_MAX = 15
_PROXY_STOP_SECONDS_MAX = 10
_REAPER_SECONDS = 5
_INTERRUPTED = 130
_SOCKET_PATH_BYTES_MAX = 107
"""unix(7): sun_path has 108 bytes, the last of them null."""
_log = logging.getLogger("moorage.embedded")


@dataclass(frozen=True, slots=True)
class Emulator:
    """ministack, as a child process on 127.0.0.1.

    It keeps tables, objects and definitions under the state directory when it is stopped gracefully, and it is: the kernel sends it
    SIGTERM when its parent dies, however that happens. Only a SIGKILL of the emulator itself loses what came since its last start.
    """

    endpoint: str
    process: "subprocess.Popen[bytes]"

    @classmethod
    def start(cls, state_dir: Path, environment: dict[str, str], lock: IO[str]) -> "Emulator":
        """Start it on a free port and return when it answers. ``environment`` is what its function workers inherit; it keeps ``lock``
        open until it ends."""
        state_dir.mkdir(parents=True, exist_ok=True)
        port = free_port()
        log = (state_dir / "ministack.log").open("ab")
        process = subprocess.Popen(
            [sys.executable, "-m", "ministack"],
            env=environment
            | {
                "GATEWAY_PORT": str(port),
                "BIND_HOST": "127.0.0.1",
                "MINISTACK_HOST": "127.0.0.1",
                "PERSIST_STATE": "1",
                "S3_PERSIST": "1",
                "STATE_DIR": str(state_dir / "state"),
                "S3_DATA_DIR": str(state_dir / "s3"),
                "TMPDIR": str(_directory(state_dir / "tmp")),
                "LOG_LEVEL": "WARNING",
                # Listeners for services that are not used here; they would bind every interface.
                "IOT_MTLS_ENABLED": "0",
                "SFTP_ENABLED": "0",
                "SERVICES": "dynamodb,s3,stepfunctions,lambda,iam,sts,logs,kms",
            },
            stdout=log,
            stderr=log,
            stdin=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is for the parent, which stops its children in order
            pass_fds=(lock.fileno(),),
            preexec_fn=die_with_parent,
        )
        log.close()
        emulator = cls(f"http://127.0.0.1:{port}", process)
        try:
            emulator._await_answer(state_dir)
        except (SystemExit, KeyboardInterrupt):
            emulator.stop()
            raise
        return emulator

    def stop(self) -> None:
        """End it gracefully, so that its state is kept."""
        stop_process(self.process, _EMULATOR_STOP_SECONDS_MAX)

    def _await_answer(self, state_dir: Path) -> None:
        deadline = time.monotonic() + _EMULATOR_START_SECONDS_MAX
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                break
            with contextlib.suppress(urllib.error.URLError, OSError):
                urllib.request.urlopen(f"{self.endpoint}/_ministack/health", timeout=2).close()
                return
            time.sleep(0.02)
        raise SystemExit(f"moorage: The AWS emulator did not start; its last words are in {state_dir / 'ministack.log'}.")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def die_with_parent() -> None:
    """Ask the kernel for SIGTERM when the parent ends; to be called in a child before exec."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def stop_process(process: "subprocess.Popen[bytes]", seconds_max: int) -> None:
    """SIGTERM, patience, then SIGKILL."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(seconds_max)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _directory(path: Path) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    return path


def inherited_environment() -> dict[str, str]:
    """This process's environment without AWS credentials: the emulator must never be handed real ones."""
    return {key: value for key, value in os.environ.items() if not key.startswith("AWS_")}


@dataclass(frozen=True, slots=True)
class Secrets:
    """What the first start makes and every later one finds."""

    api_key: str
    content_key: str


def main() -> int:
    """Run until a signal comes. What keeps it from starting is said in a sentence, with exit code 1."""
    try:
        return run()
    except (SettingsError, MoorageError) as error:
        raise SystemExit(f"moorage: {error}") from error
    except KeyboardInterrupt:
        return _INTERRUPTED


def run() -> int:
    state_dir = Path(os.environ.get("MOORAGE_STATE_DIR", ".moorage")).resolve()
    if len(os.fsencode(egress_socket(state_dir))) > _SOCKET_PATH_BYTES_MAX:
        raise SettingsConflict(f"Sockets cannot lie in {state_dir}: its path is too long. MOORAGE_STATE_DIR takes another folder.")
    with contextlib.ExitStack() as stack:
        lock = stack.enter_context(held(state_dir))
        listener = stack.enter_context(bound(api_port(os.environ)))
        return start(stack, listener, state_dir, lock)


def bound(port: int) -> socket.socket:
    """The API's address, taken before anything is started. Nobody is let in before it serves."""
    # asyncio sends at once (TCP_NODELAY) only where the socket names its protocol; else an event may wait 40 ms for an acknowledgement.
    listener = socket.socket(proto=socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(("127.0.0.1", port))
    except OSError as error:
        listener.close()
        raise SettingsConflict(
            f"Port {port} cannot be had: {os.strerror(error.errno or 0)}. MOORAGE_PORT or 'moorage up --port' takes another; "
            "0 is any free one."
        ) from error
    return listener


@contextlib.contextmanager
def held(state_dir: Path) -> Iterator[IO[str]]:
    """The state directory, for one stack alone: a second one would overwrite the first one's state.

    The emulator is given the lock too. Where a stack was killed, the next one waits until its emulator has stored what it holds.
    """
    try:
        state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = (state_dir / "lock").open("a+")
    except OSError as error:
        raise SettingsConflict(
            f"State cannot be kept in {state_dir}: {error.strerror}. MOORAGE_STATE_DIR takes another folder."
        ) from error
    with lock:
        deadline = time.monotonic() + _EMULATOR_STOP_SECONDS_MAX
        while not _take(lock):
            lock.seek(0)
            if Path("/proc", lock.read() or "none").exists() or time.monotonic() > deadline:
                raise SettingsConflict(
                    f"A stack with its state in {state_dir} is running already. Use that one, stop it first, or take another folder "
                    "with MOORAGE_STATE_DIR or 'moorage up --state-dir'."
                )
            time.sleep(0.05)
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        yield lock


def _take(lock: IO[str]) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def start(stack: contextlib.ExitStack, listener: socket.socket, state_dir: Path, lock: IO[str]) -> int:
    kept = _secrets(state_dir)
    launcher_socket = state_dir / "launcher.sock"
    settings_environment = {
        "MOORAGE_TABLE": TABLE,
        "MOORAGE_BUCKET": BUCKET,
        "MOORAGE_MODELS_FILE": os.environ.get("MOORAGE_MODELS_FILE", str(ROOT / "models.toml")),
        "MOORAGE_CONTENT_KEY": kept.content_key,
        "MOORAGE_PROVISIONER": "launcher",
        "MOORAGE_LAUNCHER_SOCKET": str(launcher_socket),
        # The emulator waits 50 ms for a word from a function that says nothing.
        "POWERTOOLS_LOG_LEVEL": "INFO",
        "MOORAGE_STATE_MACHINE_ARN": f"arn:aws:states:{REGION}:000000000000:stateMachine:{STATE_MACHINE}",
    }
    # Both refuse what is set wrongly before anything is started.
    Settings.from_environment(inherited_environment() | settings_environment)
    if Catalog.load(Path(settings_environment["MOORAGE_MODELS_FILE"]), os.environ).resolve(None).provider_kind == "demo":
        settings_environment["MOORAGE_OLLAMA_MODELS"] = " ".join(probe_ollama())
    logging.basicConfig(level=os.environ.get("MOORAGE_LOG_LEVEL", "WARNING"), format="%(levelname)s %(name)s %(message)s")
    open_log(stack.enter_context((state_dir / "api.log").open("a")))
    environment = inherited_environment() | settings_environment
    emulator = Emulator.start(state_dir / "aws", environment, lock)
    stack.callback(emulator.stop)
    (state_dir / "aws" / "endpoint").write_text(emulator.endpoint)
    os.environ.update(aws_environment(emulator.endpoint))
    if os.environ.get("MOORAGE_ALLOWED_EGRESS_DOMAINS"):
        proxy_environment, proxy = start_egress_proxy(state_dir, environment | aws_environment(emulator.endpoint))
        settings_environment |= proxy_environment
        environment |= proxy_environment
        stack.callback(stop_process, proxy, _PROXY_STOP_SECONDS_MAX)
    provision(settings_environment)
    launcher = start_launcher(state_dir, launcher_socket)
    stack.callback(stop_process, launcher, _LAUNCHER_STOP_SECONDS_MAX)
    await_launcher(launcher, launcher_socket, state_dir / "launcher.log")
    runtime = build_runtime(Settings.from_environment(environment | aws_environment(emulator.endpoint)))
    return asyncio.run(serve(runtime, listener, state_dir, kept))


def _secrets(state_dir: Path) -> Secrets:
    path = state_dir / "secrets.json"
    if not path.exists():
        made = {"api_key": f"{KEY_PREFIX}{secrets.token_urlsafe(32)}", "content_key": secrets.token_hex(32)}
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            json.dump(made, file)
    return Secrets(**json.loads(path.read_text()))


def aws_environment(endpoint: str) -> dict[str, str]:
    """How boto3 finds the emulator."""
    return {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": REGION,
        "AWS_REGION": REGION,
        "AWS_EC2_METADATA_DISABLED": "true",
    }


def provision(environment: dict[str, str]) -> None:
    """Table, bucket, step functions and state machine, from the same files as on AWS. Harmless to repeat."""
    create_table(boto3.client("dynamodb"), TABLE)
    with contextlib.suppress(ClientError):
        boto3.client("s3").create_bucket(Bucket=BUCKET)
    definition = (ROOT / "infra" / "agent_loop.asl.json").read_text()
    code = _function_zip()
    for placeholder, function in TASKS.items():
        definition = definition.replace(f"${{{placeholder}}}", _put_function(function, code, environment))
    _put_state_machine(definition)


def _function_zip() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.write(ROOT / "functions" / "steps" / "handler.py", "handler.py")
    return buffer.getvalue()


def _put_function(name: str, code: bytes, environment: dict[str, str]) -> str:
    """Create the function anew: code and environment may have changed since the last start."""
    functions = boto3.client("lambda")
    with contextlib.suppress(ClientError):
        functions.delete_function(FunctionName=f"moorage-{name}")
    made = functions.create_function(
        FunctionName=f"moorage-{name}",
        Runtime="python3.13",
        Role=_ROLE,
        Handler=f"handler.{name}",
        Code={"ZipFile": code},
        Timeout=900,
        MemorySize=1024,
        Environment={"Variables": environment},
    )
    return str(made["FunctionArn"])


def _put_state_machine(definition: str) -> None:
    machines = boto3.client("stepfunctions")
    arn = f"arn:aws:states:{REGION}:000000000000:stateMachine:{STATE_MACHINE}"
    try:
        machines.update_state_machine(stateMachineArn=arn, definition=definition, roleArn=_ROLE)
    except ClientError:
        machines.create_state_machine(name=STATE_MACHINE, definition=definition, roleArn=_ROLE)


def start_launcher(state_dir: Path, launcher_socket: Path) -> "subprocess.Popen[bytes]":
    """The owner of the sandboxes."""
    toolbox = Path(os.environ.get("MOORAGE_TOOLBOX", str(ROOT / ".venv-toolbox")))
    command = [sys.executable, str(ROOT / "localstack" / "launcher.py"), "--socket", str(launcher_socket)]
    command += ["--state-dir", str(state_dir / "sandboxes")]
    if toolbox.exists():
        command += ["--toolbox", str(toolbox)]
    with (state_dir / "launcher.log").open("wb") as log:
        return subprocess.Popen(
            command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True, preexec_fn=die_with_parent
        )


def await_launcher(launcher: "subprocess.Popen[bytes]", launcher_socket: Path, log: Path) -> None:
    """Return when it answers. A launcher that cannot work says why, and then nothing here is of use."""
    deadline = time.monotonic() + _LAUNCHER_START_SECONDS_MAX
    while time.monotonic() < deadline and launcher.poll() is None:
        with socket.socket(socket.AF_UNIX) as connection:
            if connection.connect_ex(str(launcher_socket)) == 0:
                return
        time.sleep(0.01)
    raise SystemExit(log.read_text().strip() or f"The owner of the sandboxes did not start in {_LAUNCHER_START_SECONDS_MAX} seconds.")


def egress_socket(state_dir: Path) -> Path:
    """Of all sockets the one with the longest name."""
    return state_dir / "egress" / "proxy.sock"


def start_egress_proxy(state_dir: Path, environment: dict[str, str]) -> tuple[dict[str, str], "subprocess.Popen[bytes]"]:
    """The way out of the sandboxes, and the settings that tell the others of it. It runs only where the operator allows domains."""
    interpreter = ROOT / ".venv-egress" / "bin" / "python"
    if not interpreter.exists():
        raise SystemExit("MOORAGE_ALLOWED_EGRESS_DOMAINS needs the egress proxy: 'make setup' installs it into .venv-egress.")
    listen = egress_socket(state_dir)
    settings = {
        "MOORAGE_ALLOWED_EGRESS_DOMAINS": environment["MOORAGE_ALLOWED_EGRESS_DOMAINS"],
        "MOORAGE_EGRESS_PROXY": f"unix:{listen}",
        "MOORAGE_EGRESS_KEY": _egress_key(state_dir),
    }
    command = [str(interpreter), "-m", "functions.egress_proxy.main", "--listen", f"unix:{listen}"]
    for option in ("hosts", "upstream-ca"):
        value = environment.get(f"MOORAGE_EGRESS_{option.upper().replace('-', '_')}")
        command += [f"--{option}", value] if value else []
    with (state_dir / "egress.log").open("ab") as log:
        create_table(boto3.client("dynamodb"), TABLE)
        process = subprocess.Popen(
            command,
            env=environment | settings | {"PYTHONPATH": f"{ROOT}:{ROOT / 'layers' / 'core' / 'python'}"},
            cwd=ROOT,
            stdout=log,
            stderr=log,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=die_with_parent,
        )
    return settings, process


def _egress_key(state_dir: Path) -> str:
    """The KMS key that seals domain secrets; made once."""
    path = state_dir / "egress-key"
    if not path.exists():
        path.write_text(str(boto3.client("kms").create_key(Description="moorage egress")["KeyMetadata"]["KeyId"]))
    return path.read_text()


async def serve(runtime: Runtime, listener: socket.socket, state_dir: Path, kept: Secrets) -> int:
    """Serve until a signal comes."""
    if await runtime.api_keys.tenant_of(kept.api_key) is None:
        await runtime.api_keys.create(TENANT, name="made at the first start", key=kept.api_key)
    server = _Server(
        uvicorn.Config(
            create_app(runtime, ROUTERS),
            log_level="warning",
            access_log=False,
            lifespan="off",
            http="httptools",
            timeout_graceful_shutdown=5,
            ws_max_size=limits.REQUEST_BODY_BYTES_MAX,
        ),
        on_started=lambda: announce(runtime, listener.getsockname()[1], state_dir, kept),
    )
    relieve_collector()
    reaper = asyncio.create_task(_reap(runtime))
    try:
        await server.serve(sockets=[listener])
    finally:
        reaper.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await reaper
        await runtime.aclose()
    return 0 if server.started else 1


class _Server(uvicorn.Server):
    """Says where it listens once it does, and returns from a signal instead of raising it again."""

    def __init__(self, config: uvicorn.Config, on_started: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_started = on_started

    async def startup(self, sockets: Any = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._on_started()

    @contextlib.contextmanager
    def capture_signals(self) -> Any:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self.handle_exit, number, None)
        yield


async def _reap(runtime: Runtime) -> None:
    """What the reaper function does on AWS once a minute."""
    while True:
        try:
            await recover(runtime)
            await expire(runtime)
        except Exception:  # one bad round must not end the rounds
            _log.exception("the reaper stumbled")
        await asyncio.sleep(_REAPER_SECONDS)


def announce(runtime: Runtime, port: int, state_dir: Path, kept: Secrets) -> None:
    """Tell the user, and scripts by ``.moorage/env``, how to reach it."""
    url = f"http://127.0.0.1:{port}/v1"
    model = runtime.catalog.default_model
    path = state_dir / "env"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(f"OPENAI_BASE_URL={url}\nOPENAI_API_KEY={kept.api_key}\nMOORAGE_MODEL={model}\n")
    print(
        f"moorage is up.\n  URL    {url}\n  key    {kept.api_key}\n  model  {model}: {runtime.catalog.describe_default()}\n"
        f"  try    set -a; . {shlex.quote(os.path.relpath(path))}; set +a; "
        f"curl $OPENAI_BASE_URL/responses -H \"Authorization: Bearer $OPENAI_API_KEY\" -H 'Content-Type: application/json' "
        f'-d \'{{"model": "{model}", "input": "hello"}}\'\n'
        "Ctrl-C stops it; what it stored is there at the next start.",
        flush=True,
    )


if __name__ == "__main__":
    sys.exit(main())
