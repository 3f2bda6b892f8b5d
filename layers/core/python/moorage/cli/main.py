"""``moorage``: the operator's command line. One module for each group of commands, imported when it is asked for; they share
``Target``, which finds the deployment.

Exit codes: 0 done, 1 refused or failed (a sentence on stderr says why), 2 wrong usage, 130 interrupted.
"""

import argparse
import importlib
import io
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final, NoReturn

from moorage import __version__
from moorage.cli.at_end import closing_at_end
from moorage.terminal import say


class CommandParser(argparse.ArgumentParser):
    """Its subcommands are of its kind, so each answers for its own unknown words; argparse lets the outermost do that."""

    def parse_known_args(self, args: Sequence[str] | None = None, namespace: Any = None) -> tuple[Any, list[str]]:  # type: ignore[override]
        options, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self._refuse(unknown)
        return options, unknown

    def _refuse(self, unknown: Sequence[str]) -> NoReturn:
        from moorage.settings import nearest

        name = unknown[0].partition("=")[0]
        if name.startswith("-"):
            self.error(f"{name} is no option of '{self.prog}'{nearest(name, self._option_string_actions)}.")
        self.error(f"'{self.prog}' takes no further argument: {' '.join(unknown)}")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is None or value in action.choices:
            return
        from moorage.settings import nearest

        known = list(action.choices)
        near = (nearest(value, known) if isinstance(value, str) else "") or f"; these are: {', '.join(map(str, known))}"
        if isinstance(action, argparse._SubParsersAction):
            self.error(f"'{value}' is no command of '{self.prog}'{near}.")
        raise argparse.ArgumentError(action, f"'{value}' is not known{near}.")

    def error(self, message: str) -> NoReturn:
        from moorage.command_hints import typed_here

        super().error(f"{message}\n" + typed_here(f"'{self.prog} --help' says what there is."))


_WHERE: Final = """\
The commands speak to the local stack whose .moorage/ lies in this folder or one above it, or to the deployment that these name:
  MOORAGE_URL, MOORAGE_API_KEY  the API's address (it ends with /v1) and a key: models, containers, files, skills,
                                ls, show, stop, pause, resume, fork, agents, sessions, automations, vaults, approvals,
                                usage, storage, webhooks, tail, console, doctor
  MOORAGE_TABLE                 its table, with AWS credentials and AWS_REGION: keys, secrets, stop --tenant,
                                console, doctor
  MOORAGE_AUDIT_LOG_GROUP       the log group of its audit trail: audit, and all that change keys and secrets
  MOORAGE_EGRESS_KEY            the key that seals secrets: secrets
'make deploy' ends with their values. Exit codes: 0 done, 1 refused or failed, 2 wrong usage.
"""
COMMANDS: Final = {
    "up": "start the local stack and keep serving (Ctrl-C stops it)",
    "demo": "run an agent on a stack of its own, and leave its artifacts here",
    "keys": "API keys and the tenants behind them",
    "secrets": "credentials that the proxy injects for containers",
    "models": "list the models of the deployment",
    "containers": "containers and their files",
    "files": "uploaded files",
    "skills": "skills of containers",
    "ls": "list responses, running and ended",
    "show": "show one response, step by step",
    "stop": "cancel a response, or all that run",
    "pause": "stop a response before its next step",
    "fork": "fork a response at one of its events",
    "resume": "resume a paused response",
    "agents": "saved agents",
    "sessions": "sessions of agents",
    "automations": "input for agents at set times",
    "vaults": "credentials of agents",
    "approvals": "calls that wait for approval",
    "usage": "responses, calls and tokens, by day, model, key or tool",
    "storage": "stored bytes of files, containers and vector stores, and the limit",
    "webhooks": "webhook endpoints",
    "tail": "watch a response live, or replay it",
    "console": "open the console in a browser",
    "audit": "who made and revoked keys, changed settings, answered approvals, signed in",
    "logs": "show the log of the local stack: requests, steps, failures",
    "doctor": "check this machine, an AWS account, and a running deployment",
    "backup": "copy the state of a local stack into a file",
    "restore": "replace the state of a stopped local stack by a backup",
    "completion": "a script that lets a shell complete these commands",
    "sandbox-image": "the image that a container engine starts sandboxes from",
    "service": "run a local stack as a service of this user (systemd)",
    "uninstall": "list and remove all files of moorage on this machine",
}
"""By the name of their module: a list of them must not import what they need."""
ACTIONS: Final = {
    "keys": ("create", "list", "budget", "revoke"),
    "secrets": ("set", "list", "delete", "rotate-key"),
    "containers": ("list", "cp", "tree", "exec", "shell", "egress"),
    "files": ("list", "put", "get"),
    "skills": ("list", "push", "show", "pull", "delete", "validate"),
    "agents": ("list", "show", "delete", "export", "import"),
    "sessions": ("list", "show", "fork", "cancel", "delete"),
    "automations": ("list", "show", "pause", "resume", "delete"),
    "vaults": ("list", "create", "show", "delete", "credentials", "add", "rotate", "remove"),
    "approvals": ("list", "approve", "deny", "link"),
    "webhooks": ("list", "create", "delete", "test", "deliveries"),
    "completion": ("bash", "fish", "zsh"),
    "sandbox-image": ("build",),
    "demo": ("sales", "computer"),
    "service": ("install", "status", "uninstall"),
}
"""The actions of commands, for help and completion. A shell asks for completion whenever it starts."""
_IN_ANOTHER_FOLDER: Final = {"sessions": "moorage.agents.session_cli"}
_OF_RESOURCES: Final = ("agents", "approvals", "automations", "containers", "files", "skills", "vaults", "webhooks")
_INTERRUPTED: Final = 130


