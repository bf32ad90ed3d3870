#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What the server adds to the engine on a GPU: the shape of a 27B model with random weights, plain
# decoding. Usage: bench/server_gpu.sh PROGRAM [FOLDER] [PART]...
#   alone    8, 32 and 64 sequences side by side, without and with the engine thread
#   users    the same numbers of clients over HTTP, next to what `alone` gives for the same lengths
#   long     16 clients with 8,192 tokens in and 1,024 out, 32 requests
#   long:MS  the same with --max-gap MS
#   gap      the longest wait of a running stream while a prompt of 16,384 tokens is read
# FOLDER (by default /dev/shm) holds the model, which is made when it is missing. Results are also
# left there as JSON. ROUNDS: `alone` prints the best of that many runs (3). TRACE: a file for the
# trace of the server's passes (of the last part).
set -u
program=${1:?usage: bench/server_gpu.sh PROGRAM [FOLDER] [PART]...}
shift
folder=/dev/shm
if [ $# -gt 0 ] && [ -d "$1" ]; then
    folder=$1
    shift
fi
[ $# -gt 0 ] || set -- alone users long gap
target=$folder/coppice-27b.gguf
port=8765
url=http://127.0.0.1:$port
server=
trap '[ -z "$server" ] || kill "$server" 2>/dev/null' EXIT
[ -s "$target" ] || "$program" synth --shape qwen35-27b --quant q4_k_m "$target" >/dev/null 2>&1 || exit 1

# serve OPTION...: starts the server and waits until the model is there.
serve() {
    "$program" serve -m "$target" -d none --device cuda --port "$port" "$@" 2>"$folder/serve.log" &
    server=$!
    local i
    for i in $(seq 600); do
        ! grep -q '^Try:' "$folder/serve.log" || return 0
        kill -0 "$server" 2>/dev/null || break
        sleep 0.1
    done
    cat "$folder/serve.log"
    exit 1
}

stop() {
    kill "$server"
    wait "$server"
    server=
}

# load NAME OPTION...: requests of random words, which are answered to their full length.
load() {
    local name=$1
    shift
    "$program" bench --url "$url" --endpoint completions --ignore-eos --json "$@" \
        >"$folder/$name.json" || { echo "$name failed"; tail -n 3 "$folder/serve.log"; return 1; }
}

alone() {
    "$program" bench -m "$target" --device cuda --prompt-tokens 64 -n 1024 --sequences 8,32,64 \
        --modes off --engine --rounds "${ROUNDS:-3}"
}

users() {
    local n
    serve --parallel 64 --max-ctx 4096 ${TRACE:+--trace "$TRACE"}
    for n in 8 32 64; do
        load "users-$n" --clients "$n" --requests "$n" --input-tokens 64 --output-tokens 1024 --temp 0
        echo "== $n clients"
        cat "$folder/users-$n.json"
    done
    stop
}

# long [MS]
long() {
    serve --parallel 16 --max-ctx 9728 ${1:+--max-gap "$1"} ${TRACE:+--trace "$TRACE"}
    load long --clients 16 --requests 32 --input-tokens 8192 --output-tokens 1024 --temp 0
    echo "== 16 clients, 8,192 in, 1,024 out${1:+, --max-gap $1}"
    cat "$folder/long.json"
    stop
}

gap() {
    local stream
    serve --parallel 4 --max-ctx 20480 ${TRACE:+--trace "$TRACE"}
    load stream --clients 1 --requests 1 --warmup 0 --input-tokens 64 --output-tokens 1200 --temp 0 &
    stream=$!
    sleep 2
    load prompt --clients 1 --requests 1 --warmup 0 --input-tokens 16384 --output-tokens 16 --temp 0
    wait "$stream"
    echo "== a stream during a prompt of 16,384 tokens"
    cat "$folder/stream.json" "$folder/prompt.json"
    stop
}

for part in "$@"; do
    case $part in
    alone | users | long | gap) "$part" ;;
    long:*) long "${part#*:}" ;;
    *)
        echo "server_gpu.sh: there is no part '$part'; the head of this file lists them" >&2
        exit 2
        ;;
    esac
done
