#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds the engine for this machine's GPU without third-party libraries and runs every GPU check:
# machine code, memory, faults, random tiles, ops, golden models, both with as little shared memory as
# other GPUs have, some of both with launches held that begin early, rule E over random models on each
# path, logits against the CPU's, the bundled pair with and without speculation, pairs of experts with
# all of them resident and with few, prompts by cuBLAS where it is installed, options beside each
# other, long prompts read sparsely or compressed and the server with a pair of experts, where there is
# a program for them (preset cuda), what is said when something is wrong, and, where compute-sanitizer
# is installed, memcheck and racecheck of all ops.
# Prints the failures of each part and one table; its last line is "N passed, N failed". CASES: random
# cases of rule E on each path (300). LIMIT: seconds for each of these checks (400).
set -u
cd "$(dirname "$0")/.." || exit 2
PATH=$PATH:/usr/local/cuda/bin # where the toolkit puts compute-sanitizer
logs=build/logs
mkdir -p "$logs"
start=$SECONDS
if ! { cmake --preset cuda-engine && cmake --build --preset cuda-engine -j "$(nproc)"; } \
    >"$logs/gpu-build.log" 2>&1; then
    tail -n 20 "$logs/gpu-build.log"
    exit 2
fi
folder=build/cuda-engine
tests=$folder/tests/gpu
table=$(printf '%-16s %-8s %5d s' build passed $((SECONDS - start)))$'\n'
work=$PWD/build
. scripts/check.sh

# row NAME STATUS SECONDS: adds a part to the table and its counts to the sums. The part's last line
# that says "N passed, N failed" counts; without one the part is one check.
row() {
    local name=$1 rc=$2 log=$logs/gpu-$1.log verdict counts good=0 bad=0
    counts=$(grep -oE '[0-9]+ passed, [0-9]+ failed' "$log" | tail -n 1)
    [ -z "$counts" ] || { good=${counts%% *} bad=${counts#*, } bad=${bad%% *}; }
    case $rc in
    0) verdict=passed ;;
    77) verdict=skipped good=0 bad=0 ;;
    *) verdict=FAILED ;;
    esac
    [ "$verdict$good$bad" != passed00 ] || good=1
    [ "$verdict$bad" != FAILED0 ] || bad=1
    passed=$((passed + good))
    failed=$((failed + bad))
    grep -E '^FAIL|^skip' "$log" | sort -u | head -n 20
    [ "$verdict" != FAILED ] || [ -n "$counts" ] || tail -n 10 "$log"
    table+=$(printf '%-16s %-8s %5d s  %s' "$name" "$verdict" "$3" "$(tail -n 1 "$log")")$'\n'
}

# part NAME COMMAND...: runs it and reports.
part() {
    local name=$1 from=$SECONDS
    shift
    "$@" >"$logs/gpu-$name.log" 2>&1
    row "$name" $? $((SECONDS - from))
}

# Rule E on each path; small models leave room for all paths at once, and for the scorer: a GPU that
# is behind shows what does not wait for it.
property() {
    local from=$SECONDS path paths=(auto mma small) jobs=() i
    "$tests/gpu_tests" score >"$logs/gpu-score.log" 2>&1 &
    local scorer=$!
    for path in "${paths[@]}"; do
        "$tests/gpu_tests" --levels "cuda:$path" --cases "${CASES:-300}" property \
            >"$logs/gpu-property-$path.log" 2>&1 &
        jobs+=($!)
    done
    wait "$scorer"
    row score $? $((SECONDS - from))
    for i in 0 1 2; do
        wait "${jobs[i]}"
        row "property-${paths[i]}" $? $((SECONDS - from))
    done
}

