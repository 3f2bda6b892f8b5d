"""A MicroVM image after its snapshot: one started process, of which each machine is a fork.

    python zygote.py SANDBOX_FOLDER SHOWN_FOLDER...

So a machine begins with the memory of the process, as a clone of a snapshot does: what was random before is the same in all of them.
A line on standard input makes a machine, and is answered with its first process, whose network has a loopback interface alone. Its
file system is new but for the folders that it is shown.
"""

import ctypes
import importlib.util
import json
import os
import random
import signal
import subprocess
import sys
import uuid
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

HOOK_PORT = 9000
NEW_PLACES = 0x00020000 | 0x04000000 | 0x08000000 | 0x20000000 | 0x40000000
"""CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWIPC, CLONE_NEWPID and CLONE_NEWNET."""
PR_SET_PDEATHSIG = 1
ROOT = "/run/moorage-microvm"
FILE_SYSTEM = """
mount --make-rprivate /
mkdir -p {root}
mount -t tmpfs -o mode=755 microvm {root}
cd {root}
mkdir -p usr etc proc dev tmp run mnt/data home/user home/oai/skills var opt
for name in bin sbin lib lib32 lib64; do [ -e /$name ] && cp -dT /$name $name 2>/dev/null || true; done
mount --rbind /usr usr
mount --rbind /dev dev
mount -t proc proc proc
for name in alternatives ca-certificates fonts java ld.so.cache ld.so.conf ld.so.conf.d localtime magic mime.types php ssl terminfo; do
    [ ! -e /etc/$name ] || cp -r /etc/$name etc
done
cp -r /etc/java-* etc 2>/dev/null || true
printf 'root:x:0:0:root:/root:/bin/sh\\nuser:x:1000:1000:user:/home/user:/bin/bash\\n' > etc/passwd
printf 'root:x:0:\\nuser:x:1000:\\n' > etc/group
ln -s /mnt/data workspace
chmod 1777 tmp
chown 1000:1000 mnt/data home/user
for folder in {shown}; do mkdir -p .$folder; mount --rbind $folder .$folder; done
ip link set lo up
hostname microvm
"""


def microvm_of(folder: Path) -> Any:
    """The image's entry point, as a module."""
    spec = importlib.util.spec_from_file_location("microvm", folder / "microvm.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def die_with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def machine(entry_point: Any, shown: list[str]) -> int:
    """Fork a machine and answer its first process. The fork between holds its end."""
    reading, writing = os.pipe()
    if os.fork():
        os.close(writing)
        with os.fdopen(reading) as told:
            return int(told.readline())
    os.close(reading)
    die_with_parent()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    if ctypes.CDLL(None).unshare(NEW_PLACES) != 0:
        os._exit(1)
    first = os.fork()
    if first:
        os.write(writing, b"%d\n" % first)
        os.close(writing)
        os.waitpid(first, 0)
        os._exit(0)
    die_with_parent()
    os.close(writing)
    os.setsid()
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    subprocess.run(["sh", "-ec", FILE_SYSTEM.format(root=ROOT, shown=" ".join(shown))], check=True)
    os.chroot(ROOT)
    os.chdir("/mnt/data")
    os.environ["HOME"] = "/home/user"
    with ThreadingHTTPServer(("0.0.0.0", HOOK_PORT), entry_point.LifecycleHooks) as hooks:
        hooks.serve_forever()
    os._exit(0)


def main() -> None:
    folder, shown = Path(sys.argv[1]), sys.argv[2:]
    die_with_parent()
    entry_point = microvm_of(folder)
    # What the image has drawn before its snapshot is in each machine.
    os.environ["SNAPSHOT_WORD"] = f"{uuid.uuid4()} {random.random()}"
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # The kernel buries the forks between.
    for _ in sys.stdin:
        print(json.dumps(machine(entry_point, [str(folder), *shown])), flush=True)


if __name__ == "__main__":
    main()
