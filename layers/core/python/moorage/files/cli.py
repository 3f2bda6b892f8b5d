"""``moorage files``: put files into the deployment, and get them out."""

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from moorage.cli.actions import CommandActions
from moorage.cli.output import moment, say_json
from moorage.cli.pages import list_action
from moorage.cli.target import answer_of, find
from moorage.cli.transfer import download, upload
from moorage.terminal import say

_list: Final = list_action(
    "/files",
    ("FILE", "BYTES", "CREATED", "PURPOSE", "NAME"),
    lambda one: (one["id"], str(one["bytes"]), moment(one["created_at"]), one["purpose"], one["filename"]),
)


def add_to(parser: argparse.ArgumentParser) -> None:
    parser.description = "The files of the key's tenant."
    actions = CommandActions(parser, default=_list)
    actions.add("list", _list, "all files, newest first (without ACTION too)")
    put = actions.add("put", _put, "upload files; their ids are printed")
    put.add_argument("paths", metavar="FILE", type=Path, nargs="+")
    put.add_argument("--purpose", default="user_data", help="by default user_data")
    get = actions.add("get", _get, "download a file")
    get.add_argument("file_id", metavar="FILE_ID", help="file-... from the list")
    get.add_argument("to", metavar="PATH", type=Path, nargs="?", help="a file or a folder; by default the file's own name, here")


def _put(options: argparse.Namespace, environ: Mapping[str, str]) -> int:
    with find(environ).http() as http:
        for path in options.paths:
            made = upload(http, path, options.purpose)
            if options.json:
                say_json(made)
            else:
                say(made["id"])
    return 0


def _get(options: argparse.Namespace, environ: Mapping[str, str]) -> int:
    with find(environ).http() as http:
        file = answer_of(http.get(f"/files/{options.file_id}"))
        written = download(http, f"/files/{options.file_id}/content", options.to or Path(), file["filename"])
    if options.json:
        say_json({"id": file["id"], "path": str(written), "bytes": file["bytes"]})
    else:
        say(f"{written}  {file['bytes']} bytes")
    return 0
