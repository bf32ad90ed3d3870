#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The prefix cache on a GPU: the shape of a 27B model with random weights, plain decoding.
# Usage: bench/cache_gpu.sh PROGRAM [FOLDER] [OPTION]...
# FOLDER (by default /dev/shm) holds the model, which is made when it is missing. The options are those of
# cache_gpu.py, which measures: what putting back 16,384 tokens takes, from host memory and from files, and what
# saving costs streams that run.
set -u
here=$(cd "$(dirname "$0")" && pwd)
program=${1:?usage: bench/cache_gpu.sh PROGRAM [FOLDER] [OPTION]...}
shift
folder=/dev/shm
if [ $# -gt 0 ] && [ -d "$1" ]; then
    folder=$1
    shift
fi
target=$folder/coppice-27b.gguf
[ -s "$target" ] || "$program" synth --shape qwen35-27b --quant q4_k_m "$target" >/dev/null 2>&1 || exit 1
exec python3 "$here/cache_gpu.py" "$program" "$target" "$@"
