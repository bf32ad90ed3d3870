#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures prompt compression on a CUDA machine with synthetic files, and prints tables.

Usage: bench/pflash_gpu.py PROGRAM [--folder DIR] [--lengths LIST] [--densities LIST] [--target]
                           [--park LIMITS]

PROGRAM is coppice. The files (Qwen3-0.6B in BF16 as the scorer, with --target the 27B in Q4_K_M)
are made in the folder (/dev/shm) unless they are there. Everything runs under --vram-limit 24G and
--max-ctx 8192. Floors: products at RATE, attention of the scorer by the blocks that are kept. With
--park, `generate` reads a text of 131,072 tokens under each of the limits (24G,19G,8G): the first has
room for both models, under the next the target's weights make room for the scorer (the same tokens
and the same bits must come out), the last is too small. Memory is what nvidia-smi says.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import threading

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
    """Ops of one text next to their lower bounds."""
    n = one["tokens"]
    attend = attention_flop(n, density) / RATE * 1e3
    linear = linear_flop(n) / RATE * 1e3
    print(f"\n{n} tokens, {100 * density:g} % of the blocks: products {linear:.0f} ms, attention "
          f"{attend:.0f} ms at {RATE / 1e12:.0f} TFLOP/s\n\n| op | calls | ms | ms of its bytes |\n"
          "|---|---|---|---|")
    for op in one["ops"]:
        print(f"| `{op['op']}` | {op['calls']} | {op['ms']:.1f} | {op['floor_ms']:.1f} |")


class Peak(threading.Thread):
    """The most memory that the GPU has in use, in MiB, until stop()."""

    def __init__(self):
        super().__init__(daemon=True)
        self.most = 0
        self.run_ = subprocess.Popen(["nvidia-smi", "--query-gpu=memory.used",
                                      "--format=csv,noheader,nounits", "-lms", "10"],
                                     stdout=subprocess.PIPE, text=True)
        self.start()

    def run(self):
        for line in self.run_.stdout:
            if line.strip().isdigit():
                self.most = max(self.most, int(line))

    def stop(self):
        self.run_.terminate()
        self.join()
        return self.most


def park(program, folder, scorer, target, limits):
    """Generates under limits of memory, with the same text."""
    rng = random.Random(1)
    path = os.path.join(folder, "park.txt")
    with open(path, "w", encoding="ascii") as f:
        f.write("".join(rng.choice("abcdefgh ") if i % 60 else "\n" for i in range(130000))
                + "\n\nWhat is the answer?")
    first = None
    print("\n| limit | tokens | ms of compression | of these parking | GiB in use at most | hash |\n"
          "|---|---|---|---|---|---|")
    for limit in limits:
        command = [program, "generate", "-m", target, "-f", path, "--device", "cuda", "--vram-limit",
                   limit, "--max-ctx", "8192", "--prefill-compression", "always",
                   "--prefill-drafter", scorer, "--prefill-keep-ratio", "0.05",
                   "--speculate", "off", "--ignore-eos", "-n", "16", "--logit-hash", "--json"]
        peak = Peak()
        run = subprocess.run(command, capture_output=True, text=True, check=False)
        most = peak.stop() / 1024
        for line in run.stderr.splitlines():
            print(f"{limit}: {line}", file=sys.stderr)
        if run.returncode:
            print(f"| {limit} | refused ({run.returncode}) |")
            continue
        y = json.loads(run.stdout)
        c = y["compression"]
        first = first or y["logit_hash"]
        print(f"| {limit} | {c['from']} to {c['to']} | {c['ms']:.0f} | {c.get('parked_ms', 0):.0f} | "
              f"{most:.2f} | {y['logit_hash']}{'' if y['logit_hash'] == first else ' DIFFERS'} |",
              flush=True)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("program")
    p.add_argument("--folder", default="/dev/shm")
    p.add_argument("--lengths", default="32768,65536,131072")
    p.add_argument("--densities", default="0.1,0.05,0.25,1")
    p.add_argument("--target", action="store_true")
    p.add_argument("--park", default="")
    a = p.parse_args()
    scorer = make(a.program, a.folder, "qwen3-0.6b-bf16.gguf", "qwen3-0.6b", "BF16")
    densities = [float(x) for x in a.densities.split(",")]
    profiled = []
    if a.lengths:
        print("| tokens | blocks | scorer, ms | floor, ms | GB by plan | GB taken at most |\n"
              "|---|---|---|---|---|---|")
    for density in densities if a.lengths else []:
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
    target = None
    if a.target or a.park:
        target = make(a.program, a.folder, "qwen35-27b-q4_k_m.gguf", "qwen35-27b", "Q4_K_M")
    if a.park:
        park(a.program, a.folder, scorer, target, a.park.split(","))
    if a.target:
        got = score(a.program, scorer, a.lengths, "-m", target, "--max-ctx", "8192",
                    "--prefill-density", f"{densities[0]:g}", "--prefill-keep-ratio", "0.05")
        print("\n| tokens | kept | scorer, ms | first token after, ms | GB taken at most |\n"
              "|---|---|---|---|---|")
        for one in got["lengths"] if got else []:
            print(f"| {one['tokens']} | {one['kept']} | {min(one['score_ms']):.0f} | "
                  f"{one['first_ms']:.0f} | {got['peak_bytes'] / 1e9:.2f} |")


if __name__ == "__main__":
    main()
