#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures what guessing from repetitions (`--speculate auto` without a draft) costs and brings on this machine.

    bench/lookup.py PROGRAM MODEL.gguf [--texts FILE] [--rounds N] [OPTIONS OF bench...]

The prompts of recorded replies (tests/fixtures/lookup/smollm2.txt: twelve questions at temperature 0.8 with two seeds and
at 0, three texts to repeat, three to edit; another model's record is made by tests/budget/record_replies.py) go through
`bench --modes off,lookup,off,lookup,...`, so that both take turns in one process. A ratio is that of the fastest rounds
of a prompt; tokens and logit hashes of all rounds must be equal. It needs no tokenizer, so a build of the engine alone does.
On a machine with other work prefer --rounds 5 and more.
"""
import argparse
import json
import math
import subprocess
import sys
import tempfile
from pathlib import Path

TEXTS = Path(__file__).resolve().parent.parent / "tests/fixtures/lookup/smollm2.txt"


def read_texts(path):
    """Prompts by temperature and seed."""
    runs = {}
    lines = Path(path).read_text().splitlines()
    for head, ids in zip(lines[::2], lines[1::2]):
        name, how, prompt, _ = head.split()
        runs.setdefault(how, []).append((name, ids.split()[:int(prompt)]))
    return runs


def measure(a, how, prompts, options):
    """Times of plain decoding and of lookup in milliseconds, guesses verified and passes, by prompt."""
    temperature, seed = how.split("/")
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as f:
        f.writelines(f"{name}: {','.join(ids)}\n" for name, ids in prompts)
        f.flush()
        command = [a.program, "bench", "-m", a.model, "--prompts", f.name, "--modes", ",".join(["off", "lookup"] * a.rounds),
                   "--temp", temperature, "--seed", seed, "-n", str(a.max_tokens), "--json", *options]
        got = subprocess.run(command, capture_output=True, text=True)
    if got.returncode:
        sys.exit(f"{' '.join(command)}: {got.stderr}")
    out = {}
    for r in json.loads(got.stdout)["runs"]:
        ms = sum(r["ms"][k] for k in ("draft", "verify", "sample", "commit"))
        times = out.setdefault(r["id"], {"off": [], "lookup": [], "tokens": len(r["ids"])})
        times[r["speculate"]].append(ms)
        if r["speculate"] == "lookup":
            times["verified"], times["steps"] = r["drafted"], r["steps"]
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("model")
    parser.add_argument("--texts", default=TEXTS)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("-n", "--max-tokens", type=int, default=256)
    a, options = parser.parse_known_args()
    print("text        T/seed  tokens  passes  verified  plain ms  lookup ms  ratio")
    groups = {}
    for how, prompts in read_texts(a.texts).items():
        for name, t in measure(a, how, prompts, options).items():
            plain, lookup = min(t["off"]), min(t["lookup"])
            ratio = plain / lookup if lookup else 1
            groups.setdefault((name.split("-")[0], how.split("/")[0]), []).append(ratio)
            print(f"{name:11} {how:7} {t['tokens']:6} {t['steps']:7} {t['verified']:9} {plain:9.1f} {lookup:10.1f} "
                  f"{ratio:6.3f}", flush=True)
    for (group, temperature), ratios in groups.items():
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
        print(f"{group} at {temperature}: slowest {min(ratios):.3f}, mean {mean:.3f} of {len(ratios)}")


if __name__ == "__main__":
    main()
