#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Says whether the last recorded run of the GPU checks (tests/gpu/last_run.txt, which
# scripts/test-gpu.sh writes) is of what is there now. A machine without a GPU cannot repeat the run,
# so this fails nothing. Usage: scripts/gpu_age.sh [RECORD]
# Older is a run when a file of the folders below differs between its commit and HEAD: what runs on
# the device, what decides how it is called, and the flags that both are compiled with. What reads
# files, text and requests is the same code with and without a GPU, which the other tests cover.
set -u
folders=(src/ops src/state src/models src/spec src/compress src/engine cmake/coppice.cmake)
cd "$(dirname "$0")/.." || exit 2
record=${1:-tests/gpu/last_run.txt}

value() { sed -n "s/^$1: //p" "$record" | head -n 1; }

if [ ! -f "$record" ]; then
    echo "note     GPU checks: no run is recorded in $record"
    exit
fi
commit=$(value commit)
failed=$(value failed)
run="$(value passed) passed, ${failed:-?} failed, $(value mode), $(value date), $(value machine)"
[ "$failed" = 0 ] || echo "note     GPU checks: the last run failed: $run"
id=${commit%% *}
if [ "$(git rev-parse --show-prefix 2>/dev/null || echo none)" != "" ]; then # none, or another's
    echo "note     GPU checks of $id: no git history here to compare with ($run)"
elif ! git cat-file -e "$id^{commit}" 2>/dev/null; then
    echo "note     GPU checks of $id: a commit that is not in this history ($run)"
elif git diff --quiet "$id" HEAD -- "${folders[@]}"; then
    echo "note     GPU checks are of what is here: ${id:0:12}$([ "$id" = "$commit" ] || echo ", with changes") ($run)"
else
    n=$(git rev-list --count --no-merges "$id..HEAD" -- "${folders[@]}")
    newest=$(git log -1 --no-merges --format='%h %s' "$id..HEAD" -- "${folders[@]}")
    changed=$(git diff --dirstat=files,0 "$id" HEAD -- "${folders[@]}" | sed 's/^ *[0-9.]*% //' |
        cut -d / -f 1-2 | sort -u | tr '\n' ' ')
    echo "note     GPU checks are older than $changed(${id:0:12}, $run): $n commits, the newest" \
        "$newest; run scripts/test-gpu.sh --quick on a GPU and commit $record"
fi
