#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# How a step's time grows with the tree's budget, with the context and with the sequences that
# share a pass: three CSV files, from which gpu_curves.py draws the picture.
# Usage: bench/gpu_curves.sh PROGRAM TARGET DRAFT FOLDER [budget|context|sequences]...
set -eu
program=${1:?usage: bench/gpu_curves.sh PROGRAM TARGET DRAFT FOLDER [budget|context|sequences]...}
target=${2:?no target} draft=${3:?no draft} folder=${4:?no folder}
shift 4
here=$(cd "$(dirname "$0")" && pwd)
[ $# -gt 0 ] || set -- budget context sequences

# Every run begins cold; programs before that option keep nothing.
cold=()
! "$program" bench --help | grep -e --price-cache >/dev/null || cold=(--price-cache off)

# curve NAME ARGUMENT...: bench with these arguments, NAME.json and NAME.csv.
curve() {
    local name=$1
    shift
    "$program" bench -m "$target" -d "$draft" --device "${DEVICE:-cuda}" --ignore-eos --json \
        "${cold[@]}" "$@" >"$folder/$name.json"
    python3 "$here/gpu_curves.py" csv "$name" "$folder/$name.json" >"$folder/$name.csv"
    echo "$folder/$name.csv"
}

budgets=$(printf ',tree:%d' 1 2 3 5 7 11 15 19 23 31 47 63 95 127)
for part in "$@"; do
    case $part in
    budget)
        curve budget --prompt-tokens 512 -n 256 --modes "off$budgets" --drafter oracle:errors=0.12
        ;;
    context)
        curve context --prompt-tokens "${CONTEXTS:-512,2048,8192,16384,32768,65536,131072}" -n 96 \
            --modes off,tree:22 --drafter oracle:al=8.31
        ;;
    sequences)
        curve sequences --prompt-tokens 512 -n 64 --sequences 1,2,3,4,5,6,7,8 \
            --modes off,tree:7,tree:15 --drafter oracle:al=8.31
        ;;
    *)
        echo "gpu_curves.sh: there is no curve '$part'" >&2
        exit 2
        ;;
    esac
done
