#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Bad input from outside: every case must give its exit status, exactly one line on standard error
# that names the offending value, and nothing on standard output.
# Usage: scripts/test_cli.sh PROGRAM
set -u
program=$(realpath "$1")
cd "$(dirname "$0")/.."
root=$PWD
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
. "$root/scripts/check.sh"

has() { "$program" help | grep -q "^  $1 "; }

# refuse STATUS WORDS ARGUMENT...: the program refuses, and its sentence holds WORDS.
refuse() {
    local status=$1 words=$2 got why=
    shift 2
    timeout 900 "$program" "$@" >out 2>err </dev/null
    got=$?
    [ "$got" = "$status" ] || why="exit status $got, not $status"
    [ ! -s out ] || why="$why; something on standard output"
    [ "$(wc -l <err)" = 1 ] || why="$why; $(wc -l <err) lines on standard error"
    grep -qF -e "$words" err || why="$why; the sentence lacks '$words'"
    verdict "coppice $*" "$why"
}

# accept WORDS ARGUMENT...: the program succeeds and prints WORDS.
accept() {
    local words=$1
    shift
    if timeout 900 "$program" "$@" >out 2>err </dev/null && grep -qF -e "$words" out; then
        verdict "coppice $*"
    else
        verdict "coppice $*" "failed or did not print '$words'"
    fi
}

printf 'this is a text, not a model\n' >text.gguf
: >empty.gguf
printf 'GGUF\003\000\000\000' >short.gguf
printf 'GGUF\003\000\000\000\377\377\377\377\377\377\377\177\001\000\000\000\000\000\000\000' >counts.gguf
mkdir folder
vocab=$root/tests/fixtures/tokenizer/qwen35.gguf
pieces=$root/tests/fixtures/tokenizer/families/spm.gguf

accept "Usage: coppice COMMAND" --help
accept "coppice " --version
# What was built: a commit of this repository where the tree has one, and levels that the option knows.
commit=$("$program" --version | sed -n 's/^commit      \(.*\)$/\1/p')
if [ -e "$root/.git" ] && git -C "$root" rev-parse HEAD >/dev/null 2>&1; then
    check "--version: the commit $commit" git -C "$root" cat-file -e "${commit%-dirty}^{commit}"
else
    check "--version: no commit" [ "$commit" = unknown ]
fi
accept "compiler    " --version
accept "CUDA        " --version
accept "CPU levels  scalar" --version
for level in $("$program" --version | sed -n 's/^CPU levels  //p'); do
    accept "Usage: coppice generate" generate --cpu-level "$level" --help
done
refuse 2 "name a subcommand"
refuse 2 "hlep" hlep
refuse 2 "--bogus" --bogus
refuse 2 "nothing" help nothing
refuse 2 "two" help one two

models=(generate chat bench tokenize detokenize logits draft-logits perplexity verify)
extra_generate=(-p text) extra_chat=() extra_bench=(--prompts "$root/scripts/demo-prompts.jsonl")
extra_tokenize=(-p text) extra_detokenize=(--ids 1,2) extra_logits=(--ids 1,2)
extra_perplexity=(-f "$root/README.md")
extra_verify=(--requests "$root/scripts/demo-prompts.jsonl")
extra_draft_logits=(-d text.gguf --ids 1,2 --raw out.raw)
for name in "${models[@]}"; do
    has "$name" || continue
    declare -n extra="extra_${name//-/_}"
    accept "Usage: coppice $name" "$name" --help
    accept "Usage: coppice $name" help "$name"
    [ "$name" = chat ] || refuse 2 "-m" "$name" "${extra[@]}"
    refuse 2 "--modle" "$name" --modle x
    refuse 2 "surplus" "$name" -m text.gguf "${extra[@]}" surplus
    refuse 1 "missing.gguf" "$name" -m missing.gguf "${extra[@]}"
    for file in text empty short counts; do
        refuse 1 "$file.gguf" "$name" -m "$file.gguf" "${extra[@]}"
    done
    refuse 1 "folder" "$name" -m folder "${extra[@]}"
done
if has inspect; then
    refuse 2 "inspect" inspect
    accept "tokenizer.ggml.pre " inspect "$vocab"
    accept '"format":"gguf"' inspect "$vocab" --json
    refuse 1 "folder" inspect folder
    for file in missing text empty short counts; do
        refuse 1 "$file.gguf" inspect "$file.gguf"
    done
fi
if has quantize; then
    refuse 2 "quantize" quantize
    refuse 2 "Q9_9" quantize text.gguf out.gguf Q9_9
    for file in missing text empty short counts; do
        refuse 1 "$file.gguf" quantize "$file.gguf" out.gguf Q8_0
    done
    refuse 1 "nowhere/out.gguf" quantize "$vocab" nowhere/out.gguf Q8_0
    refuse 2 "/dev/null" quantize "$vocab" /dev/null Q8_0
    cp "$vocab" own.gguf && ln -s own.gguf other.gguf
    refuse 2 "own.gguf" quantize own.gguf own.gguf Q8_0
    refuse 2 "other.gguf" quantize own.gguf other.gguf Q8_0
    refuse 2 "own.gguf" quantize "$vocab" own.gguf Q8_0 --imatrix own.gguf
    for file in missing text empty short counts; do
        refuse 1 "$file.gguf" quantize "$vocab" out.gguf Q4_K_M --imatrix "$file.gguf"
    done
    refuse 2 "Q9_9" quantize "$vocab" out.gguf Q8_0 --tensor-types attn_v=Q9_9
    refuse 1 "imatrix" quantize "$vocab" out.gguf Q4_K_M --imatrix "$vocab"
