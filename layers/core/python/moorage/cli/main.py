"""``moorage``: the operator's command line. One module for each group of commands; they share ``Target``, which finds the deployment.

Every command works alike against a local stack (found by its ``.moorage/``), LocalStack and AWS (found by environment variables).
Exit codes: 0 done, 1 refused or failed (a sentence on stderr says why), 2 wrong usage.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence

import httpx
from botocore.exceptions import BotoCoreError, ClientError

from moorage.cli import containers, doctor, keys, models, tail, up
from moorage.cli.target import TargetError
from moorage.errors import MoorageError
from moorage.settings import SettingsError, environment

_GROUPS = (up, keys, models, containers, tail, doctor)


def main(arguments: Sequence[str] | None = None, environ: Mapping[str, str] | None = None) -> int:
    """Run one command; the answer is the exit code."""
    parser = argparse.ArgumentParser(prog="moorage", description="A self-hosted Responses API with a computer.")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for group in _GROUPS:
        group.add_to(commands)
    options = parser.parse_args(arguments)
    try:
        return int(options.run(options, environment() if environ is None else environ))
    except (TargetError, SettingsError, MoorageError) as error:
        return _fail(str(error))
    except httpx.TransportError as error:
        return _fail(f"The deployment cannot be reached: {error}.")
    except (ClientError, BotoCoreError) as error:
        return _fail(f"AWS refused: {error}")
    except KeyboardInterrupt:
        return 130


def _fail(message: str) -> int:
    print(f"moorage: {message}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
