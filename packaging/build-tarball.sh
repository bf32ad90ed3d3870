#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes coppice-VERSION-linux-MACHINE.tar.gz of a build: the program with all libraries in it, the
# bundled models, manual page and completions. It runs on any Linux of that machine, whatever C
# library that has. The same build gives the same bytes. Prints the path.
# Usage: packaging/build-tarball.sh [BUILD-FOLDER [OUT-FOLDER]]   (build/release, build)
set -eu
cd "$(dirname "$0")/.."
build=$(realpath "${1:-build/release}")
out=$(realpath "${2:-build}")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cmake --build "$build" --target coppice-static >"$work/log" 2>&1 || {
    cat "$work/log" >&2
    echo "build-tarball: there is no static program; 'cmake' says which library lacks its .a file" >&2
    exit 1
}
DESTDIR=$work/all cmake --install "$build" --prefix / >"$work/log"
program=$build/static/coppice
version=$("$program" --version | sed -n 's/^coppice //p')
name=coppice-$version-linux-$(uname -m)
mkdir -p "$work/$name/bin"
cp -r "$work/all/share" "$work/$name/share"
strip -o "$work/$name/bin/coppice" "$program"
chmod 755 "$work/$name/bin/coppice"
cp LICENSE "$work/$name/"
cat >"$work/$name/README" <<TEXT
$("$program" --version)

bin/coppice runs where it is unpacked and needs nothing of the system: not its C library, nor any
other. Of the CPU levels above it takes what the processor has. Copy bin and share to /usr/local to
install it.

    bin/coppice chat -m MODEL.gguf
    bin/coppice serve -m MODEL.gguf
    bin/coppice help

Not in this form: GPUs, and what needs libcurl, which is pull and serve --upstream. They are in the
packages and in what is built from source.

In it are, linked statically, the GNU C library (LGPL-2.1-or-later; its source is that of the
system's package, and the rest can be linked anew with the target coppice-static of this project),
PCRE2, json-c, libevent, utf8proc, libedit, libbsd, libmd and ncurses (BSD and MIT licences). The
page that the server shows names the licences of what is in it.
TEXT
tar -C "$work" --sort=name --owner=0 --group=0 --numeric-owner --mtime=@0 --mode=u+w,go-w,a+rX \
    -cf - "$name" | gzip -n9 >"$out/$name.tar.gz"
echo "$out/$name.tar.gz"
