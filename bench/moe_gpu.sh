#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Mixtures of experts, and an 8B model next to them, on a GPU: random weights, real sizes.
# Usage: bench/moe_gpu.sh PROGRAM [FOLDER] [SHAPE]...
# FOLDER (by default /dev/shm) takes one file after another (22 GB at most). Each shape is decoded plainly
# and by trees of 22 guesses of the oracle after 512 tokens, which shows a step with 23 rows, and reads a
# prompt of 16,384; moe_gpu.py compares what that took with the bytes that are read.
set -u
here=$(cd "$(dirname "$0")" && pwd)
program=${1:?usage: bench/moe_gpu.sh PROGRAM [FOLDER] [SHAPE]...}
shift
folder=/dev/shm
if [ $# -gt 0 ] && [ -d "$1" ]; then
    folder=$1
    shift
fi
[ $# -gt 0 ] || set -- qwen35-35b-a3b qwen3-30b-a3b gpt-oss-20b laguna-xs.2 llama-8b
failed=0
for shape in "$@"; do
    model=$folder/$shape.gguf quant=q4_k_m
    [ "$shape" != gpt-oss-20b ] || quant=mxfp4_moe
    "$program" synth --shape "$shape" --quant "$quant" "$model" >/dev/null 2>&1 &&
        "$program" inspect "$model" --json >"$folder/$shape.file.json" &&
        "$program" bench -m "$model" --device cuda --price-cache off --prompt-tokens 512 -n 192 \
            --max-ctx 20000 --modes off,tree:22 --drafter oracle:al=4 --json >"$folder/$shape.short.json" &&
        "$program" bench -m "$model" --device cuda --price-cache off --prompt-tokens 16384 -n 8 \
            --max-ctx 20000 --modes off --json >"$folder/$shape.long.json" &&
        python3 "$here/moe_gpu.py" "$folder/$shape" || failed=1
    rm -f "$model"
done
exit $failed
