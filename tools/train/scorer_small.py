# SPDX-License-Identifier: Apache-2.0
"""A scorer whose tokenizer is not the target's, to begin training from: fewer merges, so that words fall apart elsewhere.

usage: scorer_small.py SCORER.gguf OUT.pt OUT_DIR [--vocab N]

OUT.pt has the layers of SCORER.gguf and those of its embeddings whose tokens are left; OUT_DIR is the
HuggingFace folder of it with its tokenizer, which `coppice convert` makes the file of that
scorer_train.py and scorer_export.py read the tokenizer from.
"""

import argparse
import json

import torch
from tokenizers import Tokenizer

import imported
import scorer_data
import scorer_export
import scorer_model


def fewer(tok, vocab):
    """The tokenizer with its first merges -> it, the old id of each token"""
    t = json.loads(tok.to_str())
    plain, added = t["model"]["vocab"], [x["content"] for x in t["added_tokens"]]
    left = vocab - len(added)
    made = {"".join(m) for m in t["model"]["merges"]}
    letters = [x for x in plain if x not in made]
    merges = t["model"]["merges"][: left - len(letters)]
    kept = letters + ["".join(m) for m in merges]
    assert len(set(kept)) == left
    new = sorted(kept, key=plain.get) + added
    t["model"]["vocab"] = {x: i for i, x in enumerate(new[:left])}
    t["model"]["merges"] = merges
    for i, x in enumerate(t["added_tokens"]):
        x["id"] = left + i
    return Tokenizer.from_str(json.dumps(t)), [tok.token_to_id(x) for x in new]


def layers_of(path):
    """The tensors of a scorer's file by the names of scorer_model.py."""
    names = {**imported.LAYER, "ffn_norm.weight": "post_attention_layernorm.weight"}
    imported.LAYER.update(names)
    return {n.replace(".mlp.", "."): x for n, x in imported.tensors(path)}


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("scorer")
    ap.add_argument("out")
    ap.add_argument("folder")
    ap.add_argument("--vocab", type=int, default=1536)
    a = ap.parse_args()
    tok, _ = scorer_data.read_tokenizer(a.scorer)
    tok, ids = fewer(tok, a.vocab)
    state = layers_of(a.scorer)
    state["embed_tokens.weight"] = state["embed_tokens.weight"][torch.tensor(ids)]
    model = scorer_model.Scorer(scorer_model.Config(vocab=a.vocab))
    model.load_state_dict(state)
    scorer_model.save(a.out, model, step=0)
    scorer_export.write(model, tok, a.folder)


if __name__ == "__main__":
    main()
