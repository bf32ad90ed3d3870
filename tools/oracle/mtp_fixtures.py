# SPDX-License-Identifier: Apache-2.0
"""Writes tests/golden/data/mtp_*: what prediction blocks of tiny models must answer.

NAME.json holds the hyper-parameters, configuration and tensors of the folder, ids, contexts and, for
each context, the root, three guesses that follow it and another token at the place of the first
one; NAME.bin the log-probabilities over the vocabulary, f32 little-endian: after the root, after each
guess, and after the other token. Prints how far the transcription is from transformers.

Usage: python mtp_fixtures.py [OUTPUT_DIR [CASE...]]
"""
import json
import os
import sys

import torch

import golden_fixtures
import mtp
import oracle
import tiny_model

BASE = golden_fixtures.TARGETS
SMALL = {"layers": 4}
CASES = {
    # The next layer would be a recurrent one by the model's interval.
    "mtp_r1_tied": (BASE["r1_tied"] | SMALL | {"seed": 301}, {}),
    "mtp_r3_untied": (BASE["r3_untied"] | SMALL | {"full": False, "seed": 302}, {}),
    "mtp_r3moe": (BASE["r3moe"] | {"full": False, "seed": 303}, {}),
    "mtp_r1moe": (BASE["r1moe"] | {"seed": 304}, {"unfused": True}),
    "mtp_glm_norms": (BASE["glm_norms"] | {"layers": 2, "seed": 305}, {"copies": True}),
    "mtp_glm_air": (BASE["glm_air"] | {"layers": 2, "seed": 306}, {"own": True}),
    "mtp_ds3": (BASE["ds3"] | {"layers": 2, "seed": 307}, {}),
}
CONTEXTS = [16, 40, 70]
DEPTH = 4


def config_of(t):
    key = "mtp_num_hidden_layers" if mtp.is_qwen35(t) else "num_nextn_predict_layers"
    return tiny_model.target_config(t) | {key: 1}


def context_case(model, block, ids, hidden, n):
    """Root, guesses and the other token of n known tokens, and the rows. All of them are given to
    whoever is compared, so that near ties do no harm."""
    root = int((hidden[n - 1] @ model.lm_head.weight.T).argmax())
    text, guesses, other = [*ids[:n], root], [], None
    for depth in range(DEPTH - 1):
        best, second = block.chain(text, hidden[:n], guesses)[-1].topk(2).indices.tolist()
        other = second if depth == 0 else other
        guesses.append(best)
    rows = block.chain(text, hidden[:n], guesses)
    return [root, *guesses, other], torch.cat([rows, block.chain(text, hidden[:n], [other])[1:]])


def answers(t, m):
    """Ids, tokens and rows of all contexts, or nothing where the block's choice of experts for a row
    that is compared is a near tie (oracle.steady_ids says why)."""
    model = oracle.load_target(t)
    ids, ties = tiny_model.token_ids(t["seed"], max(CONTEXTS), t["vocab"]), 0
    if t.get("experts"):
        ids, ties = oracle.steady_ids(model, t, max(CONTEXTS))
    model.double()
    far = mtp.check_block(model, t, ids)
    assert far < 1e-6, (t, far)  # whose angles are in single precision
    block, hidden = mtp.Mtp(model, t, m), mtp.hidden_states(model, ids)
    tokens, rows = zip(*(context_case(model, block, ids, hidden, n) for n in CONTEXTS))
    if block.block.ties:
        return None
    print(f"seed {t['seed']}: against a layer of transformers {far:.1e}, {ties} near ties avoided, "
          f"roots and guesses {tokens}")
    return ids, tokens, torch.cat(rows)


def write_case(out, name, t, m):
    found = answers(t, m)
    while not found:
        t = t | {"seed": t["seed"] + 100}
        found = answers(t, m)
    ids, tokens, rows = found
    tensors = tiny_model.target_tensors(t) + mtp.block_tensors(t, m)
    meta = {"target": t, "mtp": m, "ids": ids, "contexts": CONTEXTS, "tokens": tokens,
            "config": json.dumps(config_of(t)), "tensors": tensors,
            "probes": golden_fixtures.probes([x for x in tensors if len(x) == 2],
                                             lambda n, s: tiny_model.target_weight(t, n, s))}
    golden_fixtures.write(out, name, meta, rows)


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    out = sys.argv[1] if len(sys.argv) > 1 else os.path.join(here, "../../tests/golden/data")
    torch.set_num_threads(1)
    for name, (t, m) in CASES.items():
        if not sys.argv[2:] or name in sys.argv[2:]:
            write_case(out, name, t, m)


if __name__ == "__main__":
    main()
