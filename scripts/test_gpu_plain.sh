#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds the kernels with the plain C++ versions of src/ops/gpu/matrix instead of instructions, for
# GPUs that have none of them, and runs the checks of the path `small`: ops against the scalar
# functions and rule E. Usage: scripts/test_gpu_plain.sh [CASES]
set -e
cd "$(dirname "$0")/.."
cases=${1:-24}
folder=build/cuda-plain
cmake --preset cuda-engine -B $folder -DCOPPICE_GPU_PLAIN=ON -DCMAKE_CUDA_ARCHITECTURES=75 >/dev/null
cmake --build $folder -j "$(nproc)" --target gpu_tests >/dev/null
sum() { grep -oE '[0-9]+ passed, [0-9]+ failed' "$1" | tail -n 1; }
log=$(mktemp)
trap 'rm -f "$log"' EXIT
passed=0 failed=0
for suite in "opcheck --brief" "property --cases $cases"; do
    read -r name options <<<"$suite"
    # shellcheck disable=SC2086
    $folder/tests/gpu/gpu_tests --levels cuda:small $options "$name" >"$log" 2>&1 && ended=0 || ended=1
    grep -E '^FAIL|^skip' "$log" || true
    read -r good _ bad _ <<<"$(sum "$log")"
    passed=$((passed + ${good:-0}))
    failed=$((failed + (${bad:-0} > 0 ? bad : ended))) # a run that breaks off counts as one
done
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
