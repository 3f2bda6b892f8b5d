"""``moorage completion``: a script that lets a shell complete commands."""

import argparse
from collections.abc import Mapping
from typing import Final

from moorage.cli.main import COMMANDS
from moorage.terminal import say

_BASH: Final = """\
# eval "$(moorage completion bash)"
_moorage() {
  if [ "$COMP_CWORD" -eq 1 ]; then
    COMPREPLY=($(compgen -W "NAMES --help --version" -- "${COMP_WORDS[1]}"))
  else
    COMPREPLY=($(compgen -f -- "${COMP_WORDS[COMP_CWORD]}"))
  fi
}
complete -F _moorage moorage"""
_ZSH: Final = """\
#compdef moorage
# eval "$(moorage completion zsh)"
_moorage() {
  if (( CURRENT == 2 )); then
    compadd -- NAMES --help --version
  else
    _files
  fi
}
compdef _moorage moorage"""
_FISH: Final = """\
# moorage completion fish | source
complete -c moorage -n __fish_use_subcommand -f -a 'NAMES'"""
_SCRIPTS: Final = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}


def add_to(parser: argparse.ArgumentParser) -> None:
    parser.description = "Print a script that lets a shell complete moorage's commands; its first line says how it is used."
    parser.add_argument("shell", choices=sorted(_SCRIPTS))
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace, environ: Mapping[str, str]) -> int:
    say(_SCRIPTS[options.shell].replace("NAMES", " ".join(COMMANDS)))
    return 0
