# SPDX-License-Identifier: Apache-2.0
"""Chooses the bench prompts among the candidates of make_prompts.py.

usage: pick_prompts.py COPPICE TARGET.gguf OVERLAP.log CANDIDATE_DIR OUT_DIR [--each N]

A candidate stays when its 13-token overlap with the training text (overlap.py's output) is under
0.15, and the target's plain greedy continuation has at least 12 tokens of which 60 % of the 4-grams
are distinct. Tasks take turns, in the order drawn. The draft plays no part in the choice: accept
lengths are neither measured nor looked at here.
"""

import argparse
import json
import pathlib
import subprocess
from itertools import zip_longest


def continuation(a, row):
    got = subprocess.run(
        [
            a.coppice,
            "generate",
            "-m",
            a.target,
            "-p",
            row["prompt"],
            "-n",
            str(row["max_tokens"]),
            "--speculate",
            "off",
            "--json",
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(got.stdout)["ids"]


def distinct(ids):
    grams = [tuple(ids[i : i + 4]) for i in range(len(ids) - 3)]
    return len(set(grams)) / max(1, len(grams))


def main():
    ap = argparse.ArgumentParser()
    for n in ("coppice", "target", "overlap", "candidates", "out"):
        ap.add_argument(n)
    ap.add_argument("--each", type=int, default=12)
    a = ap.parse_args()
    share = {f[0]: float(f[3]) for f in map(str.split, open(a.overlap)) if len(f) == 4}
    for path in sorted(pathlib.Path(a.candidates).glob("*.jsonl")):
        rows = [json.loads(line) for line in open(path)]
        by_task = {}
        for r in rows:
            by_task.setdefault(r["task"], []).append(r)
        turns = [r for turn in zip_longest(*by_task.values()) for r in turn if r]
        kept, tried = [], 0
        for r in turns:
            if len(kept) == a.each:
                break
            if share[r["id"]] >= 0.15:
                continue
            ids, tried = continuation(a, r), tried + 1
            if len(ids) >= 12 and distinct(ids) >= 0.6:
                kept.append(dict(r, id=f"{r['group']}-{len(kept) + 1:02d}"))
        out = pathlib.Path(a.out) / path.name
        out.write_text("".join(json.dumps(r) + "\n" for r in kept))
        print(path.name, len(kept), "kept of", tried, "tried,", len(rows), "candidates")


if __name__ == "__main__":
    main()
