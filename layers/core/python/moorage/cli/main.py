"""``moorage``: the operator's command line. One module for each group of commands; they share ``Target``, which finds the deployment.

Exit codes: 0 done, 1 refused or failed (a sentence on stderr says why), 2 wrong usage, 130 interrupted.
"""

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Final

import httpx
from botocore.exceptions import BotoCoreError, ClientError

from moorage.cli import backup, containers, demo, doctor, keys, models, secrets, service, skills, tail, up
from moorage.cli.target import TargetError, refused, unreachable
from moorage.errors import MoorageError
from moorage.settings import SettingsError, environment

_WHERE: Final = """\
The commands speak to the local stack whose .moorage/ lies in this folder or one above it, or to the deployment that these name:
  MOORAGE_URL, MOORAGE_API_KEY  the API's address (it ends with /v1) and a key: models, containers, skills, tail,
                                doctor
  MOORAGE_TABLE                 its table, with AWS credentials and AWS_REGION: keys, secrets, doctor
  MOORAGE_EGRESS_KEY            the key that seals secrets: secrets
'make deploy' ends with their values. Exit codes: 0 done, 1 refused or failed, 2 wrong usage.
"""
_GROUPS: Final = (up, demo, keys, secrets, models, containers, skills, tail, doctor, backup, service)


def main(arguments: Sequence[str] | None = None, environ: Mapping[str, str] | None = None) -> int:
    """Run one command; the answer is the exit code."""
    parser = argparse.ArgumentParser(
        prog="moorage",
        description="A self-hosted Responses API with a computer.",
        epilog=_WHERE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for group in _GROUPS:
        group.add_to(commands)
    options = parser.parse_args(arguments)
    try:
        code = int(options.run(options, environment() if environ is None else environ))
        sys.stdout.flush()
        return code
    except (TargetError, SettingsError, MoorageError) as error:
        return _fail(str(error))
    except httpx.TransportError as error:
        return _fail(unreachable(error))
    except (ClientError, BotoCoreError) as error:
        return _fail(refused(error))
    except BrokenPipeError:
        # Whoever read it ('| head') has enough. What is still to be written must not fail again at the end of the process.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        return 130


def _fail(message: str) -> int:
    print(f"moorage: {message}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
