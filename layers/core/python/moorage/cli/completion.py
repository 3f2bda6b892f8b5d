"""``moorage completion``: a script that lets a shell complete commands."""

import argparse
from collections.abc import Mapping
from typing import Final

from moorage.cli.main import ACTIONS, COMMANDS
from moorage.terminal import say

_BASH: Final = """\
# eval "$(moorage completion bash)"
_moorage() {
  local actions=""
  if [ "$COMP_CWORD" -eq 1 ]; then
    COMPREPLY=($(compgen -W "NAMES --help --version" -- "${COMP_WORDS[1]}"))
    return
  fi
  if [ "$COMP_CWORD" -eq 2 ]; then
    case "${COMP_WORDS[1]}" in
CASES
    esac
  fi
  if [ -n "$actions" ]; then
    COMPREPLY=($(compgen -W "$actions --help" -- "${COMP_WORDS[2]}"))
  else
    COMPREPLY=($(compgen -f -- "${COMP_WORDS[COMP_CWORD]}"))
  fi
}
complete -F _moorage moorage"""
_ZSH: Final = """\
#compdef moorage
# eval "$(moorage completion zsh)"
_moorage() {
  local actions=""
  if (( CURRENT == 2 )); then
    compadd -- NAMES --help --version
    return
  fi
  if (( CURRENT == 3 )); then
    case "${words[2]}" in
CASES
    esac
  fi
  if [ -n "$actions" ]; then
    compadd -- ${=actions} --help
  else
    _files
  fi
}
compdef _moorage moorage"""
_FISH: Final = """\
# moorage completion fish | source
complete -c moorage -n __fish_use_subcommand -f -a 'NAMES'
ACTIONS"""
_SCRIPTS: Final = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}


def add_to(parser: argparse.ArgumentParser) -> None:
    parser.description = "Print a script that lets a shell complete moorage's commands; its first line says how it is used."
    parser.add_argument("shell", choices=sorted(_SCRIPTS))
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace, environ: Mapping[str, str]) -> int:
    script = _SCRIPTS[options.shell].replace("NAMES", " ".join(COMMANDS))
    cases = (f'      {name}) actions="{" ".join(actions)}" ;;' for name, actions in ACTIONS.items())
    second = "and test (count (commandline -opc)) -eq 2"
    fish = (
        f"complete -c moorage -n '__fish_seen_subcommand_from {name}; {second}' -a '{' '.join(actions)}'"
        for name, actions in ACTIONS.items()
    )
    say(script.replace("CASES", "\n".join(cases)).replace("ACTIONS", "\n".join(fish)))
    return 0
