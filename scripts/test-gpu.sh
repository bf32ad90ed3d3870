#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds the engine for this machine's GPU without third-party libraries and runs every GPU check:
# machine code, memory, faults, random tiles, ops, golden models, both with as little shared memory as
# other GPUs have, some of both with launches held that begin early, rule E over random models on each
# path, logits against the CPU's, the bundled pair with and without speculation, pairs of experts with
# all of them resident and with few, options together, long prompts read sparsely or compressed
# and the server with a pair of experts, where there is a program for them (preset cuda), published
# model files where a folder has them, what is said when something is wrong, and, where compute-sanitizer is installed, memcheck and racecheck of the ops.
#
# Usage: scripts/test-gpu.sh [--quick] [--jobs N] [--commit ID] [--out FOLDER] [--real FOLDER] [--list]
# --quick: the same parts side by side, with fewer random cases, with the ops that ask for much
#     shared memory where that is little, with held launches of two slow families on the best path
#     only, and without racecheck and the slow families of memcheck: at most six minutes on an H200
#     with 16 cores, of which the build takes two.
# --jobs N: parts at once (1; with --quick as many as cores, at most 12). Each takes up to 16 GB.
# --commit ID: what is recorded as the commit (default: that of the working tree).
# --out FOLDER: put the record and the logs (gpu-logs.tar.gz) there instead of recording the run in
#     tests/gpu/last_run.txt, which is committed by hand and read by scripts/gpu_age.sh.
# --real FOLDER: where the two files of scripts/real.sh are (its cache), for a machine that cannot fetch
#     them; with --quick a few types of weights, else all.
# --list: print the parts with their commands and run nothing.
# Prints a line when a part ends, the failures, and one table; the last line is "N passed, N failed".
# CASES: random cases of rule E on each path (300; with --quick 24). LIMIT: seconds for each part of
# --quick and for each of the sanitizers' (400; with --quick 240).
set -u
cd "$(dirname "$0")/.." || exit 2
root=$PWD
PATH=$PATH:/usr/local/cuda/bin # where the toolkit puts compute-sanitizer
quick='' list='' commit='' out='' slots=''
real=${XDG_CACHE_HOME:-${HOME:-build}/.cache}/coppice-tests
while [ $# -gt 0 ]; do
    case $1 in
    --quick) quick=1 ;;
    --list) list=1 ;;
    --jobs) slots=${2:?a number} && shift ;;
    --commit) commit=${2:?a commit} && shift ;;
    --out) out=${2:?a folder} && shift ;;
    --real) real=${2:?a folder} && shift ;;
    *)
        echo "test-gpu.sh: unknown argument '$1'; see the head of the script" >&2
        exit 2
        ;;
    esac
    shift
done
cores=$(nproc)
slots=${slots:-$((quick ? cores < 12 ? cores : 12 : 1))}
cases=${CASES:-$((quick ? 24 : 300))}
limit=${LIMIT:-$((quick ? 240 : 400))}
logs=build/logs
folder=build/cuda-engine
tests=$folder/tests/gpu
work=$root/build
start=$SECONDS
names=() # of parts, in the order of the table
. scripts/check.sh

# part NAME COMMAND...: runs it when a slot is free; its exit status and seconds go to a file next to
# its log. Parts of --quick have a limit.
part() {
    local name=$1 bound=()
    shift
    if [ "$list" ]; then
        printf '%s\t%s\n' "$name" "$*"
        return
    fi
    while [ "$(jobs -rp | wc -l)" -ge "$slots" ]; do wait -n; done
    names+=("$name")
    [ ! "$quick" ] || bound=(timeout "$limit")
    {
        from=$SECONDS
        "${bound[@]}" "$@" >"$logs/gpu-$name.log" 2>&1 </dev/null
        rc=$?
        echo "$rc $((SECONDS - from))" >"$logs/gpu-$name.rc"
        printf '%4d s  %-22s %4d s, status %d\n' $((SECONDS - start)) "$name" $((SECONDS - from)) $rc
    } &
}

# beside N: lets N parts run at once where fewer would, until `usual`.
beside() {
    before=$slots
    [ "$slots" -lt "$1" ] || return
    wait
    slots=$1
}
usual() {
    [ "$slots" = "$before" ] || wait
    slots=$before
}

