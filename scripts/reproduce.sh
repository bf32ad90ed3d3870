#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Measures a real pair on your GPU over HumanEval, GSM8K and MATH-500, and prints accept length and
# speed of plain, chain, tree and auto next to published figures, what of a step the memory's measured rate
# explains, and a line that sums it up. Nothing is fetched unless --fetch
# is given: what is missing is listed, with the command that gets it. It installs no package.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)

usage() {
    cat <<'TEXT'
Usage: scripts/reproduce.sh FOLDER [OPTION]... [-- BENCH-OPTION...]
FOLDER holds the prompt sets as they are published, and the weights unless -m and -d name others:
  HumanEval.jsonl, gsm8k/test.jsonl, MATH-500/test.jsonl
  Qwen3.5-27B-Q4_K_M.gguf, Qwen3.5-27B-DFlash/{config.json,model.safetensors}
Options:
  -m FILE         target model (GGUF)
  -d FILE         its draft, a GGUF file or a model.safetensors next to its config.json
  --fetch         download what is missing (about 20 GB with the weights); without it, list it
  --prompts N     prompts of each set, spread evenly over it; 0 for all (default 10)
  -n N            most tokens of a reply (default 256)
  --budget N      nodes of the tree (default 22)
  --raw           prompts as plain text, even where the target has a chat template
  --no-think      end chat prompts with an empty block of thoughts, as Qwen's template does when
                  thinking is switched off
  --device NAME   as in `coppice bench` (default cuda)
  --program FILE  this program; without it the preset cuda is built
  --out FOLDER    where prompts, results and the table are kept (default build/reproduce)
TEXT
}

fail() {
    echo "reproduce: $*" >&2
    exit 1
}

misuse() {
    echo "reproduce: $*" >&2
    exit 2
}

folder='' target='' draft='' program='' fetch=0 prompts=10 tokens=256 budget=22 device=cuda
out=$root/build/reproduce
form=()
while [ $# -gt 0 ]; do
    case $1 in
    -m | -d | -n | --prompts | --budget | --device | --program | --out)
        [ $# -gt 1 ] || misuse "$1 needs a value"
        case $1 in
        -m) target=$2 ;;
        -d) draft=$2 ;;
        -n) tokens=$2 ;;
        --prompts) prompts=$2 ;;
        --budget) budget=$2 ;;
        --device) device=$2 ;;
        --program) program=$2 ;;
        --out) out=$2 ;;
        esac
        shift
        ;;
    --fetch) fetch=1 ;;
    --raw | --no-think) form+=("$1") ;;
    -h | --help)
        usage
        exit 0
        ;;
    --)
        shift
        break
        ;;
    -*) misuse "there is no option $1; --help lists them" ;;
    *)
        [ -z "$folder" ] || misuse "the argument '$1' is surplus; one folder is enough"
        folder=$1
        ;;
    esac
    shift
done
[ -n "$folder" ] || misuse "name the folder of the prompt sets; --help says what is in it"
[ -d "$folder" ] || fail "$folder is not a folder; make it, it may be empty"
for number in "$prompts" "$tokens" "$budget"; do
    [[ $number =~ ^[0-9]+$ ]] || misuse "'$number' is not a number"
done

wanted=()   # what must be got by hand
commands=() # what gets a missing file

# file PATH WHAT URL: notes the command that fetches a missing file.
file() {
    local path url
    [ -s "$1" ] && return
    printf -v path %q "$1"
    printf -v url %q "$3"
    echo "missing: $1 ($2)" >&2
    case $3 in
    *.gz) commands+=("curl -fL --create-dirs -o $path.gz $url && gunzip -f $path.gz") ;;
    *) commands+=("curl -fL --create-dirs -o $path.part $url && mv $path.part $path") ;;
    esac
}

github=https://raw.githubusercontent.com/openai
hub=https://huggingface.co
file "$folder/HumanEval.jsonl" "164 prompts of openai/human-eval, MIT" \
    "$github/human-eval/master/data/HumanEval.jsonl.gz"
file "$folder/gsm8k/test.jsonl" "1,319 questions of openai/grade-school-math, MIT" \
    "$github/grade-school-math/master/grade_school_math/data/test.jsonl"
file "$folder/MATH-500/test.jsonl" "500 problems of HuggingFaceH4/MATH-500" \
    "$hub/datasets/HuggingFaceH4/MATH-500/resolve/main/test.jsonl"
if [ -z "$target" ]; then
    target=$folder/Qwen3.5-27B-Q4_K_M.gguf
    file "$target" "the target, about 16 GB" \
        "$hub/unsloth/Qwen3.5-27B-GGUF/resolve/main/Qwen3.5-27B-Q4_K_M.gguf"
