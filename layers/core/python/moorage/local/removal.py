import subprocess
from pathlib import Path


def start_removing(path: Path) -> subprocess.Popen[bytes]:
    """Remove a directory although its owner may have taken the permissions away. Another process, for there may be 100,000 files."""
    script = 'chmod -R u+rwX "$0" 2>/dev/null; exec rm -rf "$0"'
    return subprocess.Popen(["/bin/sh", "-c", script, str(path)], stdin=subprocess.DEVNULL)
