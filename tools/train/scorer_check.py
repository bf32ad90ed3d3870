# SPDX-License-Identifier: Apache-2.0
"""How many needles of `bench/niah.py --out` a checkpoint of the scorer would keep.

usage: scorer_check.py CHECKPOINT.pt TARGET.gguf CASES.jsonl [--keep R]... [--every N]

Chunks of 32 tokens by their mean smoothed score; the best share R of them are kept, nothing is kept
for its place, and no anchors. A needle is kept when every chunk is that its value touches. Control:
as many random chunks.
"""

import argparse
import json
import random
from collections import Counter

import torch

import scorer_data
import scorer_model

CHUNK, QUERIES = 32, 64


def encode(tok, text):
    """ids and the byte offset at which each begins"""
    got = tok.encode(text, add_special_tokens=False)
    size = [0]
    for c in text:
        size.append(size[-1] + len(c.encode()))
    return got.ids, [size[a] for a, _ in got.offsets]


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("checkpoint")
    ap.add_argument("target")
    ap.add_argument("cases")
    ap.add_argument("--keep", type=float, action="append")
    ap.add_argument("--every", type=int, default=1)
    ap.add_argument("--show", action="store_true", help="name the cases that miss a needle")
    a = ap.parse_args()
    keeps = a.keep or [0.05, 0.1]
    torch.set_num_threads(1)
    tok, _ = scorer_data.read_tokenizer(a.target)
    model, saved = scorer_model.load(a.checkpoint)
    model.eval()
    r, total, kept, lucky, worst = random.Random(1), Counter(), Counter(), Counter(), {}
    for i, line in enumerate(open(a.cases)):
        if i % a.every:
            continue
        c = json.loads(line)
        ids, at = encode(tok, c["prompt"])
        first = next(k for k, b in enumerate(at) if b >= c["question"])
        s = model.score(torch.tensor(ids), first, min(QUERIES, len(ids) - first))
        s = scorer_model.smooth(s[None])[0][:first]
        chunks = torch.stack([p.mean() for p in s.split(CHUNK)])
        order = chunks.argsort(descending=True).tolist()
        rank = {k: n for n, k in enumerate(order)}
        chance = r.sample(range(len(order)), len(order))
        for n in c["needles"]:
            begin, end = n["value_begin"], n["value_begin"] + len(n["value"].encode())
            touched = {k // CHUNK for k in range(first)
                       if at[k] < end and at[k + 1] > begin}  # fmt: skip
            last = max(rank[k] for k in touched)
            for kind in (c["group"], c["kind"], f"x{len(c['needles'])}", f"depth {c['depth']:3}", "all"):
                total[kind] += 1
                worst[kind] = max(worst.get(kind, 0), last / len(order))
                for keep in keeps:
                    kept[kind, keep] += last < keep * len(order)
                    lucky[kind, keep] += max(chance[k] for k in touched) < keep * len(order)
            if a.show and last >= keeps[-1] * len(order):
                print(c["id"], n["key"], f"rank {last} of {len(order)}")
    print(f"step {saved.get('step')}; kept % at", *keeps, "| random | worst rank, share")
    for kind, n in sorted(total.items()):
        row = " ".join(f"{100 * kept[kind, k] / n:5.1f}" for k in keeps)
        luck = " ".join(f"{100 * lucky[kind, k] / n:5.1f}" for k in keeps)
        print(f"{kind:10} {n:5} | {row} | {luck} | {worst[kind]:.3f}")


if __name__ == "__main__":
    main()
