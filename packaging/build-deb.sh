#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds the Debian packages of this tree and prints their paths.
# Usage: packaging/build-deb.sh [--cuda] [--root SUITE] [OUT-FOLDER]   (build/deb)
# They install on the release that they are built on and on newer ones. --root builds in a clean root
# of a release (bookworm, trixie), which needs debootstrap, root rights and a mirror of Debian; it is
# kept in ${XDG_CACHE_HOME:-~/.cache}/coppice-tests. --cuda makes coppice-cuda in place of the others,
# with the nvcc of this machine; COPPICE_CUDA_ARCHITECTURES ("86;90a") names GPUs, without it all.
set -eu
cd "$(dirname "$0")/.."
. packaging/roots.sh
suite=
profiles=
while [ $# -gt 0 ]; do
    case $1 in
    --cuda) profiles=pkg.coppice.cuda ;;
    --root)
        suite=${2:?--root needs the name of a release, as in --root bookworm}
        shift
        ;;
    -*)
        echo "build-deb: unknown option '$1'; $(sed -n 's/^# Usage: /usage: /p' "$0")" >&2
        exit 2
        ;;
    *) break ;;
    esac
    shift
done
if [ -n "$suite" ] && [ -n "$profiles" ]; then
    echo "build-deb: --cuda takes the nvcc of this machine, which a root does not have" >&2
    exit 2
fi
if [ -z "$suite" ] && ! why=$(dpkg-checkbuilddeps packaging/debian/control 2>&1); then
    echo "build-deb: ${why#*error: }; scripts/setup.sh package installs them" >&2
    exit 1
fi
mkdir -p "${1:-build/deb}"
out=$(realpath "${1:-build/deb}")
work=$(mktemp -d)
trap 'roots_remove "$work"' EXIT

COPPICE_COMMIT=${COPPICE_COMMIT:-$(git describe --always --dirty --abbrev=12 '--exclude=*' 2>/dev/null || true)}
version=$(sed -n '1s/.*(\(.*\)).*/\1/p' packaging/debian/changelog)
needs=$(sed -n '/^Build-Depends:/,/^[^ B]/p' packaging/debian/control | grep -o '[a-z][a-z0-9.-]*\( (= 13)\)\?\( | [a-z-]*\)\?,\?$' |
    sed 's/ |.*//; s/ (.*//; s/,//; s/debhelper-compat/debhelper/')

# The tree without its history and builds, with debian/ where the tools look for it.
into=$work
if [ -n "$suite" ]; then
    into=$work/root
    if ! why=$(roots_need "$suite" build); then
        echo "build-deb: there is no root of $suite: $why" >&2
        exit 1
    fi
    mkdir "$into"
    # shellcheck disable=SC2086 # words
    roots_unpack "$suite" "$into" build build-essential $needs >"$work/log" 2>&1 ||
        { tail -n 20 "$work/log" >&2; exit 1; }
fi
source=$into/coppice-$version
mkdir "$source"
tar --exclude=./build --exclude=./.git --exclude=./.venv --exclude=node_modules -cf - . | tar -C "$source" --no-same-owner -xf -
cp -rL packaging/debian "$source/debian"

settings=(COPPICE_COMMIT="$COPPICE_COMMIT" DEB_BUILD_PROFILES="$profiles" DEB_BUILD_OPTIONS="${DEB_BUILD_OPTIONS:-}"
    COPPICE_CUDA_ARCHITECTURES="${COPPICE_CUDA_ARCHITECTURES:-}")
make='cd "$0" && exec dpkg-buildpackage -us -uc -b'
run=(env "${settings[@]}" sh -c "$make" "$source")
[ -z "$suite" ] || run=(roots_run "$into" "${settings[@]}" sh -c "$make" "/coppice-$version")
if ! "${run[@]}" >"$work/log" 2>&1; then
    tail -n 40 "$work/log" >&2
    echo "build-deb: the packages were not made; the reason is above" >&2
    exit 1
fi
find "$into" -maxdepth 1 \( -name '*.deb' -o -name 'coppice_*.changes' -o -name 'coppice_*.buildinfo' \) |
    while read -r file; do
        mv "$file" "$out/"
        echo "$out/$(basename "$file")"
    done
