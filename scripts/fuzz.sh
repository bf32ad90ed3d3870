#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# One fuzz target for some time, under libFuzzer or AFL++.
# Usage: scripts/fuzz.sh TARGET SECONDS [--afl] [--keep]      (TARGET: a name in tests/fuzz/corpus)
# Inputs that reach something new stay in build/corpus/TARGET, for both fuzzers and the next run.
# --keep adds to tests/fuzz/corpus/TARGET those that reach code which the kept ones do not reach,
# smallest first, as long as the folder stays below 48 KiB, and takes out those of earlier runs
# that are no longer needed. The last line says how many inputs ran and how much of the code they
# reached. What a run finds stays in build/findings/TARGET and makes the exit status 1.
set -eu
cd "$(dirname "$0")/.."
usage() {
    echo "fuzz.sh: $1; usage: scripts/fuzz.sh TARGET SECONDS [--afl] [--keep], TARGET one of" \
        $(ls tests/fuzz/corpus) >&2
    exit 2
}
[ $# -ge 2 ] || usage "a target and a number of seconds are missing"
target=$1
seconds=$2
shift 2
[ -f "tests/fuzz/fuzz_$target.c" ] || usage "there is no target '$target'"
[[ $seconds =~ ^[1-9][0-9]*$ ]] || usage "'$seconds' is no number of seconds"
afl=0
keep=0
for option in "$@"; do
    case $option in
    --afl) afl=1 ;;
    --keep) keep=1 ;;
    *) usage "unknown option '$option'" ;;
    esac
done

seeds=tests/fuzz/corpus/$target
corpus=build/corpus/$target
findings=build/findings/$target
declare -A sources=(
    [chat]="src/text/chat/*.c src/cli/chat/terminal.c"
    [checkpoint]="src/state/checkpoint.c src/ops/kv/codec.h" [convert]="src/convert/*.c src/convert/families/*.c src/convert/vocab/*.c src/convert/quantize/*.c"
    [api]="src/serve/request/*.c src/serve/conversation/chat.c src/text/chat/read.c src/serve/reply/stop_match.c src/serve/reply/answer.c src/serve/http/sse.c src/serve/request_log.c" [gguf]="src/formats/gguf/*.c" [http]="src/serve/http/*.c"
    [grammar]="src/grammar/*.c src/grammar/*/*.c tests/fixtures/grammar/schemas.jsonl"
    [imatrix]="src/formats/imatrix.c" [jinja]="src/text/jinja/*.c" [json]="src/cli/bench/prompts.c"
    [model]="src/models/*.c src/models/*/*.c src/text/tokenizer/vocab.c" [options]="src/cli/options/table.c src/formats/quant/quant.c"
    [reasoning]="src/text/chat/reasoning.c" [template]="src/text/jinja/*.c src/text/chat/*.c"
    [safetensors]="src/formats/safetensors.c" [select]="src/compress/select/*.c"
    [split]="src/text/tokenizer/rules.c"
    [tokenizer]="src/text/tokenizer/*.c" [tool_calls]="src/text/tools/*.c src/text/tools/json_pieces.c")
room=$((48 * 1024))
most=32768 # bytes of an input
mkdir -p "$corpus" "$findings"
work=$(mktemp -d "$([ -w /dev/shm ] && echo /dev/shm || echo /tmp)/coppice-fuzz-XXXXXX")
trap 'rm -rf "$work"' EXIT
export TMPDIR=$work # of targets that write files
export ASAN_OPTIONS=allocator_may_return_null=1

# The words that a reader looks for are the texts in its source.
LC_ALL=C grep -ohE '"[][ !#$&-Z^-~]{2,60}"' ${sources[$target]:-"tests/fuzz/fuzz_$target.c"} | sort -u >"$work/words"

find_clang() {
    local version
    for version in -19 -18 -17 -16 -15 -14 ""; do
        command -v "clang$version" 2>/dev/null && return 0
    done
    echo "fuzz.sh: libFuzzer needs clang, which is not installed" >&2
    exit 1
}

# build PRESET COMPILER: the target's program.
build() {
    [ -f "build/$1/build.ninja" ] || CC=$2 cmake --preset "$1" >"$work/log" || {
        cat "$work/log"
        exit 1
    }
    cmake --build --preset "$1" --target "fuzz_$target" >"$work/log" 2>&1 || {
        tail -n 40 "$work/log"
        exit 1
    }
}

