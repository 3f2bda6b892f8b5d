"""A process that has imported what steps need, and does nothing but fork: each process of a step begins as its copy.

Starting an interpreter and importing the steps takes the better part of a second, and 50 MiB that no two processes share. A fork takes
milliseconds, and shares what it does not change. It keeps to what makes forking safe: one thread, no connection, nothing that was drawn
at random or read from the environment; a copy gets its own environment before it runs anything.

``python -m moorage.local.aws.nursery FD`` is asked over a socket, one request at a time (``forks.py``): a file in memory with the
arguments, the folder and the environment of a Python program, and its three standard streams. It answers with the process id. Copies
are forked twice, so that they are children of whoever has asked, who must be a reaper of orphans (prctl(2), PR_SET_CHILD_SUBREAPER).
It ends with its socket.
"""

import ctypes
import gc
import importlib.util
import json
import os
import runpy
import socket
import sys
import traceback
from pathlib import Path
from typing import Any, Final

TITLE: Final = "-" * 512
"""An argument that does nothing, and leaves room for a copy to say what it is."""
DESCRIPTORS: Final = 4
_STEPS: Final = "steps"
_ARGUMENTS_START, _ARGUMENTS_END = 45, 46
"""proc(5), counted from the third field."""


def main() -> None:
    asked = socket.socket(fileno=int(sys.argv[1]))
    prepare()
    serve(asked)


def prepare() -> None:
    """Import what the first step would otherwise. Clients of AWS are made once and thrown away: what they are described by stays."""
    from moorage.local.places import ROOT

    gc.disable()
    spec = importlib.util.spec_from_file_location(_STEPS, ROOT / "functions" / "steps" / "handler.py")
    assert spec is not None
    assert spec.loader is not None
    steps = sys.modules[_STEPS] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(steps)
    import anyio._backends._asyncio  # noqa: F401  (by anyio, for httpcore's first connection)
    import boto3
    import httpcore  # noqa: F401  (by httpx, when it first needs it)

    for service in ("dynamodb", "s3", "stepfunctions", "kms"):
        nobody = {"region_name": "us-east-1", "aws_access_key_id": "none", "aws_secret_access_key": "none"}
        boto3.client(service, **nobody).close()  # type: ignore[call-overload]
    gc.collect()
    gc.freeze()


def serve(asked: socket.socket) -> None:
    """Until whoever asks is gone."""
    while True:
        message, descriptors, _, _ = socket.recv_fds(asked, 1, DESCRIPTORS)
        if not message:
            return
        asked.sendall(b"%d\n" % _fork(asked, descriptors))


def _fork(asked: socket.socket, descriptors: list[int]) -> int:
    reading, writing = os.pipe()
    between = os.fork()
    if between == 0:
        pid = os.fork()
        if pid == 0:
            for descriptor in (asked.fileno(), reading, writing):
                os.close(descriptor)
            _become(descriptors)
        os.write(writing, b"%d" % pid)
        os._exit(0)
    for descriptor in (*descriptors, writing):
        os.close(descriptor)
    os.waitpid(between, 0)
    with os.fdopen(reading, "rb") as told:
        return int(told.read())


def _become(descriptors: list[int]) -> None:
    """Run the program; never returns."""
    code = 1
    try:
        request, *streams = descriptors
        for number, descriptor in enumerate(streams):
            os.dup2(descriptor, number)
            os.close(descriptor)
        with os.fdopen(request, "rb") as file:
            file.seek(0)
            wanted: dict[str, Any] = json.load(file)
        os.environ.clear()
        os.environ.update(wanted["environment"])
        os.chdir(wanted["folder"])
        _entitle(wanted["arguments"])
        sys.argv = wanted["arguments"][1:]
        gc.enable()
        runpy.run_path(sys.argv[0], run_name="__main__")
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _entitle(arguments: list[str]) -> None:
    """Be listed as what it runs: the kernel shows what lies in a process's memory where its arguments were."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    start, end = int(fields[_ARGUMENTS_START]), int(fields[_ARGUMENTS_END])
    said = "\0".join(arguments).encode()[: end - start - 1]
    ctypes.memmove(start, said.ljust(end - start, b"\0"), end - start)


if __name__ == "__main__":
    main()
