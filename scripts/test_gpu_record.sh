#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What scripts/test-gpu.sh would run holds every suite, family, program and script of the GPU tests
# that there is, on each path; and scripts/gpu_age.sh distinguishes runs of what is there from older ones, in
# a history made here. Needs no GPU. Usage: scripts/test_gpu_record.sh
set -u
cd "$(dirname "$0")/.." || exit 2
root=$PWD
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
. scripts/check.sh
show=$work/said

for mode in --quick ""; do
    scripts/test-gpu.sh $mode --list >"$work/said"
    listed() { grep -qE "$1" "$work/said"; }
    for suite in $(sed -n 's/{"\([a-z]*\)", suite_[a-z]*}/\n\1\n/gp' tests/gpu/main.c | grep -E '^[a-z]+$'); do
        check "suite $suite $mode" listed "gpu_tests.* $suite\$"
    done
    for path in auto mma small; do
        for family in linear gdn gdn_many gdn_layer attend attend_many sparse choice conv values rows moe \
            heads mass sample; do
            check "opcheck of $family, $path $mode" listed "cuda:$path --only $family opcheck\$"
        done
        check "rule E, $path $mode" listed "cuda:$path --cases [0-9]+ property\$"
    done
    check "published files $mode" listed "test_real.py .* --device cuda"
    for file in tests/gpu/test_*.c* scripts/test_gpu_*.sh; do
        name=$(basename "${file%.*}")
        # The plain kernels are a build of their own, which --quick has no time for.
        [ "$name" = test_gpu_record ] || [ "$name$mode" = test_gpu_plain--quick ] ||
            check "$name $mode" listed "/$name(\.sh)?( |\$)"
    done
done
check "racecheck in a whole run" listed "^racecheck-gdn"
scripts/test-gpu.sh --quik >"$work/said" 2>&1
check "an unknown option is refused" [ $? = 2 ]

if ! command -v git >/dev/null; then
    echo "skipped  the age of GPU checks: no git"
    finish
    exit
fi
export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_NOSYSTEM=1 GIT_CEILING_DIRECTORIES=$work
export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b
unset GIT_DIR GIT_WORK_TREE GIT_INDEX_FILE
tree=$work/tree
mkdir -p "$tree/scripts" "$tree/src/ops" "$tree/src/cli" "$tree/tests/gpu"
cp scripts/gpu_age.sh "$tree/scripts"
age() { "$tree/scripts/gpu_age.sh" >"$work/said" 2>&1; }
says() { grep -qF -e "$1" "$work/said"; }
commit() { git -C "$tree" add -A && git -C "$tree" commit -q -m "$1"; }
# ran FAILED: records a run of the newest commit.
ran() {
    printf '%s\n' "commit: $(git -C "$tree" rev-parse HEAD 2>/dev/null)" "mode: quick" "date: today" \
        "machine: a card" "passed: 7" "failed: $1" "" "table" >"$tree/tests/gpu/last_run.txt"
}

age
check "no record" says "no run is recorded"
ran 0
age
check "no history" says "no git history here"
git -C "$tree" init -q
echo 1 >"$tree/src/ops/a.cu"
commit one
ran 0
commit record
age
check "a run of what is there" says "are of what is here"
echo 1 >"$tree/src/cli/a.c"
commit "another folder"
age
check "a change elsewhere" says "are of what is here"
echo 2 >"$tree/src/ops/a.cu"
commit "a kernel changed"
echo 3 >"$tree/src/ops/a.cu"
commit "and again"
age
check "an older run" says "GPU checks are older than src/ops ("
check "an older run counts commits" says ": 2 commits, the newest"
check "an older run names the newest" says "and again"
echo 1 >"$tree/src/ops/a.cu"
commit "as before"
age
check "the same files again" says "are of what is here"
ran 2
age
check "a run that failed" says "the last run failed: 7 passed, 2 failed"
git clone -q --depth 1 "file://$tree" "$work/shallow"
sed -i "s/^commit: .*/commit: $(git -C "$tree" rev-parse HEAD~2)/" "$work/shallow/tests/gpu/last_run.txt" 2>/dev/null ||
    printf 'commit: %s\nfailed: 0\n' "$(git -C "$tree" rev-parse HEAD~2)" >"$work/shallow/tests/gpu/last_run.txt"
"$work/shallow/scripts/gpu_age.sh" >"$work/said" 2>&1
check "a shallow clone does not fail" [ $? = 0 ]
check "a shallow clone" says "not in this history"
cd "$root" || exit 2
finish
