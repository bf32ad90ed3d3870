#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Experts beyond the card (docs/experts.md): a model with all, a half and a quarter of its experts resident.

usage: experts_gpu.py PROGRAM MODEL [-- OPTION...]

Reads prompts of 4,096 and 16,384 tokens and decodes after one of 64, plainly; what fewer resident experts
add stands next to what the bytes that were brought take at 45 GB/s, and how many slots were lent for a prompt.
All must give the same tokens and logits, and with slots no more memory may be held than was planned, since
all experts may well fit. Options after -- go to every run.
"""
import json
import subprocess
import sys

RATE = 45e6  # bytes a millisecond
FEW, MANY = 16, 144  # new tokens
PROMPTS = (4096, 16384)
SLACK = 64 << 20  # bytes that blocks of memory round up to


def run(program, model, slots, prompt, new, more):
    ids = ",".join(str(7 + i * 7919 % 9973) for i in range(prompt))
    command = [program, "generate", "-m", model, "--device", "cuda", "--ids", ids, "-n", str(new), "--json",
               "--logit-hash", "--ignore-eos", "--max-ctx", "20480", "--price-cache", "off", *more]
    if slots:
        command += ["--spark-slots", str(slots)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command)[:60]}...: {done.stderr.strip()}")
    return json.loads(done.stdout)


def brought(answer):
    return answer.get("experts", {}).get("bytes", 0)


def tell_prompt(long, tokens, full_ms, slots):
    """A prompt's part of the line, and whether no more memory was held than planned."""
    ms, got, memory = long["ms"]["prompt"], brought(long), long["memory"]
    if not slots:
        return f"; prompt of {tokens} {ms:.0f} ms", True
    count = long["experts"]
    return (f"; prompt of {tokens} {ms:.0f} ms, {got / 1e9:.2f} GB brought, {ms - full_ms:.0f} ms added, "
            f"{(ms - full_ms) / (got / RATE):.2f} of 45 GB/s, {count.get('slots_given', 0)} slots lent; "
            f"{memory['peak'] / 1e9:.2f} GB held, {memory['planned'] / 1e9:.2f} planned",
            memory["peak"] <= memory["planned"] + SLACK)


def main(argv):
    own, more = (argv[1:argv.index("--")], argv[argv.index("--") + 1:]) if "--" in argv else (argv[1:], [])
    if len(own) != 2:
        sys.exit(__doc__)
    program, model = own
    more = more or ["--speculate", "off"]
    file = json.loads(subprocess.run([program, "inspect", model, "--json"], capture_output=True, text=True,
                                     check=True).stdout)
    arch = file["metadata"]["general.architecture"]
    experts = file["metadata"][f"{arch}.expert_count"]
    all_hash, base, equal, planned = None, None, True, True
    for slots in (0, experts // 2, experts // 4):
        few, many, *long = (run(program, model, slots, *what, more) for what in
                            ((64, FEW), (64, MANY), *((n, 1) for n in PROMPTS)))
        hashes = [a.get("logit_hash") for a in (few, many, *long)]
        token_ms = (many["ms"]["verify"] - few["ms"]["verify"]) / (MANY - FEW)
        token_bytes = (brought(many) - brought(few)) / (MANY - FEW)
        if not slots:
            all_hash, base = hashes, (token_ms, [a["ms"]["prompt"] for a in long])
        equal = equal and hashes == all_hash and None not in hashes
        line = f"{100 * slots // experts if slots else 100:3d} % resident: {token_ms:.2f} ms a token"
        if slots:
            count = many["experts"]
            line += (f", {token_bytes / 1e6:.1f} MB brought, {token_ms - base[0]:.2f} ms added, "
                     f"{(token_ms - base[0]) / (token_bytes / RATE):.2f} of 45 GB/s "
                     f"({100 * count['misses'] / (count['hits'] + count['misses']):.0f} % missing)")
        for answer, tokens, full_ms in zip(long, PROMPTS, base[1]):
            text, kept = tell_prompt(answer, tokens, full_ms, slots)
            line += text
            planned = planned and kept
        print(line, flush=True)
    print(f"the same tokens and logits: {'yes' if equal else 'NO'}")
    print(f"no more memory than was planned: {'yes' if planned else 'NO'}")
    return 0 if equal and planned else 1


sys.exit(main(sys.argv))
