#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The Debian packages: built here (packaging/build-deb.sh), looked at by lintian, and in clean roots
# of this release of Debian and newer ones installed with their dependencies, used as a user would
# (a text, a conversation, a server, completion, a program that embeds the library) and purged, after
# which nothing is left. Roots and packages of Debian are kept in the user's cache folder. What
# cannot be had is skipped by name; 77: nothing could be done.
# Usage: scripts/test_deb.sh [FOLDER-OF-PACKAGES]   (without it they are built)
set -u
cd "$(dirname "$0")/.." || exit 2
. packaging/roots.sh
work=$(mktemp -d)
server=
trap '[ -z "$server" ] || kill "$server" 2>/dev/null; wait; roots_remove "$work"' EXIT
. scripts/check.sh
show=$work/log

release=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
case $release in
bookworm) suites="bookworm trixie" ;;
trixie)
    suites=trixie
    echo "skipped  deb in bookworm: what is built on trixie needs its C library; see build-deb.sh --root"
    ;;
*)
    echo "skipped  deb: this is neither Debian 12 nor 13"
    exit 77
    ;;
esac
unpack() {
    mkdir "$work/$1" && roots_unpack "$1" "$work/$1" >"$work/root-$1.log" 2>&1
    echo $? >"$work/root-$1.rc"
}
debs=${1:-$work/deb}
if [ $# = 0 ]; then
    if ! why=$(dpkg-checkbuilddeps packaging/debian/control 2>&1); then
        echo "skipped  deb: ${why#*error: }"
        exit 77
    fi
fi
for suite in $suites; do # beside the build, which a first debootstrap would else prolong
    ! roots_need "$suite" >/dev/null || unpack "$suite" &
done
if [ $# = 0 ]; then
    # Without what only debuggers read, which is half of the compiler's time, and half of the rest
    # without most of the optimiser.
    built() { DEB_CFLAGS_STRIP=-g DEB_BUILD_OPTIONS="noautodbgsym noopt" packaging/build-deb.sh "$debs" >"$work/log" 2>&1; }
    check "the packages are built" built
    [ -n "$(find "$debs" -name '*.deb')" ] || { finish; exit; } # the rest needs them
fi
if command -v lintian >/dev/null; then
    looked_at() { lintian --fail-on error "$debs"/*.changes >"$work/log" 2>&1; }
    check "lintian" looked_at
else
    echo "skipped  deb, lintian: it is not installed"
fi

# Files of a root, but for what apt and dpkg keep of their own work.
files() {
    (cd "$1" && find . -xdev \( -path ./var/lib/dpkg -o -path ./var/lib/apt -o -path ./var/cache -o -path ./var/log \
        -o -path ./tmp -o -path ./etc/ld.so.cache \) -prune -o -print -o -path ./var/cache/private -print | sort)
}

in_root() { roots_run "$root" HOME=/tmp timeout 120 "$@"; } # a user's folders
model=/usr/share/coppice/models/coppice-tiny-q8_0.gguf

install_packages() {
    mkdir -p "$roots_cache/$suite-packages" "$root/packages"
    cp "$debs"/*.deb "$root/packages"
    rm -f "$root"/packages/*dbgsym*
    cp "$roots_cache/$suite-packages"/*.deb "$root/var/cache/apt/archives/" 2>/dev/null
    # the kept root may know of packages that the mirror has replaced since
    roots_run "$root" sh -c 'apt="apt-get install -y --no-install-recommends"
        $apt /packages/*.deb || { apt-get update && $apt /packages/*.deb; }' >"$work/log" 2>&1 || return 1
    find "$root/var/cache/apt/archives" -name '*.deb' -exec cp -n {} "$roots_cache/$suite-packages/" \;
    rm -r "$root/packages"
}

generate() {
    in_root coppice generate -m $model -p 'def add(a, b):' -n 16 --logit-hash "$@" 2>&1 | grep 'logit hash'
}

serve() {
    HOME=/tmp timeout 120 chroot "$root" /usr/bin/coppice serve --host none --unix /tmp/socket 2>"$work/log" &
    server=$!
    local i
    for i in $(seq 1200); do
        ! grep -q listening "$work/log" && kill -0 "$server" 2>/dev/null || break
        sleep 0.05
    done
    curl -s --max-time 60 --unix-socket "$root/tmp/socket" http://localhost/v1/completions \
        -d '{"prompt":"def add(a, b):","max_tokens":4,"temperature":0}' >"$work/answer"
    curl -s --max-time 60 --unix-socket "$root/tmp/socket" http://localhost/metrics >"$work/metrics"
    kill -TERM "$server"
    wait "$server" || return 1
    server=
    grep -q '"finish_reason":"length"' "$work/answer" && grep -q '^coppice_build_info{version="0' "$work/metrics"
}

complete() {
    in_root bash -c '. /usr/share/bash-completion/completions/coppice
        COMP_LINE="coppice chat --kv-type q" COMP_POINT=24; _coppice; echo "${COMPREPLY[@]}"' 2>"$work/log" | grep -qw q8_0
}

# A program that embeds the library, compiled with what the packages brought.
consumer() {
    local flags
    flags=$(PKG_CONFIG_LIBDIR=$(dirname "$(find "$root/usr/lib" -name coppice.pc)") pkg-config --cflags --libs coppice) || return 1
    # shellcheck disable=SC2086 # flags are words
    cc -o "$root/tmp/consumer" examples/generate.c $flags -Wl,--allow-shlib-undefined 2>"$work/log" &&
        in_root /tmp/consumer $model - 'def add(a, b):' 8 >"$work/embedded" 2>"$work/log" && [ -s "$work/embedded" ]
}

purge() {
    # what an administrator and the service leave
    mkdir -p "$root/etc/coppice" "$root/var/cache/private/coppice"
    touch "$root/etc/coppice/keys" "$root/etc/coppice/options" "$root/var/cache/private/coppice/prices"
    rm -rf "$root/tmp/"*
    roots_run "$root" apt-get purge -y --autoremove coppice libcoppice0 libcoppice-dev >"$work/log" 2>&1 || return 1
    files "$root" >"$work/after"
    [ ! -e "$root/var/cache/private/coppice" ] || return 1
    diff "$work/before" "$work/after" >"$work/log"
}

wait
for suite in $suites; do
    root=$work/$suite
    if [ ! -e "$work/root-$suite.rc" ]; then
        echo "skipped  deb in $suite: $(roots_need "$suite")"
        continue
    fi
    if [ "$(cat "$work/root-$suite.rc")" != 0 ]; then
        verdict "$suite: a clean root" "debootstrap failed: $(tail -n 1 "$work/root-$suite.log")"
        continue
    fi
    files "$root" >"$work/before"
    check "$suite: apt-get install" install_packages
    check "$suite: --version" grep -q "^CPU levels  scalar" <(in_root coppice --version 2>&1)
    plain=$(generate --speculate off)
    check "$suite: a logit hash" grep -q 'logit hash [0-9a-f]\{16\}' <<<"$plain"
    check "$suite: guesses change nothing" [ "$plain" = "$(generate --speculate tree \
        -d /usr/share/coppice/models/coppice-tiny-dflash-q8_0.gguf)" ]
    check "$suite: a conversation" [ -n "$(echo 'Say hello.' | in_root coppice chat -n 8 2>"$work/log")" ]
    check "$suite: a server" serve
    check "$suite: the manual page" [ -s "$root/usr/share/man/man1/coppice.1.gz" ]
    check "$suite: completion" complete
    check "$suite: the unit" grep -q '^ExecStart=/usr/bin/coppice serve' "$root/usr/lib/systemd/system/coppice.service"
    check "$suite: a program that embeds the library" consumer
    check "$suite: purge leaves nothing" purge
    roots_remove "$root"
done
finish
