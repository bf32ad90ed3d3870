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
. scripts/node.sh
passed=0
failed=0
parts=("$@")
[ $# -gt 0 ] || parts=(bench perplexity kv niah start input exact verify lending structured cache drain log attacks load relay pull daemon life fields openai responses anthropic js schema)
logs=build/logs
venv=build/server-venv
node=build/server-node
mkdir -p "$logs"

# run PART COMMAND...: its checks are counted; those that failed are shown.
run() {
    local name=$1 start=$SECONDS log=$logs/server-$1.log counts good bad rc
    shift
    timeout 1200 "$@" >"$log" 2>&1
    rc=$?
    counts=$(tail -n 1 "$log" | sed -n 's/^\([0-9]*\) passed, \([0-9]*\) failed$/\1 \2/p')
    read -r good bad <<<"${counts:-0 1}"
    [ "$rc" = 0 ] || [ "$bad" != 0 ] || bad=1
    passed=$((passed + good))
    failed=$((failed + bad))
    printf '%-8s %s: %d checks (%d s)\n' "$([ "$bad" = 0 ] && echo ok || echo FAILED)" "$name" \
        $((good + bad)) $((SECONDS - start))
    [ "$bad" = 0 ] && return
    awk '/^FAILED/ { shown = 1 } /^ok / { shown = 0 } shown' "$log" | cut -c 1-2000 | head -n 80
    [ -n "$counts" ] || tail -n 20 "$log"
}

# The pinned packages of PyPI; once they are there no network is needed.
python_clients() {
    local wanted=tests/server/requirements.txt
    cmp -s "$wanted" "$venv/requirements.txt" && return
    rm -rf "$venv"
    python3 -m venv "$venv" >"$logs/server-pip.log" 2>&1 &&
        timeout 900 "$venv/bin/pip" install -q --disable-pip-version-check -r "$wanted" \
            >>"$logs/server-pip.log" 2>&1 && cp "$wanted" "$venv/requirements.txt"
}

node_clients() {
    local wanted=tests/server/package-lock.json
    node_from 20 && mkdir -p "$node" || return
    cp tests/server/*.mjs "$node"
    cmp -s "$wanted" "$node/installed" && return
    cp tests/server/package.json "$wanted" "$node"
    (cd "$node" && timeout 900 npm ci --no-audit --no-fund) >"$logs/server-npm.log" 2>&1 &&
        cp "$wanted" "$node/installed"
}

for part in "${parts[@]}"; do
    script=tests/server/test_$part.py
    case $part in
    openai | responses | anthropic | schema | fields)
        if python_clients; then
            run "$part" "$venv/bin/python" "$script" "$program"
        else
            echo "skipped  $part: no pip, or no network; see $logs/server-pip.log"
        fi
        ;;
    js)
        if node_clients; then
            run "$part" python3 "$script" "$program" "$node"
        else
            echo "skipped  $part: no Node 20 or later with npm, or no network; see $logs/server-npm.log and $logs/node.log"
        fi
        ;;
    pull) # with the package huggingface_hub also both ways between it and this program
        if python_clients; then run "$part" "$venv/bin/python" "$script" "$program"; else run "$part" python3 "$script" "$program"; fi
        ;;
    lending) run "$part" python3 "$script" "$program" cpu ;; # which lends nothing: its requests alone
    *) run "$part" python3 "$script" "$program" ;;
    esac
done
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
