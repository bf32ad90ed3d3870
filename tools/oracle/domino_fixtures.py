# SPDX-License-Identifier: Apache-2.0
"""Writes tests/golden/data/domino_*: what Domino drafts (arXiv 2605.29707) of tiny models must answer.

The block is oracle.draft_hidden; torch.nn.GRU reads the tokens of a path. NAME.json has for each
context some paths of tokens after the anchor: the draft's own best, and random ones; NAME.bin for
each of them the log-probabilities of the token after it and after each token on the way to it.

Usage: python domino_fixtures.py [OUTPUT_DIR [CASE...]]
"""
import json
import os
import sys

import torch

import golden_fixtures
import oracle
import tiny_model

BASE = golden_fixtures.TARGETS
DRAFT = {"ffn": 512, "heads": 4, "kv_heads": 2, "head_dim": 128, "mask": 500, "causal": None}
CONTEXTS = [16, 40]
PATHS = 3
# shift: row i of a block predicts the token after its own; skip: guesses that are not corrected.
CASES = {
    # As published, with full attention.
    "domino_r2": (BASE["r2_untied"], DRAFT | {
        "layers": 2, "windows": [0, 0], "taps": [1, 5], "block": 6, "gru": 64, "emb": 40, "skip": 1,
        "shift": False, "seed": 220}),
    # By its older name, the anchor's row a guess, more of them not corrected.
    "domino_q3": (BASE["q3_untied"], DRAFT | {
        "layers": 2, "windows": [0, 0], "taps": [1, 4], "block": 5, "gru": 96, "emb": 16, "skip": 2,
        "shift": True, "rope": 1000000, "projector": "causal_v5", "seed": 221}),
    # All corrected; embeddings times the square root of the width, capped logits, windows.
    "domino_g4": (BASE["g4_dense"], DRAFT | {
        "layers": 2, "windows": [24, 0], "taps": [1, 4], "block": 4, "gru": 32, "emb": 24,
        "skip": 0, "shift": False, "rope": 1000000, "cap": 2, "seed": 222}),
}


class Domino:
    """A draft's first block after n known tokens."""

    def __init__(self, model, t, d, features, anchor, w=None):
        w = w or oracle.draft_weights(t, d)
        hidden = oracle.draft_hidden(model, t, d, features, anchor, w)
        self.hidden = hidden if d["shift"] else hidden[1:]
        self.logits = self.hidden @ model.lm_head.weight.detach().double().T
        if d.get("cap"):
            self.logits = d["cap"] * torch.tanh(self.logits / d["cap"])
        self.embed = model.model.embed_tokens.weight.detach().double() * oracle.target_scale(t)
        self.anchor, self.skip = anchor, d["skip"]
        self.gru = torch.nn.GRU(t["hidden"], d["gru"], bias=False).double()
        self.gru.load_state_dict({n: w["prefix_gru." + n] for n in ("weight_ih_l0", "weight_hh_l0")})
        self.down, self.up = w["embed_proj.0.weight"], w["embed_proj.2.weight"]

    def after(self, path):
        """Log-probabilities of the token after the anchor and the path."""
        i = len(path)
        if i < self.skip:
            return self.logits[i].log_softmax(-1)
        with torch.no_grad():
            _, state = self.gru(self.embed[[self.anchor, *path]])
        joined = torch.cat([self.hidden[i], state[0]])
        more = self.up @ torch.nn.functional.silu(self.down @ joined)
        return (self.logits[i] + more).log_softmax(-1)

    def own_path(self):
        path = []
        while len(path) < len(self.logits) - 1:
            path.append(int(self.after(path).argmax()))
        return path

    def rows(self, path):
        return torch.stack([self.after(path[:i]) for i in range(len(path) + 1)])


def check_identity(model, t, d, features, anchor):
    """With an empty last matrix it is DFlash, whatever the path: relative difference."""
    w = oracle.draft_weights(t, d)
    w["embed_proj.2.weight"] = torch.zeros_like(w["embed_proj.2.weight"])
    rows = Domino(model, t, d | {"shift": False}, features, anchor, w).rows([7] * (d["block"] - 2))
    return oracle.relative_error(rows, oracle.draft_log_probs(model, t, d, features, anchor, w))


def write_case(out, name, t, d):
    model = oracle.load_target(t)
    ids = tiny_model.token_ids(t["seed"], 200, t["vocab"])
    logits, streams = oracle.prefill(model, ids)
    rows, anchors, paths, bent = [], [], [], []
    for n in CONTEXTS:
        top = logits[n - 1].topk(2)
        assert float(top.values[0] - top.values[1]) > 1e-2, (name, n, "anchor is a near tie")
        anchors.append(int(top.indices[0]))
        features = oracle.taps(streams, d, n)
        same = check_identity(model, t, d, features, anchors[-1])
        assert same < 1e-12, (name, same)
        draft = Domino(model, t, d, features, anchors[-1])
        length = len(draft.logits) - 1
        paths.append([draft.own_path()] + [tiny_model.token_ids(d["seed"] + n + i, length, t["vocab"])
                                           for i in range(1, PATHS)])
        rows += [draft.rows(path) for path in paths[-1]]
        bent.append(oracle.relative_error(rows[-1], draft.logits.log_softmax(-1)))
    meta = {"target": t, "draft": d | {"from_anchor": d["shift"]}, "ids": ids[:max(CONTEXTS)],
            "contexts": CONTEXTS, "anchors": anchors, "paths": paths,
            "probes": golden_fixtures.probes(tiny_model.draft_tensors(t, d),
                                             lambda n, s: tiny_model.weight(d["seed"], n, s, True)),
            "draft_config": json.dumps(tiny_model.draft_config(t, d)),
            "draft_tensors": tiny_model.draft_tensors(t, d)}
    if tiny_model.is_listed(t):
        meta |= {"config": json.dumps(tiny_model.target_config(t)),
                 "tensors": tiny_model.target_tensors(t)}
    golden_fixtures.write(out, name, meta, torch.cat([x.flatten() for x in rows]))
    print(f"{name}: anchors {anchors}, {len(rows)} paths, the correction changes them by "
          f"{max(bent):.1e}")


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    out = sys.argv[1] if len(sys.argv) > 1 else os.path.join(here, "../../tests/golden/data")
    torch.set_num_threads(1)
    for name, case in CASES.items():
        if not sys.argv[2:] or name in sys.argv[2:]:
            write_case(out, name, *case)


if __name__ == "__main__":
    main()