fi
if has imatrix; then
    refuse 2 "imatrix" imatrix
    cp "$vocab" kept.gguf
    refuse 2 "kept.gguf" imatrix kept.gguf -m kept.gguf -f "$0"
    refuse 2 "kept.gguf" imatrix kept.gguf -m "$vocab" -f kept.gguf
    refuse 2 "-m" imatrix out.imatrix -f "$0"
    refuse 1 "text.gguf" imatrix out.imatrix -m text.gguf -f "$0"
    refuse 2 "--piece" imatrix out.imatrix -m text.gguf -f "$0" --piece 0
fi
if has convert; then
    refuse 2 "convert" convert folder
    refuse 2 "Q9_9" convert folder out.gguf --type Q9_9
    refuse 2 "--split-size" convert folder out.gguf --split-size 9Q
    refuse 1 "folder/config.json" convert folder out.gguf
    printf '{"model_type":"llama"}' >folder/config.json
    refuse 1 "folder" convert folder out.gguf
    check "a refused conversion leaves no file" [ ! -e out.gguf ]
fi
# What a command reads is not written over: files of folders, parts of models, through links as well.
mkdir kept
for file in kept/config.json kept/model.safetensors kept/model-00001-of-00002.gguf kept/model-00002-of-00002.gguf kept/text; do
    printf 'kept' >"$file"
done
ln kept/model.safetensors hard.gguf
ln -s kept/tokenizer.json soft.gguf
printf 'kept' >kept/tokenizer.json
if has convert; then
    refuse 2 "kept/config.json' is read" convert kept kept/config.json
    refuse 2 "hard.gguf' is read" convert kept hard.gguf
    refuse 2 "soft.gguf' is read" convert folder soft.gguf --target-dir kept
    refuse 1 "kept/config.json" convert kept kept/model.gguf
fi
if has quantize; then
    refuse 2 "kept/model-00002-of-00002.gguf' is read" quantize kept/model-00001-of-00002.gguf kept/model-00002-of-00002.gguf Q8_0
    refuse 2 "kept/model-0000" quantize kept/model-00001-of-00002.gguf kept/model.gguf Q8_0 --split-size 1G
    refuse 1 "kept/model-00001-of-00002.gguf" quantize kept/model-00001-of-00002.gguf kept/model.gguf Q8_0
fi
has imatrix && refuse 2 "kept/model-00001-of-00002.gguf' is read" imatrix kept/model-00001-of-00002.gguf \
    -m kept/model-00002-of-00002.gguf -f kept/text
has logits && refuse 2 "kept/text' is read" logits -m "$vocab" -f kept/text --raw kept/text
has draft-logits && refuse 2 "hard.gguf' is read" draft-logits -m "$vocab" -d kept/model.safetensors --ids 1 --raw hard.gguf
has serve && refuse 2 "hard.gguf' is read" serve -m kept/model.safetensors --trace hard.gguf
has chat && refuse 2 "kept/text' is read" chat -m kept/text --history kept/text
check "what is read stays" [ "$(cat kept/* | tr -d '\n')" = "$(printf 'kept%.0s' 1 2 3 4 5 6)" ]
if has synth; then
    refuse 2 "--shape" synth out.gguf
    refuse 2 "qwen35-1t" synth --shape qwen35-1t out.gguf
    refuse 2 "Q9_9" synth --shape qwen35-tiny --quant Q9_9 out.gguf
    refuse 1 "nowhere/out.gguf" synth --shape qwen35-tiny nowhere/out.gguf
    "$program" synth --shape qwen35-tiny tiny.gguf 2>/dev/null
    has draft-logits && for how in none auto; do
        refuse 2 "there is none" draft-logits -m tiny.gguf -d "$how" --ids 1,2 --raw none.raw --device cpu
    done
fi
# The block in a model's file that predicts further tokens: guessing with it changes no token.
if has synth && has generate; then
    mkdir block
    "$program" synth --shape qwen35-tiny-mtp block/m.gguf 2>/dev/null
    for how in auto none; do
        "$program" generate -m block/m.gguf -d "$how" --ids 1,2,3,1,2,3 -n 40 --json >"$how.out" 2>"$how.err"
    done
    why=
    for part in ids logit_hash; do
        [ "$(grep -o "\"$part\":[^]]*" auto.out | head -c 200)" = "$(grep -o "\"$part\":[^]]*" none.out | head -c 200)" ] ||
            why="$why; $part differs"
    done
    grep -q 'guessing with the block of m.gguf' auto.err || why="$why; $(cat auto.err)"
    grep -q '"speculate":"tree"' auto.out || why="$why; no tree"
    grep -q 'guessing' none.err && why="$why; with -d none it guesses"
    verdict "-d auto takes the block in the file" "$why"
    accept "of them a prediction block" inspect block/m.gguf
    accept '"prediction_block":' inspect block/m.gguf --json