# libfuzzer ARGUMENT...: the program with the limits that every use shares.
libfuzzer() {
    build/fuzz/tests/fuzz_"$target" -timeout=600 -report_slow_units=600 -rss_limit_mb=2048 \
        -malloc_limit_mb=512 -max_len=$most -artifact_prefix="$findings/" "$@"
}

run_libfuzzer() {
    local log=$work/fuzz.log
    libfuzzer -max_total_time="$seconds" -print_final_stats=1 -dict="$work/words" "$corpus" \
        "$seeds" >"$log" 2>&1 || {
        tail -n 60 "$log"
        return 1
    }
    sed -n 's/^stat::number_of_executed_units: */inputs /p' "$log" | tail -n 1
    sed -n 's/.*DONE *\(cov: [0-9]*\).*/\1/p' "$log" | tail -n 1
}

afl_asan=abort_on_error=1:symbolize=0:detect_leaks=0:max_allocation_size_mb=512

stat_of() { sed -n "s/^$1 *: //p" "$work/out/default/fuzzer_stats"; }

run_afl() {
    local log=$work/fuzz.log bad=0 from file hash
    mkdir "$work/in"
    for from in "$corpus" "$seeds"; do
        find "$from" -type f -size -$((most + 1))c -exec cp -t "$work/in" {} +
    done
    AFL_NO_UI=1 AFL_SKIP_CPUFREQ=1 AFL_NO_AFFINITY=1 AFL_I_DONT_CARE_ABOUT_MISSING_CRASHES=1 \
        AFL_FAST_CAL=1 ASAN_OPTIONS="$ASAN_OPTIONS:$afl_asan" \
        afl-fuzz -i "$work/in" -o "$work/out" -V "$seconds" -t 5000 -m none -G $most \
        -x "$work/words" -- build/afl/tests/fuzz_"$target" >"$log" 2>&1 || {
        tail -n 40 "$log"
        return 1
    }
    for file in "$work"/out/default/{crashes,hangs}/id*; do
        [ -f "$file" ] || continue
        cp "$file" "$findings/afl-$(sha1sum "$file" | cut -c1-40)"
        bad=$((bad + 1))
    done
    sha1sum "$work"/out/default/queue/id* | while read -r hash file; do
        cp "$file" "$corpus/$hash"
    done
    echo "inputs $(stat_of execs_done)"
    echo "edges $(stat_of edges_found) of $(stat_of total_edges)"
    [ "$bad" = 0 ]
}

# Inputs with a hash for a name came from a run; the others are written by make_seeds.py or tell of
# a finding, and stay.
is_from_run() { [[ $(basename "$1") =~ ^[0-9a-f]{40}$ ]]; }

keep_inputs() {
    local merged=$work/merged file used=0 size
    mkdir "$merged"
    for file in "$seeds"/*; do
        is_from_run "$file" && mv "$file" "$corpus/" && continue
        cp "$file" "$merged/"
        used=$((used + $(stat -c %s "$file")))
    done
    libfuzzer -merge=1 -use_counters=0 "$merged" "$corpus" >"$work/merge.log" 2>&1 || {
        tail -n 40 "$work/merge.log"
        return 1
    }
    while read -r size file; do
        is_from_run "$file" && [ $((used + size)) -le $room ] || continue
        cp "$file" "$seeds/"
        used=$((used + size))
    done < <(find "$merged" -type f -printf '%s %p\n' | sort -n)
}

status=0
if [ $afl = 1 ]; then
    command -v afl-clang-fast >/dev/null || {
        echo "fuzz.sh: AFL++ is not installed (Debian: afl++)" >&2
        exit 1
    }
    build afl afl-clang-fast
    run_afl >"$work/result" || status=1
else
    build fuzz "$(find_clang)"
    run_libfuzzer >"$work/result" || status=1
fi
if [ $keep = 1 ] && [ $status = 0 ]; then
    build fuzz "$(find_clang)"
    keep_inputs || status=1
fi
if [ $status != 0 ]; then
    cat "$work/result"
    echo "ended early" >"$work/result"
fi
found=$(find "$findings" -type f -newer "$work/words" | wc -l)
echo "$target, $([ $afl = 1 ] && echo AFL++ || echo libFuzzer), $seconds s:" \
    "$(tr '\n' ',' <"$work/result" | sed 's/,$//; s/,/, /g'); $found findings in $findings"
[ $status = 0 ] && [ "$found" = 0 ]
