#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs the programs of examples/ on the bundled pair and compares what they print with what the
# program itself prints. With --install, installs a build into a temporary prefix first and builds
# the examples against that copy, with pkg-config and with CMake, as another project would.
# Usage: scripts/test_examples.sh PROGRAM FOLDER | PROGRAM --install BUILD-FOLDER
set -u
program=$(realpath "$1")
mode=$2
last=$(realpath "${3:-$2}")
cd "$(dirname "$0")/.." || exit 1
root=$PWD
target=$root/models/coppice-tiny-q8_0.gguf
draft=$root/models/coppice-tiny-dflash-q8_0.gguf
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
. scripts/check.sh
show=$work/err

# plain TOKENS PROMPT: what the program continues it with, without guessing.
plain() { "$program" generate -m "$target" -p "$2" -n "$1" --speculate off 2>/dev/null; }

check_generate() {
    local prompt=$'def clamp(value, low, high):\n'
    "$1" "$target" "$draft" "$prompt" 64 >"$work/out" 2>"$work/err" || return 1
    grep -q "MB for a context of" "$work/err" && grep -q "tokens, .* a pass" "$work/err" &&
        cmp -s "$work/out" <(plain 64 "$prompt")
}

check_missing() {
    ! "$1" "$work/no-such.gguf" - x >"$work/out" 2>"$work/err" &&
        grep -q "no-such.gguf" "$work/err"
}

# The beginning is read once: an ending needs what lies after the last multiple of 32, and its own.
# A second run goes on from the file of the first, a damaged file is refused.
check_checkpoint() {
    local begin end read total file=$work/point.$RANDOM
    begin=$(head -c 600 "$root/scripts/demo-prompt.txt")
    begin="$begin"$'\n\n'"$begin"$'\n\n' # ends where a token ends, whatever follows
    "$1" "$target" "$file" "$begin" "def load(path):" "def save(path, data):" >"$work/out" 2>"$work/err" &&
        grep -q "reading the beginning" "$work/err" || return 1
    "$1" "$target" "$file" "$begin" "def load(path):" "def save(path, data):" >"$work/again" 2>"$work/err" &&
        ! grep -q "reading the beginning" "$work/err" && cmp "$work/out" "$work/again" || return 1
    printf x | dd of="$file" bs=1 seek=5000 conv=notrunc 2>/dev/null
    ! "$1" "$target" "$file" "$begin" "x" >"$work/again" 2>"$work/err" &&
        grep -q "is damaged" "$work/err" || return 1
    {
        for end in "def load(path):" "def save(path, data):"; do
            printf '%s' "$end"
            plain 24 "$begin$end"
        done
    } >"$work/want"
    cmp <(grep -v 'tokens read' "$work/out") "$work/want" || return 1
    [ "$(grep -c 'tokens read' "$work/out")" = 2 ] || return 1
    while read -r read total; do
        [ "$read" -le 48 ] && [ "$total" -ge 128 ] || return 1
    done < <(sed -n 's/^\[\([0-9]*\) tokens read, \([0-9]*\) in all\]$/\1 \2/p' "$work/out")
}

# A conversation gives what the model says to the whole text, and each turn reads only its own.
check_turns() {
    local turn=$'<|im_start|>user\n' open=$'<|im_end|>\n<|im_start|>assistant\n' first text
    printf 'Say hello.\nAnd again.\n' | "$1" "$target" "$draft" >"$work/out" || return 1
    first=$(plain 256 "${turn}Say hello.$open")
    text="${turn}Say hello.$open$first"$'<|im_end|>\n'"${turn}And again.$open"
    { printf '%s\n' "$first" && plain 256 "$text"; } >"$work/want"
    cmp <(grep -v 'tokens read\]$' "$work/out") "$work/want" || return 1
    sed -n 's/^\[\([0-9]*\) of \([0-9]*\) tokens read\]$/\1 \2/p' "$work/out" |
        awk 'NR == 1 { ok = $1 == $2 } NR == 2 { ok = ok && $1 < 20 && $2 > 20 } END { exit !ok }'
}

# check_all NAME FOLDER PREFIX: all examples of a folder.
check_all() {
    check "$1: generate" check_generate "$2/$3generate"
    check "$1: a missing file" check_missing "$2/$3generate"
    check "$1: checkpoint" check_checkpoint "$2/$3checkpoint"
    check "$1: turns" check_turns "$2/$3turns"
}

with_pkg_config() {
    local name flags
    mkdir "$work/by-hand"
    flags=$(pkg-config --cflags --libs coppice) || return 1
    for name in generate checkpoint turns; do
        # shellcheck disable=SC2086 # flags are words
        cc -std=c11 -pedantic -Wall -Wextra -Werror -o "$work/by-hand/$name" "examples/$name.c" \
            $flags -Wl,-rpath,"$(pkg-config --variable=libdir coppice)" || return 1
    done
}

with_cmake() {
    cmake -S examples -B "$work/by-cmake" -DCMAKE_PREFIX_PATH="$work/prefix" >"$work/log" &&
        cmake --build "$work/by-cmake" >>"$work/log"
}

as_cxx() {
    echo '#include <coppice_compress.h>' >"$work/header.cc" # which includes coppice.h
    c++ -std=c++11 -pedantic -Wall -Wextra -Werror -fsyntax-only \
        -I"$(pkg-config --variable=includedir coppice)" "$work/header.cc"
}

# The library shows the functions of the headers, all of them and nothing else.
exports() {
    nm -D --defined-only "$(pkg-config --variable=libdir coppice)/libcoppice.so" |
        sed -n 's/.* T \([^@]*\).*/\1/p' | sort >"$work/shown"
    grep -oh 'coppice_[a-z_]*(' include/*.h | tr -d '(' | sort -u >"$work/declared"
    cmp "$work/shown" "$work/declared" && [ -s "$work/shown" ]
}

if [ "$mode" != --install ]; then
    check_all "built here" "$last" example-
else
    check "installing" cmake --install "$last" --prefix "$work/prefix" >"$work/log"
    PKG_CONFIG_PATH=$(dirname "$(find "$work/prefix" -name coppice.pc)")
    export PKG_CONFIG_PATH
    check "pkg-config" with_pkg_config
    check "a CMake package" with_cmake
    check "the header in C++" as_cxx
    check "the library's symbols" exports
    check_all "pkg-config" "$work/by-hand" ""
    check_all "a CMake package" "$work/by-cmake" example-
fi
finish examples
