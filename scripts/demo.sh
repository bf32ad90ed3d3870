#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds the program and shows it on the bundled pair of models: the same prompt continued three
# times (plain, with the draft's chain, with its tree), then a comparison made by the program.
set -eu
cd "$(dirname "$0")/.."

scripts/setup.sh build
echo "Building ..." >&2
mkdir -p build
{ cmake --preset release && cmake --build --preset release -j "$(nproc)"; } >build/demo.log 2>&1 || {
    tail -n 40 build/demo.log >&2
    exit 1
}

draft=$(find models -name '*draft*.gguf' | sort | head -n 1)
target=$(find models -name '*.gguf' ! -name '*draft*' | sort | head -n 1)
if [ -z "$draft" ] || [ -z "$target" ]; then
    echo "demo: the bundled pair is missing in models/; get a complete copy of the repository" >&2
    exit 1
fi

# show NAME HOW: streams one continuation; the program prints speed and accept length behind it.
show() {
    printf '\n== %s ==\n' "$1"
    build/release/coppice generate -m "$target" -d "$draft" --speculate "$2" --temp 0 -n 128 \
        -f scripts/demo-prompt.txt
}

show "Plain decoding: one token per pass" off
show "Chain: the draft guesses a block, one pass checks it" chain
show "Tree: the draft's likeliest branches, one pass checks them all" tree

printf '\n== The three side by side, compared by the program ==\n'
build/release/coppice bench -m "$target" -d "$draft" --prompts scripts/demo-prompts.jsonl -n 128
