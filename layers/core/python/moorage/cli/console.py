"""``moorage console``: open the pages that show what runs, without pasting a key."""

import argparse
import asyncio
import sys
import time
import webbrowser
from collections.abc import Mapping
from urllib.parse import quote

from moorage.cli.audit_trail import note
from moorage.cli.output import add_json, told
from moorage.cli.target import Target, TargetError, find
from moorage.store.api_keys import READ, ApiKeys
from moorage.store.audit import AuditKind
from moorage.store.console_codes import ConsoleCodes
from moorage.terminal import say


def add_to(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Print the address of the console and open it in a browser. The address holds a code that is good for two minutes and once: "
        "the page gets a key of its own for it, which ends after twelve hours, or with the key of this deployment that it was made of."
    )
    parser.add_argument("response", nargs="?", metavar="RESPONSE", help="open it at this response")
    parser.add_argument("--read-only", action="store_true", help="for fifteen minutes, and to look only: for others than yourself")
    parser.add_argument("--no-browser", action="store_true", help="only print the address")
    add_json(parser)
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace, environ: Mapping[str, str]) -> int:
    target = find(environ)
    if not target.url:
        raise TargetError("Set MOORAGE_URL (https://.../v1): it says where the API is, and the console beside it.")
    # What knows only the address without a slash leads on from it, and browsers take along what stands behind '#'.
    address = f"{target.url.rstrip('/').removesuffix('/v1')}/console{'/' if target.is_local else ''}"
    if target.api_key and target.has_table:
        address += f"#k={_code(target, environ, reads_only=options.read_only)}"
        address += f"&run={quote(options.response, safe='')}" if options.response else ""
    elif options.read_only:
        raise TargetError("A key that only reads lies in the deployment's table: set MOORAGE_TABLE and MOORAGE_API_KEY.")
    else:
        address += f"#/runs/{quote(options.response, safe='')}" if options.response else ""
        say("It asks for a key: with MOORAGE_TABLE and MOORAGE_API_KEY set, this command brings one along.", out=sys.stderr)
    told(options, {"url": address}, address)
    if not options.no_browser and has_a_screen(environ):
        webbrowser.open(address)
    return 0


def _code(target: Target, environ: Mapping[str, str], *, reads_only: bool) -> str:
    table = target.table()
    keys = ApiKeys(table, clock=time.time)
    codes = ConsoleCodes(table, keys, time.time)
    used = asyncio.run(keys.find(target.api_key or ""))
    code = None if used is None else asyncio.run(codes.make(target.api_key or "", reads_only=reads_only))
    if used is None or code is None:
        raise TargetError("The table does not know this key (MOORAGE_API_KEY, or the local stack's): it was revoked, or is another's.")
    what = {"key_id": used.key_id, "for": "console", **({"scope": READ} if reads_only else {})}
    note(target, environ, AuditKind.KEY_USED, what, tenant_id=used.tenant_id)
    return code


def has_a_screen(environ: Mapping[str, str]) -> bool:
    """Without a desktop, the browser may be one of text, in this terminal."""
    return sys.platform in ("darwin", "win32") or bool(environ.get("DISPLAY") or environ.get("WAYLAND_DISPLAY"))
