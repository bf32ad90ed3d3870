#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Long prompts on a GPU with the bundled models: sparse reading gives the same bits for any chunk,
# with and without guesses and on each path that shares them; and generate, chat and serve compress
# on the device, keep what the CPU keeps, and say what the kept text says by itself.
# Usage: scripts/test_gpu_prefill.sh PROGRAM [DEVICE [PATHS]]
# DEVICE is cuda, PATHS are "auto mma small"; with cpu and "" it tests itself on any machine.
set -u
program=$(realpath "$1")
device=${2:-cuda}
paths=${3-auto mma small}
cd "$(dirname "$0")/.." || exit 2
work=$(mktemp -d)
server=
trap '[ -z "$server" ] || kill "$server"; rm -rf "$work"' EXIT
. scripts/check.sh
show=$work/err
model=models/coppice-tiny-q8_0.gguf
draft=models/coppice-tiny-dflash-q8_0.gguf
scorer=models/coppice-tiny-scorer-q8_0.gguf

# Sentences by chance, one fact in the middle, and a question.
python3 - "$work/text" <<'PY'
import random
import sys

words = ("the of and to in a is that for it was with be by on not he his but at are this have from or "
         "had they which one you were her all their there been more when who will would if about "
         "out so said what up its into than them can only other new some could time these two may "
         "then do first any my now such like our over man me even most made after also did many")
words = words.split()
rng = random.Random(5)
lines = []
for i in range(150):
    lines.append(" ".join(rng.choice(words) for _ in range(rng.randint(8, 16))).capitalize() + ".")
    if i == 70:
        lines.append("The code of the blue harbour is 4711-2290.")
with open(sys.argv[1], "w") as f:
    f.write(" ".join(lines) + "\n\nWhat is the code of the blue harbour?")
PY

# answer NAME OPTION...: the hash of the sampled rows, into $work/NAME.
answer() {
    local name=$1
    shift
    timeout 120 "$program" generate -m "$model" -f "$work/text" -n 32 --device "$device" --logit-hash \
        --json --ignore-eos "$@" >"$work/$name.json" 2>"$work/err" </dev/null || {
        verdict "$name" "exit status $?"
        return 1
    }
    python3 -c 'import json, sys
y = json.load(open(sys.argv[1]))
print(y["logit_hash"], y["text"])' "$work/$name.json" >"$work/$name"
}

same() {
    if cmp -s "$work/$1" "$work/$2"; then verdict "$1 as $2"; else verdict "$1 as $2" "another hash"; fi
}

differ() {
    if cmp -s "$work/$1" "$work/$2"; then verdict "$1, not $2" "the same"; else verdict "$1, not $2"; fi
}

[ "$device" = cpu ] || "$program" generate -m "$model" -p a -n 1 --device "$device" \
    >/dev/null 2>"$work/err" || {
    cat "$work/err"
    exit 77 # nothing to run on
}
sparse=(--sparse-prefill 0.5 --speculate off)
for path in ${paths:-none}; do
    level=(--cuda-path "$path")
    [ "$path" != none ] || level=()
    answer "$path-dense" --speculate off "${level[@]}"
    answer "$path-all" --sparse-prefill 0 --speculate off "${level[@]}"
    answer "$path-sparse" "${sparse[@]}" "${level[@]}"
    answer "$path-chunks" "${sparse[@]}" --chunk 64 "${level[@]}"
    answer "$path-odd" "${sparse[@]}" --chunk 129 "${level[@]}"
    answer "$path-tree" --sparse-prefill 0.5 -d "$draft" --speculate tree --chunk 77 "${level[@]}"
    same "$path-all" "$path-dense"
    differ "$path-sparse" "$path-dense"
    same "$path-chunks" "$path-sparse"
    same "$path-odd" "$path-sparse"
    same "$path-tree" "$path-sparse"
done
case $paths in *auto*mma*) same mma-sparse auto-sparse ;; esac

# What is kept: the device's scores are near the CPU's, so a piece at the edge may differ.
compress=(compress -f "$work/text" --prefill-drafter "$scorer" --prefill-keep-ratio 0.2)
"$program" "${compress[@]}" --device "$device" >"$work/kept" 2>"$work/err"
"$program" "${compress[@]}" --device cpu >"$work/kept-cpu" 2>>"$work/err"
check "the fact stays" grep -q "4711-2290" "$work/kept"
common=$(python3 -c 'import difflib, sys
a, b = (open(p).read() for p in sys.argv[1:])
m = difflib.SequenceMatcher(None, a, b, autojunk=False).get_matching_blocks()
print(int(100 * sum(x.size for x in m) / max(len(a), len(b), 1)))' "$work/kept" "$work/kept-cpu")
echo "kept: $(wc -c <"$work/kept") bytes, on the CPU $(wc -c <"$work/kept-cpu"), $common % the same"
check "the kept text is the CPU's" [ "${common:-0}" -ge 90 ]

short=(--prefill-compression always --prefill-drafter "$scorer" --prefill-keep-ratio 0.2)
answer compressed "${short[@]}" --speculate off
answer compressed-tree "${short[@]}" -d "$draft" --speculate tree
cp "$work/text" "$work/long"
printf '%s' "$(cat "$work/kept")" >"$work/text"
answer plain --speculate off
cp "$work/long" "$work/text"
same compressed plain
same compressed-tree plain

# The same through chat and serve: sampled at 0, so one answer.
"$program" chat -m "$model" --device "$device" "${short[@]}" -n 8 --temperature 0 \
    >"$work/chat" 2>"$work/err" <<<"$(tr '\n' ' ' <"$work/long")"
check "chat compresses" grep -q "compressed from" "$work/err"
"$program" serve -m "$model" --device "$device" "${short[@]}" --port 0 --host 127.0.0.1 \
    >"$work/log" 2>&1 </dev/null &
server=$!
for _ in $(seq 300); do
    url=$(grep -oE 'http://127.0.0.1:[0-9]+' "$work/log" | head -n 1)
    [ -z "$url" ] || break
    sleep 0.1
done
show=$work/log
ask() {
    python3 - "$url" "$work/long" <<'PY'
import json
import sys
import urllib.request

body = {"prompt": open(sys.argv[2]).read(), "max_tokens": 32, "temperature": 0, "ignore_eos": True}
ask = urllib.request.Request(sys.argv[1] + "/v1/completions", json.dumps(body).encode(),
                             {"Content-Type": "application/json"})
for _ in range(2):
    y = json.load(urllib.request.urlopen(ask, timeout=100))
print(json.dumps({"text": y["choices"][0]["text"], "compression": y["timings"]["compression"]}))
PY
}
ask >"$work/served" 2>>"$work/log"
check "serve compresses" grep -q '"reason": null' "$work/served"
why=$(python3 -c 'import json, sys
a, b = (json.load(open(p)) for p in sys.argv[1:])
print("" if a["text"] == b["text"] else "another text")' "$work/served" "$work/plain.json")
verdict "serve says what the kept text says" "$why"
kill "$server"
wait "$server" 2>/dev/null
server=
finish
