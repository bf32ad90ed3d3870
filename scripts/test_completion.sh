#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The scripts of `coppice completion` in their shells, as when the key is pressed: what bash, zsh and
# fish offer after beginnings of command lines. A shell that is not installed is skipped by name.
# Usage: scripts/test_completion.sh PROGRAM
set -u
program=$(realpath "$1")
cd "$(dirname "$0")/.." || exit 2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
. scripts/check.sh
show=$work/err

mkdir -p "$work/bin" "$work/here/models" "$work/home" "$work/scripts"
ln -s "$program" "$work/bin/coppice"
touch "$work/here/tiny.gguf" "$work/here/other.txt" "$work/here/models/b.gguf"
export PATH=$work/bin:$PATH HOME=$work/home HF_HUB_CACHE=$work/hub
# A cache of the Hub as other tools leave it, with one model.
repo=$HF_HUB_CACHE/models--Some--Model-GGUF
snapshot=$repo/snapshots/0123456789abcdef0123456789abcdef01234567
mkdir -p "$snapshot" "$repo/blobs" "$repo/refs"
printf 0123456789abcdef0123456789abcdef01234567 >"$repo/refs/main"
head -c 1000 /dev/zero >"$repo/blobs/x"
ln -s ../../blobs/x "$snapshot/Model-Q4_K_M.gguf"
name=Some/Model-GGUF:Q4_K_M
# shellcheck disable=SC2016 # a file of that name
ln -s ../../blobs/x "$snapshot/"'$(touch${IFS}run).gguf'
check "the cache has a model" grep -q "^$name " <(coppice list)
check "and one with a name that a shell would run" grep -qF '$(touch' <(coppice list)

coppice completion bash >"$work/scripts/coppice"
coppice completion zsh >"$work/scripts/_coppice"
coppice completion fish >"$work/scripts/coppice.fish"

# What each shell offers after a line, one a line. bash calls the function as its readline does.
cat >"$work/drive.bash" <<'BASH'
. "$1"
COMP_LINE=$2 COMP_POINT=${#2}
_coppice
printf '%s\n' "${COMPREPLY[@]}"
BASH
offer_bash() { bash --norc "$work/drive.bash" "$work/scripts/coppice" "$1"; }

offer_fish() { fish --no-config -c "source $work/scripts/coppice.fish; complete -C \"$1\"" | cut -f 1; }

# zsh completes only where it edits a line: in a terminal of its own. All that it offers passes
# through compadd.
cat >"$work/drive.zsh" <<'ZSH'
zmodload zsh/zpty
zpty shell zsh -f -i
zpty -w shell "unset zle_bracketed_paste; PROMPT=; TERM=dumb; fpath=($1 \$fpath)
autoload -Uz compinit; compinit -u -D
compadd() {
    local -a matches
    if [[ -n \${argv[(r)-[OAD]]} ]]; then builtin compadd \"\$@\"; return; fi
    builtin compadd -A matches \"\$@\"
    print -rl -- \${matches/#/offer:}
    builtin compadd \"\$@\"
}
capture() { print; _main_complete; print -r -- the''end; }
zle -C capture complete-word capture; bindkey '^I' capture; print -r -- the''start"
zpty -r shell text "*thestart*"
zpty -w -n shell "$2"$'\t'
zpty -r shell text "*theend*"
print -rl -- ${${(M)${(f)text//$'\r'/}:#offer:*}#offer:}
zpty -d shell
ZSH
offer_zsh() { timeout 60 zsh -f "$work/drive.zsh" "$work/scripts" "$1"; }

# offered SHELL LINE WORD... [-- WORD...]: those words are offered, those after -- are not.
offered() {
    local shell=$1 line=$2 word wanted=0 got why=
    shift 2
    got=$(cd "$work/here" && "offer_$shell" "$line" 2>"$work/err")
    for word in "$@"; do
        if [ "$word" = -- ]; then
            wanted=1
            continue
        fi
        grep -qxF -e "$word" <<<"$got"
        [ $? = "$wanted" ] || why="$why $word"
    done
    verdict "$shell: $line" "${why:+wrong about$why; offered: $(head -c 300 <<<"$got" | tr '\n' ' ')}"
}

for shell in bash zsh fish; do
    if ! command -v "$shell" >/dev/null; then
        echo "skipped  completion in $shell: it is not installed"
        continue
    fi
    offered $shell "coppice se" serve -- chat
    offered $shell "coppice " serve chat completion help -- manual
    offered $shell "coppice generate --kv-t" --kv-type --kv-type-k --kv-type-v -- --json
    offered $shell "coppice generate --kv-type " f32 f16 bf16 q8_0 -- tiny.gguf --json
    offered $shell "coppice generate --budget " auto
    offered $shell "coppice serve --po" --port -- --piece
    offered $shell "coppice synth --shape qwen35-2" qwen35-27b -- llama-1b
    offered $shell "coppice quantize a b Q4_K_" Q4_K_M Q4_K_S -- Q8_0
    offered $shell "coppice generate -f o" other.txt
    offered $shell "coppice chat -m t" tiny.gguf -- other.txt
    offered $shell "coppice remove So" $name
    offered $shell "coppice chat -m So" $name
    offered $shell "coppice help tok" tokenize -- detokenize
    offered $shell "coppice completion " bash zsh fish -- tiny.gguf
done
# In bash words end at colons and equal signs.
offered bash "coppice chat -m Some/Model-GGUF:Q" Q4_K_M
offered bash "coppice generate --kv-type=q" q8_0 -- f16
# Beside names of models readline quotes no names of files.
touch "$work/here/"'Some $(touch run).gguf'
offered bash "coppice chat -m So" $name 'Some\ \$\(touch\ run\).gguf'
rm "$work/here/"Some*

check "no name of a file was run" [ ! -e "$work/here/run" ]

# Every option that --help shows is offered, for every subcommand.
all_options() {
    local command option
    while read -r command; do
        offer_bash "coppice $command --" >"$work/offered"
        "$program" "$command" --help | grep -o '^ \{2,6\}\(-., \)\?--[a-z-]*' | grep -o -e '--.*' >"$work/options"
        [ -s "$work/options" ] || return 1
        while read -r option; do
            grep -qxF -e "$option" "$work/offered" || { echo "$command $option"; return 1; }
        done <"$work/options"
    done < <("$program" help | sed -n '/^Commands:/,/^$/s/^  \([a-z-]*\) .*/\1/p')
}
check "every option of every subcommand" all_options

finish
