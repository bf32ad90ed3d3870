#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures prompt compression on a CUDA machine with synthetic files, and prints tables.

Usage: bench/pflash_gpu.py PROGRAM [--folder DIR] [--lengths LIST] [--densities LIST] [--target]

PROGRAM is coppice. The files (Qwen3-0.6B in BF16 as the scorer, with --target the 27B in Q4_K_M)
are made in the folder (/dev/shm) unless they are there. Everything runs under --vram-limit 24G and
--max-ctx 8192. Floors: products at RATE, attention of the scorer by the blocks that are kept.
"""

import argparse
import json
import os
import subprocess
import sys

RATE = 790e12  # FLOP/s of BF16 products of 8192 x 8192 x 8192, by PyTorch on an H200
LAYERS, DIM, HEADS, KV_HEADS, HEAD, FFN, BLOCK = 28, 1024, 16, 8, 128, 3072, 128
LIMITS = ["--device", "cuda", "--vram-limit", "24G"]


def linear_flop(n):
    """Of the layers' matrices; the last layer makes keys alone."""
    kv = 2 * KV_HEADS * HEAD
    layer = DIM * (HEADS * HEAD + kv) + HEADS * HEAD * DIM + 3 * DIM * FFN
    return 2 * n * ((LAYERS - 1) * layer + DIM * kv // 2)


def attention_flop(n, density):
    """Scores and values of the blocks that each block of rows keeps."""
    blocks = sum(max(1, -(-density * (m + 1) // 1)) for m in range(n // BLOCK))
    return (LAYERS - 1) * HEADS * blocks * BLOCK * BLOCK * HEAD * 4


def make(program, folder, name, shape, quant):
    """The path of a synthetic file."""
    path = os.path.join(folder, name)
    if not os.path.exists(path):
        subprocess.run([program, "synth", "--shape", shape, "--quant", quant, path], check=True)
    return path


def score(program, scorer, lengths, *options):
    """The JSON of one `bench score`."""
    command = [program, "bench", "score", "--prefill-drafter", scorer, "--prompt-tokens", lengths,
               "--json", *LIMITS, *options]
    run = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if run.returncode:
        print(f"failed ({run.returncode}): {' '.join(command)}", file=sys.stderr)
        return None
    return json.loads(run.stdout)


def print_profile(one, density):
    """Ops of one text beside their floors."""
    n = one["tokens"]
    attend = attention_flop(n, density) / RATE * 1e3
    linear = linear_flop(n) / RATE * 1e3
    print(f"\n{n} tokens, {100 * density:g} % of the blocks: products {linear:.0f} ms, attention "
          f"{attend:.0f} ms at {RATE / 1e12:.0f} TFLOP/s\n\n| op | calls | ms | ms of its bytes |\n"
          "|---|---|---|---|")
    for op in one["ops"]:
        print(f"| `{op['op']}` | {op['calls']} | {op['ms']:.1f} | {op['floor_ms']:.1f} |")


def main():
    p = argparse.ArgumentParser()
    p.add_argument("program")
    p.add_argument("--folder", default="/dev/shm")
    p.add_argument("--lengths", default="32768,65536,131072")
    p.add_argument("--densities", default="0.1,0.05,0.25,1")
    p.add_argument("--target", action="store_true")
    a = p.parse_args()
    scorer = make(a.program, a.folder, "qwen3-0.6b-bf16.gguf", "qwen3-0.6b", "BF16")
    densities = [float(x) for x in a.densities.split(",")]
    print("| tokens | blocks | scorer, ms | floor, ms | GB by plan | GB taken at most |\n"
          "|---|---|---|---|---|---|")
    profiled = []
    for density in densities:
        got = score(a.program, scorer, a.lengths, "--prefill-density", f"{density:g}")
        for one in got["lengths"] if got else []:
            floor = (linear_flop(one["tokens"]) + attention_flop(one["tokens"], density)) / RATE
            print(f"| {one['tokens']} | {100 * density:g} % | {min(one['score_ms']):.0f} | "
                  f"{floor * 1e3:.0f} | {one['bytes'] / 1e9:.2f} | {got['peak_bytes'] / 1e9:.2f} |",
                  flush=True)
            if one["tokens"] >= 32768 and density == densities[0]:
                profiled.append((one, density))
    for one, density in profiled:
        print_profile(one, density)
    if a.target:
        target = make(a.program, a.folder, "qwen35-27b-q4_k_m.gguf", "qwen35-27b", "Q4_K_M")
        got = score(a.program, scorer, a.lengths, "-m", target, "--max-ctx", "8192",
                    "--prefill-density", f"{densities[0]:g}", "--prefill-keep-ratio", "0.05")
        print("\n| tokens | kept | scorer, ms | first token after, ms | GB taken at most |\n"
              "|---|---|---|---|---|")
        for one in got["lengths"] if got else []:
            print(f"| {one['tokens']} | {one['kept']} | {min(one['score_ms']):.0f} | "
                  f"{one['first_ms']:.0f} | {got['peak_bytes'] / 1e9:.2f} |")


if __name__ == "__main__":
    main()
