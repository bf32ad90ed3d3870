# SPDX-License-Identifier: Apache-2.0
"""End to end: a built `coppice` against transformers, through its command line only.

For each tiny model: write the HuggingFace folder, `convert` it, map the GGUF file back and compare
weights, then compare `logits --raw` at every position and `draft-logits --raw` with the oracles.
Prompts are drawn from --seed, so each seed is another test. Exit status 1 if a limit is broken.

Usage: python compare_cli.py --coppice build/release/coppice [--seed N] [--types F32,BF16,Q8_0,Q4_K]
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

FLOATS = ("F32", "F16", "BF16")


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
        print(f"{'ok  ' if ok else 'FAIL'} {what}: {error:.2e} (limit {limit:.1e})", flush=True)


def csv(ids):
    return ",".join(map(str, ids))


def load_weights(model, weights):
    missing, unexpected = model.load_state_dict(
        {n: torch.from_numpy(w) for n, w in weights.items()}, strict=False)
    assert set(missing) <= {"lm_head.weight"} and not unexpected


def errors(got, want):
    assert got.shape == want.shape, (got.shape, want.shape)
    return np.array([oracle.relative_error(g, w) for g, w in zip(got, want)])


def check_rounded(c, what, model, types, want, ids, got, gguf):
    """Quantised weights: the engine also rounds activations to eight bits, and so does the oracle
    here. A value next to a rounding border may fall on either side, and all that follows then
    differs by as much as the rounding itself; prompts of one token often escape that."""
    head = types.get("lm_head.weight", types["model.embed_tokens.weight"])
    kinds = types | {"lm_head.weight": head}
    oracle.round_activations(model, {n for n, k in kinds.items() if k not in FLOATS})
    common = ("logits", "-m", gguf, "--kv-type", "f32", "--ids")
    single = sorted(errors(c.rows(want.shape[1], *common, i), oracle.prefill(model, [i])[0])[0]
                    for i in ids[:9])
    c.report(f"{what}, one token, same rounding, third best of 9", single[2], 1e-5)
    rounded, _ = oracle.prefill(model, ids)
    c.report(f"{what}, median, no rounding", float(np.median(errors(got, want))),
             1.25 * float(np.median(errors(rounded, want))))


def check_target(c, name, t, kind, ids):
    """Weights and logits of one type; returns what check_draft needs."""
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
    first = c.rows(t["vocab"], *common, "--kv-type", "f32")
    for extra in (("--chunk", 7, "--threads", 1), ("--cpu-level", "scalar")):
        again = c.rows(t["vocab"], *common, "--kv-type", "f32", *extra)
        c.report(f"{name} {kind} {extra[0]} {extra[1]}, bits that differ",
                 int((again.view(torch.int32) != first.view(torch.int32)).sum()), 0)
    if kind in FLOATS:
        c.report(f"{name} {kind} logits", errors(first, want).max(), 1e-4)
    else:
        check_rounded(c, f"{name} {kind} logits", model, types, want, ids, first, gguf)
    if kind == "F32":
        got = c.rows(t["vocab"], *common)
        c.report(f"{name} {kind} logits with f16 KV", errors(got, want).max(), 1e-2)
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
                     errors(got, want).max(), 1e-4)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--coppice", required=True)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--types", default="F32,BF16,Q8_0,Q4_K")
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
