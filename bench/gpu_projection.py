#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a forward of the 27B shape should take on GPUs that were not measured here: a projection.

usage: gpu_projection.py [--check]

Matrix products by the path `mma`, one after the other, each the larger of two times:

    bytes / (COPY x published rate of memory)
    256 x 16 tiles x cycles / (multiprocessors x 4 x boost clock x BALANCE)

cycles: what one tile takes of a quarter of a multiprocessor, from instructions counted in the machine
code (gpu_instructions.csv, kernel of 8 rows or those of few/warp.cuh with one tile a warp):
the largest of their number, of logic and shifts at 2 cycles, of fused multiply-adds at the device's
rate and of matrix instructions at its rate. To these comes REST: what a step takes besides its products
(norms, attention, the delta rule, ways from one launch to the next), as an H200 was seen to take it,
scaled by the clock. --check prints the same for an H200 next to what was measured there
(docs/performance.md): REST is chosen for 1 and 32 rows, the others tell
how far off the formula is there; bytes bind all products there, so that tries REST, not the counts. It says nothing of how far off it is elsewhere.
"""
import argparse
import os

# Matrices of a forward of qwen35-27b in Q4_K_M: how many, inputs, outputs, type.
MATRICES = [
    (64, 5120, 34816, "Q4_K"),  # gate and up
    (32, 17408, 5120, "Q4_K"), (32, 17408, 5120, "Q6_K"),  # down
    (24, 5120, 10240, "Q4_K"), (24, 5120, 10240, "Q6_K"),  # recurrent layers: q, k and v
    (48, 5120, 6144, "Q4_K"), (48, 5120, 96, "Q8_0"), (48, 6144, 5120, "Q4_K"),  # z; alpha, beta; out
    (16, 5120, 13312, "Q4_K"), (8, 5120, 1024, "Q4_K"), (8, 5120, 1024, "Q6_K"),  # attention: q, k; v
    (16, 6144, 5120, "Q4_K"),  # attention: out
    (1, 5120, 248320, "Q6_K"),  # head
]
BYTES = {"Q4_K": 144 / 256, "Q6_K": 210 / 256, "Q8_0": 34 / 32}  # a weight

# Published rates: bytes/ns of memory, multiprocessors, boost clock in GHz, multiply-adds of fp16 with
# f32 sums a multiprocessor and cycle; cycles that a quarter takes for a fused multiply-add of halves.
GPUS = {
    "RTX 3090": (936, 82, 1.695, 256, 2),
    "RTX 4090": (1008, 128, 2.520, 256, 2),
    "RTX 5090": (1792, 170, 2.407, 256, 2),
    "RTX 6000 Ada": (960, 142, 2.505, 512, 2),
    "RTX PRO 6000 Blackwell": (1792, 188, 2.617, 512, 2),
}
# Its mma.sync runs at a third less than its published rate, which is that of wgmma: as counted there.
H200 = (4800, 132, 1.980, 1365, 1)

COPY = 0.88  # of the published rate that a copy reaches on an H200
BALANCE = 0.85  # of the quarters' cycles that there is work for: 17 tiles on four quarters
ROWS = {1: "8", 8: "8", 16: "warp_16_one", 23: "warp_24_one", 32: "warp_32_one"}  # who takes them
SHOWN = [1, 16, 23, 32]
REST = (2.713, 0.141)  # ms besides the products on an H200: at no row, and for each
# Rows: ms of a forward there by the path mma, 2026-11-27. Not with the last build: its loops of Q4_K for
# 16 and 23 rows had two sections a turn, which cost 3 to 4 % of a step of 16 layers.
SEEN = {1: 6.60, 8: 7.43, 16: 8.73, 23: 9.88, 32: 10.97}


def instructions():
    """{(type, kernel): (all, alu, fma, matrix)} for 256 x 16 weights."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "gpu_instructions.csv")
    with open(path, encoding="utf-8") as file:
        lines = [line.split(",") for line in file if not line.startswith("#")]
    return {(form, kernel): tuple(int(v) for v in counts) for form, kernel, *counts in lines}


def cycles(counts, gpu):
    """Of a quarter for a tile, and what bounds them."""
    total, alu, fma, matrix = counts
    _, _, _, rate, halves = gpu
    by = {"issue": total, "logic": 2 * alu, "halves": halves * fma, "matrix": matrix * 2048 * 4 / rate}
    bound = max(by, key=by.get)
    return by[bound], bound


def products(gpu, rows, counted):
    """Milliseconds of all matrix products, and of them by what bounds each."""
    rate, processors, clock, _, _ = gpu
    spent = {}
    for count, k, m, form in MATRICES:
        weights = count * k * m
        memory = weights * BYTES[form] / (COPY * rate) / 1e6
        each, bound = cycles(counted[form, ROWS[rows]], gpu)
        work = weights / 4096 * each / (processors * 4 * clock * BALANCE) / 1e6
        name = "memory" if memory >= work else bound
        spent[name] = spent.get(name, 0) + max(memory, work)
    return sum(spent.values()), spent


def forward(gpu, rows, counted):
    total, spent = products(gpu, rows, counted)
    rest = (REST[0] + REST[1] * rows) * H200[2] / gpu[2]
    return total + rest, max(spent, key=spent.get)


def print_projection(counted):
    print(f"{'forward, ms':<24}" + "".join(f"{f'{rows} row' + 's' * (rows > 1):>18}" for rows in SHOWN))
    for name, gpu in GPUS.items():
        cells = [forward(gpu, rows, counted) for rows in SHOWN]
        print(f"{name:<24}" + "".join(f"{f'{ms:.1f} ({bound})':>18}" for ms, bound in cells))


def print_check(counted):
    for rows, seen in SEEN.items():
        total, spent = products(H200, rows, counted)
        ms, _ = forward(H200, rows, counted)
        parts = ", ".join(f"{name} {value:.2f}" for name, value in spent.items())
        print(f"{rows:>2} rows: products {total:.2f} ms ({parts}), forward {ms:.2f}, seen {seen:.2f}, "
              f"{100 * (ms / seen - 1):+.0f} %")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="an H200, next to what was measured")
    args = parser.parse_args()
    (print_check if args.check else print_projection)(instructions())


if __name__ == "__main__":
    main()
