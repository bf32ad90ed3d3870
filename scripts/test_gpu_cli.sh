#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What the program says on a machine with a GPU when the GPU cannot be had as asked: each case gives
# its exit status, one sentence, and no output; or it goes on with the CPU and says so once.
# On a machine without a GPU only the cases that need none are run.
# Usage: scripts/test_gpu_cli.sh PROGRAM [FOLDER [OTHER]]
# FOLDER holds the stand-in for an old driver (tests/gpu/old_driver.c); OTHER is a program with
# kernels for other GPUs only.
set -u
program=$1
old_driver=${2:-}
other=${3:-}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
model=$work/model.gguf
"$program" synth --shape qwen35-tiny --quant q4_k_m "$model" 2>/dev/null || exit 2
ask=(generate -m "$model" --ids 5,6,7 -n 3 --ignore-eos)
. "$(dirname "$0")/check.sh"
show=$work/err

# said NAME WHY: a verdict; of a case that is right, shows what was said.
said() {
    [ -n "$2" ] || printf 'ok     %s: %s\n' "$1" "$(head -n 1 "$work/err" | cut -c 1-300)"
    verdict "$1" "$2"
}

run() { timeout 60 "$@" >"$work/out" 2>"$work/err" </dev/null; }

# refuse NAME WORDS COMMAND...: exit status 1 and one sentence that holds WORDS.
refuse() {
    local name=$1 words=$2 rc why=
    shift 2
    run "$@"
    rc=$?
    [ "$rc" = 1 ] || why="$why exit status $rc;"
    [ ! -s "$work/out" ] || why="$why something on standard output;"
    [ "$(wc -l <"$work/err")" = 1 ] || why="$why $(wc -l <"$work/err") lines on standard error;"
    grep -qF -e "$words" "$work/err" || why="$why the sentence lacks '$words';"
    said "$name" "$why"
}

# go_on NAME WORDS TIMES COMMAND...: succeeds with three tokens, and says WORDS so many times.
go_on() {
    local name=$1 words=$2 times=$3 rc why=
    shift 3
    run "$@"
    rc=$?
    [ "$rc" = 0 ] || why="$why exit status $rc;"
    grep -q '; 3 new tokens, ' "$work/err" || why="$why not three tokens;"
    [ "$(grep -cF -e "$words" "$work/err")" = "$times" ] || why="$why not $times times '$words';"
    said "$name" "$why"
}

go_on "the CPU when asked for" "cuda" 0 "$program" "${ask[@]}" --device cpu
if [ -n "$old_driver" ]; then
    refuse "an old driver" "supports CUDA 12.2 and this program needs" \
        env LD_LIBRARY_PATH="$old_driver" "$program" "${ask[@]}" --device cuda
    go_on "an old driver, auto" "the CPU is used" 1 \
        env LD_LIBRARY_PATH="$old_driver" "$program" "${ask[@]}"
fi
if ! run "$program" "${ask[@]}" --device cuda; then
    sentence=$(cut -d : -f 2- "$work/err")
    refuse "no GPU" "${sentence:-no sentence}" "$program" "${ask[@]}" --device cuda
    go_on "no GPU, auto" "GPU" 0 "$program" "${ask[@]}"
    finish
    exit
fi
go_on "auto takes the GPU" "memory on cuda:" 1 "$program" "${ask[@]}"
refuse "a GPU that is not there" "there is no GPU 31" "$program" "${ask[@]}" --device cuda:31
refuse "a GPU that is hidden" "there is no NVIDIA GPU" \
    env CUDA_VISIBLE_DEVICES=-1 "$program" "${ask[@]}" --device cuda
go_on "a GPU that is hidden, auto" "GPU" 0 env CUDA_VISIBLE_DEVICES=-1 "$program" "${ask[@]}"
refuse "less memory than to begin with" "--vram-limit" \
    "$program" "${ask[@]}" --device cuda --vram-limit 1M
go_on "less memory than to begin with, auto" "(the CPU is used)" 1 \
    "$program" "${ask[@]}" --vram-limit 1M
refuse "less memory than the plan" "too little; use" \
    "$program" "${ask[@]}" --device cuda --vram-limit 100M
if [ -n "$other" ]; then
    refuse "kernels for other GPUs" "has no kernels for GPU 0" "$other" "${ask[@]}" --device cuda
    go_on "kernels for other GPUs, auto" "the CPU is used" 1 "$other" "${ask[@]}"
fi
finish
