"""The demonstration: ``moorage demo``.

An agent run through the OpenAI SDK, against the embedded stack that this program starts. The model works on a question
(``local/demonstrations.py``) by shell and browser, and the artifacts it makes are downloaded into the current folder. With
``OPENAI_API_KEY`` or ``MOORAGE_UPSTREAM_URL`` a real model does the work; without, the scripted demo model.
"""

import contextlib
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, NoReturn, TextIO

from openai import OpenAI
from openai.types.responses import Response

from moorage.command_hints import typed_here
from moorage.local.children import prepare_environments
from moorage.local.demonstrations import SALES, Demonstration
from moorage.local.exports import read_exports
from moorage.local.processes import dying_with, stop_process, uninterrupted
from moorage.terminal import clear_status, printable, say, show_status

_TELL_SECONDS = 10.0
"""A first start on a slow machine takes minutes."""
_AGAIN_SECONDS = 0.05
"""Time enough for a finalizer to end."""
_STOP_SECONDS_MAX = 30
_OUTPUT_LINES_MAX = 12
_PICTURES: Final = "computer_call_output.output.image_url"


def main(show: Demonstration = SALES, *, keeps: bool = False) -> int:
    """However it ends (a closed terminal, SIGTERM, Ctrl-C), its stack and its state go with it."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _end)
    sys.unraisablehook = send_again
    folder = Path.cwd()
    show.check()
    with embedded_stack() as environment:
        client = OpenAI(base_url=environment["OPENAI_BASE_URL"], api_key=environment["OPENAI_API_KEY"], timeout=900)
        model = environment["MOORAGE_MODEL"]
        say(f"Model: {model}" + (" (scripted, offline; OPENAI_API_KEY chooses a real one)" if model == "demo" else ""))
        tools = show.prepare(client)
        say(f"Question: {show.question}\n")
        response = watch(client, model, show.question, tools)
        if response is None:
            return 1
        ended = show.download(client, response, folder)
        if keeps:
            show_in_console(response.id, environment)
    say(typed_here("The demo's stack is gone. 'moorage up' starts one that stays, and 'moorage console' shows its runs in a browser."))
    return ended


def show_in_console(response_id: str, environment: dict[str, str]) -> None:
    """The run in a browser, until Ctrl-C. Each Enter makes another address, because an address opens once."""
    with contextlib.suppress(KeyboardInterrupt):
        while True:
            say("\nThe run in the console:")
            subprocess.run([sys.executable, "-m", "moorage", "console", response_id], env=os.environ | environment, check=False)
            say("The address opens once, within two minutes. Enter makes another one; Ctrl-C ends the demo and its stack.")
            if not sys.stdin.readline():
                signal.pause()


def _end(number: int, frame: object) -> NoReturn:
    sys.exit(128 + number)


def send_again(unraisable: Any) -> None:
    """A signal may arrive in a finalizer: an exception there is lost (sys.unraisablehook), so it is sent again."""
    match unraisable.exc_value:
        case KeyboardInterrupt():
            number: int = signal.SIGINT
        case SystemExit(code=int(code)) if code > 128:
            number = code - 128
        case _:
            sys.__unraisablehook__(unraisable)
            return
    threading.Timer(_AGAIN_SECONDS, os.kill, (os.getpid(), number)).start()


@contextlib.contextmanager
def embedded_stack() -> Iterator[dict[str, str]]:
    """The stack of ``make up`` on a free port, with state of its own that goes when the demonstration ends."""
    prepare_environments()
    with tempfile.TemporaryDirectory(prefix="moorage-demo-", ignore_cleanup_errors=True) as state_dir:
        say("Starting the embedded stack (API, loop, sandboxes; all on this machine) ...")
        words = Path(state_dir) / "stack.log"
        process = None
        try:
            with words.open("wb") as log, uninterrupted():
                process = subprocess.Popen(
                    [sys.executable, "-m", "moorage.local.stack"],
                    env=os.environ | {"MOORAGE_STATE_DIR": state_dir, "MOORAGE_PORT": "0", "MOORAGE_PUBLISHED": ""},
                    stdout=subprocess.DEVNULL,
                    stderr=log,
                    start_new_session=True,
                    preexec_fn=dying_with(os.getpid()),
                )
            yield await_environment(process, Path(state_dir) / "env", words) | {"MOORAGE_STATE_DIR": state_dir}
        finally:
            if process is not None:
                stop_process(process, _STOP_SECONDS_MAX)


def await_environment(
    process: "subprocess.Popen[bytes]",
    path: Path,
    words: Path,
    *,
    tell: Callable[[str], object] = say,
    tell_seconds: float = _TELL_SECONDS,
) -> dict[str, str]:
    """The variables in ``path``, which the stack writes once it serves. Waits as long as the stack lives, and tells its last words.

    Raises SystemExit with all of its words if it ends before.
    """
    told = time.monotonic()
    while process.poll() is None:
        if path.exists():
            return read_exports(path)
        if time.monotonic() - told >= tell_seconds:
            told = time.monotonic()
            last = printable(words.read_text(errors="replace")).strip().rpartition("\n")[2]
            tell(f"The stack is still starting. {last}".rstrip())
        time.sleep(0.05)
    raise SystemExit(f"{printable(words.read_text(errors='replace'))}The embedded stack did not start.")


def watch(client: OpenAI, model: str, question: str, tools: Any) -> Response | None:
    """Run the response and show its events; None if it did not complete."""
    stream: Any = client.responses.create(model=model, input=question, tools=tools, include=[_PICTURES], stream=True)
    screen = Screen(sys.stdout)
    for event in with_pulse(stream):
        if event is None:
            screen.wait()
        else:
            screen.show(event)
    screen.end()
    if screen.final is None or screen.final.status != "completed":
        say(f"The response did not complete: {screen.final.error if screen.final else 'the stream broke off'}")
        return None
    return screen.final


def with_pulse(stream: Any) -> Iterator[Any]:
    """The stream's events, and None for every half second without one."""
    events: queue.Queue[Any] = queue.Queue()

    def read() -> None:
        try:
            for event in stream:
                events.put(event)
        except Exception as error:
            events.put(error)
        events.put(StopIteration)

    threading.Thread(target=read, daemon=True).start()
    while True:
        try:
            event = events.get(timeout=0.5)
        except queue.Empty:
            yield None
            continue
        if event is StopIteration:
            return
        if isinstance(event, Exception):
            raise event
        yield event


