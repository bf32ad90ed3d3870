# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Counting of cases, sourced by the test scripts. Cases that failed are shown, with the beginning of
# the file that `show` names.
[ -z "${work:-}" ] || export XDG_CACHE_HOME=$work/cache # nothing stays in the user's folders
passed=0
failed=0
show=err # what the program under test wrote on standard error

# verdict NAME [WHY]: counts a case, which is right when there is no WHY.
verdict() {
    if [ -z "${2:-}" ]; then
        passed=$((passed + 1))
        return
    fi
    failed=$((failed + 1))
    echo "FAIL   $1: $2"
    [ ! -e "$show" ] || head -c 1500 "$show"
}

# check NAME COMMAND...: counts a case, which is right when COMMAND succeeds.
check() {
    local name=$1
    shift
    if "$@"; then verdict "$name"; else verdict "$name" "$*"; fi
}

# finish [NAME]: prints the sums; fails unless all cases passed.
finish() {
    echo "${1:+$1: }$passed passed, $failed failed"
    [ "$failed" = 0 ]
}