def main(arguments: Sequence[str] | None = None, environ: Mapping[str, str] | None = None) -> int:
    """Run one command; the answer is the exit code."""
    try:
        with closing_at_end():
            return _run(sys.argv[1:] if arguments is None else arguments, environ)
    except BrokenPipeError:
        # Whoever read it ('| head') has enough. What is still to be written must not fail again at the end of the process.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        return _INTERRUPTED


def _run(arguments: Sequence[str], environ: Mapping[str, str] | None) -> int:
    options = command_line(next((word for word in arguments if not word.startswith("-")), "")).parse_args(arguments)
    _take_any_text()
    from moorage.settings import environment

    try:
        code = int(options.run(options, environment() if environ is None else environ))
        sys.stdout.flush()
        return code
    except Exception as error:
        from moorage.cli.failures import sentence
        from moorage.command_hints import typed_here

        if (said := sentence(error)) is None:
            raise
        say(typed_here(f"moorage: {said}"), out=sys.stderr)
        return 1


def command_line(chosen: str) -> argparse.ArgumentParser:
    """The parser of all commands, with the arguments of the one that was chosen."""
    parser = CommandParser(
        prog="moorage",
        description="A self-hosted Responses API with a computer.",
        epilog=_WHERE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"moorage {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name, summary in COMMANDS.items():
        actions = f": {', '.join(ACTIONS[name])}" if name in ACTIONS else ""
        command = commands.add_parser(name, help=summary + actions)
        if name == chosen:
            importlib.import_module(module_of(name)).add_to(command)
    return parser


def module_of(command: str) -> str:
    """The module of a command. A resource's commands are in its folder."""
    if command in _IN_ANOTHER_FOLDER:
        return _IN_ANOTHER_FOLDER[command]
    return f"moorage.{command}.cli" if command in _OF_RESOURCES else f"moorage.cli.{command.replace('-', '_')}"


def _take_any_text() -> None:
    """A terminal that knows few letters gets the others as escapes, and no command fails for them."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


if __name__ == "__main__":
    sys.exit(main())