fi
# Mixtures of experts: tokens and logits of chains and trees are plain decoding's, with a draft that is
# never right and with guesses of which some are.
if has synth && has bench; then
    mkdir experts # a draft next to other models would be mentioned
    "$program" synth --shape dflash-tiny --quant Q8_0 experts/d.gguf 2>/dev/null
    for shape in qwen3moe qwen35moe gpt-oss glm4moe deepseek2; do
        "$program" synth --shape "$shape-tiny" --quant Q8_0 experts/t.gguf 2>/dev/null
        for how in draft oracle:al=4; do
            accept '"equal":true' bench -m experts/t.gguf -d experts/d.gguf --prompt-tokens 70 -n 40 \
                --modes off,chain:8,tree:22 --drafter "$how" --device cpu --json
        done
    done
    # whose values are a part of its keys
    accept "64 values as q4_0 are not within 96 as q8_0" bench kv -m experts/t.gguf -f "$root/README.md" \
        --window 16 --windows 1 --pairs q8_0/q4_0,q8_0 --device cpu
fi
if has bench; then
    refuse 2 "--prompts" bench -m text.gguf
    refuse 2 "--prompts" bench -m text.gguf --prompts x --prompt-tokens 3
    refuse 2 "--modes" bench -m tiny.gguf --prompt-tokens 3 --modes chain
    refuse 2 "twig:3" bench -m tiny.gguf --prompt-tokens 3 --modes off,twig:3
    refuse 2 "tree:128" bench -m tiny.gguf --prompt-tokens 3 --modes off,tree:128
    refuse 2 "tree" bench -m tiny.gguf --prompt-tokens 3 --modes off,tree
    refuse 2 "oracle:al=0" bench -m tiny.gguf --prompt-tokens 3 --drafter oracle:al=0
    refuse 2 "oracle:errors=2" bench -m tiny.gguf --prompt-tokens 3 --drafter oracle:errors=2
    refuse 2 "errors=0.1/2" bench -m tiny.gguf --prompt-tokens 3 --drafter oracle:errors=0.1/2
    refuse 2 "chances P do not rise" bench -m tiny.gguf --prompt-tokens 3 --drafter oracle:synth-rates=0.5/0.6
    refuse 2 "chain:4 cannot have an accept length of 9" bench -m tiny.gguf --prompt-tokens 3 \
        --modes off,chain:4 --drafter oracle:synth-len=9
    refuse 2 "--prompt-tokens" bench -m tiny.gguf --prompts x --sequences 2
    refuse 2 "one length" bench -m tiny.gguf --prompt-tokens 3,4 --sequences 2
    refuse 2 "one length" bench -m tiny.gguf --prompt-tokens 3,4 --sequences 2 --engine
    refuse 2 "bench haystack" bench haystack -m tiny.gguf
    refuse 2 "needs --sequences" bench -m tiny.gguf --prompt-tokens 3 --engine
    refuse 2 "needs --prefill-drafter" bench score -m tiny.gguf --prompt-tokens 640
    refuse 2 "--modes has no meaning" bench score --prefill-drafter x --prompt-tokens 9 --modes off
    refuse 2 "for 'bench score'" bench -m tiny.gguf --prompt-tokens 3 --prefill-dense
    refuse 2 "for 'bench kv'" bench -m tiny.gguf --prompt-tokens 3 --pairs q8_0
    refuse 2 "for 'bench score'" bench kv -m tiny.gguf -f x --prefill-dense
    refuse 2 "needs -f" bench kv -m tiny.gguf
    refuse 2 "-m" bench kv -f x
    refuse 2 "not 'q9_9'" bench kv -m tiny.gguf -f x --pairs q9_9
    refuse 1 "qwen3" bench score --prefill-drafter tiny.gguf --prompt-tokens 640
    accept "160 kept" bench score -m tiny.gguf --prompt-tokens 640 --prefill-keep-ratio 0.25 \
        --prefill-drafter "$root/models/coppice-tiny-scorer-q8_0.gguf"
    accept '"weights":{"held_bytes":0,"used_bytes":0}' bench score --prompt-tokens 64 --json \
        --prefill-drafter "$root/models/coppice-tiny-scorer-q8_0.gguf"
    accept " 2 off " bench -m tiny.gguf --prompt-tokens 9 -n 8 --sequences 1,2 --modes off --engine
    accept " 3 oracle tree:auto " bench -m tiny.gguf --prompt-tokens 40 -n 32 --sequences 1,3 \
        --modes off,tree:auto --drafter oracle:al=4
    accept " 3 oracle tree:22 " bench -m tiny.gguf --prompt-tokens 40 -n 32 --sequences 1,3 \
        --modes off,tree:22 --drafter oracle:al=4
    accept "tree:auto @0.3: " bench -m tiny.gguf --prompt-tokens 40,70 -n 32 \
        --modes off,tree:8,tree:auto --drafter oracle:errors=0.1/0.3
    accept "oracle tree:auto" bench -m tiny.gguf --prompt-tokens 40 -n 64 --modes off,tree:auto \
        --drafter oracle:errors=0.1
    accept "oracle tree:22" bench -m tiny.gguf --prompt-tokens 40 -n 64 --modes off,tree:22 \
        --drafter oracle:al=4,seed=2
    accept "oracle chain:4  1.00 1.00 .93; AL in <1K 4.00, 1-4K 3.89" bench -m tiny.gguf \
        --prompt-tokens 1000 -n 60 --modes off,chain:4 --drafter oracle:errors=0
    accept '"accept_length_by_context":[{"from":0,"to":1024,"steps":6,"accept_length":4},' bench \
        -m tiny.gguf --prompt-tokens 1000 -n 60 --modes off,chain:4 --drafter oracle:errors=0 --json
