"""The demonstration's screen, by the events of a run."""

import io
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from moorage.local.demo import Screen, await_environment
from openai.types.responses.response_computer_tool_call import ResponseComputerToolCall

from tests.unit.test_terminal import Terminal


def event(type_: str, **fields: Any) -> SimpleNamespace:
    return SimpleNamespace(type=f"response.{type_}", **fields)


def said(text: str) -> SimpleNamespace:
    return event("output_text.delta", delta=text)


MESSAGE = event("output_item.added", item=SimpleNamespace(type="message"))


def seen(terminal: io.StringIO) -> list[str]:
    """The lines of a terminal after what was written to it: the last line is erased by '\\r', written over by what follows."""
    return [line.rsplit("\r\x1b[K", 1)[-1] for line in terminal.getvalue().split("\n")]


def test_the_words_of_a_slow_model_stay_and_notes_about_waiting_go() -> None:
    screen = Screen(terminal := Terminal())
    screen.wait()
    screen.show(MESSAGE)
    for word in ("All ", "", "is ", "well."):
        screen.wait()
        screen.show(said(word))
        screen.wait()
    screen.show(event("output_text.done"))
    screen.wait()
    screen.end()
    assert seen(terminal)[-2:] == ["All is well.", ""]
    assert terminal.getvalue().count("waiting for the model") == 3


def test_what_the_model_does_with_a_computer_is_shown_by_line() -> None:
    screen = Screen(out := io.StringIO())
    actions = [{"type": "keypress", "keys": ["CTRL", "L"]}, {"type": "click", "button": "left", "x": 1, "y": 2}]
    call = {
        "id": "cu_1",
        "type": "computer_call",
        "call_id": "c",
        "status": "completed",
        "pending_safety_checks": [],
        "actions": actions,
    }
    screen.show(event("output_item.done", item=ResponseComputerToolCall.model_validate(call)))
    results = [{"ok": True}, {"ok": False, "error": "Nothing is there."}]
    page = {"url": "http://localhost:1/", "title": "Cart"}
    screen.show(event("output_item.done", item=SimpleNamespace(type="computer_call_output", actions=results, page=page)))
    assert out.getvalue().splitlines()[2:] == [
        "  > keypress keys=CTRL+L",
        "  > click button=left x=1 y=2",
        "  (failed: Nothing is there.)",
        "  | the page http://localhost:1/ shows 'Cart'",
    ]


def test_a_step_after_words_without_an_end_begins_a_line_of_its_own() -> None:
    screen = Screen(out := io.StringIO())
    screen.show(said("I look"))
    screen.show(event("shell_call_command.done", command="ls"))
    assert out.getvalue() == "I look\n  $ ls\n"


def test_what_model_and_commands_say_is_no_control_code() -> None:
    screen = Screen(out := io.StringIO())
    hostile = "\x1b]0;PWNED\x07"
    screen.show(said(hostile))
    screen.show(event("shell_call_command.done", command=hostile))
    screen.show(event("shell_call_output_content.delta", command_index=0, delta=SimpleNamespace(stdout=hostile, stderr="")))
    assert out.getvalue().count(r"\x1b]0;PWNED\x07") == 3
    assert "\x1b" not in out.getvalue()


IN_A_FINALIZER = """
import signal, sys, time
from moorage.local import demo

signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever runs the tests may ignore it

class Closing:
    def __del__(self):
        raise KeyboardInterrupt

sys.unraisablehook = demo.send_again
Closing()
time.sleep(60)
"""


def test_a_signal_that_meets_a_finalizer_is_not_lost() -> None:
    done = subprocess.run([sys.executable, "-c", IN_A_FINALIZER], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr.splitlines()[-1]) == (-signal.SIGINT, "KeyboardInterrupt")


def test_the_demonstration_waits_as_long_as_its_stack_lives_and_tells_its_last_words(tmp_path: Path) -> None:
    words = tmp_path / "stack.log"
    words.write_text("moorage: first\nmoorage: Installing packages ...\n")
    starting = ["sh", "-c", "read go; printf 'export A=b\\n' > new; mv new env; read stop"]
    told: list[str] = []
    with subprocess.Popen(starting, cwd=tmp_path, stdin=subprocess.PIPE) as process:
        assert process.stdin is not None
        keyboard = process.stdin

        def tell(sentence: str) -> None:
            told.append(sentence)
            if len(told) == 2:
                keyboard.write(b"go\n")
                keyboard.flush()

        assert await_environment(process, tmp_path / "env", words, tell=tell, tell_seconds=0) == {"A": "b"}
        process.kill()
    assert told[:2] == ["The stack is still starting. moorage: Installing packages ..."] * 2


def test_a_stack_that_ends_before_it_serves_is_quoted(tmp_path: Path) -> None:
    words = tmp_path / "stack.log"
    words.write_text("No bubblewrap.\n")
    with subprocess.Popen(["true"]) as process, pytest.raises(SystemExit, match=r"No bubblewrap\.\nThe embedded stack did not start\."):
        await_environment(process, tmp_path / "env", words)
