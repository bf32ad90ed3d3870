#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Cross-builds the engine for 64-bit ARM and runs it under qemu-user on three kinds of processor:
# one with plain NEON, one with dot products, one with int8 matrix products. On them run opcheck
# (every op at level neon, linear layers at dotprod and i8mm, which replace nothing else), a golden
# model, whose folder a build without third-party libraries has to convert, random models through
# rule E, and the bundled pair with and without speculation. It says nothing about speed. CASES: random models at each of two levels (4). Parts run side by side; the output of those
# that fail is shown. The last line is "N passed, N failed". The exit status is 77 when the cross
# compiler or the emulator is missing.
set -u
cd "$(dirname "$0")/.." || exit 2
qemu=$(command -v qemu-aarch64 || command -v qemu-aarch64-static)
if ! command -v aarch64-linux-gnu-gcc >/dev/null || [ -z "$qemu" ]; then
    echo "test_arm.sh: needs aarch64-linux-gnu-gcc and qemu-aarch64 (Debian and Ubuntu:" \
        "gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user)"
    exit 77
fi
cases=${CASES:-4}
jobs=$(nproc)
folder=build/engine-aarch64
logs=build/logs/arm
plain=cortex-a53 dot=neoverse-n1 matrix=max
rm -rf "$logs"
mkdir -p "$logs"
if ! { cmake --preset engine-aarch64 &&
    cmake --build --preset engine-aarch64 -j "$jobs"; } >"$logs/build.log" 2>&1; then
    tail -n 20 "$logs/build.log"
    exit 1
fi

on() { timeout -k 10 900 "$qemu" -cpu "$1" -L /usr/aarch64-linux-gnu "${@:2}"; }

# part NAME COMMAND...: its output and exit status go to files. Waits while all CPUs are busy.
part() {
    while [ "$(jobs -rp | wc -l)" -ge "$jobs" ]; do wait -n; done
    echo 1 >"$logs/$1.status" # of a part that is killed
    { "${@:2}" >"$logs/$1.log" 2>&1; echo $? >"$logs/$1.status"; } &
}

tests() { on "$1" "$folder/tests/gpu/gpu_tests" --levels "$2" "${@:3}"; }

# The pair's answer with speculation and without, at the level that the processor should get.
pair() {
    local how said
    for how in tree off; do
        said=$(on "$1" "$folder/coppice" generate -m models/coppice-tiny-q8_0.gguf \
            -d models/coppice-tiny-dflash-q8_0.gguf --ids 100,200,300,17,23 -n 24 --temp 0.7 \
            --seed 1 --speculate "$how" --logit-hash --json 2>&1)
        echo "$said"
        [[ $said == *"\"device\":\"$2\""*'"logit_hash":'* ]] || return 1
    done
}

# A level that the processor lacks is refused.
refusal() {
    local said
    said=$(on $plain "$folder/coppice" generate -m models/coppice-tiny-q8_0.gguf --ids 1 -n 1 \
        --cpu-level "$1" 2>&1) && return 1
    echo "$said"
    [[ $said == *"lacks the instructions of level $1"* ]]
}

for family in gdn gdn_many gdn_layer attend linear sample rows; do
    part "neon-$family" tests $plain neon --brief --only $family opcheck
done
part dotprod-linear tests $dot dotprod --brief --only linear opcheck
part i8mm-linear tests $matrix i8mm --brief --only linear opcheck
part neon-golden tests $plain neon --brief --only q3_tied golden
part neon-models tests $plain neon --cases "$cases" property
part i8mm-models tests $matrix i8mm --cases "$cases" property
part pair-neon pair $plain neon
part pair-dotprod pair $dot dotprod
part pair-i8mm pair $matrix i8mm
for level in dotprod i8mm avx2; do part "refusal-$level" refusal $level; done
wait

. scripts/check.sh
for status in "$logs"/*.status; do
    name=$(basename "$status" .status)
    log=$logs/$name.log
    if grep -q '^skip ' "$log"; then
        echo "skipped $name: $(grep '^skip ' "$log")"
    elif [ "$(cat "$status")" = 0 ]; then
        sums=$(sed -n 's/^\([0-9]*\) passed, .*/\1/p' "$log" | tail -n 1)
        passed=$((passed + ${sums:-1}))
    else
        show=$log
        verdict "$name" "status $(cat "$status")"
    fi
done
hashes=$(grep -ho '"logit_hash":"[^"]*"' "$logs"/pair-*.log | sort -u | wc -l)
cat "$logs"/pair-*.log >"$logs/hashes.log"
show=$logs/hashes.log
check "one logit hash of six" [ "$hashes" = 1 ]
finish
