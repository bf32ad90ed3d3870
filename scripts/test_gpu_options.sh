#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Options of a GPU together, with the bundled pair and random models: on each path and for
# each way of keeping keys and values, guesses and other chunks give the bits of plain decoding; so do
# guesses after sparse prompts; less memory than the plan would like, fewer experts resident than there
# are, and another GPU of the same kind change nothing.
# Usage: scripts/test_gpu_options.sh PROGRAM [DEVICE [PATHS]]
# DEVICE is cuda, PATHS are "auto mma small"; with cpu, where most of these options mean nothing, it
# tests itself on any machine.
set -u
program=$(realpath "$1")
device=${2:-cuda}
cd "$(dirname "$0")/.." || exit 2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
. scripts/check.sh
show=$work/err
model=models/coppice-tiny-q8_0.gguf
draft=models/coppice-tiny-dflash-q8_0.gguf
ids=$(python3 -c 'print(",".join(str(7 + i * i * 31 % 251) for i in range(700)))')
wanted=

# answer MODEL OPTION...: a reply of 24 tokens, its report in $work/report; what it was goes to $found.
answer() {
    timeout 120 "$program" generate -m "$1" --ids "$ids" -n 24 --ignore-eos --logit-hash --json \
        --device "$device" "${@:2}" >"$work/report" 2>"$work/err" </dev/null || return
    found=$(python3 - "$work/report" <<'PY'
import json
import sys

report = json.load(open(sys.argv[1]))
print(report["logit_hash"], report["device"].partition("(")[2], *report["ids"])
PY
    )
}

# first NAME OPTION...: what the next cases have to be.
first() {
    wanted=
    if answer "$model" "${@:2}"; then wanted=$found; else verdict "$1" "exit status $?"; fi
}

# same NAME: whether the newest answer is what it has to be.
same() {
    local why=
    [ "$found" = "$wanted" ] || why="${found%% *}, not ${wanted%% *}"
    verdict "$1" "$why"
}

# as NAME OPTION...: another way to the same.
as() {
    if answer "$model" "${@:2}"; then same "$1"; else verdict "$1" "exit status $?"; fi
}

answer "$model" || {
    cat "$work/err"
    [ "$device" != cpu ] || exit 2
    exit 77 # nothing to run on
}
read -ra paths <<<"${3:-auto mma small}"
[ "$device" != cpu ] || paths=(none)
plain=(--speculate off)
tree=(-d "$draft" --speculate tree --budget 22)
chain=(-d "$draft" --speculate chain)
for path in "${paths[@]}"; do
    for kv in f32 f16 bf16 q8_0 q8_0:f16 f16:q8_0 q4_0 q5_1:tq3_0; do
        level=(--kv-type-k "${kv%:*}" --kv-type-v "${kv#*:}")
        [ "$path" = none ] || level+=(--cuda-path "$path")
        first "$path, $kv" "${plain[@]}" "${level[@]}"
        as "$path, $kv, tree" "${tree[@]}" --chunk 77 "${level[@]}"
        as "$path, $kv, chain" "${chain[@]}" --chunk 512 "${level[@]}"
    done
done

# Prompts that choose what they read: with the same chunk.
for path in "${paths[@]}"; do
    level=(--sparse-prefill 0.5 --chunk 512)
    [ "$path" = none ] || level+=(--cuda-path "$path")
    first "$path, sparse" "${plain[@]}" "${level[@]}"
    as "$path, sparse, tree" "${tree[@]}" "${level[@]}"
    as "$path, sparse, chain" "${chain[@]}" "${level[@]}"
done
if [ "$device" = cpu ]; then
    finish
    exit
fi

# Less memory than the plan would like: whatever still runs says the same.
first "memory" "${plain[@]}" --max-ctx 2048
most=0 fitted=0
answer "$model" "${tree[@]}" --max-ctx 2048 --vram-limit 8G &&
    most=$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["memory"]["planned"])' "$work/report")
check "memory was planned" [ "$most" -gt 0 ]
for part in 95 85 75 65 55; do
    [ "$most" -gt 0 ] || break
    less=(--max-ctx 2048 --vram-limit $((most / 100 * part)))
    if answer "$model" "${tree[@]}" "${less[@]}"; then
        fitted=$((fitted + 1))
        same "$part % of the memory"
    fi
done
check "less memory than planned was enough" [ "$fitted" -gt 0 ]

# Experts beyond the GPU's slots, down to the fewest, which the layers with experts share.
for kind in qwen3moe:Q4_0:4 gpt-oss:MXFP4_MOE:4 deepseek2:Q4_0:6; do
    IFS=: read -r shape type fewest <<<"$kind"
    model=$work/$shape.gguf
    "$program" synth --shape "$shape-tiny" --quant "$type" "$model" 2>"$work/err" || exit 2
    for path in "${paths[@]}"; do
        level=(--cuda-path "$path" --kv-type q8_0)
        first "$shape, $path, all resident" "${plain[@]}" "${level[@]}"
        as "$shape, $path, 8 slots" "${plain[@]}" "${level[@]}" --spark-slots 8
        as "$shape, $path, $fewest slots, other chunks" "${plain[@]}" "${level[@]}" --spark-slots "$fewest" \
            --chunk 77
    done
done

# Another GPU.
model=models/coppice-tiny-q8_0.gguf
device=cuda:0
first "the first GPU" "${tree[@]}"
device=cuda:1
if answer "$model" "${tree[@]}"; then
    kind=${found#* } other=${wanted#* }
    if [ "${kind%%)*}" = "${other%%)*}" ]; then same "the second GPU"; else echo "skip   the second GPU is of another kind"; fi
elif ! grep -q "there is no GPU 1" "$work/err"; then
    verdict "the second GPU" "it does not run"
fi
finish
