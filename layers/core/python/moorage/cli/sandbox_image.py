"""``moorage sandbox-image``: the images that a container engine starts sandboxes and their browsers from
(``MOORAGE_PROVISIONER=docker``)."""

import argparse
import asyncio
import io
import sys
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from moorage.cli.actions import CommandActions
from moorage.cli.output import told
from moorage.local.resource_paths import ROOT
from moorage.sandbox.docker_engine import Engine, engine_socket
from moorage.terminal import say

_CONTEXT: Final = ROOT / "functions" / "sandbox"


def add_to(parser: argparse.ArgumentParser) -> None:
    parser.description = "The image that a container engine starts sandboxes from (MOORAGE_PROVISIONER=docker)."
    actions = CommandActions(parser)
    build = actions.add("build", _build, "build it on the engine of DOCKER_HOST, or of the usual sockets; 10 minutes, 1 to 3 GB")
    build.add_argument("--tag", help="its name; by default MOORAGE_DOCKER_IMAGE or moorage-sandbox")
    build.add_argument(
        "--desk", action="store_true", help="of browsers for computers instead: MOORAGE_DOCKER_DESK_IMAGE or moorage-desk"
    )
    build.add_argument("--runtimes", choices=("slim", "full"), default="full", help="full has Java, Go, PHP and Ruby too")
    build.add_argument("--base-image", help="a Debian with Python in /usr/local/bin; by default python:3.11-slim-bookworm")


def _build(options: argparse.Namespace, environ: Mapping[str, str]) -> int:
    """The engine's output goes to standard error."""
    base = {"BASE_IMAGE": options.base_image} if options.base_image else {}
    engine = Engine(engine_socket(environ))
    if options.desk:
        tag = options.tag or environ.get("MOORAGE_DOCKER_DESK_IMAGE") or "moorage-desk"
        asyncio.run(_ask(engine, tag, base, "Dockerfile.desk"))
        return told(options, {"image": tag}, f"Built {tag}. Sandboxes have a browser beside them after the next start.")
    tag = options.tag or environ.get("MOORAGE_DOCKER_IMAGE") or "moorage-sandbox"
    asyncio.run(_ask(engine, tag, {"RUNTIMES": options.runtimes, **base}, "Dockerfile"))
    return told(options, {"image": tag}, f"Built {tag}. MOORAGE_PROVISIONER=docker moorage up starts sandboxes from it.")


async def _ask(engine: Engine, tag: str, arguments: Mapping[str, str], dockerfile: str) -> None:
    async with engine:
        async for line in engine.build(packed(_CONTEXT), tag, arguments, dockerfile):
            say(line, out=sys.stderr)


def packed(folder: Path) -> bytes:
    """A folder as a tar, as an engine takes a build's context: the same bytes for the same files, so that its cache is of use."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for path in sorted(folder.rglob("*")):
            if "__pycache__" not in path.parts:
                archive.add(path, str(path.relative_to(folder)), recursive=False, filter=_same_for_all)
    return out.getvalue()


def _same_for_all(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    member.mtime = 0
    return member
