#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Bytes that one plain step and one step of budget 22 read from device memory, by the counters of
# the GPU (Nsight Compute), against the weights in the files.
# Usage: bench/gpu_bytes.sh PROGRAM TARGET DRAFT [FOLDER]
# A first run counts the kernels before the step that is looked at (gpu_trace.sh), a second one
# reads the counters of that step's kernels only. Clocks and caches are left as they are. FOLDER
# keeps what was recorded; without it a temporary one is used.
set -eu
program=${1:?usage: bench/gpu_bytes.sh PROGRAM TARGET DRAFT [FOLDER]}
target=${2:?no target} draft=${3:?no draft}
here=$(cd "$(dirname "$0")" && pwd)
folder=${4:-}
if [ -z "$folder" ]; then
    folder=$(mktemp -d)
    trap 'rm -rf "$folder"' EXIT
fi
command -v ncu >/dev/null || { echo "gpu_bytes.sh: there is no ncu (Nsight Compute)" >&2; exit 1; }
metrics=dram__bytes_read.sum,dram__bytes_write.sum
prompt=$(seq -s, 1000 1063)

# count NAME KERNEL INSPECT... -- OPTION...: one step of `generate` with these options.
count() {
    local name=$1 kernel=$2 skip number files=()
    shift 2
    while [ "$1" != -- ]; do
        files+=("$1")
        shift
    done
    shift
    local run=("$program" generate -m "$target" "$@" --ids "$prompt" --ignore-eos
        --device cuda --max-ctx 1024)
    "$here/gpu_trace.sh" "$folder/$name.trace" "${run[@]}" >"$folder/$name.out" 2>&1
    read -r skip number < <(python3 "$here/gpu_bytes.py" step "$folder/$name.trace" "$kernel")
    ncu --clock-control none --cache-control none --metrics "$metrics" --csv --page raw \
        --launch-skip "$skip" --launch-count "$number" --log-file "$folder/$name.csv" \
        "${run[@]}" >"$folder/$name.ncu" 2>&1
    printf '%s: ' "$name"
    python3 "$here/gpu_bytes.py" sum "$folder/$name.csv" "${files[@]}"
}

"$program" inspect --json "$target" >"$folder/target.json"
"$program" inspect --json "$draft" >"$folder/draft.json"
count plain "" "$folder/target.json" -- -n 24 --speculate off
count tree-22 rank "$folder/target.json" "$folder/draft.json" -- -d "$draft" -n 24 \
    --speculate tree --budget 22 --min-prob 0 --no-lookup
