#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Measures a pair of the 27B shape on a GPU: random weights, real sizes, guesses of the oracle.
# Usage: bench/gpu.sh PROGRAM [FOLDER] [PART]...
# FOLDER takes the two files (18.4 GB; without it the first of /dev/shm and /tmp with room).
# Parts, all by default: exact (0.5K and 20K tokens of context, every mode, logit hashes), memory
# (32K tokens of F16 KV under --vram-limit 24G), profile (one step of budget 22).
set -u
program=${1:?usage: bench/gpu.sh PROGRAM [FOLDER] [PART]...}
shift
folder=
if [ $# -gt 0 ] && [ -d "$1" ]; then
    folder=$1
    shift
fi
for place in /dev/shm /tmp; do
    [ -z "$folder" ] && [ "$(df -k --output=avail "$place" | tail -n 1)" -gt 20000000 ] &&
        folder=$place
done
[ -n "$folder" ] || { echo "gpu.sh: no folder with 20 GB of room; name one" >&2; exit 1; }
[ $# -gt 0 ] || set -- exact memory profile
target=$folder/coppice-27b.gguf
draft=$folder/coppice-dflash-27b.gguf
failed=0

# step NAME COMMAND...: runs it and says how long it took.
step() {
    local name=$1 start=$SECONDS
    shift
    echo "== $name: coppice $*"
    "$program" "$@" || { failed=1; echo "== $name FAILED"; }
    echo "== $name: $((SECONDS - start)) s"
}

[ -e "$target" ] || step target synth --shape qwen35-27b --quant q4_k_m "$target" 2>/dev/null
[ -e "$draft" ] || step draft synth --shape dflash-27b --quant q8_0 "$draft" 2>/dev/null
for part in "$@"; do
    case $part in
    exact)
        step exact bench -m "$target" -d "$draft" --prompt-tokens 512,20000 -n 512 \
            --modes off,chain:16,tree:22,tree:60 --drafter oracle:al=8.31 --device cuda
        ;;
    memory)
        step memory bench -m "$target" -d "$draft" --prompt-tokens 32600 -n 128 --max-ctx 32768 \
            --modes off,tree:22 --drafter oracle:al=8.31 --vram-limit 24G --device cuda
        ;;
    profile)
        step profile profile -m "$target" -d "$draft" --prompt-tokens 512 -n 128 --budget 22 \
            --drafter oracle:al=8.31 --device cuda
        ;;
    *)
        echo "gpu.sh: unknown part '$part'; the parts are exact, memory and profile" >&2
        exit 2
        ;;
    esac
done
exit $failed
