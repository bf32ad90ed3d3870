#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Experts on the CPU, the rest on a GPU (docs/experts.md): a model with the experts of some layers there.

usage: cpu_experts_gpu.py PROGRAM MODEL [--device NAME] [--threads N] LAYERS...

For each number of layers it decodes plainly, by chains and by trees of 22 guesses, reads a prompt of 1,500 tokens
whole and in pieces of 100; all must give the same logits. What a layer
adds stands next to what the bytes of the chosen experts take at the rate that --cpu-experts auto measures.
"""
import json
import re
import subprocess
import sys

USAGE = sys.modules[__name__].__doc__


def command_of(program, model, device, threads):
    command = [program, "", "-m", model, "--device", device, "--max-ctx", "4096", "--price-cache", "off"]
    return command + (["--threads", threads] if threads else [])


def run(command, what, *more):
    full = [command[0], what, *command[2:], *more]
    done = subprocess.run(full, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(full)}: {done.stderr.strip()}")
    return done


def bench(command, layers, modes, prompt, new, *more):
    return json.loads(run(command, "bench", "--cpu-experts", str(layers), "--prompt-tokens", str(prompt), "-n", str(new),
                          "--modes", modes, "--ignore-eos", "--json", *more).stdout)


def rates(command):
    """GB/s of the CPU and of the bus: auto measures them where not all experts fit."""
    shown = subprocess.run([command[0], "generate", *command[2:], "--ids", "7,8", "-n", "2", "--speculate", "off",
                            "--verbose", "--cpu-experts", "auto", "--vram-limit", "5G"], capture_output=True, text=True,
                           check=False).stderr
    found = re.search(r"reads experts at (\d+) GB/s and the bus brings (\d+)", shown)
    for line in shown.splitlines():
        if "experts" in line:
            print(f"auto with 5G: {line.strip()}")
    return (float(found.group(1)), float(found.group(2))) if found else (0, 0)


def main(argv):
    given = {"--device": "cuda", "--threads": ""}
    words = argv[1:]
    while words[2:] and words[2] in given:
        given[words[2]] = words[3]
        del words[2:4]
    if len(words) < 3:
        sys.exit(USAGE)
    program, model, layers = words[0], words[1], [int(w) for w in words[2:]]
    command = command_of(program, model, given["--device"], given["--threads"])
    file = json.loads(subprocess.run([program, "inspect", model, "--json"], capture_output=True, text=True,
                                     check=True).stdout)
    facts = file["metadata"]
    arch = facts["general.architecture"]
    part = facts[f"{arch}.expert_used_count"] / facts[f"{arch}.expert_count"]
    layer = file["memory"]["experts"] / file["memory"]["expert_layers"]
    cpu_rate, _ = rates(command)
    base, equal = None, True
    for n in layers:
        short = bench(command, n, "off,chain:8,tree:22", 512, 96, "--drafter", "oracle:al=4")
        whole = bench(command, n, "off", 1500, 4)
        pieces = bench(command, n, "off", 1500, 4, "--chunk", "100") if n else whole
        hashes = {a["overall"]["off"]["logit_hash"] for a in (whole, pieces)}
        equal = equal and short["equal"] and len(hashes) == 1
        plain, tree = short["overall"]["off"], short["overall"]["oracle tree:22"]
        token = plain["ms"]["total"] / plain["steps"]
        step = tree["ms"]["verify"] / tree["steps"]
        prompt = whole["prefill_ms"][0]
        line = (f"{n:3d} layers on the CPU, {n * layer / 2**30:.2f} GiB: {1e3 / token:.1f} tok/s, "
                f"{token:.3f} ms a token, {step:.2f} ms a step of 23 rows, prompt of 1,500 {prompt:.0f} ms, "
                f"{plain['logit_hash']}, {'equal' if short['equal'] and len(hashes) == 1 else 'NOT EQUAL'}")
        if n and base:
            floor = layer * part / cpu_rate / 1e3 if cpu_rate else 0
            line += f"; a layer adds {(token - base) / n * 1e3:.0f} us, its bytes take {floor:.0f}"
        base = base or token
        print(line, flush=True)
    print(f"all ways of each number the same: {'yes' if equal else 'NO'}")
    return 0 if equal else 1


sys.exit(main(sys.argv))
