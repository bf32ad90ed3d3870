#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Measures a pair of the 27B shape on a GPU: random weights, real sizes, guesses of the oracle.
# Usage: bench/gpu.sh PROGRAM [FOLDER] [PART]...
# FOLDER takes the two files (18.4 GB) and what is recorded; without it the first of /dev/shm and
# /tmp with room. Parts, without any the first three:
#   exact      0.5K and 20K tokens of context, every mode, logit hashes
#   memory     32K tokens of F16 KV under --vram-limit 24G
#   profile    one step of budget 22, op by op
#   table      every figure that has a goal, but for the next two (gpu_table.py)
#   idle       how long no kernel runs within a step (gpu_busy.py; needs CUPTI)
#   bytes      what a step reads, by the GPU's counters (gpu_bytes.sh; needs ncu)
#   budget     --budget auto against fixed ones at several rates of errors, and without any hope
#   curves     step time by budget, context and sequences, as CSV (gpu_curves.sh)
# shellcheck disable=SC2317  # functions are called by step
set -u
here=$(cd "$(dirname "$0")" && pwd)
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
    echo "== $name: $*"
    "$@" || { failed=1; echo "== $name FAILED"; }
    echo "== $name: $((SECONDS - start)) s"
}

# Every run begins cold; programs before that option keep nothing.
cold=()
! "$program" bench --help | grep -e --price-cache >/dev/null || cold=(--price-cache off)

# pair ARGUMENT...: bench on both files.
pair() {
    echo "coppice bench -m $target -d $draft --device cuda ${cold[*]} $*" >&2
    "$program" bench -m "$target" -d "$draft" --device cuda "${cold[@]}" "$@"
}

# table NAME ARGUMENT...: a result of bench as NAME.json.
table() {
    local name=$1
    shift
    pair --drafter oracle:al=8.31 --modes off,chain:16,tree:22,tree:63 --json "$@" \
        >"$folder/$name.json"
}

# idle NAME KERNEL OPTION...: one run of generate under the tracer; steps that run KERNEL.
idle() {
    local name=$1 kernel=$2
    shift 2
    "$here/gpu_trace.sh" "$folder/$name.trace" "$program" generate -m "$target" "$@" -n 48 \
        --ids "$(seq -s, 1000 1511)" --ignore-eos --device cuda --max-ctx 1024 >/dev/null 2>&1 &&
        python3 "$here/gpu_busy.py" "$folder/$name.trace" --with "$kernel"
}

[ -e "$target" ] ||
    step target "$program" synth --shape qwen35-27b --quant q4_k_m "$target" 2>/dev/null
[ -e "$draft" ] || step draft "$program" synth --shape dflash-27b --quant q8_0 "$draft" 2>/dev/null
for part in "$@"; do
    case $part in
    exact)
        step exact pair --prompt-tokens 512,20000 -n 512 --modes off,chain:16,tree:22,tree:60 \
            --drafter oracle:al=8.31
        ;;
    memory)
        step memory pair --prompt-tokens 32600 -n 128 --max-ctx 32768 --modes off,tree:22 \
            --drafter oracle:al=8.31 --vram-limit 24G
        ;;
    profile)
        step profile "$program" profile -m "$target" -d "$draft" --prompt-tokens 512 -n 128 \
            --budget 22 --drafter oracle:al=8.31 --device cuda
        ;;
    table)
        step short table short --prompt-tokens 512 -n 256
        step long table long --prompt-tokens 16384,65536 -n 128
        step mma table mma --prompt-tokens 512 -n 256 --cuda-path mma
        step table python3 "$here/gpu_table.py" "$folder"/{short,long,mma}.json
        ;;
    idle)
        step idle-plain idle plain choose --speculate off
        step idle-tree idle tree rank -d "$draft" --speculate tree --budget 22 --min-prob 0
        ;;
    bytes) step bytes "$here/gpu_bytes.sh" "$program" "$target" "$draft" "$folder" ;;
    budget)
        step budget pair --prompt-tokens 512 -n 768 --drafter oracle:errors=0.05/0.12/0.25/0.5 \
            --modes off,tree:7,tree:15,tree:23,tree:31,tree:auto
        step hopeless pair --prompt-tokens 512 -n 256 --modes off,tree:7,tree:auto
        ;;
    curves) step curves "$here/gpu_curves.sh" "$program" "$target" "$draft" "$folder" ;;
    *)
        echo "gpu.sh: there is no part '$part'; the head of this file lists them" >&2
        exit 2
        ;;
    esac
done
exit $failed
