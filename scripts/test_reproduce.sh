#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Tests scripts/reproduce.sh without a GPU, a network and the published prompt sets: on the bundled
# pair with made-up sets in the three formats, with each thing missing in turn, with a curl that
# serves files from here, and with a program whose guesses change the output.
# Usage: scripts/test_reproduce.sh PROGRAM
# shellcheck disable=SC2016  # dollars are text of the prompts
set -u
program=$(realpath "$1")
cd "$(dirname "$0")/.." || exit 1
root=$PWD
target=$root/models/coppice-tiny-q8_0.gguf
draft=$root/models/coppice-tiny-dflash-q8_0.gguf
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
. "$root/scripts/check.sh"

# reproduce ARGUMENT...: standard output in out, standard error in err, the exit status in got.
reproduce() {
    timeout 1800 "$root/scripts/reproduce.sh" "$@" >out 2>err </dev/null
    got=$?
}
says() { grep -qF -e "$1" err; }
prints() { grep -qF -e "$1" out; }
silent() { [ ! -s out ] && [ ! -e fetched ]; }
count() { [ "$(grep -cF -e "$2" "$1")" = "$3" ]; }

# A curl that notes what it was asked for and gives a file of served/ by the last word of the URL.
mkdir tools served sets sets/gsm8k sets/MATH-500 empty
cat >tools/curl <<'CURL'
#!/usr/bin/env bash
echo "$*" >>fetched
mkdir -p "$(dirname "$4")"
case $5 in
*/human-eval/master/data/HumanEval.jsonl.gz) gzip -c served/HumanEval.jsonl >"$4" ;;
*/grade_school_math/data/test.jsonl) cp served/gsm8k.jsonl "$4" ;;
*/HuggingFaceH4/MATH-500/resolve/main/test.jsonl) cp served/math.jsonl "$4" ;;
*) exit 22 ;;
esac
CURL
chmod +x tools/curl
PATH=$work/tools:$PATH

line='{"task_id": "HumanEval/%d", "prompt": "def f%d(values):\\n    \\"\\"\\"Return item %d.\\"\\"\\"\\n", "entry_point": "f"}\n'
for i in 0 1 2 3; do
    # shellcheck disable=SC2059 # the line is a format
    printf "$line" $i $i $i >>served/HumanEval.jsonl
    printf '{"question": "A box holds %d pens. How many do two hold?", "answer": "#### 1"}\n' $i >>served/gsm8k.jsonl
    printf '{"problem": "Find $x^{%d}$ for $x=2$.", "answer": "1", "level": 1}\n' $i >>served/math.jsonl
done
cp served/HumanEval.jsonl sets/
cp served/gsm8k.jsonl sets/gsm8k/test.jsonl
cp served/math.jsonl sets/MATH-500/test.jsonl
pair=(-m "$target" -d "$draft" --program "$program" --device cpu)
small=(--prompts 2 -n 24 --out results)

# Usage.
reproduce --help
check "help" prints "--fetch"
reproduce
check "no folder" [ "$got" = 2 ]
reproduce sets --fast
check "an unknown option" says "--fast"
reproduce sets --prompts ten
check "a word for a number" says "'ten' is not a number"
reproduce nowhere
check "no such folder" says "nowhere is not a folder"

# Missing files are named with the command that gets them, and none is fetched.
reproduce empty --program "$program" --device cpu
check "all files missing: status" [ "$got" = 1 ]
check "all files missing: six names" count err "missing: empty/" 6
check "all files missing: six commands" count err "    curl -fL --create-dirs -o empty/" 6
check "all files missing: nothing fetched" silent
for name in HumanEval.jsonl gsm8k/test.jsonl MATH-500/test.jsonl; do
    mv "sets/$name" kept
    reproduce sets "${pair[@]}" "${small[@]}"
    mv kept "sets/$name"
    check "without $name: its name" says "missing: sets/$name"
    check "without $name: nothing else" count err "missing: " 1
    check "without $name: nothing run" silent
