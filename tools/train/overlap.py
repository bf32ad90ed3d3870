# SPDX-License-Identifier: Apache-2.0
"""How much of each bench prompt occurs in the training text: the share of its 13-token runs.

usage: overlap.py TOKENIZER.json PROMPTS.jsonl.. -- TOKENS.npy..

TOKENS are the streams of prepare.py. Exit 1 if a prompt reaches 0.2. Runs are compared by a 64-bit
polynomial hash, which can only overstate the overlap.
"""

import json
import sys

import numpy as np
from tokenizers import Tokenizer

RUN, MUL = 13, np.uint64(0x9E3779B97F4A7C15)


def hashes(ids):
    x = np.asarray(ids, np.uint64)
    if len(x) < RUN:
        return x[:0]
    h = np.zeros(len(x) - RUN + 1, np.uint64)
    for k in range(RUN):
        h = h * MUL + x[k : len(x) - RUN + 1 + k] + np.uint64(1)
        h ^= h >> np.uint64(29)
    return h


def main():
    cut = sys.argv.index("--")
    tok = Tokenizer.from_file(sys.argv[1])
    rows = [json.loads(line) for f in sys.argv[2:cut] for line in open(f)]
    mine = [hashes(tok.encode(r["prompt"]).ids) for r in rows]
    wanted = np.unique(np.concatenate(mine))
    found = np.zeros(len(wanted), bool)
    total = 0
    for f in sys.argv[cut + 1 :]:
        x = np.load(f) & np.uint16(0x7FFF)
        total += len(x)
        for i in range(0, len(x), 4_000_000):
            h = np.unique(hashes(x[i : i + 4_000_000 + RUN - 1]))
            at = np.searchsorted(wanted, h)
            ok = at < len(wanted)
            at, h = at[ok], h[ok]
            found[at[wanted[at] == h]] = True
    worst = 0.0
    for r, h in zip(rows, mine):
        share = found[np.searchsorted(wanted, h)].mean() if len(h) else 0.0
        worst = max(worst, share)
        print(f"{r['id']:12s} {len(h):4d} runs  {share:.3f}")
    print(f"{len(rows)} prompts against {total / 1e6:.1f} M tokens: worst {worst:.3f}")
    sys.exit(int(worst >= 0.2))


if __name__ == "__main__":
    main()
