#!/bin/sh
# Pin every environment anew, with hashes and without naming a registry.
# dev comes first: the smaller sets are cut from it, so that one version of each package serves everywhere.
set -eu
cd "$(dirname "$0")/.."
compile() {
    uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-emit-find-links \
        --custom-compile-command requirements/lock.sh "$@"
}
compile requirements/dev.in -o requirements/dev.txt
for name in runtime local; do compile -c requirements/dev.txt "requirements/$name.in" -o "requirements/$name.txt"; done
for name in uv egress toolbox template docs release; do compile "requirements/$name.in" -o "requirements/$name.txt"; done
for folder in clients conformance fuzz; do compile "tests/$folder/requirements.in" -o "tests/$folder/requirements.txt"; done
for name in frameworks agents aider; do compile "tests/clients/$name.in" -o "tests/clients/$name.txt"; done
compile tests/fuzz/atheris.in -o tests/fuzz/atheris.txt
for name in servers agents_tests; do compile "tests/conformance/$name.in" -o "tests/conformance/$name.txt"; done
compile tests/judges/files.in -o tests/judges/files.txt
compile console/node.in -o console/node.txt
compile functions/sandbox/node.in -o functions/sandbox/node.txt
# LocalStack's newest version without a token starts with what was published when it was, and on Python 3.13 alone.
uv pip compile -q --python-version 3.13 --exclude-newer 2026-04-01 --generate-hashes --no-emit-index-url --no-emit-find-links \
    --custom-compile-command requirements/lock.sh requirements/localstack.in -o requirements/localstack.txt
# The sandbox's image is built from its own folder.
cp requirements/toolbox.txt functions/sandbox/toolbox.txt