fi
if has generate; then
    refuse 2 "--budget" generate -m text.gguf -p x --budget 128
    refuse 2 "--budget" generate -m text.gguf -p x --budget some
    refuse 2 "--speculate" generate -m text.gguf -p x --speculate maybe
    refuse 2 "--temp" generate -m text.gguf -p x --temp -1
    refuse 2 "--ids" generate -m text.gguf --ids 1,x
    refuse 2 "needs a value" generate -m
fi

if has tokenize; then
    printf 'abc\377d' >broken-utf8.txt
    refuse 1 "byte 3" tokenize -m "$vocab" -f broken-utf8.txt
    refuse 2 "-p" tokenize -m "$vocab"
    refuse 2 "-f" tokenize -m "$vocab" -p a -f broken-utf8.txt
    refuse 1 "none.txt" tokenize -m "$vocab" -f none.txt
    accept '{"ids":[39,2035,39]}' tokenize -m "$vocab" -p 'H<|im_start|>H' --json
    accept '39,27,91,' tokenize -m "$vocab" -p 'H<|im_start|>H' --no-special
    accept '{"ids":[]}' tokenize -m "$vocab" -p '' --json
    accept '1,715,274,303,487,260' tokenize -m "$pieces" -p 'The river'
fi
if has detokenize; then
    refuse 2 "--ids" detokenize -m "$vocab"
    refuse 1 "2048" detokenize -m "$vocab" --ids 39,2048
    accept '{"text":"H<|im_start|>"}' detokenize -m "$vocab" --ids 39,2035 --json
    accept '{"text":"The river"}' detokenize -m "$pieces" --ids 1,715,274,303,487,260 --json --no-special
    accept '{"text":"H"}' detokenize -m "$vocab" --ids 39,2035 --json --no-special
fi

target=$(find "$root/models" -name '*.gguf' ! -name '*dflash*' 2>/dev/null | sort | head -n 1)
draft=$(find "$root/models" -name '*dflash*.gguf' 2>/dev/null | sort | head -n 1)
# Drafts of each kind that were trained for the bundled target: its tokens and logits, and guesses of
# which many are right.
trained() {
    "$program" bench -m "$target" -d "$1" --prompts chats.jsonl -n 48 --min-prob 0 --no-lookup \
        --modes off,chain:7,tree:22 --device cpu --json >out 2>err && python3 - "$2" "$3" <<'PY'
import json
import sys

report = json.load(open("out"))
lengths = [report["overall"][mode]["accept_length"] for mode in ("chain:7", "tree:22")]
sys.exit(not report["equal"] or any(have < float(want) for have, want in zip(lengths, sys.argv[1:])))
PY
}
if [ -n "$target" ] && has bench; then
    head -n 3 "$root/bench/prompts/chat.jsonl" >chats.jsonl
    check "DFlash: accept lengths" trained "$draft" 4 4.5
    check "DFlash2: accept lengths" trained "$root/models/more/coppice-tiny-dflash2-q8_0.gguf" 4 4.5
    check "a prediction block: accept lengths" trained "$root/models/more/mtp-coppice-tiny-q8_0.gguf" 4 4.5