done
reproduce sets "${pair[@]}" -m none.gguf -d no.safetensors --fetch
check "no target" says "none.gguf, the target"
check "no draft" says "no.safetensors, the draft"
reproduce empty "${pair[@]}" -m none.gguf --fetch
check "nothing is fetched while something else is missing" silent
reproduce sets -m "$target" -d "$draft" --program ./none --device cpu
check "no program" says "./none, the program"

# Without nvcc, cmake, python3 and a GPU, in a tree that was never built.
mkdir -p tree/scripts few
cp "$root"/scripts/reproduce.* tree/scripts
for tool in bash dirname grep; do
    ln -s "$(command -v $tool)" few/$tool
done
PATH=$work/few tree/scripts/reproduce.sh sets -m "$target" -d "$draft" >out 2>err
for words in "missing: nvcc" "missing: a GPU" "missing: python3" "3 things are missing"; do
    check "a bare machine: $words" says "$words"
done

# With nvcc the preset cuda is built first; a build that fails ends it.
cat >tools/cmake <<'CMAKE'
#!/usr/bin/env bash
[ ! -e broken-build ] || { echo "cannot compile this"; exit 1; }
echo "$*" >>"$PWD/cmake.log"
[ "$1" = --preset ] || { mkdir -p build/cuda && cp tool build/cuda/coppice; }
CMAKE
printf '#!/usr/bin/env bash\necho "GPU 0: made up"\n' >tools/nvidia-smi
for tool in nvcc ninja; do
    cp tools/cmake tools/$tool
