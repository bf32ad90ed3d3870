# SPDX-License-Identifier: Apache-2.0
"""End to end: a built `coppice` against transformers, through its command line only.

For each tiny model: write the HuggingFace folder, `convert` it, map the GGUF file back and compare
weights, then compare `logits --raw` at every position and `draft-logits --raw` with the oracles.
Prompts are drawn from --seed, so each seed is another test. Exit status 1 on the first tolerance
that is broken.

Usage: python compare_cli.py --coppice build/release/coppice [--seed N] [--types F32,BF16,Q8_0]
"""
import argparse
import os
import subprocess
import sys
import tempfile

import numpy as np
import torch

import gguf_back
import oracle
import tiny_model
from golden_fixtures import DRAFTS, TARGETS

# Relative error of the logits allowed for a weight type. Weights are exact on both sides; what is
# left is rounding, and for quantised types the engine's own rounding of activations.
TOLERANCE = {"F32": 1e-4, "F16": 3e-2, "BF16": 3e-2, "Q8_0": 3e-2, "Q4_0": 5e-2, "Q4_K": 5e-2,
             "Q6_K": 5e-2}


class Checks:
    def __init__(self, program, folder):
        self.program, self.folder, self.failed = program, folder, 0

    def run(self, *args):
        done = subprocess.run([self.program, *map(str, args)], capture_output=True, text=True,
                              check=False)
        if done.returncode != 0:
            sys.exit(f"coppice {' '.join(map(str, args))[:200]}: {done.stderr.strip()}")

    def rows(self, vocab, *args):
        path = os.path.join(self.folder, "raw")
        self.run(*args, "--raw", path)
        return torch.from_numpy(np.fromfile(path, "<f4").reshape(-1, vocab).copy())

    def report(self, what, error, limit):
        ok = error <= limit
        self.failed += not ok
        print(f"{'ok  ' if ok else 'FAIL'} {what}: {error:.2e} (limit {limit:.0e})", flush=True)


def csv(ids):
    return ",".join(map(str, ids))


def load_weights(model, weights):
    missing, unexpected = model.load_state_dict(
        {n: torch.from_numpy(w) for n, w in weights.items()}, strict=False)
    assert set(missing) <= {"lm_head.weight"} and not unexpected


def check_target(c, name, t, kind, ids):
    """Weights and logits of one type; returns the F32 model and the path of its GGUF file."""
    hf, gguf = os.path.join(c.folder, name), os.path.join(c.folder, f"{name}.{kind}.gguf")
    if not os.path.exists(hf):
        tiny_model.write_target(hf, t)
    c.run("convert", hf, gguf, "--type", kind)
    weights, types = gguf_back.load(gguf, t)
    model = oracle.load_target(t)
    if kind == "F32":
        c.report(f"{name} {kind} weights mapped back", gguf_back.worst_difference(weights, t), 1e-6)
    else:
        assert kind in types.values(), f"{name}: no tensor became {kind}"
        load_weights(model, weights)
    want, streams = oracle.prefill(model, ids)
    common = ("logits", "-m", gguf, "--ids", csv(ids), "--all")
    for extra in (("--kv-type", "f32"), ("--kv-type", "f32", "--chunk", 7, "--threads", 1),
                  ("--kv-type", "f32", "--cpu-level", "scalar")):
        got = c.rows(t["vocab"], *common, *extra)
        assert got.shape == want.shape, (got.shape, want.shape)
        c.report(f"{name} {kind} logits {' '.join(map(str, extra[2:]))}",
                 max(oracle.relative_error(g, w) for g, w in zip(got, want)), TOLERANCE[kind])
    if kind == "F32":
        got = c.rows(t["vocab"], *common)
        c.report(f"{name} {kind} logits with f16 KV",
                 max(oracle.relative_error(g, w) for g, w in zip(got, want)), 1e-2)
    return model, gguf, want, streams


def check_draft(c, name, base, d, contexts, known, ids):
    t = TARGETS[base]
    model, target, logits, streams = known
    hf, gguf = os.path.join(c.folder, name), os.path.join(c.folder, name + ".gguf")
    tiny_model.write_draft(hf, t, d)
    c.run("convert", hf, gguf, "--type", "F32", "--target-dir", os.path.join(c.folder, base))
    for n in contexts:
        top = logits[n - 1].topk(2)
        if float(top.values[0] - top.values[1]) < 1e-3:
            print(f"skip {name} context {n}: the anchor is a near tie")
            continue
        want = oracle.draft_log_probs(model, t, d, oracle.taps(streams, d, n), int(top.indices[0]))
        for path in (os.path.join(hf, "model.safetensors"), gguf):
            got = c.rows(t["vocab"], "draft-logits", "-m", target, "-d", path, "--ids",
                         csv(ids[:n]), "--kv-type", "f32").double().log_softmax(-1)
            c.report(f"{name} context {n} {os.path.basename(path)}",
                     max(oracle.relative_error(g, w) for g, w in zip(got, want)), 1e-4)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--coppice", required=True)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--types", default="F32,BF16,Q8_0")
    a = p.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        c = Checks(os.path.abspath(a.coppice), folder)
        known = {}
        for name, t in TARGETS.items():
            ids = tiny_model.token_ids(a.seed * 1000 + t["seed"], 140, t["vocab"])
            for kind in a.types.split(","):
                r = check_target(c, name, t, kind, ids)
                if kind == "F32":
                    known[name] = (r, ids)
        for name, (base, d, contexts) in DRAFTS.items():
            if base in known:
                check_draft(c, name, base, d, contexts, *known[base])
        print(f"{c.failed} failed")
    sys.exit(1 if c.failed else 0)


if __name__ == "__main__":
    main()
