#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds the program and shows it on the bundled pair of models: the same prompt continued three
# times (plain, with the draft's chain, with its tree), then a comparison made by the program.
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/setup.sh build
# The GPU is used when there is one and a compiler for it; the program itself falls back to the CPU.
preset=release
if command -v nvcc >/dev/null 2>&1 && nvidia-smi -L 2>/dev/null | grep -q GPU; then
    preset=cuda
fi
echo "Building ($preset) ..." >&2
mkdir -p build
{ cmake --preset "$preset" && cmake --build --preset "$preset" -j "$(nproc)"; } >build/demo.log 2>&1 || {
    tail -n 40 build/demo.log >&2
    exit 1
}

draft=$(find models -name '*dflash*.gguf' | sort | head -n 1)
target=$(find models -name '*.gguf' ! -name '*dflash*' | sort | head -n 1)
if [ -z "$draft" ] || [ -z "$target" ]; then
    echo "demo: the bundled pair is missing in models/; get a complete copy of the repository" >&2
    exit 1
fi

echo "The model ($target) is asked to continue this:"
echo
sed 's/^/    /' scripts/demo-prompt.txt

# show NAME HOW: streams one continuation; the program prints speed and accept length after it.
show() {
    printf '\n== %s ==\n\n' "$1"
    "build/$preset/coppice" generate -m "$target" -d "$draft" --speculate "$2" --temp 0 -n 160 \
        -f scripts/demo-prompt.txt --logit-hash | tee "build/demo-$2.txt"
}

show "Plain decoding: one token per pass" off
show "Chain: the draft guesses a block, one pass checks it" chain
show "Tree: the draft's likeliest branches, one pass checks them all" tree

printf '\n== Side by side, and compared by the program ==\n\n'
if ! "build/$preset/coppice" bench -m "$target" -d "$draft" --prompts scripts/demo-prompts.jsonl ||
    ! cmp -s build/demo-off.txt build/demo-chain.txt || ! cmp -s build/demo-off.txt build/demo-tree.txt; then
    printf '\nThe outputs DIFFER. That must never happen: please report it.\n'
    exit 1
fi
printf '\nIdentical: plain, chain and tree gave the same tokens, chosen from the same logit bits.\n'
