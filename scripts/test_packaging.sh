#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What is installed works where it lies: the program finds the bundled pair in its data folder,
# serves, notifies a service manager when it is ready, and ends by SIGTERM with status 0; everything
# lies where the file system standard has it; systemd accepts the unit; the portable program runs
# in a root that has nothing else; the CPU image builds where a docker daemon and the base image can
# be reached.
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
libraries=$(sed -n 's/^CMAKE_INSTALL_LIBDIR:[A-Z]*=//p' "$build/CMakeCache.txt")
for path in bin/coppice include/coppice.h "$libraries/libcoppice.so.0" "$libraries/pkgconfig/coppice.pc" \
    "$libraries/cmake/coppice/coppice-config.cmake" lib/systemd/system/coppice.service \
    share/coppice/models/coppice-tiny-q8_0.gguf share/bash-completion/completions/coppice \
    share/zsh/site-functions/_coppice share/fish/vendor_completions.d/coppice.fish; do
    check "installed: $path" [ -s "$work/root/usr/$path" ]
done
command -v scdoc >/dev/null && check "installed: the manual page" [ -s "$work/root/usr/share/man/man1/coppice.1" ]
check "nothing is installed elsewhere" [ "$(ls "$work/root") $(ls "$work/root/usr" | tr '\n' ' ')" = "usr bin include lib share " ]
# The unit names the program of its prefix.
DESTDIR=$work/opt cmake --install "$build" --prefix /opt/coppice >"$work/install.log" 2>&1
check "the unit's program" grep -q '^ExecStart=/opt/coppice/bin/coppice serve' "$work/opt/opt/coppice/lib/systemd/system/coppice.service"

# A draft that fits is found in the data folder next to the program, wherever that lies.
drafts=$work/root/usr/share/coppice/models/drafts
mkdir "$work/alone"
cp models/coppice-tiny-q8_0.gguf "$work/alone/"
cp models/coppice-tiny-dflash-q8_0.gguf "$drafts/"
check "a draft that comes with the program" grep -qF "$drafts/coppice-tiny-dflash-q8_0.gguf, which comes with" \
    <(echo Hello | "$program" chat -m "$work/alone/coppice-tiny-q8_0.gguf" -n 4 2>&1 | sed 's|/bin/\.\.||')
# A damaged one is named, and the program works without it.
head -c 1000000 models/coppice-tiny-dflash-q8_0.gguf >"$drafts/coppice-tiny-dflash-q8_0.gguf"
check "a damaged draft that comes with the program" grep -qF "a draft that comes with this program is not used" \
    <(echo Hello | "$program" chat -m "$work/alone/coppice-tiny-q8_0.gguf" -n 4 2>&1 || echo failed)
rm "$drafts/coppice-tiny-dflash-q8_0.gguf"

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
        sed "s|/usr/bin/coppice|$program|; /^Documentation=/d" "$work/root/usr/lib/systemd/system/coppice.service" \
            >"$work/coppice.service"
        systemd-analyze verify "$work/coppice.service" >"$work/unit.log" 2>&1 && [ ! -s "$work/unit.log" ]
    }
    check "the unit" unit
    [ ! -s "$work/unit.log" ] || cat "$work/unit.log"
else
    echo "skipped  the unit: no systemd-analyze"
fi

# The portable program where there is nothing but itself and a model: no library, no /proc, no /dev.
portable() {
    local archive
    archive=$(packaging/build-tarball.sh "$build" "$work") || return 1
    mkdir -p "$work/bare" "$work/again"
    tar -C "$work/bare" -xzf "$archive"
    mv "$work/bare"/coppice-* "$work/bare/coppice"
    packaging/build-tarball.sh "$build" "$work/again" >/dev/null
    cmp "$archive" "$work/again/$(basename "$archive")"
}
bare=(timeout 120 chroot "$work/bare" /coppice/bin/coppice)
[ "$(id -u)" = 0 ] || bare=(timeout 120 unshare -r chroot "$work/bare" /coppice/bin/coppice)
bare_model=/coppice/share/coppice/models/coppice-tiny-q8_0.gguf
bare_serve() {
    local i
    "${bare[@]}" serve -m $bare_model --host localhost --port 0 --unix /socket 2>"$work/log" &
    server=$!
    for i in $(seq 600); do ! grep -q listening "$work/log" || break; sleep 0.05; done
    curl -s --max-time 30 --unix-socket "$work/bare/socket" http://localhost/v1/completions \
        -d '{"prompt":"def add(a, b):","max_tokens":4,"temperature":0}' | grep -q '"finish_reason":"length"' || return 1
    kill -TERM "$server" # timeout passes it on
    wait "$server"
}
if ! cmake --build "$build" --target help | grep '^coppice-static' >/dev/null; then
    echo "skipped  the portable program: a static library is missing"
elif [ "$(id -u)" != 0 ] && ! unshare -r true 2>/dev/null; then
    echo "skipped  the portable program: no rights to change the root"
else
    show=$work/log
    check "the portable archive, twice the same" portable
    check "portable: CPU levels are named" grep -q '^CPU levels  scalar' "$work/bare/coppice/README"
    check "portable: --version" grep -q '^CPU levels' <("${bare[@]}" --version)
    check "portable: the same logits" [ "$("${bare[@]}" generate -m $bare_model -p 'def add(a, b):' -n 16 --logit-hash 2>&1 | grep 'logit hash')" = \
        "$("$program" generate -m models/coppice-tiny-q8_0.gguf -p 'def add(a, b):' -n 16 --logit-hash 2>&1 | grep 'logit hash')" ]
    check "portable: chat" [ -n "$(echo 'Say hello.' | "${bare[@]}" chat -m $bare_model -n 8 2>"$work/log")" ]
    check "portable: serve" bare_serve
    check "portable: pull says why not" grep -q "linked statically" <("${bare[@]}" pull a/b 2>&1)
fi

base=$(sed -n 's/^ARG BASE=//p' packaging/Containerfile)
if command -v docker >/dev/null && timeout 20 docker info >/dev/null 2>&1 &&
    { docker image inspect "$base" >/dev/null 2>&1 || timeout 120 docker pull -q "$base" >/dev/null 2>&1; }; then
    check "the image" docker build -q -f packaging/Containerfile -t coppice-test .
else
    echo "skipped  the image: no docker daemon, or no $base"
fi

finish packaging
