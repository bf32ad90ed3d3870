#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What is installed works where it lies: the program finds the bundled pair in its data folder,
# serves, notifies a service manager when it is ready, and ends by SIGTERM with status 0; systemd
# accepts the unit; the CPU image builds where a docker daemon and the base image can be reached.
# Usage: scripts/test_packaging.sh PROGRAM   (in its build folder)
set -u
build=$(dirname "$(realpath "$1")")
cd "$(dirname "$0")/.." || exit 2
root=$PWD
work=$(mktemp -d)
trap 'kill "$server" 2>/dev/null; rm -rf "$work"' EXIT
server=
. scripts/check.sh

DESTDIR=$work/root cmake --install "$build" --prefix /usr >"$work/install.log" 2>&1
program=$work/root/usr/bin/coppice
check "installed" [ -x "$program" ]

# Receives the datagrams of the service manager's protocol.
cat >"$work/manager.py" <<'PYTHON'
import socket, sys
s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
s.bind(sys.argv[1])
s.settimeout(60)
print("listening", flush=True)
for want in (b"READY=1", b"STOPPING=1"):
    got = s.recv(4096)
    print(got.decode(), flush=True)
    if got != want:
        sys.exit(1)
PYTHON
serve() {
    python3 "$work/manager.py" "$work/notify" >"$work/said" 2>&1 &
    local manager=$! i
    for i in $(seq 100); do [ ! -S "$work/notify" ] || break; sleep 0.05; done
    cd / || return 1
    NOTIFY_SOCKET=$work/notify "$program" serve --host none --unix "$work/socket" 2>"$work/log" &
    server=$!
    cd "$root" || return 1
    for i in $(seq 600); do ! grep -q READY "$work/said" || break; sleep 0.05; done
    curl -s --max-time 30 --unix-socket "$work/socket" http://localhost/v1/completions \
        -d '{"prompt":"def add(a, b):","max_tokens":4,"temperature":0}' >"$work/answer"
    kill -TERM "$server"
    wait "$server"
    echo $? >"$work/status"
    wait "$manager"
}
if [ -x "$program" ]; then
    check "a manager is told" serve
    check "the bundled pair of the data folder" grep -q "$work/root/usr/bin/../share/coppice/models/coppice-tiny-q8_0.gguf" "$work/log"
    check "an answer" grep -q '"finish_reason":"length"' "$work/answer"
    check "status 0" [ "$(cat "$work/status")" = 0 ]
    check "no socket is left" [ ! -e "$work/socket" ]
fi

if command -v systemd-analyze >/dev/null; then
    unit() {
        sed "s|/usr/bin/coppice|$program|; /^Documentation=/d" packaging/coppice.service >"$work/coppice.service"
        systemd-analyze verify "$work/coppice.service" >"$work/unit.log" 2>&1 && [ ! -s "$work/unit.log" ]
    }
    check "the unit" unit
    [ ! -s "$work/unit.log" ] || cat "$work/unit.log"
else
    echo "skipped  the unit: no systemd-analyze"
fi

base=$(sed -n 's/^ARG BASE=//p' packaging/Containerfile)
if command -v docker >/dev/null && timeout 20 docker info >/dev/null 2>&1 &&
    { docker image inspect "$base" >/dev/null 2>&1 || timeout 120 docker pull -q "$base" >/dev/null 2>&1; }; then
    check "the image" docker build -q -f packaging/Containerfile -t coppice-test .
else
    echo "skipped  the image: no docker daemon, or no $base"
fi

finish packaging
