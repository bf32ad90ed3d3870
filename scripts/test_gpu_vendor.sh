#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Prompts by the vendor's matrix products (--prompt-gemm vendor), which round otherwise: the likeliest
# next tokens of the bundled model and of random ones have log-probabilities near those of ours.
# Usage: scripts/test_gpu_vendor.sh PROGRAM [DEVICE]
# DEVICE is cuda; with cpu, where there is nothing of a vendor's, it tests itself on any machine.
set -u
program=$(realpath "$1")
device=${2:-cuda}
vendor=(--prompt-gemm vendor)
[ "$device" != cpu ] || vendor=()
cd "$(dirname "$0")/.." || exit 2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
. scripts/check.sh
show=$work/err
bundled=models/coppice-tiny-q8_0.gguf
ids=$(python3 -c 'print(",".join(str(7 + i * i * 31 % 251) for i in range(700)))')

# likely NAME MODEL OPTION...: the likeliest tokens behind the prompt, into $work/NAME.
likely() {
    timeout 120 "$program" generate -m "$2" --ids "$ids" -n 1 --device "$device" --logprobs 20 --json \
        --speculate off "${@:3}" >"$work/$1" 2>"$work/err" </dev/null
}

likely ours "$bundled" || {
    cat "$work/err"
    [ "$device" != cpu ] || exit 2
    exit 77 # nothing to run on
}
if ! likely vendor "$bundled" "${vendor[@]}" && grep "needs cuBLAS" "$work/err"; then
    exit 77
fi
for shape in bundled qwen2 qwen3 llama qwen35; do
    model=$bundled
    if [ "$shape" != bundled ]; then
        model=$work/$shape.gguf
        "$program" synth --shape "$shape-tiny" "$model" 2>"$work/err" || exit 2
    fi
    check "$shape, our products" likely ours "$model"
    check "$shape, the vendor's" likely vendor "$model" "${vendor[@]}"
    why=$(python3 - "$work/ours" "$work/vendor" 2>&1 <<'PY'
import json
import sys

ours, vendor = ({t["id"]: t["logprob"] for t in json.load(open(p))["logprobs"][0]["top"]} for p in sys.argv[1:])
far = max(abs(p - vendor.get(i, -99)) for i, p in list(ours.items())[:5])
if len(ours) != 20 or far > 0.05:
    print(f"{len(ours)} log-probabilities, of the first five one is {far:.3f} apart")
PY
    )
    verdict "$shape, both" "$why"
done
finish
