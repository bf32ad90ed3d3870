#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs a command with gpu_trace.c injected, which writes down when each kernel and copy ran.
# Usage: bench/gpu_trace.sh TRACE COMMAND...
# The library is built next to TRACE when it is not there yet; it needs the CUDA toolkit's CUPTI.
set -eu
trace=${1:?usage: bench/gpu_trace.sh TRACE COMMAND...}
shift
here=$(cd "$(dirname "$0")" && pwd)
folder=$(cd "$(dirname "$trace")" && pwd)
library=$folder/gpu_trace.so
cuda=${CUDA_HOME:-/usr/local/cuda}
if nvcc=$(command -v nvcc) && [ ! -d "$cuda" ]; then
    cuda=$(dirname "$(dirname "$(readlink -f "$nvcc")")")
fi
paths=()
for at in "$cuda" "$cuda/extras/CUPTI" "$cuda"/targets/*; do
    paths+=("-I$at/include" "-L$at/lib64" "-L$at/lib" "-Wl,-rpath,$at/lib64" "-Wl,-rpath,$at/lib")
done
if [ ! -e "$library" ] &&
    ! gcc -O2 -shared -fPIC -o "$library" "$here/gpu_trace.c" "${paths[@]}" -lcupti; then
    echo "gpu_trace.sh: cannot build with the CUPTI of $cuda; set CUDA_HOME" >&2
    exit 1
fi
GPU_TRACE=$trace CUDA_INJECTION64_PATH=$library exec "$@"
