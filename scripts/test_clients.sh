#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Clients as people run them against `coppice serve` with the bundled pair (docs/clients.md), without a network: SDKs,
# agents on the command line, Open WebUI in a browser. Each comes from its registry, in the version below, into a folder under
# build/clients; what cannot be had is skipped with a sentence. Some gigabytes and minutes, so that scripts/test.sh runs it
# with --all only. Usage: scripts/test_clients.sh PROGRAM [CLIENT]... (all clients without)
# The last line is "N passed, N failed".
set -u
program=$(realpath "$1")
shift
cd "$(dirname "$0")/.." || exit 1
. scripts/node.sh
clients=build/clients
logs=build/logs
passed=0
failed=0
mkdir -p "$clients" "$logs"

# NAME REGISTRY SCRIPT PACKAGE...
table() {
    cat <<'END'
sdk-python      pypi test_sdk.py openai==3.54.0 anthropic==2.12.0 langchain-openai==1.7.3 langchain-anthropic==1.7.7
sdk-python-old  pypi test_sdk.py openai==1.109.1 anthropic==1.17.0
sdk-js          npm test_sdk_js.py openai@7.57.0 @anthropic-ai/sdk@1.12.0 ai@7.0.173 @ai-sdk/openai-compatible@3.0.92 @ai-sdk/anthropic@4.0.105 @langchain/core@1.4.0 @langchain/openai@1.6.0 @langchain/anthropic@1.5.11
sdk-js-old      npm test_sdk_js.py openai@5.23.2 @anthropic-ai/sdk@0.137.0 ai@5.0.277 @ai-sdk/openai-compatible@1.0.61 @ai-sdk/anthropic@2.0.112 zod@4.1.12
codex           npm test_codex.py @openai/codex@0.169.0
claude-code     npm test_claude_code.py @anthropic-ai/claude-code@2.1.330
opencode        npm test_opencode.py opencode-ai@1.18.33
pi              npm test_pi.py @mariozechner/pi-coding-agent@0.73.1
cline           npm test_cline.py cline@3.0.65
aider           pypi test_aider.py aider-chat==0.86.2
lm-eval         pypi test_lm_eval.py lm_eval[api]==0.4.13
open-webui      pypi test_openwebui.py open-webui==0.12.4 npm:playwright-core@1.65.1
END
}

install_python() {
    local folder=$1 log=$2
    shift 2
    python3 -m venv "$folder/venv" >"$log" 2>&1 &&
        timeout 1500 "$folder/venv/bin/pip" install -q --disable-pip-version-check "$@" >>"$log" 2>&1
}

# install NAME REGISTRY PACKAGE...: into its folder, unless the same packages are there.
install() {
    local name=$1 registry=$2 folder=$clients/$1 log=$logs/clients-$1-install.log last
    shift 2
    last=${*: -1}
    [ "$(cat "$folder/installed" 2>/dev/null)" = "$*" ] && return
    rm -rf "$folder" && mkdir -p "$folder"
    if [ "$registry" = npm ]; then
        echo '{"private": true, "type": "module"}' >"$folder/package.json"
        command -v npm >/dev/null && (cd "$folder" &&
            timeout 600 npm install --no-audit --no-fund --ignore-scripts "$@") >"$log" 2>&1
    elif [ "${last#npm:}" != "$last" ]; then # packages of both registries
        install "$name" npm "${last#npm:}" && install_python "$folder" "$log" "${@:1:$#-1}"
    else
        install_python "$folder" "$log" "$@"
    fi || return
    echo "$*" >"$folder/installed"
}

# trial NAME SCRIPT: its checks are counted; those that failed are shown.
trial() {
    local name=$1 start=$SECONDS log=$logs/clients-$1.log python=python3 counts good bad rc
    [ ! -x "$clients/$name/venv/bin/python" ] || python=$clients/$name/venv/bin/python
    timeout 3600 "$python" "tests/clients/$2" "$program" "$clients/$name" >"$log" 2>&1
    rc=$?
    counts=$(tail -n 1 "$log" | sed -n 's/^\([0-9]*\) passed, \([0-9]*\) failed$/\1 \2/p')
    read -r good bad <<<"${counts:-0 1}"
    [ "$rc" = 0 ] || [ "$bad" != 0 ] || bad=1
    passed=$((passed + good))
    failed=$((failed + bad))
    printf '%-8s %s: %d checks (%d s)\n' "$([ "$bad" = 0 ] && echo ok || echo FAILED)" "$name" \
        $((good + bad)) $((SECONDS - start))
    grep -E '^(note|skipped)' "$log" | sort -u
    [ "$bad" = 0 ] && return
    awk '/^FAILED/ { shown = 1 } /^ok / { shown = 0 } shown' "$log" | cut -c 1-2000 | head -n 80
    [ -n "$counts" ] || tail -n 20 "$log"
}

node_from 22 || echo "note     Node $(node --version 2>/dev/null) is older than 22, and a newer one cannot be had"
while read -r name registry script packages; do
    [ $# = 0 ] || [[ " $* " = *" $name "* ]] || continue
    # shellcheck disable=SC2086 # a list of packages
    if install "$name" "$registry" $packages; then
        trial "$name" "$script" </dev/null
    else
        echo "skipped  $name: $packages cannot be installed: $(grep -v WARN "$logs/clients-$name-install.log" | tail -n 1 | cut -c 1-200)"
    fi
done < <(table)
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
