#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Tests scripts/gate.sh on the bundled pair and small random models: a few checks of each kind with their result, a gate that
# goes on where it was, and that it finds a program whose guesses change the output, one that breaks, and one without a server.
# Usage: scripts/test_gate.sh PROGRAM
# The last line is "N passed, N failed".
set -u
program=$(realpath "$1")
cd "$(dirname "$0")/.." || exit 1
root=$PWD
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
. "$root/scripts/check.sh"
show=out

# gate PROGRAM ARGUMENT...: what it printed in out, the exit status in got.
gate() {
    timeout 600 "$root/scripts/gate.sh" "$1" "${@:2}" --no-real >out 2>&1 </dev/null
    got=$?
}
prints() { grep -qE -e "$1" "${2:-out}"; }
ended() { [ "$got" = "$1" ]; }

gate "$program" 6000 --work "$work/gate" --out "$work/result.txt" --commit abc
check "a gate passes" ended 0
check "its last line" prints '^[0-9]+ passed, 0 failed$'
for line in '^program: coppice [0-9.]+' '^machine: .*cores$' '^date: 20' '^command: scripts/gate.sh .* 6000 ' '^differing: 0$' \
    '^broken checks: 0$' '^tokens compared: [0-9]{4,}$' '^bundled pair +(alone|served|grammars|side by side) ' '^llama-tiny q8_0 +alone' \
    '^[0-9a-f]{64}  coppice-tiny-q8_0.gguf$' '^[0-9a-f]{64}  coppice-tiny-dflash-q8_0.gguf$'; do
    check "the result has $line" prints "$line" result.txt
done
before=$(grep '^tokens compared' result.txt)
gate "$program" 6000 --work "$work/gate" --out "$work/again.txt"
check "what is done is not done again" test -z "$(grep '^ok' out)"
check "and has the same sums" prints "^$before\$" again.txt

# A program whose guesses differ once, as bench and verify tell it.
cat >liar <<END
#!/usr/bin/env bash
"$program" "\$@" | sed 's/"different": *0/"different":1/g'
case \$1 in bench | verify) exit 1 ;; esac
END
# One that breaks where it decodes, and one that was built without a server.
cat >broken <<END
#!/usr/bin/env bash
case \$1 in bench | serve) exit 3 ;; esac
exec "$program" "\$@"
END
cat >engine <<END
#!/usr/bin/env bash
case "\$1 \$*" in verify*) echo "this program was built without a server and JSON" >&2 && exit 1 ;; *--prompts*) exit 4 ;; esac
exec "$program" "\$@"
END
chmod +x liar broken engine
for folder in liar broken engine short; do
    mkdir "gate-$folder" && cp gate/*.gguf "gate-$folder"
done
gate "$work/liar" 2000 --work "$work/gate-liar"
check "a difference fails" ended 1
check "it is counted" prints '^differing: [1-9]'
check "and its check named" prints '^failed: check 0, alone, llama-tiny q8_0: [1-9][0-9]* differ'
gate "$work/broken" 2000 --work "$work/gate-broken"
check "a program that breaks fails" ended 1
check "it is said how" prints 'RuntimeError: status 3'
check "and not tried for ever" prints '^checks: 2[0-9]$'
gate "$work/engine" 2500 --work "$work/gate-engine"
check "the engine alone has a gate" ended 0
check "without clients" test -z "$(grep -E ' (served|grammars) ' out)"
gate "$program" 100000000 --seconds 0.001 --work "$work/gate-short"
check "a limit of time holds" ended 0
check "with what was compared" prints '^checks: 1$'
gate "$program" 5 --bogus
check "an option that is none" ended 2
gate "$work/none" 5
check "a program that is none" ended 2
gate "$work" 5
check "a folder" ended 2
gate /bin/true 5 --work "$work/gate-true"
check "another program" ended 2
check "it is named" prints 'true is not coppice'
gate "$program" 0
check "no tokens" ended 2
gate "$program" 5 --device marble
check "a device that is none" ended 2
gate ""
check "without a program its usage" prints '^usage: scripts/gate.sh PROGRAM'
finish
