# SPDX-License-Identifier: Apache-2.0
"""Writes tests/golden/data/eagle3_*: what EAGLE-3 drafts of tiny models must answer.

As mtp_fixtures.py, but NAME.bin has the log-probabilities over the rows of the draft's head.

Usage: python eagle3_fixtures.py [OUTPUT_DIR [CASE...]]
"""
import json
import os
import sys

import torch

import eagle3
import golden_fixtures
import oracle
import tiny_model

BASE = golden_fixtures.TARGETS
CONTEXTS = [16, 40, 70]
DEPTH = 4
# inputs: layers of the target whose input is read; listed: what config.json says of them.
CASES = {
    # As the authors': no list, embedding of the target, a head for some tokens.
    "eagle3_q3": (BASE["q3_untied"] | {"layers": 8, "seed": 400}, {
        "hidden": 256, "ffn": 384, "heads": 4, "kv_heads": 2, "head_dim": 64, "rope": 10000,
        "head": 200, "inputs": [2, 4, 5], "seed": 401}),
    # As `speculators` write them: another width, norms, a list that begins with 1 (outputs).
    "eagle3_l3": (BASE["l3_bands"], {
        "hidden": 128, "ffn": 256, "heads": 4, "kv_heads": 1, "head_dim": 32, "rope": 10000,
        "bands": 8, "trained": 64, "head": 160, "own": True, "nested": True, "prefix": "layers.0.",
        "inputs": [2, 3, 5], "listed": [1, 2, 4], "norm_before_residual": True,
        "norm_before_fc": True, "norm_output": True, "seed": 402}),
    # A target with recurrent layers and its own head; two taps, biases.
    "eagle3_r3": (BASE["r3_untied"], {
        "hidden": 256, "ffn": 256, "heads": 8, "kv_heads": 2, "head_dim": 32, "rope": 1000000,
        "bias": True, "inputs": [2, 7], "listed": [2, 7], "seed": 403}),
}


def context_case(model, draft, ids, u, logits, n):
    """Root, guesses and another token in the place of the first guess, of n known tokens, and the
    rows."""
    text, guesses, other = [*ids[:n], int(logits[n - 1].argmax())], [], None
    for depth in range(DEPTH - 1):
        best, second = draft.best(draft.chain(text, u[:n], guesses)[-1], 2)
        other = second if depth == 0 else other
        guesses.append(best)
    rows = draft.chain(text, u[:n], guesses)
    return [text[n], *guesses, other], torch.cat([rows, draft.chain(text, u[:n], [other])[1:]])


def write_case(out, name, t, d):
    if d.get("listed") is None:
        n = t["layers"]
        assert d["inputs"] == [2, n // 2, n - 3], (n, d)
    model = oracle.load_target(t).double()
    ids = tiny_model.token_ids(d["seed"], max(CONTEXTS), t["vocab"])
    logits, streams = oracle.prefill(model, ids)
    draft = eagle3.Eagle3(model, t, d)
    u = draft.fused(streams)
    tokens, rows = zip(*(context_case(model, draft, ids, u, logits, n) for n in CONTEXTS))
    meta = {"target": t, "eagle3": {"seed": d["seed"], "columns": rows[0].shape[-1]}, "ids": ids,
            "contexts": CONTEXTS, "tokens": tokens,
            "draft_config": json.dumps(eagle3.draft_config(t, d)),
            "draft_tensors": eagle3.draft_tensors(t, d)}
    if tiny_model.is_listed(t):
        meta |= {"config": json.dumps(tiny_model.target_config(t)),
                 "tensors": tiny_model.target_tensors(t)}
    golden_fixtures.write(out, name, meta, torch.cat(rows))
    print(f"{name}: roots and guesses {tokens}")


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    out = sys.argv[1] if len(sys.argv) > 1 else os.path.join(here, "../../tests/golden/data")
    torch.set_num_threads(1)
    for name, (t, d) in CASES.items():
        if not sys.argv[2:] or name in sys.argv[2:]:
            write_case(out, name, t, d)


if __name__ == "__main__":
    main()