fi
if [ -n "$target" ] && has generate; then
    head -c 100000 "$target" >truncated.gguf
    printf 'ab\377cd' >broken.txt
    refuse 1 "truncated.gguf" generate -m truncated.gguf -p x
    refuse 1 "byte" generate -m "$target" -f broken.txt
    refuse 1 "99999999" generate -m "$target" --ids 1,99999999
    refuse 1 "missing.txt" generate -m "$target" -f missing.txt
    refuse 1 "missing.gguf" generate -m "$target" -d missing.gguf -p x
    refuse 1 "$(basename "$draft"): the file is a draft (general.architecture" generate -m "$draft" -p x
    refuse 1 "qwen35" generate -m "$target" -d "$target" -p x
    refuse 2 "-p" generate -m "$target"
    refuse 2 'no device "gpu"' generate -m "$target" -p x --device gpu
    refuse 2 "'--max-ctx' takes auto or an integer from 0" generate -m "$target" -p x --max-ctx -1
    refuse 2 "'--max-ctx' takes auto or an integer from 0" logits -m "$target" -p x --max-ctx 12k
    refuse 2 "'--cuda-path' takes one of" generate -m "$target" -p x --cuda-path fast
    accept "tokens, keys as q4_0 and values as tq3_0" inspect --plan "$target" --max-ctx 9000 \
        --kv-type-k q4_0 --kv-type-v tq3_0
    accept "tokens, keys as q4_0 and values as tq3_0" inspect --plan "$target" -ctk q4_0 --cache-type-v tq3_0
    accept "tokens, keys as q4_0 and values as q5_1" inspect --plan "$target" --kv-q4 --kv-type-v q5_1
    accept "tokens, keys as q8_0 and values as q8_0" inspect --plan "$target" --kv-type auto --vram-limit 60M
    accept '"context":65536,' inspect --plan "$target" --json
    accept '"context":131072,' inspect --plan "$target" --rope-scale 2 --json
    accept '"context":262144,' inspect --plan "$target" --rope-scaling yarn --rope-freq-scale 0.25 --json
    accept '"rows":64}' inspect --plan "$target" -ub 64 --json
    check "a plan reads no prompt sparsely" [ -z "$("$program" inspect --plan "$target" --sparse-prefill 0.5 2>&1 >/dev/null)" ]
    check "a plan says which codecs it took" grep -q "q8_0" \
        <("$program" inspect --plan "$target" --kv-type auto --vram-limit 60M 2>&1 >/dev/null)
    refuse 2 "a window of 63 tokens for replies is not within 64 to 1048576" generate -m "$target" -p x --fa-window 63
    refuse 2 "has no meaning for 'bench kv'" bench kv -m "$target" --fa-window 64
    refuse 2 "a pool of 447 tokens is not within 448" generate -m "$target" -p x --kv-pool 447
    refuse 2 "give one of them" generate -m "$target" -p x --kv-pool 512 --fa-window 64
    refuse 2 "'fifo' is no policy of --kv-pool" generate -m "$target" -p x --kv-pool 512 --kv-pool-policy fifo
    refuse 1 "scorer is not there yet" generate -m "$target" -p x --kv-pool 512 --kv-pool-policy scorer
    refuse 2 "lru has no meaning without --kv-pool" generate -m "$target" -p x --kv-pool-policy lru
    refuse 2 "give one with --rope-scale" inspect --plan "$target" --rope-scaling yarn
    refuse 2 "add --rope-scaling yarn" inspect --plan "$target" --yarn-beta-fast 16
    refuse 2 "--rope-freq-scale is one over" inspect --plan "$target" --rope-scale 2 --rope-freq-scale 0.5
    refuse 2 "option '--rope-scale' needs '--plan'" inspect "$target" --rope-scale 2
    refuse 2 "option '--kv-type' needs '--plan'" inspect "$target" --kv-tq3
    accept "may be taken" inspect --plan "$target" -d "$draft" --vram-limit 64M
    accept '"context":9000,"kv_type_k":"f16"' inspect --plan "$target" --max-ctx 9000 --json
    refuse 2 "option '--max-ctx' needs '--plan'" inspect "$target" --max-ctx 9000
    refuse 2 "looks for no draft" inspect --plan "$target" -d auto
    refuse 2 "from 0 to 1048576" generate -m "$target" -p x --max-ctx 1048577
    refuse 2 "'--rope-scaling' takes one of" generate -m "$target" -p x --rope-scaling ntk
    refuse 2 "--rope-freq-scale is one over" generate -m "$target" -p x --rope-scale 2 --rope-freq-scale 0.5
    refuse 2 "give one with --rope-scale" generate -m "$target" -p x --rope-scaling yarn
    refuse 2 "add --rope-scaling yarn" logits -m "$target" -p x --yarn-orig-ctx 4096
    refuse 2 "'--kv-type-k' takes one of" generate -m "$target" -p x --kv-type-k q3
    refuse 1 "for models of experts on a GPU" generate -m "$target" -p x --device cpu --spark-slots 4
    refuse 1 "and the CPU is used" generate -m "$target" -p x --device cpu --spark-vram 12G
    refuse 1 "for models of experts on a GPU" generate -m "$target" -p x --device cpu --cpu-experts 4
    refuse 1 "and the CPU is used" bench -m "$target" --prompt-tokens 9 --device cpu --cpu-experts auto
    refuse 2 "'--cpu-experts' takes auto or an integer from 0" generate -m "$target" -p x --cpu-experts -1
    refuse 2 "'--cpu-experts' takes auto or an integer from 0" daemon -m "$target" --n-cpu-moe many
    refuse 1 "coppice generate: th" generate -m "$target" -p x --device cuda:31
    refuse 1 "context of 4" generate -m "$target" -c 4 -p "more than four tokens, surely"
    # Texts far beyond the context are refused before they are tokenised: 2 x 64 tokens and 65,536 more.
    head -c 4000000 /dev/zero | tr '\0' 'x' >long.txt
    printf '{"messages":[{"role":"user","content":"%s"}]}' "$(cat long.txt)" >long.json
    printf '{"id":"a","group":"g","prompt":"%s","max_tokens":4}\n' "$(cat long.txt)" >long.jsonl
    refuse 1 "more than 65664 tokens" generate -m "$target" -c 64 -f long.txt
    refuse 1 "more than 65664 tokens" generate -m "$target" -c 64 --chat -f long.txt
    refuse 1 "more than 65664 tokens" generate -m "$target" -c 64 --chat --messages long.json
    refuse 1 "more than 65664 tokens" logits -m "$target" -c 64 -f long.txt
    refuse 1 "more than 65664 tokens" bench -m "$target" -c 64 --prompts long.jsonl
    "$program" chat -m "$target" -c 64 <long.txt >out 2>err
    check "chat is told so, too" [ "$? $(grep -c 'more than 65664 tokens' err)" = "1 1" ]
    for limit in 20000 40000; do # kilobytes of address space: too few to map, too few to load
        soft=$(ulimit -Sv)
        ulimit -Sv "$limit"
        refuse 1 "emory" generate -m "$target" -p x -t 1
        ulimit -Sv "$soft"
    done
    accept '"ids":[' generate -m "$target" -d "$draft" -p "def f(x):" -n 4 --json
    printf 'a: 300,301,302,300,301\nb: 7\n' >ids.txt
    accept '"equal":true' bench -m "$target" --prompts ids.txt -n 8 --json
    for where in off none; do
        accept '"equal":true' bench -m "$target" --prompts ids.txt -n 8 --json --price-cache $where
        check "--price-cache $where makes no folder" [ ! -e $where ]
    done
    printf 'a: 300,x\n' >ids.txt
    refuse 1 "list of token ids" bench -m "$target" --prompts ids.txt
    printf 'words\n' >ids.txt
    refuse 1 "neither a JSON object nor" bench -m "$target" --prompts ids.txt
    refuse 2 "speculate" generate -m "$target" -p x --speculate none
    check "without a draft auto is lookup, and changes no byte" [ "$("$program" generate -m "$target" \
        -p "one two one two one" -n 24 --json 2>/dev/null | grep -o '"speculate":"lookup"\|"logit_hash":.*')" = \
        '"speculate":"lookup"'$'\n'"$("$program" generate -m "$target" -p "one two one two one" -n 24 \
        --speculate off --json 2>/dev/null | grep -o '"logit_hash":.*')" ]
    refuse 2 "-f" imatrix out.imatrix -m "$target"
    refuse 1 "missing.txt" imatrix out.imatrix -m "$target" -f missing.txt
    refuse 2 "text" imatrix out.imatrix -m "$target" -f empty.gguf
    refuse 1 "nowhere/out.imatrix" imatrix nowhere/out.imatrix -m "$target" -f "$root/README.md" \
        --pieces 1
    accept "93 matrices over 1024 tokens in 2 pieces" imatrix out.imatrix -m "$target" \
        -f "$root/README.md" --pieces 2
    refuse 2 "--allow-requantize" quantize "$target" small.gguf Q2_K --imatrix out.imatrix
    check "a refused file is not written" [ ! -e small.gguf ]
    accept "76 of 161 tensors were encoded anew" quantize "$target" small.gguf Q2_K --imatrix out.imatrix --allow-requantize
    check "what is quantised twice is told so" grep -q "warning: .* quantised already" err
    accept "quantize.imatrix.entries_count               u32    93" inspect small.gguf
    accept "weights on a GPU" inspect small.gguf
    accept '"ids":[' generate -m small.gguf -p "def f(x):" -n 4 --json
    refuse 2 "IQ2_XXS, the type of tensor 'blk." quantize "$target" few.gguf IQ2_XXS --allow-requantize
    "$program" quantize "$target" few.gguf IQ2_XXS --imatrix out.imatrix --allow-requantize >/dev/null 2>&1
    accept '"ids":[' generate -m few.gguf -p "def f(x):" -n 4 --json
