#!/bin/sh
# Install the system packages that are missing, where this user may; otherwise print the exact command.
# Each argument is package:program, for example bubblewrap:bwrap.
set -eu
missing=""
for pair in "$@"; do
    command -v "${pair#*:}" >/dev/null 2>&1 || missing="$missing ${pair%%:*}"
done
[ -n "$missing" ] || exit 0

if command -v apt-get >/dev/null 2>&1; then
    install="apt-get install -y$missing"
    if [ "$(id -u)" = 0 ]; then
        echo "Installing$missing ..."
        { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq $missing; } >/dev/null 2>&1 && exit 0
    fi
elif command -v dnf >/dev/null 2>&1; then
    install="dnf install -y$missing"
elif command -v pacman >/dev/null 2>&1; then
    install="pacman -S --noconfirm$missing"
elif command -v apk >/dev/null 2>&1; then
    install="apk add$missing"
else
    install="the package manager of this system to install:$missing"
fi
echo "moorage needs$missing. Please run:  sudo $install" >&2
exit 1