class Screen:
    """Prints a run as it goes."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self.final: Response | None = None
        self._started = time.monotonic()
        self._step = 0
        self._lines: dict[int, int] = {}
        self._is_in_line = False
        """Words of the model stand on the last line, which is not for notes then."""
        self._awaits = "the model"

    def show(self, event: Any) -> None:
        self._clear()
        match event.type:
            case "response.created":
                tool = event.response.tools[0]
                self._say(f"{event.response.id} runs in {tool.environment.container_id}")
            case "response.output_item.added" if event.item.type == "shell_call":
                self._step += 1
                self._say(f"\n[{self._seconds()}] step {self._step}: the model asks for commands")
            case "response.shell_call_command.done":
                self._say("  $ " + event.command.strip().replace("\n", "\n    "))
                self._awaits = "the commands"
            case "response.shell_call_output_content.delta":
                self._output(event.command_index, (event.delta.stdout or "") + (event.delta.stderr or ""))
            case "response.shell_call_output_content.done":
                self._outcome(event.output[0].outcome)
            case "response.output_item.done" if event.item.type == "shell_call_output":
                self._lines.clear()
                self._awaits = "the model"
            case "response.output_item.done" if event.item.type == "computer_call":
                self._step += 1
                self._say(f"\n[{self._seconds()}] step {self._step}: the model uses the computer")
                for action in event.item.actions or [event.item.action]:
                    self._say(f"  > {described(action)}")
                self._awaits = "the browser"
            case "response.output_item.done" if event.item.type == "computer_call_output":
                self._page(event.item)
                self._awaits = "the model"
            case "response.output_item.added" if event.item.type == "message":
                self._say(f"\n[{self._seconds()}] the model says:")
            case "response.output_text.delta":
                self._words(event.delta)
            case "response.output_text.done":
                self._words("\n")
            case "response.completed" | "response.incomplete" | "response.failed":
                self.final = event.response

    def _output(self, index: int, text: str) -> None:
        for line in text.splitlines():
            self._lines[index] = self._lines.get(index, 0) + 1
            if self._lines[index] <= _OUTPUT_LINES_MAX:
                self._say(f"  | {line}")
            elif self._lines[index] == _OUTPUT_LINES_MAX + 1:
                self._say("  | ...")

    def _page(self, output: Any) -> None:
        for failed in filter(lambda each: not each["ok"], output.actions):
            self._say(f"  (failed: {failed['error']})")
        page = getattr(output, "page", None)
        if page is not None:
            self._say(f"  | the page {page['url']} shows '{page['title']}'")

    def _outcome(self, outcome: Any) -> None:
        if outcome.type == "timeout":
            self._say("  (timed out)")
        elif outcome.exit_code:
            self._say(f"  (exit code {outcome.exit_code})")

    def wait(self) -> None:
        if not self._is_in_line:
            show_status(f"[{self._seconds()}] waiting for {self._awaits} ...", self._out)

    def _clear(self) -> None:
        if not self._is_in_line:
            clear_status(self._out)

    def _say(self, text: str) -> None:
        if self._is_in_line:
            self._words("\n")
        say(text, out=self._out)

    def _words(self, text: str) -> None:
        say(text, out=self._out, end="")
        self._is_in_line = not text.endswith("\n") if text else self._is_in_line

    def end(self) -> None:
        self._clear()
        if self.final is not None and self.final.usage is not None:
            usage = self.final.usage
            self._say(f"\n[{self._seconds()}] {self.final.status}; {usage.input_tokens} tokens in, {usage.output_tokens} out")

    def _seconds(self) -> str:
        return f"{time.monotonic() - self._started:5.1f} s"


def described(action: Any) -> str:
    """One action of a computer, for a person."""
    fields = {name: value for name, value in action.to_dict().items() if name != "type" and value not in (None, [])}
    return " ".join([action.type, *(f"{name}={'+'.join(value) if name == 'keys' else value}" for name, value in fields.items())])
