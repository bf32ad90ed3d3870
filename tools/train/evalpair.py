# SPDX-License-Identifier: Apache-2.0
"""Measures a checkpoint of the pair on prompts: accept lengths of chain, tree and prompt lookup.

usage: evalpair.py CHECKPOINT.pt TOKENIZER.json PROMPTS.jsonl.. [--out DIR]

Both models go through the Q8_0 round trip first. Runs on the CPU in a few minutes and writes
DIR/eval.json. The text comes from step-by-step decoding (temperature 0, and 0.8 with recorded
Gumbel noise), the loops from loops.py. "mean of groups" is the unweighted mean of the groups' means over target passes.
"""

import argparse
import json

import torch

import pipeline
from model import Draft, DraftConfig, Target, TargetConfig, quantise_


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("checkpoint")
    ap.add_argument("tokenizer")
    ap.add_argument("files", nargs="+")
    ap.add_argument("--out", default=".")
    a = ap.parse_args()
    ck = torch.load(a.checkpoint)
    target, draft = Target(TargetConfig()), Draft(DraftConfig())
    target.load_state_dict({k: v.float() for k, v in ck["target"].items()})
    draft.load_state_dict({k: v.float() for k, v in ck["draft"].items()})
    for m in (target, draft):
        quantise_(m.eval().requires_grad_(False))
    a.prompts = f"{a.out}/all.jsonl"
    with open(a.prompts, "w") as f:
        for name in a.files:
            f.write(open(name).read())
    pipeline.T0 = 0
    rows = pipeline.evaluate(a, target, draft, "cpu", a.out)
    for r in rows:
        mean = lambda x: round(sum(x) / max(1, len(x)), 2)
        print(
            r["id"],
            "n",
            r["n"],
            "chain",
            mean(r["chain"]),
            "tree",
            mean(r["tree"]),
            "lookup",
            mean(r["lookup"]),
            "distinct4",
            round(r["distinct4"], 2),
        )


if __name__ == "__main__":
    main()
