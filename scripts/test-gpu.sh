#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Builds the engine for this machine's GPU without third-party libraries and runs every GPU check:
# ops, golden models, rule E over random models, logits against the CPU's, and, where
# compute-sanitizer works, memory checks of the ops. Prints the failures of each part and one table;
# the exit status is 1 when something failed. CASES: random cases of rule E on each path (300).
set -u
cd "$(dirname "$0")/.." || exit 2
cmake --preset cuda-engine >/tmp/coppice-gpu-build.log 2>&1 &&
    cmake --build --preset cuda-engine -j"$(nproc)" >>/tmp/coppice-gpu-build.log 2>&1 || {
    tail -n 20 /tmp/coppice-gpu-build.log
    exit 2
}
bin=build/cuda-engine/tests/gpu
table=
failed=0

# part NAME COMMAND...: runs it, shows its failures, adds a line to the table.
part() {
    local name=$1 log start rc verdict
    shift
    log=$(mktemp) start=$SECONDS
    "$@" >"$log" 2>&1
    rc=$?
    case $rc in
    0) verdict=passed ;;
    77) verdict=skipped ;;
    *) verdict=FAILED failed=1 ;;
    esac
    grep -E '^FAIL|^skip|ERROR SUMMARY' "$log" | sort -u | head -n 20
    table+=$(printf '%-12s %-8s %5d s  %s' "$name" "$verdict" $((SECONDS - start)) \
        "$(tail -n 1 "$log")")$'\n'
    rm -f "$log"
}

for program in "$bin"/test_*; do
    [ -x "$program" ] && [ -f "$program" ] && part "$(basename "$program")" "$program"
done
for suite in opcheck golden property compare; do
    part $suite "$bin/gpu_tests" --cases "${CASES:-300}" $suite
done
if command -v compute-sanitizer >/dev/null; then
    part sanitizer compute-sanitizer --error-exitcode 1 "$bin/gpu_tests" \
        --levels cuda:auto:separate --only rows opcheck
else
    table+="sanitizer    skipped  compute-sanitizer is not installed"$'\n'
fi
printf '%s' "$table"
exit $failed