# row NAME: a part's line of the table; its counts are added to the sums. The part's last line that
# says "N passed, N failed" counts; without one the part is one check.
row() {
    local name=$1 log=$logs/gpu-$1.log rc seconds verdict counts last good=0 bad=0
    read -r rc seconds <"$logs/gpu-$name.rc" || rc=1 seconds=0 # something ended it
    counts=$(grep -oE '[0-9]+ passed, [0-9]+ failed' "$log" | tail -n 1)
    [ -z "$counts" ] || { good=${counts%% *} bad=${counts#*, } bad=${bad%% *}; }
    last=$(tail -n 1 "$log" | cut -c 1-110)
    [ "$rc" != 124 ] || last="ran past its limit; last: $last"
    # A virtual machine that does not show compute-sanitizer its device.
    [ "$rc$bad" != 10 ] || ! grep -q "Device not supported" "$log" || rc=77
    case $rc in
    0) verdict=passed ;;
    77) verdict=skipped good=0 bad=0 ;;
    *) verdict=FAILED ;;
    esac
    [ "$verdict$good$bad" != passed00 ] || good=1
    [ "$verdict$bad" != FAILED0 ] || bad=1
    passed=$((passed + good))
    failed=$((failed + bad))
    [ "$verdict" != skipped ] || skipped+=" $name"
    grep -E '^FAIL|^skip' "$log" | sort -u | head -n 20
    [ "$verdict" != FAILED ] || [ -n "$counts" ] || tail -n 10 "$log"
    table+=$(printf '%-22s %-8s %4d s  %s' "$name" "$verdict" "$seconds" "$last")$'\n'
}

# The record of this run: a key and its value a line, then the table.
record() {
    local gpu dirty=''
    gpu=$(nvidia-smi --query-gpu=name,memory.total,driver_version --format=csv,noheader 2>/dev/null |
        head -n 1)
    if [ -z "$commit" ]; then
        commit=$(git rev-parse HEAD 2>/dev/null || echo unknown)
        [ -z "$(git status --porcelain --untracked-files=no 2>/dev/null)" ] || dirty=" (changed)"
    fi
    echo "commit: $commit$dirty"
    echo "mode: $([ "$quick" ] && echo quick || echo full), $cases random cases a path"
    echo "date: $(date -u '+%F %H:%M UTC')"
    echo "machine: ${gpu:-unknown GPU}; $cores cores"
    echo "seconds: $((SECONDS - start))"
    echo "passed: $passed"
    echo "failed: $failed"
    echo "skipped:${skipped:- none}"
    printf '\n%s' "$table"
}

if [ ! "$list" ]; then
    mkdir -p "$logs" && rm -f "$logs"/gpu-*.log "$logs"/gpu-*.rc
    if ! { cmake --preset cuda-engine && cmake --build --preset cuda-engine -j "$cores"; } \
        >"$logs/gpu-build.log" 2>&1; then
        tail -n 20 "$logs/gpu-build.log"
        exit 2
    fi
    echo "0 $((SECONDS - start))" >"$logs/gpu-build.rc"
    names=(build)
fi
program=$folder/coppice
run="$tests/gpu_tests"
paths=(auto mma small)
# Each family of ops with more than times, from the table that the program has.
mapfile -t families < <(sed -n '/", NULL, NULL, NULL,/d; s/^    {"\([a-z_]*\)", .*check_.*/\1/p' \
    tests/opcheck/harness.c)

# What takes longest comes first.
part wgmma-code python3 tests/gpu/check_wgmma.py "$program"
# Launches that begin early, held while what they may not have read is kept back.
for path in "${paths[@]}"; do
    delayed=("$run" --levels "cuda:$path:separate" --delay --brief)
    if [ -z "$quick" ] || [ "$path" = auto ]; then
        part "delay-moe-$path" "${delayed[@]}" --only moe opcheck
        part "delay-linear-$path" "${delayed[@]}" --only linear opcheck
    fi
    part "delay-rule-$path" "${delayed[@]}" --cases 6 property
done
part delay-gdn "$run" --levels cuda:auto:separate --delay --brief --only gdn opcheck
part delay-lies "$run" --levels cuda:auto:separate --delay lies
for model in r1_tied q3_untied g4_own oss ds3_wide; do
    part "delay-$model" "$run" --levels cuda:auto:separate --delay --only $model golden
done
for path in "${paths[@]}"; do
    part "golden-$path" "$run" --levels "cuda:$path" golden
    part "lending-$path" "$run" --levels "cuda:$path" lending