fi

# Messages from a pipe: each answer is what the model says to the whole text.
if [ -n "$target" ] && has chat; then
    refuse 2 "--history" chat -m "$target" --histroy x
    "$program" chat --help >out
    check "chat speaks in the model's own template" [ "$(grep -c ChatML out) $(grep -c "model's chat template" out)" = "0 1" ]
    refuse 1 "byte" chat -m "$target" -d none --system "$(printf 'a\377')"
    ask() { printf '<|im_start|>user\n%s<|im_end|>\n<|im_start|>assistant\n' "$1"; }
    tell() { "$program" generate -m "$target" -n 30 --speculate off -p "$1" 2>/dev/null; }
    one=$(ask $'Who are\n you?')$'\n'
    answer=$(tell "$one" && printf x) # all of it, but for the line end of generate
    two=$one${answer%$'\n'x}$'<|im_end|>\n'$(ask 'And then?')$'\n'
    { tell "$one" && tell "$two"; } >want
    why=
    if ! printf '"""Who are\n you?"""\n/nonsense\n\nAnd then?' | "$program" chat -m "$target" -d "$draft" \
        -n 30 >out 2>err || ! cmp -s want out || [ "$(cat err)" != \
        "There is no command /nonsense; /help lists them." ]; then
        why="gave $(cat out), not $(cat want)"
    fi
    verdict "chat from a pipe" "$why"
fi

# Models that are not named, from whatever folder; a draft that does not fit is named and not used.
said() { echo hi | timeout 900 "$program" chat "$@" -n 4 2>&1 >/dev/null; }
beside() {
    local words=$1 unlike=$2 got
    shift 2
    got=$(said "$@") && [[ $got == *"$words"* ]] && [[ -z $unlike || $got != *"$unlike"* ]]
}
if [ -n "$target" ] && has chat; then
    check "a bundled pair" beside "models/coppice-tiny-dflash-q8_0.gguf, which lies next to" ""
    check "no draft" beside "this is the bundled one" "lies next to" -d none
    check "a context beyond training" beside "--rope-scaling yarn --rope-scale 1.53 slows" "" -d none -c 100000
    check "one that was made longer" beside "" "longer than" -d none -c 100000 --rope-scaling yarn --rope-scale 2
    mkdir one two wrong
    ln -s "$target" one/t.gguf
    check "a target alone" beside "" "draft" -m one/t.gguf
    ln -s "$target" two/t.gguf
    ln -s "$draft" two/a.gguf
    ln -s "$draft" two/b.gguf
    ln -s "$root/models/README.md" two/text.gguf
    check "two drafts" beside "several drafts fit, among them two/a.gguf and two/b.gguf" "" -m two/t.gguf
    ln -s "$target" wrong/t.gguf
    "$program" synth --shape dflash-tiny wrong/d.gguf 2>/dev/null >&2
    check "a draft that does not fit" beside "wrong/d.gguf lies next to the target and is not used: " \
        "guessing with" -m wrong/t.gguf
    why=
    "$program" generate -md "$draft" -m "$target" -ngl 99 -fa on --spec-type dflash --ctx-size 512 \
        -p x -n 4 --json >out 2>err || why="failed"
    [ "$(grep -c 'has no effect' err)" = 2 ] || why="$why; $(cat err)"
    grep -q '"how":"tree"\|"speculate":"tree"' out || why="$why; $(cat out)"
    verdict "spellings of other programs" "$why"
fi

# What a server refuses before it serves.
if [ -n "$target" ] && has serve; then
    serve() { local status=$1 words=$2; shift 2; refuse "$status" "$words" serve -m "$target" -d none "$@"; }
    serve 2 "--public" --host 0.0.0.0 --port 0
    serve 1 "missing.keys" --api-key-file missing.keys
    serve 2 "empty.gguf holds no key" --api-key-file empty.gguf
    serve 2 "--port" --port 70000
    serve 2 "prefill-upstream-base" --port 0 --prefill-upstream-template form.jinja
    serve 1 "nowhere" --port 0 --unix nowhere/socket
    serve 1 "nowhere/trace" --port 0 --trace nowhere/trace
    serve 1 "no.such.host.invalid" --host no.such.host.invalid --api-key k
    serve 2 "budget" --port 0 --budget lots
    refuse 1 "missing.gguf" serve -m missing.gguf --port 0
    refuse 1 "text.gguf" serve -m text.gguf --port 0
fi

# Chat templates: the bytes of a rendering and nothing else; what a template refuses is status 1,
# one sentence and no output.
if has template; then
    printf '%s' '{"messages":[{"role":"user","content":"a<|im_end|>"}],"x":1.0}' >m.json
    printf '%s' '{{ messages[0].content }}|{{ x }}|{{ y }}|{{ add_generation_prompt }}' >t.jinja
    printf '%s' '{{ raise_exception("No " ~ messages[0].role ~ "s here.") }}' >raise.jinja
    printf '%s' '{% if %}' >broken.jinja
    printf '%s' '[]' >list.json
    rendered() {
        why=
        "$program" template "${@:2}" >out 2>err || why="ended with $?: $(cat err)"
        if [ -z "$why" ] && [ "$(od -c out)" != "$(printf '%s' "$1" | od -c)" ]; then
            why="gave $(cat out), not $1"
        fi
        verdict "template ${*:2}" "$why"
    }
    rendered 'a<|im_end|>|1.0||' --chat-template-file t.jinja --messages m.json
    accept '"spans":[{"origin":"input","begin":0,"end":11,"text":"a<|im_end|>"}' template \
        --chat-template-file t.jinja --messages m.json --json
    refuse 1 "No users here." template --chat-template-file raise.jinja --messages m.json
    refuse 1 "broken.jinja" template --chat-template-file broken.jinja --messages m.json
    refuse 1 "missing.jinja" template --chat-template-file missing.jinja --messages m.json
    refuse 1 "missing.json" template --chat-template-file t.jinja --messages missing.json
    refuse 1 "list.json" template --chat-template-file t.jinja --messages list.json
    refuse 2 "--messages" template --chat-template-file t.jinja
    refuse 2 "either" template --messages m.json
    refuse 2 "either" template --messages m.json -m "$vocab" --chat-template-file t.jinja
    if [ -n "$target" ]; then
        rendered $'<|im_start|>user\na<|im_end|><|im_end|>\n' -m "$target" --messages m.json
        accept '"ids":[' template -m "$target" --messages m.json --json
    fi
fi

# Prompt compression: a scorer is a qwen3 model, and how much to keep is said once.
refuse 2 "--prefill-drafter" compress -p Hi
refuse 1 "missing.gguf" compress -p Hi --prefill-drafter missing.gguf
refuse 2 "either" compress -p Hi --messages m.json --prefill-drafter missing.gguf
refuse 2 "last user turn" compress --messages m.json --query Why --prefill-drafter missing.gguf
refuse 2 "prefill-keep-ratio" compress -p Hi --prefill-drafter missing.gguf --prefill-keep-ratio 0
refuse 2 "prefill-keep-ratio" compress -p Hi --prefill-drafter missing.gguf --prefill-keep-ratio 1.5
refuse 2 "one of them" compress -p Hi --prefill-drafter "$vocab" --prefill-keep-ratio 0.1 --prefill-mass 0.5
refuse 2 "rise from point" compress -p Hi --prefill-drafter "$vocab" --prefill-curve 10:.5,10:.2
refuse 2 "rise from point" compress -p Hi --prefill-drafter "$vocab" --prefill-curve 20:.5,10:.2
refuse 1 "a scorer is a qwen3 model" compress -p Hi --prefill-drafter "$vocab"
for command in generate chat; do
    refuse 2 "prefill-drafter FILE" "$command" -m "$vocab" --prefill-compression auto
    refuse 2 "--prefill-compression auto" "$command" -m "$vocab" --prefill-drafter "$vocab"
    refuse 2 "off|auto|always" "$command" -m "$vocab" --prefill-compression on
    [ "$command" = generate ] ||
        refuse 2 "--prefill-compression auto" "$command" -m "$vocab" --prefill-adapt
    refuse 1 "a scorer is a qwen3 model" "$command" -m "$vocab" --prefill-compression auto \
        --prefill-drafter "$vocab"
done

# Compression by the bundled scorers, one with the target's tokenizer and one with another: the fact that is asked for stays, most of the
# rest does not.
scorer=$root/models/coppice-tiny-scorer-q8_0.gguf
other=$root/models/coppice-tiny-scorer-1536-q8_0.gguf
if [ -n "$target" ] && [ -e "$scorer" ] && has compress; then
    rest='The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again.'
    fact='The secret name of the harbour in Cork is Wumpelstilz.'
    { for _ in {1..60}; do echo "$rest"; done; echo "$fact"; for _ in {1..60}; do echo "$rest"; done; } >long.txt
    printf '\nWhat is the secret name of the harbour in Cork?\n' >>long.txt
    by=(--prefill-drafter "$scorer" --prefill-keep-ratio 0.1 --prefill-no-anchors)
    accept "$fact" compress -f long.txt "${by[@]}"
    check "a tenth of it" [ "$(wc -c <out)" -lt $(($(wc -c <long.txt) / 8)) ]
    accept "$fact" compress -f long.txt --prefill-drafter "$other" "${by[@]:2}"
    check "a tenth of it, by another tokenizer" [ "$(wc -c <out)" -lt $(($(wc -c <long.txt) / 8)) ]
    by+=(--prefill-compression auto --prefill-threshold 500)
    accept '"reason":null}' generate -m "$target" --chat -f long.txt -n 4 --json "${by[@]}"
    accept '"reason":null}' generate -m "$target" -f long.txt -n 4 --json "${by[@]}"
    { echo '"""'; cat long.txt; echo '"""'; echo 'And then?'; } >said.txt
    why=
    timeout 900 "$program" chat -m "$target" -d none -n 4 "${by[@]}" <said.txt >out 2>err || why="failed"
    [ "$(grep -c 'is compressed from 4[0-9]* to [0-9][0-9]* tokens in' err)" = 1 ] || why="$why; said $(cat err)"
    verdict "a long message to chat" "$why"
fi

# A message in the model's template, and the same written out.
if [ -n "$target" ] && has generate; then
    why=
    "$program" generate -m "$target" -n 30 --speculate off -p "$(ask Hi)"$'\n' >want 2>/dev/null
    "$program" generate -m "$target" -n 30 --speculate off --chat -p Hi >out 2>/dev/null
    cmp -s want out || why="gave $(cat out), not $(cat want)"
    verdict "generate --chat" "$why"
    printf '%s' '{"messages":[{"role":"user","content":"Hi"}]}' >m.json
    "$program" generate -m "$target" -n 30 --speculate off --chat --messages m.json >out 2>/dev/null
    why=
    cmp -s want out || why="gave $(cat out), not $(cat want)"
    verdict "generate --chat --messages" "$why"
    refuse 2 "--chat" generate -m "$target" -p Hi --system x
    refuse 2 "--messages and --prompt" generate -m "$target" --chat -p Hi --messages m.json
    refuse 2 "JSON object" generate -m "$target" --chat -p Hi --chat-template-kwargs '[1]'
    printf '%s' '{"messages":[{"role":"bard","content":"Hi"}]}' >m.json
    refuse 1 "messages[0].role is 'bard'" generate -m "$target" --chat --messages m.json
fi

# A reader that goes away ends the program without a word.
{ "$program" help; "$program" help; } 2>err | true
check "a closed pipe" [ ! -s err ]
# So does an interrupt in the middle of a reply, with status 130.
if [ -n "$target" ] && has generate; then
    why=
    "$program" generate -m "$target" -p x -n 5000 --ignore-eos 2>err | head -c 4 >out
    if [ "${PIPESTATUS[1]}" != 0 ] || grep -q '^coppice' err; then why="said something"; fi
    verdict "a reader that left" "$why"
    python3 -c 'import signal, subprocess, sys
p = subprocess.Popen(sys.argv[1:], stdout=subprocess.PIPE)
sys.stdout.buffer.write(p.stdout.read(4))
p.send_signal(signal.SIGINT)
p.stdout.read()
sys.exit(p.wait() % 256)' "$program" generate -m "$target" -p x -n 100000 --ignore-eos >out 2>err
    got=$?
    why=
    if [ "$got" != 130 ] || grep -q '^coppice' err || [ ! -s out ]; then why="status $got"; fi
    verdict "an interrupt" "$why"
fi
# A full disk is an error.
full() { ! "$program" help >/dev/full 2>err && grep -q "standard output" err; }
check "a full disk" full
# So is a limit on the size of files, and nothing half written stays.
if has synth; then
    (
        ulimit -f 10
        exec "$program" synth --shape qwen35-tiny limited.gguf
    ) >out 2>err
    got=$?
    why=
    [ "$got" = 1 ] || why="exit status $got"
    [ "$(wc -l <err)" = 1 ] || why="$why; $(wc -l <err) lines on standard error"
    grep -qF "File too large" err || why="$why; the sentence lacks the reason"
    ! compgen -G 'limited.gguf*' >/dev/null || why="$why; a file stays"
    verdict "a limit on the size of files" "$why"
fi

finish "command line"
