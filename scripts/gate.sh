#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A gate that anybody can run: that guessing ahead changes no token and no bit of the logits (docs/exactness.md).
# Decodes TOKENS tokens (200000) in ways that guess, alone and side by side, and compares them with plain decoding:
# lookup, chain, tree and both in one tree, fixed and learned budgets, temperatures 0 and 0.8, several numbers of
# threads, chunks and codecs; over random models of thirteen architectures, the bundled pair and, where they can be had
# (scripts/real.sh), two published models; in a program with a server also what a crowd of its clients got, with
# tools, grammars and schemas, by `coppice verify`. On a GPU each path in turn.
#
# Usage: scripts/gate.sh PROGRAM [TOKENS] [--device cuda] [--paths LIST] [--seconds S] [--jobs N] [--seed N]
#            [--work FOLDER] [--out FILE] [--commit ID] [--no-real]
# --seconds S: it begins nothing after S seconds but a first check, whatever has been compared. --jobs N: checks side by side (1).
# --work FOLDER (build/gate): models, logs, and the checks that are done, one a line: a gate that was
#     interrupted goes on there if program, device and seed are the same. --out FILE: the result (FOLDER/result.txt).
# --no-real: without the published models. --commit ID: what is recorded as the commit (default: what the program says of itself).
# The last line is "N passed, N failed": checks. The exit status is 0 if nothing differed.
set -u
case ${1:-} in
"" | -*)
    sed -n 's/^# Usage: /usage: /p' "$0" >&2
    exit 2
    ;;
esac
program=$(realpath "$1")
here=$(dirname "$(realpath "$0")")
shift
[ -f "$program" ] && [ -x "$program" ] || {
    echo "gate.sh: $program cannot be run; name the program to check" >&2
    exit 2
}
real=
case " $* " in
*" --no-real "*) ;;
*) real=$("$here/real.sh" --fetch) || {
    echo "without published models: $real" >&2
    real=
} ;;
esac
exec python3 "$here/gate.py" "$program" --real "$real" "$@"