done
chmod +x tools/*
ln -s "$program" tree/tool
pair=(-m "$target" -d "$draft" --device cpu)
reproduce=$work/tree/scripts/reproduce.sh
run_tree() { "$reproduce" sets "${pair[@]}" --prompts 1 -n 8 >out 2>err; }
check "a build" run_tree
check "a build: of the preset cuda" [ "$(tr '\n' ';' <tree/cmake.log)" = \
    "--preset cuda;--build --preset cuda;" ]
check "a build: it runs" [ "$(grep -c '| yes |' out)" = 12 ]
check "a GPU is named" prints "GPU: GPU 0: made up"
touch tree/broken-build
run_tree
check "no build: the compiler's words" says "cannot compile this"
check "no build: a word" says "the build failed"
rm tools/{cmake,nvcc,ninja,nvidia-smi}
pair+=(--program "$program")

# --fetch gets the sets from where they are published; the run after it is the one that follows.
reproduce empty "${pair[@]}" "${small[@]}" --fetch
check "fetched: status" [ "$got" = 0 ]
check "fetched: three files" count fetched https:// 3
for name in HumanEval.jsonl gsm8k/test.jsonl MATH-500/test.jsonl; do
    check "fetched: $name" cmp "empty/$name" "sets/$name"
done
mv out first
rm fetched

# A run: a row for each set and mode, prompts as chat turns, figures as bench itself gives them.
reproduce sets "${pair[@]}" "${small[@]}"
check "a run: status" [ "$got" = 0 ]
check "a run: twelve rows" [ "$(grep -cE '^\| (HumanEval|GSM8K|MATH-500) \|.*\| yes \|' out)" = 12 ]
check "a run: published accept length" prints "| 129.52 | 8.31 | 3.43x |"
check "a run: none for auto" [ "$(grep -cE 'tree:auto.*\| - \| - \| - \|$' out)" = 3 ]
check "a run: what was not measured" prints "No real weights have been measured"
check "a run: kept" cmp out results/table.md
check "a run: the memory's rate" [ "$(grep -cE '^A copy moves [0-9,.]+ GB/s here' out)" = 1 ]
check "a run: shares of plain and tree" [ "$(grep -cE '^  (off|oracle tree:22): [0-9.]+ % of [0-9.]+ ms$' out)" = 2 ]
grep -A 1 '^In one line:$' out | tail -n 1 | tr '|' '\n' >line
check "a run: one line" [ "$(grep -cE '^ plain [0-9.]+ tok/s \([0-9]+ % of [0-9,]+ GB/s\) $' line)" = 1 ]
for how in chain:16 tree:22 tree:auto; do
    want="^ $how HumanEval [0-9.]+ \(AL [0-9.]+\), GSM8K [0-9.]+ \(AL [0-9.]+\), MATH-500 [0-9.]+ \(AL [0-9.]+\) $"
    check "a run: one line with $how" grep -qE "$want" line
done
check "a run: one line says that it is exact" grep -qx " output equal to plain decoding" line
check "a run: nothing fetched" [ ! -e fetched ]
for prompt in '"id": "HumanEval-3", "group": "HumanEval", "prompt": "<|im_start|>user\ndef f2(values)' \
    'Question: A box holds 2 pens. How many do two hold?\nAnswer:<|im_end|>\n<|im_start|>assistant\n"}' \
    'Find $x^{2}$ for $x=2$.\n\nPut the final answer in \\boxed{}.<|im_end|>\n'; do
    check "its prompts" grep -qF -e "$prompt" results/prompts.jsonl
done
"$program" bench -m "$target" -d "$draft" --device cpu --prompts results/prompts.jsonl -n 24 \
    --modes off,chain:16,tree:22 >direct 2>err
# figures FILE SET HOW TOKENS LENGTH: those two columns of a row.
figures() { awk -v s="$2" -v h="$3" -v t="$4" -v a="$5" '$1 " " $2 == s " " h { print $t, $a }' "$1"; }
tr -d '|' <out >plain
for set in HumanEval GSM8K MATH-500; do
    for how in off chain:16 tree:22; do
        want=$(figures direct $set $how 3 5)
        check "$set $how: '$want'" [ -n "$want" ] && check "$set $how: as bench says, $want" \
            [ "$(figures plain $set $how 4 6)" = "$want" ]
    done
done

# Forms of the prompt, a broken set, marks within a text.
reproduce sets "${pair[@]}" "${small[@]}" --no-think --prompts 0 --budget 9
check "thinking off" count results/prompts.jsonl 'assistant\n<think>\n\n</think>\n\n"}' 12
check "another budget" prints "| tree:9 |"
check "another budget is not compared" [ "$(grep -c '129.52' out)" = 0 ]
reproduce sets "${pair[@]}" "${small[@]}" --raw
check "plain text" count results/prompts.jsonl "im_start" 0
check "plain text, as published" grep -qF '"prompt": "Problem: Find $x^{2}$ for $x=2$.\nSolution:"}' \
    results/prompts.jsonl
echo '{"question": "<|im_end|>"}' >sets/gsm8k/test.jsonl
reproduce sets "${pair[@]}" "${small[@]}"
check "a mark in a text" says "prompt 1 holds a mark"
echo '{"question": 7}' >>sets/gsm8k/test.jsonl
reproduce sets "${pair[@]}" "${small[@]}"
check "a broken set: status" [ "$got" = 1 ]
check "a broken set" says 'gsm8k/test.jsonl: line 2 has no text "question"'
cp served/gsm8k.jsonl sets/gsm8k/test.jsonl

# A program whose guesses change the output, and one that fails, must not pass.
printf '#!/usr/bin/env bash\n[ "$1" = bench ] || exec %q "$@"\n' "$program" | tee broken >wrong
cat >>wrong <<'WRONG'
sed -e 's/"different":0/"different":1/g' -e 's/"equal":true/"equal":false/g' results/right.json
exit 1
WRONG
echo 'echo "no memory" >&2; exit 1' >>broken
chmod +x wrong broken
reproduce sets "${pair[@]}" "${small[@]}"
cp results/result.json results/right.json
reproduce sets "${pair[@]}" "${small[@]}" --program wrong
check "different output: status" [ "$got" = 1 ]
check "different output: a word" prints "NO. That must never happen"
check "different output: in the line as well" prints "| OUTPUT DIFFERS"
printf '#!/usr/bin/env bash\n[ "$1" = profile ] && exit 1\nexec %q "$@"\n' "$program" >bare
chmod +x bare
reproduce sets "${pair[@]}" "${small[@]}" --prompts 1 --program bare
check "no profile: the rest holds" [ "$got" = 0 ]
check "no profile: a word" prints "Share of the memory's rate: not measured"
reproduce sets "${pair[@]}" "${small[@]}" --program broken
check "bench fails: status" [ "$got" = 1 ]
check "bench fails: a word" says "bench gave no result"

finish reproduce
