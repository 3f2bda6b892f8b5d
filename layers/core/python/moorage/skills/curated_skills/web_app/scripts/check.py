#!/usr/bin/env python3
"""Check pages: check.py URL [URL ...] [--status 200] [--contains TEXT] [--method GET] [--data BODY]."""

import argparse
import sys
import time
import urllib.error
import urllib.request

BYTES_MAX = 10_000_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("urls", nargs="+")
    parser.add_argument("--status", type=int, default=200)
    parser.add_argument("--contains", action="append", default=[], help="text that must be there; may be repeated")
    parser.add_argument("--method", default=None)
    parser.add_argument("--data", default=None)
    parser.add_argument("--seconds", type=float, default=10.0)
    options = parser.parse_args()
    wrong = [problem for url in options.urls for problem in check(url, options)]
    if wrong:
        sys.exit("\n".join(wrong))


def check(url: str, options: argparse.Namespace) -> list[str]:
    request = urllib.request.Request(url, data=options.data.encode() if options.data is not None else None, method=options.method)
    began = time.monotonic()
    try:
        with urllib.request.urlopen(request, timeout=options.seconds) as answer:
            status, kind, body = answer.status, answer.headers.get_content_type(), answer.read(BYTES_MAX)
    except urllib.error.HTTPError as error:
        status, kind, body = error.code, error.headers.get_content_type(), error.read(BYTES_MAX)
    except OSError as error:
        return [f"{url}: no answer ({error})"]
    print(f"{url}: {status} {kind}, {len(body)} bytes in {1000 * (time.monotonic() - began):.0f} ms")
    text = body.decode(errors="replace")
    problems = [f"{url}: status {status}, expected {options.status}"] if status != options.status else []
    return problems + [f"{url}: does not contain {wanted!r}" for wanted in options.contains if wanted not in text]


if __name__ == "__main__":
    main()
