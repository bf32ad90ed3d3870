#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Tiny pairs with mixtures of experts on a GPU, of random weights: plain decoding, chains and trees
# give the same tokens and logits, by a draft that is never right and by guesses of which some are,
# and a half and a quarter of the experts resident give those of all of them, of prompts whose
# experts the copy engine brings and of steps for which kernels do. Then eight layers of a real width:
# a prompt for which slots are lent gives the tokens and logits of all experts resident, on each path,
# together with experts of the CPU, and with a draft, of which chains and trees come after it; and three such
# prompts at a time, of which the first ones decode trees concurrently with passes that borrow.
# Usage: scripts/test_gpu_experts.sh PROGRAM [DEVICE]
# DEVICE is cuda; with cpu, where all are always resident, it tests itself on any machine.
set -u
program=$(realpath "$1")
device=${2:-cuda}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
. "$(dirname "$0")/check.sh"
show=$work/err

# hashes FILE: those of all modes of a report, once each, or what is wrong with it.
hashes() {
    python3 - "$1" <<'PY'
import json
import sys

report = json.load(open(sys.argv[1]))
modes = report["overall"]
print(*sorted({m["logit_hash"] for m in modes.values()}) if report["equal"] and len(modes) == 3
      else ["modes differ"])
PY
}

# alike NAME: whether all modes of the report have one hash, that of the first report since `all` was empty.
alike() {
    local found why=
    found=$(hashes "$work/report")
    all=${all:-$found}
    [ "$found" = "$all" ] && [ "${found/ /}" = "$found" ] || why="$found, not $all"
    verdict "$1" "$why"
}

"$program" synth --shape dflash-tiny --quant Q8_0 "$work/d.gguf" 2>/dev/null || exit 2
"$program" synth --shape qwen3-tiny "$work/t.gguf" 2>/dev/null || exit 2
[ "$device" = cpu ] || "$program" generate -m "$work/t.gguf" --ids 3 -n 1 --device "$device" \
    >/dev/null 2>"$work/err" || {
    cat "$work/err"
    exit 77 # nothing to run on
}
# The fewest slots: the layers with experts share them, and a pass may choose all 16 experts of one.
for model in qwen3moe:Q4_0:4 qwen35moe:Q8_0:4 gpt-oss:MXFP4_MOE:4 deepseek2:Q8_0:6; do
    IFS=: read -r shape type fewest <<<"$model"
    "$program" synth --shape "$shape-tiny" --quant "$type" "$work/t.gguf" 2>/dev/null || exit 2
    slots=(0 8 "$fewest") # 0: all
    [ "$device" != cpu ] || slots=(0)
    all=
    for n in "${slots[@]}"; do
        few=(--spark-slots "$n")
        [ "$n" != 0 ] || few=()
        for how in draft oracle:al=4; do
            name="$shape, $n slots, $how"
            timeout 120 "$program" bench -m "$work/t.gguf" -d "$work/d.gguf" --prompt-tokens 300 -n 40 \
                --modes off,chain:8,tree:22 --drafter "$how" --device "$device" --json \
                "${few[@]}" >"$work/report" 2>"$work/err" </dev/null || {
                verdict "$name" "exit status $?"
                continue
            }
            alike "$name"
        done
        [ "$n" != 0 ] || continue
        timeout 120 "$program" generate -m "$work/t.gguf" --ids "$(seq -s , 3 300)" -n 8 --ignore-eos \
            --json --device "$device" "${few[@]}" >"$work/report" 2>"$work/err" </dev/null
        why=$(python3 - "$work/report" <<'PY'
import json
import sys

experts = json.load(open(sys.argv[1])).get("experts", {})
if not experts.get("misses", 0) or experts.get("slots") >= 64:
    print("nothing was brought:", experts)
PY
        )
        verdict "$shape, $n slots, brought" "$why"
    done
done
if [ "$device" = cpu ]; then
    finish
    exit
fi

# lent NAME REFERENCE OPTION...: reads a long prompt. REFERENCE: empty, and what is found is kept, or
# what is to be found, while slots are lent.
lent() {
    local name=$1 reference=$2
    shift 2
    timeout 60 "$program" generate -m "$work/t.gguf" --ids "$(seq -s , 3 4202)" -n 6 --ignore-eos --json \
        --max-ctx 6000 --logit-hash --device "$device" "$@" >"$work/report" 2>"$work/err" </dev/null || {
        verdict "$name" "exit status $?"
        return
    }
    found=$(python3 - "$work/report" <<'PY'
import json
import sys

report = json.load(open(sys.argv[1]))
print(report["logit_hash"], report.get("experts", {}).get("loans", 0))
PY
    )
    why=
    [ -z "$reference" ] || [ "${found% *}" = "${reference% *}" ] || why="$found, not $reference"
    [ -z "$reference" ] || [ "${found#* }" != 0 ] || why="nothing was lent"
    verdict "$name" "$why"
}

"$program" synth --shape qwen3-30b-a3b --layers 8 --quant q4_k_m "$work/t.gguf" 2>/dev/null || exit 2
for path in auto mma small; do
    lent "a long prompt, $path, all resident" "" --cuda-path "$path"
    lent "a long prompt, $path, slots are lent" "$found" --cuda-path "$path" --spark-slots 72
done
lent "a long prompt with experts on the CPU, all others resident" "" --cpu-experts 1
lent "a long prompt with experts on the CPU, slots are lent" "$found" --cpu-experts 1 --spark-slots 72

"$program" synth --shape dflash-qwen3-30b-a3b --quant q4_k_m "$work/d.gguf" 2>/dev/null || exit 2
draft=(-d "$work/d.gguf" --draft-taps 0,2,3,5,6) # eight layers have no others
lent "a long prompt, plainly with a draft, all resident" "" "${draft[@]}" --speculate off
lent "a long prompt, then chains, slots are lent" "$found" "${draft[@]}" --speculate chain --spark-slots 72
lent "a long prompt, then trees, slots are lent" "$found" "${draft[@]}" --budget 22 --spark-slots 72

# drafted OPTION...: a report of `bench` with the draft after long prompts.
drafted() {
    timeout 60 "$program" bench -m "$work/t.gguf" "${draft[@]}" --prompt-tokens 4200 -n 24 --json \
        --max-ctx 6000 --device "$device" "$@" >"$work/report" 2>"$work/err" </dev/null
}

all=
for n in 0 72; do
    few=(--spark-slots "$n")
    [ "$n" != 0 ] || few=()
    name="guesses after a long prompt, $n slots"
    drafted --modes off,chain:8,tree:22 --drafter oracle:al=4 "${few[@]}" || {
        verdict "$name" "exit status $?"
        continue
    }
    alike "$name"
done
name="three long prompts at a time, 72 slots"
drafted --modes off,tree:22 --sequences 3 --engine --rounds 1 --spark-slots 72
rc=$? why=
found=$(grep -oE '"different": ?[0-9]+' "$work/report" | grep -oE '[0-9]+' | tr '\n' ' ')
[ "$rc $found" = "0 0 0 " ] || why="exit status $rc, different: $found"
verdict "$name" "$why"
finish