done
# As on GPUs of 8.6, 8.9 and 12.0, and of 7.5: the shared memory of launches is limited to their shared memory.
for room in mma:99k small:64k; do
    part "golden-${room#*:}" "$run" --levels "cuda:$room" golden
    if [ "$quick" ]; then # kernels that use much of it
        for family in linear moe attend gdn; do
            part "opcheck-${room#*:}-$family" "$run" --levels "cuda:$room" --brief \
                --only "$family" opcheck
        done
    else
        part "opcheck-${room#*:}" "$run" --levels "cuda:$room" opcheck
    fi
done
part experts scripts/test_gpu_experts.sh "$program"
for path in "${paths[@]}"; do
    part "options-$path" scripts/test_gpu_options.sh "$program" cuda "$path"
done
part test_faults "$tests/test_faults"
# Rule E on each path; small models leave room for all paths at once, and for the scorer: a GPU that
# is behind shows what does not wait for it.
beside 4
part score "$run" score
for path in "${paths[@]}"; do
    part "property-$path" "$run" --levels "cuda:$path" --cases "$cases" property
done
usual
for family in "${families[@]}"; do
    for path in "${paths[@]}"; do
        part "opcheck-$family-$path" "$run" --levels "cuda:$path" --only "$family" opcheck
    done
done
for source in tests/gpu/test_*.c tests/gpu/test_*.cu; do
    name=$(basename "${source%.*}")
    [ "$name" = test_faults ] || part "$name" "$tests/$name"
done
part sigmoid "$run" --levels cuda sigmoid
part compare "$run" --levels cuda compare
pair=(-m models/coppice-tiny-q8_0.gguf -d models/coppice-tiny-dflash-q8_0.gguf --device cuda
    --ignore-eos)
part pair "$program" bench "${pair[@]}" --prompt-tokens 64,700 -n 192
part sequences "$program" bench "${pair[@]}" --prompt-tokens 700 -n 96 --sequences 1,3,8 \
    --modes off,chain:16,tree:40 --drafter oracle:errors=0.15
if [ -x build/cuda/coppice ] || [ "$list" ]; then
    part prefill scripts/test_gpu_prefill.sh build/cuda/coppice
    part server-lending python3 tests/server/test_lending.py build/cuda/coppice
fi
# The path `small` in plain C++ (docs/extending.md).
[ "$quick" ] || part plain scripts/test_gpu_plain.sh
part bad-input scripts/test_gpu_cli.sh "$program" "$tests/old_driver"
published=("$real"/SmolLM2-135M-Instruct.Q4_1.gguf "$real"/gemma-3-270m-q4_k_m.gguf)
if [ "$list" ] || { [ -f "${published[0]}" ] && [ -f "${published[1]}" ]; }; then
    all=(--all)
    [ -z "$quick" ] || all=()
    part real python3 tests/real/test_real.py "$program" "$real" --device cuda "${all[@]}"
fi
# Of compute-sanitizer all families at once; what takes it minutes only without --quick.
sanitized=(rows attend linear sparse mass moe)
[ "$quick" ] || sanitized+=(gdn gdn_many gdn_layer sample)
if command -v compute-sanitizer >/dev/null || [ "$list" ]; then
    beside "${#sanitized[@]}"
    checker=(timeout "$limit" compute-sanitizer --error-exitcode 1)
    brief=("$run" --levels cuda:auto:separate --brief)
    for family in "${sanitized[@]}"; do
        part "memcheck-$family" "${checker[@]}" --tool memcheck "${brief[@]}" --only "$family" opcheck
    done
    [ "$quick" ] || for family in "${sanitized[@]}"; do
        part "racecheck-$family" "${checker[@]}" --tool racecheck \
            --racecheck-indirect-barrier-dependency "$run" --levels cuda:auto --brief \
            --only "$family" opcheck
    done
    usual
fi
[ ! "$list" ] || exit 0

wait
table='' skipped=''
[[ " ${names[*]} " == *" real "* ]] || skipped+=" real (no published files in $real)"
[ -x build/cuda/coppice ] || skipped+=" prefill server-lending (no build/cuda)"
command -v compute-sanitizer >/dev/null || skipped+=" compute-sanitizer (not installed)"
for name in "${names[@]}"; do row "$name"; done
if [ -n "$out" ]; then
    mkdir -p "$out" && record >"$out/last_run.txt"
    tar -C "$logs" -czf "$out/gpu-logs.tar.gz" .
else
    record >tests/gpu/last_run.txt
fi
printf '%s' "$table"
[ -z "$skipped" ] || echo "skipped:$skipped"
echo "$((SECONDS - start)) s"
finish