# sanitize TOOL LEVEL [OPTION]...: a tool of compute-sanitizer over the ops, family by family, all
# at once.
sanitize() {
    local from=$SECONDS tool=$1 level=$2 family jobs=() i
    local families=(rows attend linear gdn gdn_many gdn_layer sparse mass moe sample)
    shift 2
    for family in "${families[@]}"; do
        timeout "${LIMIT:-400}" compute-sanitizer --tool "$tool" --error-exitcode 1 "$@" \
            "$tests/gpu_tests" --levels "$level" --brief --only "$family" opcheck \
            >"$logs/gpu-$tool-$family.log" 2>&1 &
        jobs+=($!)
    done
    for i in "${!families[@]}"; do
        wait "${jobs[i]}"
        row "$tool-${families[i]}" $? $((SECONDS - from))
    done
}

part wgmma-code python3 tests/gpu/check_wgmma.py "$folder/coppice"
for program in "$tests"/test_*; do
    [ ! -f "$program" ] || part "$(basename "$program")" "$program"
done
for suite in opcheck sigmoid golden lending; do
    part "$suite" "$tests/gpu_tests" "$suite"
done
# Launches that begin early, held while what they may not have read is kept back.
part delay-lies "$tests/gpu_tests" --levels cuda:auto:separate --delay lies
for model in r1_tied q3_untied g4_own oss; do
    part "delay-$model" "$tests/gpu_tests" --levels cuda:auto:separate --delay --only $model golden
done
# As on GPUs of 8.6, 8.9 and 12.0, and of 7.5: what a launch asks for is held to their shared memory.
part opcheck-room "$tests/gpu_tests" --levels cuda:mma:99k,cuda:small:64k opcheck
part golden-room "$tests/gpu_tests" --levels cuda:mma:99k,cuda:small:64k golden
part delay-gdn "$tests/gpu_tests" --levels cuda:auto:separate --delay --brief --only gdn opcheck
for path in auto mma small; do
    delayed=("$tests/gpu_tests" --levels "cuda:$path:separate" --delay --brief)
    part "delay-linear-$path" "${delayed[@]}" --only linear opcheck
    part "delay-moe-$path" "${delayed[@]}" --only moe opcheck
    part "delay-rule-$path" "${delayed[@]}" --cases 6 property
done
property
part compare "$tests/gpu_tests" --levels cuda compare
part pair "$folder/coppice" bench -m models/coppice-tiny-q8_0.gguf \
    -d models/coppice-tiny-dflash-q8_0.gguf --device cuda --prompt-tokens 64,700 -n 192 \
    --ignore-eos
part sequences "$folder/coppice" bench -m models/coppice-tiny-q8_0.gguf \
    -d models/coppice-tiny-dflash-q8_0.gguf --device cuda --prompt-tokens 700 -n 96 \
    --ignore-eos --sequences 1,3,8 --modes off,chain:16,tree:40 --drafter oracle:errors=0.15
part experts scripts/test_gpu_experts.sh "$folder/coppice"
part vendor scripts/test_gpu_vendor.sh "$folder/coppice"
if ! grep -q "needs cuBLAS" "$logs/gpu-vendor.log"; then
    part opcheck-vendor "$tests/gpu_tests" --levels cuda:auto:vendor,cuda:mma:vendor --only linear \
        opcheck
fi
part options scripts/test_gpu_options.sh "$folder/coppice"
if [ -x build/cuda/coppice ]; then
    part prefill scripts/test_gpu_prefill.sh build/cuda/coppice
    part server-lending python3 tests/server/test_lending.py build/cuda/coppice
else
    table+="prefill, server  skipped  there is no build/cuda (cmake --preset cuda)"$'\n'
fi
part bad-input scripts/test_gpu_cli.sh "$folder/coppice" "$tests/old_driver"
if command -v compute-sanitizer >/dev/null; then
    sanitize memcheck cuda:auto:separate
    sanitize racecheck cuda:auto --racecheck-indirect-barrier-dependency
else
    table+="sanitizer        skipped  compute-sanitizer is not installed"$'\n'
fi
printf '%s' "$table"
finish