elif [ ! -s "$target" ]; then
    wanted+=("$target, the target that -m names")
fi
if [ -z "$draft" ]; then
    draft=$folder/Qwen3.5-27B-DFlash/model.safetensors
    for name in config.json model.safetensors; do
        file "$folder/Qwen3.5-27B-DFlash/$name" "the draft, about 3.5 GB" \
            "$hub/z-lab/Qwen3.5-27B-DFlash/resolve/main/$name"
    done
elif [ ! -s "$draft" ]; then
    wanted+=("$draft, the draft that -d names")
fi

# have COMMAND WHERE: notes a command that is missing and where it comes from.
have() { command -v "$1" >/dev/null 2>&1 || wanted+=("$1: $2"); }

have python3 "apt-get install python3"
[ ${#commands[@]} = 0 ] || have curl "apt-get install curl"
build=0
if [ -n "$program" ]; then
    [[ $program == */* ]] || program=./$program
    [ -x "$program" ] || wanted+=("$program, the program that --program names")
else
    program=$root/build/cuda/coppice
    if command -v nvcc >/dev/null 2>&1; then
        build=1
        have cmake "scripts/setup.sh build"
        have ninja "scripts/setup.sh build"
    elif [ ! -x "$program" ]; then
        wanted+=("nvcc in PATH: the CUDA toolkit, 12.8 to 13, https://developer.nvidia.com/cuda-downloads")
    fi
fi
if [[ $device == cuda* ]] && ! nvidia-smi -L 2>/dev/null | grep GPU >/dev/null; then
    wanted+=("a GPU that nvidia-smi -L lists: its driver, or --device cpu to do without (slow)")
fi
for item in "${wanted[@]}"; do
    echo "missing: $item" >&2
done
if [ ${#commands[@]} -gt 0 ] && { [ "$fetch" = 0 ] || [ ${#wanted[@]} -gt 0 ]; }; then
    echo "These commands get the missing files; --fetch runs them:" >&2
    printf '    %s\n' "${commands[@]}" >&2
fi
[ ${#wanted[@]} = 0 ] || fail "nothing was run, because ${#wanted[@]} things are missing that it cannot fetch"
[ ${#commands[@]} = 0 ] || [ "$fetch" = 1 ] || fail "nothing was run, because files are missing"
for command in "${commands[@]}"; do
    echo "+ $command" >&2
    bash -c "$command" || fail "this command failed; what it got so far may be deleted: $command"
done

mkdir -p "$out"
if [ "$build" = 1 ]; then
    echo "Building (cuda), log in $out/build.log ..." >&2
    (cd "$root" && cmake --preset cuda && cmake --build --preset cuda) >"$out/build.log" 2>&1 || {
        tail -n 20 "$out/build.log" >&2
        fail "the build failed; scripts/setup.sh build installs what it needs, see docs/building.md"
    }
fi

python3 "$root/scripts/reproduce.py" prompts "$program" "$target" "$folder" "$prompts" \
    "${form[@]}" >"$out/prompts.jsonl"
run=("$program" bench --price-cache off -m "$target" -d "$draft" --device "$device"
    --prompts "$out/prompts.jsonl"
    -n "$tokens" --modes "off,chain:16,tree:$budget,tree:auto" --json "$@")
printf -v line '%q ' "${run[@]}"
echo "+ $line" >&2
rm -f "$out/result.json"
"${run[@]}" >"$out/result.json" || echo "reproduce: bench ended with status $?" >&2
[ -s "$out/result.json" ] || fail "bench gave no result; its own words are above"
# What a step takes, compared with what its bytes would at the memory's measured rate; a guide, not a condition.
"$program" profile -m "$target" -d "$draft" --device "$device" --prompt-tokens 512 -n 64 --budget "$budget" \
    --json "$@" >"$out/profile.json" 2>"$out/profile.log" || rm -f "$out/profile.json"
version="$("$program" --version | head -n 1), commit $(git -C "$root" rev-parse --short HEAD 2>/dev/null || echo unknown)"
gpu=$(nvidia-smi -L 2>/dev/null | sed -n 1p | grep . || echo "none seen")
table() { python3 "$root/scripts/reproduce.py" "$@"; }
{
    echo "Command: $line"
    echo "Program: $version; $(date -u +%F)"
    echo "GPU: $gpu"
    table table "$out/result.json" "${form[@]}" && good=0 || good=$?
    echo
    table share "$out/profile.json" || true
    echo
    echo "In one line:"
    where="GPU ${gpu%% (UUID*}"
    [[ $device == cuda* ]] || where="device $device"
    table line "$out/result.json" "$out/profile.json" "$version, $where"
    exit "$good"
} | tee "$out/table.md"
