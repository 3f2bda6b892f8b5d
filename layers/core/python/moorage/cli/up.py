"""``moorage up``: the local stack in this terminal."""

import argparse
import gc
import sys
from collections.abc import Mapping
from pathlib import Path

from moorage.local.users import check_system


def add_to(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Start the local stack and keep serving: API, loop and sandboxes, all on this machine. "
        "Ctrl-C stops it; what it stored is there at the next start."
    )
    parser.add_argument("--port", type=int, help="of the API; by default MOORAGE_PORT or 8080, and 0 is any free one")
    parser.add_argument("--state-dir", type=Path, help="where its state lies; by default MOORAGE_STATE_DIR or .moorage")
    parser.add_argument("--host", help="address to serve at; by default MOORAGE_HOST or 127.0.0.1, and any other needs TLS")
    parser.add_argument("--tls-cert", type=Path, help="certificate chain (PEM); by default MOORAGE_TLS_CERT")
    parser.add_argument("--tls-key", type=Path, help="its private key (PEM); by default MOORAGE_TLS_KEY")
    parser.add_argument("--metrics-port", type=int, help="serve /metrics here, for this machine alone; by default MOORAGE_METRICS_PORT")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace, environ: Mapping[str, str], platform: str = sys.platform) -> int:
    """Becomes the stack: signals, output and exit code are its own."""
    check_system(platform)
    names = ("port", "state_dir", "host", "tls_cert", "tls_key", "metrics_port")
    chosen = {f"MOORAGE_{name.upper()}": str(value) for name in names if (value := getattr(options, name)) is not None}
    gc.disable()  # as in moorage/local/stack.py
    from moorage.local.stack import main

    return main(chosen)
