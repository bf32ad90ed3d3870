#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds the kernels with the plain C++ versions of src/ops/gpu/matrix instead of instructions, for
# GPUs that have none of them, and runs the checks of the path `small`, as many at once as there are
# cores: each family of ops against the scalar functions, and rule E.
# Usage: scripts/test_gpu_plain.sh [CASES]
set -e
cd "$(dirname "$0")/.."
cases=${1:-24}
folder=build/cuda-plain
cmake --preset cuda-engine -B $folder -DCOPPICE_GPU_PLAIN=ON -DCMAKE_CUDA_ARCHITECTURES=75 >/dev/null
cmake --build $folder -j "$(nproc)" --target gpu_tests >/dev/null
logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT

# check NAME OPTION...: one part; what it printed, and how it ended, as files of logs.
check() {
    local name=$1 ended=0
    shift
    $folder/tests/gpu/gpu_tests --levels cuda:small "$@" >"$logs/$name" 2>&1 || ended=1
    echo $ended >"$logs/$name.rc"
}
{
    echo "property --cases $cases property"
    # Each family of ops with more than times, from the table that the program has.
    sed -n '/", NULL, NULL, NULL,/d; s/^    {"\([a-z_]*\)", .*check_.*/\1 --brief --only \1 opcheck/p' \
        tests/opcheck/harness.c
} >"$logs/parts"
while read -r name options; do
    while [ "$(jobs -rp | wc -l)" -ge "$(nproc)" ]; do wait -n; done
    # shellcheck disable=SC2086
    check "$name" $options &
done <"$logs/parts"
wait
passed=0 failed=0
while read -r name _; do
    grep -E '^FAIL|^skip' "$logs/$name" || true
    counts=$(grep -oE '[0-9]+ passed, [0-9]+ failed' "$logs/$name" | tail -n 1) || true # none: it broke off
    read -r good _ bad _ <<<"$counts"
    ended=$(cat "$logs/$name.rc")
    passed=$((passed + ${good:-0}))
    failed=$((failed + (${bad:-0} > 0 ? bad : ended))) # a run that breaks off counts as one
done <"$logs/parts"
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
