#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The server suite: every part of tests/server over real HTTP, with the bundled pair. Clients come
# from PyPI and npm, pinned by tests/server/requirements.txt and package-lock.json, into folders
# under build/; a part whose clients cannot be had is skipped with a word.
# Usage: scripts/test_server.sh PROGRAM [PART]... (all parts without; tests/server/test_PART.py)
# The last line is "N passed, N failed".
set -u
program=$(realpath "$1")
shift
cd "$(dirname "$0")/.." || exit 1
passed=0
failed=0
parts=("$@")
[ $# -gt 0 ] || parts=(bench)
logs=build/logs
mkdir -p "$logs"

# run PART COMMAND...: its checks are counted; those that failed are shown.
run() {
    local name=$1 start=$SECONDS log=$logs/server-$1.log counts good bad rc
    shift
    timeout 900 "$@" >"$log" 2>&1
    rc=$?
    counts=$(tail -n 1 "$log" | sed -n 's/^\([0-9]*\) passed, \([0-9]*\) failed$/\1 \2/p')
    read -r good bad <<<"${counts:-0 1}"
    [ "$rc" = 0 ] || [ "$bad" != 0 ] || bad=1
    passed=$((passed + good))
    failed=$((failed + bad))
    printf '%-8s %s: %d checks (%d s)\n' "$([ "$bad" = 0 ] && echo ok || echo FAILED)" "$name" \
        $((good + bad)) $((SECONDS - start))
    [ "$bad" = 0 ] && return
    grep -A 20 '^FAILED' "$log" | head -n 80
    [ -n "$counts" ] || tail -n 20 "$log"
}

for part in "${parts[@]}"; do
    run "$part" python3 "tests/server/test_$part.py" "$program"
done
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
