#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Measures the CPU kernels: random weights of real shapes, and the bundled pair.
# Usage: bench/cpu.sh PROGRAM [PART] [OPTION]...
# Parts:
#   table    decoding, a prompt of 512 tokens and a pass of 23 rows, by shape, type and threads; with
#            --llama-bench FILE each row is followed by what that program gives for the same file, in
#            turns with ours; both decode after the 512 tokens
#            --shapes 0.8b,4b  --types Q4_K_M,Q8_0,BF16  --threads 2,1  --runs 1
#            --folder DIR takes the files (18 GB for both shapes, twice that with llama-bench)
#   models   Qwen3-0.6B, Llama-1B and 8 layers of Qwen3-30B-A3B in Q4_K_M, two threads, next to --llama-bench
#            FILE on the same files in turns (--runs N, best of each); decoding must be at least 1.1
#            and prompts 1.3 times as fast
#   budget   --budget auto against plain decoding, median of --pairs 15 alternating pairs on each
#            prompt of bench/prompts; must be at least 0.98
#   pair     speculation by tree on the bundled pair, over each file of prompts; must be at least 1.4
#            times plain decoding over all
# The exit status is 1 when a part misses its bound.
set -u
here=$(cd "$(dirname "$0")" && pwd)
program=${1:?usage: bench/cpu.sh PROGRAM [PART] [OPTION]...}
part=${2:-table}
shift $(($# < 2 ? $# : 2))
exec python3 "$here/cpu_table.py" "$part" "$program" "$@"
