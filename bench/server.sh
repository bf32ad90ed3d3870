#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Measures `coppice serve` with the bundled pair on this machine, by `coppice bench --url`.
# Usage: bench/server.sh PROGRAM [PART]... [--llama-server FILE [--llama-slots N]] [--turns N]
# Parts:
#   streams  256 streams at once: all must complete
#   added    what the server adds to the engine's own time until the first token: median below 5 ms
#   clients  8 clients against one: 2.5 times the tokens a second with drafting off, 1.2 times with it on
#   beside   1, 8 and 32 clients beside llama-server, with the same files, in turns, drafting off and on
#            (its --spec-type draft-dflash); needs --llama-server, a program that takes its options
#   idle     memory of an idle connection, of 1,000: below 64 KiB
#   memory   resident memory over 20,000 requests: flat
# All without. Prompts are those of bench/prompts as plain completions, greedy, 128 tokens each
# whatever comes (ignore_eos), without a prompt cache. The exit status is 1 when a part misses its bound.
set -u
here=$(cd "$(dirname "$0")" && pwd)
exec python3 "$here/server_table.py" "$@"
