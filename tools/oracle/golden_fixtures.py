# SPDX-License-Identifier: Apache-2.0
"""Writes tests/golden/data/: what the tiny models must answer.

NAME.json holds the hyper-parameters, the ids and the index of the rows; NAME.bin the rows, f32
little-endian over the vocabulary. Prints how far the oracle itself moves between prefill, token by
token and ragged pieces, and between fp32 and fp64.

Usage: python golden_fixtures.py [OUTPUT_DIR [CASE...]]
"""
import json
import os
import sys

import numpy as np
import torch

import oracle
import tiny_model

TARGET = {"vocab": 512, "hidden": 256, "ffn": 512, "layers": 8, "interval": 4, "heads": 4,
          "kv_heads": 2, "head_dim": 256, "key_heads": 2, "linear_head_dim": 128, "dt_mean": 0}
# full: stored as the published multimodal folders are (nested config, longer prefix, a prediction
# head and a visual tower that must be dropped). dt_mean -5: decays near 1, so that what happened a
# hundred tokens ago still counts; with 0 most heads forget within a few tokens.
TARGETS = {
    "r1_tied": TARGET | {"value_heads": 2, "tied": True, "full": False, "seed": 101},
    "r2_untied": TARGET | {"value_heads": 4, "tied": False, "full": False, "seed": 102},
    "r3_untied": TARGET | {"value_heads": 6, "tied": False, "full": True, "seed": 103},
    "r3_slow": TARGET | {"value_heads": 6, "tied": False, "full": False, "seed": 105,
                         "dt_mean": -5},
    "r3_tied": TARGET | {"value_heads": 6, "tied": True, "full": True, "seed": 104},
    "r1_yarn": TARGET | {"layers": 4, "value_heads": 2, "tied": True, "full": False, "yarn": 4,
                         "trained": 64, "seed": 131},
}
# Qwen3 targets: the width of all heads is not the stream's; groups of 2 and of 8 queries a key.
PLAIN = {"plain": True, "vocab": 512, "hidden": 256, "ffn": 512, "layers": 6, "heads": 4, "kv_heads": 2,
         "head_dim": 128}
TARGETS |= {
    "q3_untied": PLAIN | {"tied": False, "rope": 1000000, "seed": 106},
    "q3_tied": PLAIN | {"heads": 8, "kv_heads": 1, "head_dim": 64, "tied": True, "rope": 5000000,
                        "seed": 107},
    "q3_yarn": PLAIN | {"tied": True, "rope": 10000, "yarn": 4, "trained": 64, "seed": 108},
}
# Llama targets: rotary pairs side by side in our files, angles divided by bands ("llama3"), biases of
# all four projections. Qwen2 targets: biases of three.
TARGETS |= {
    "l3_bands": PLAIN | {"kind": "llama", "tied": True, "rope": 10000, "bands": 8, "trained": 64,
                         "seed": 109},
    "l2_bias": PLAIN | {"kind": "llama", "heads": 4, "kv_heads": 4, "head_dim": 64, "tied": False,
                        "bias": True, "rope": 10000, "seed": 110},
    "l2_linear": PLAIN | {"kind": "llama", "layers": 4, "heads": 4, "kv_heads": 2, "head_dim": 64,
                          "tied": False, "rope": 10000, "linear": 4, "seed": 132},
    "l2_yarn": PLAIN | {"kind": "llama", "layers": 4, "heads": 4, "kv_heads": 2, "head_dim": 64,
                        "tied": False, "rope": 10000, "yarn": 8, "trained": 32, "slopes": True,
                        "seed": 133},
    "q2_untied": PLAIN | {"kind": "qwen2", "heads": 4, "kv_heads": 1, "head_dim": 64, "tied": False,
                          "bias": True, "rope": 1000000, "seed": 111},
}
# Gemma 4 targets: windows and full layers with heads of another size, of which values are the keys,
# or with embeddings of each layer and last layers that borrow keys.
GEMMA = {"plain": True, "kind": "gemma4", "vocab": 512, "hidden": 256, "ffn": 256, "heads": 4,
         "kv_heads": 2, "head_dim": 64, "full_head_dim": 128, "period": 3, "window": 24, "cap": 2,
         "tied": True}
TARGETS |= {
    "g4_dense": GEMMA | {"layers": 6, "full_kv_heads": 1, "k_eq_v": True, "seed": 112},
    "g4_own": GEMMA | {"layers": 9, "full_kv_heads": 2, "per_layer": 32, "borrowing": 3,
                       "seed": 113},
}
TARGETS |= {
    "g4_moe": GEMMA | {"layers": 6, "full_kv_heads": 1, "k_eq_v": True, "experts": 12, "used": 3,
                       "expert_ffn": 96, "seed": 119},
}
# Gemma 3 targets: windows that turn by a base of their own; full layers that turn slower (4B and
# more), scores divided by another number than the root of a head's size (27B).
GEMMA3 = {"plain": True, "kind": "gemma3", "vocab": 512, "hidden": 256, "ffn": 512, "layers": 7,
          "heads": 4, "period": 3, "window": 24, "tied": True}
TARGETS |= {
    "g3_small": GEMMA3 | {"kv_heads": 1, "head_dim": 64, "scalar": 64, "base_swa": 10000,
                          "seed": 122},
    "g3_large": GEMMA3 | {"kv_heads": 2, "head_dim": 128, "scalar": 64, "base_swa": 20000,
                          "linear": 8, "cap": 2.0, "seed": 123},
}
# Mixtures of experts: one tensor an expert, and all in one with a shared expert behind a gate.
MOE = {"experts": 8, "used": 2, "expert_ffn": 128}
TARGETS |= {
    "q3moe": PLAIN | MOE | {"layers": 4, "heads": 8, "kv_heads": 1, "head_dim": 64, "tied": False,
                            "rope": 1000000, "seed": 109},
    "r3moe": TARGET | MOE | {"layers": 4, "value_heads": 6, "shared_ffn": 96, "tied": False,
                             "full": True, "seed": 110},
    "r1moe": TARGET | MOE | {"layers": 4, "value_heads": 2, "experts": 12, "used": 5,
                             "shared_ffn": 160, "tied": True, "full": False, "seed": 111,
                             "dt_mean": -5},
}
# GLM: a dense layer first, sigmoids with a bias for the choice, groups, a shared expert as wide as two.
GLM = PLAIN | MOE | {"kind": "glm4_moe", "layers": 4, "lead": 1, "heads": 8, "kv_heads": 2,
                     "head_dim": 64, "bias": True, "tied": False, "rope": 10000, "experts": 16,
                     "used": 4}
TARGETS |= {
    "glm_norms": GLM | {"norms": True, "groups": 4, "groups_used": 2, "shared_ffn": 256,
                        "normalised": True, "seed": 112},
    "glm_air": GLM | {"norms": False, "groups": 1, "groups_used": 1, "shared_ffn": 128,
                      "normalised": False, "seed": 113},
}
# gpt-oss: sinks, windows in even layers, biases everywhere, a clamped SwiGLU, YaRN without rounding.
TARGETS |= {
    "oss": {"plain": True, "kind": "gpt_oss", "bias": True, "vocab": 512, "hidden": 256, "ffn": 128,
            "layers": 5, "heads": 8, "kv_heads": 2, "head_dim": 64, "window": 24, "experts": 8,
            "used": 3, "expert_ffn": 128, "rope": 150000, "yarn": 32, "trained": 64, "tied": False,
            "seed": 114},
}
# DeepSeek: latent attention with queries of low rank and without, values shorter than keys; groups
# by their two best beside a bias (V3), by their best (V2), or none; YaRN that scales scores; latents
# of 512 values with keys of 64 more, as published models have them, for 20 heads.
DEEP = {"plain": True, "vocab": 512, "hidden": 256, "ffn": 384, "layers": 4, "lead": 1, "heads": 4,
        "kv_heads": 4, "head_dim": 48, "q_lora": 128, "kv_lora": 64, "nope": 32, "turns": 32,
        "v": 64, "experts": 16, "used": 4, "expert_ffn": 96, "shared_ffn": 192, "groups": 4,
        "groups_used": 2, "routed": 2.5, "tied": False, "rope": 10000}
TARGETS |= {
    "ds3": DEEP | {"kind": "deepseek_v3", "seed": 115},
    "ds3_yarn": DEEP | {"kind": "deepseek_v3", "q_lora": 0, "yarn": 40, "trained": 64,
                        "mscale": 0.707, "layers": 3, "seed": 116},
    "ds2": DEEP | {"kind": "deepseek_v2", "q_lora": 0, "groups": 1, "groups_used": 1,
                   "routed": 1.0, "layers": 3, "seed": 117},
    "ds2_groups": DEEP | {"kind": "deepseek_v2", "routed": 16.0, "layers": 3, "seed": 118},
    "ds3_wide": DEEP | {"kind": "deepseek_v3", "heads": 20, "kv_heads": 20, "kv_lora": 512,
                        "turns": 64, "layers": 3, "seed": 135},
}
# Laguna: XS.2 with windows, whose layers have more heads, gates of heads; M.1 without windows, gates
# of values, logits of its router capped.
LAGUNA = {"plain": True, "kind": "laguna", "vocab": 512, "hidden": 256, "ffn": 384, "heads": 4,
          "window_heads": 6, "kv_heads": 2, "head_dim": 64, "experts": 16, "used": 4,
          "expert_ffn": 96, "shared_ffn": 64, "routed": 2.5, "tied": False, "rope": 500000,
          "yarn": 32, "trained": 64}
TARGETS |= {
    "laguna_xs": LAGUNA | {"layers": 6, "lead": 1, "window": 24, "wide": False, "router_cap": 0.0,
                           "seed": 120},
    "laguna_m": LAGUNA | {"layers": 4, "lead": 2, "window": 0, "wide": True, "router_cap": 1.5,
                          "seed": 121},
}
POSITIONS = [0, 1, 2, 3, 5, 10, 11, 31, 32, 33, 62, 63, 64, 65, 74, 75, 95, 96, 97, 127, 128, 129,
             160, 198, 199]
PIECES = [1, 2, 3, 5, 64, 125]

DRAFT = {"ffn": 512, "heads": 4, "kv_heads": 2, "head_dim": 128, "mask": 500, "causal": None}
W = 24
DRAFTS = {
    "draft_mixed2": ("r2_untied", DRAFT | {
        "layers": 2, "windows": [W, 0], "taps": [1, 5], "block": 8, "seed": 201}, [16, 40, 70]),
    "draft_mixed4": ("r3_untied", DRAFT | {
        "layers": 4, "windows": [W, W, W, 0], "taps": [0, 2, 4, 6], "block": 16, "seed": 202},
        [16, 40, 70]),
    "draft_full": ("r1_tied", DRAFT | {
        "layers": 2, "windows": [0, 0], "taps": [2, 7], "block": 8, "seed": 203}, [40]),
    "draft_noncausal": ("r2_untied", DRAFT | {
        "layers": 3, "windows": [W, W, W], "taps": [5, 1], "block": 8, "seed": 204,
        "causal": False}, [40]),
    "draft_causal": ("r2_untied", DRAFT | {
        "layers": 2, "windows": [0, W], "taps": [3], "block": 8, "seed": 205, "causal": True},
        [40]),
    "draft_q3": ("q3_untied", DRAFT | {
        "layers": 3, "windows": [0, 0, 0], "taps": [1, 2, 4], "block": 16, "seed": 206,
        "rope": 1000000}, [16, 40]),
    "draft_q3moe": ("q3moe", DRAFT | {
        "layers": 2, "windows": [0, 0], "taps": [1, 3], "block": 8, "seed": 207,
        "rope": 1000000}, [40]),
    "draft_r3moe": ("r3moe", DRAFT | {
        "layers": 2, "windows": [W, 0], "taps": [0, 2], "block": 8, "seed": 208}, [40]),
    # As Kimi K2.5's: YaRN.
    "draft_ds3": ("ds3", DRAFT | {
        "layers": 2, "windows": [0, 0], "taps": [0, 2], "block": 8, "seed": 209,
        "rope": 10000, "yarn": 64, "trained": 64, "truncate": True}, [40]),
    # As gpt-oss': YaRN without rounding, biases; sinks as MiMo's have them.
    "draft_oss": ("oss", DRAFT | {
        "layers": 2, "windows": [W, 0], "taps": [1, 3], "block": 8, "seed": 210, "bias": True,
        "sinks": True, "rope": 150000, "yarn": 32, "trained": 64, "truncate": False}, [40]),
    # As Laguna's: gates of heads (M.1: of values), a norm for each tap, contexts normed by layers,
    # the last of the target's layers tapped.
    "draft_laguna": ("laguna_xs", DRAFT | {
        "kind": "laguna", "wide": False, "layers": 2, "windows": [W, W], "taps": [1, 3, 5],
        "block": 8, "seed": 212, "rope": 500000, "causal": True}, [16, 40]),
    "draft_laguna_m": ("laguna_m", DRAFT | {
        "kind": "laguna", "wide": True, "layers": 2, "windows": [0, 0], "taps": [0, 2],
        "block": 8, "seed": 213, "rope": 500000, "causal": True}, [40]),
    # As Gemma 4's: embeddings times the square root of the width, capped logits.
    "draft_g4": ("g4_dense", DRAFT | {
        "layers": 2, "windows": [W, 0], "taps": [1, 4], "block": 8, "seed": 214, "rope": 1000000,
        "cap": 2}, [40]),
    "draft_l3": ("l3_bands", DRAFT | {
        "layers": 2, "windows": [0, 0], "taps": [0, 4], "block": 8, "seed": 211,
        "rope": 10000}, [40]),
}

# Of speculators: a head for some tokens, layers described apart, taps named by inputs. As Laguna
# XS.2's: an embedding of its own. Of Gemma 4 neither its factor nor its cap; windows that see the
# whole block.
DRAFTS |= {
    "draft_spec_laguna": ("laguna_xs", DRAFT | {
        "kind": "speculators", "layers": 2, "windows": [0, 0], "taps": [0, 2, 5], "block": 8,
        "head": 200, "own": True, "seed": 217, "rope": 500000}, [16, 40]),
    "draft_spec_g4": ("g4_dense", DRAFT | {
        "kind": "speculators", "layers": 2, "windows": [W, 0], "taps": [1, 4], "block": 8,
        "head": 120, "bidirectional": True, "seed": 218, "rope": 1000000}, [40]),
}

# DFlash2: two taps, groups of 16 channels and windows alone as published; three taps, a full layer,
# capped logits.
DRAFTS |= {
    "draft2_r2": ("r2_untied", DRAFT | {
        "layers": 2, "windows": [W, W], "taps": [1, 5], "block": 8, "seed": 215, "causal": False,
        "conv": 2, "group": 16, "rank": 32, "top": 8}, [16, 40, 70]),
    "draft2_g4": ("g4_dense", DRAFT | {
        "layers": 2, "windows": [W, 0], "taps": [1, 4], "block": 6, "seed": 216, "rope": 1000000,
        "cap": 2, "causal": False, "conv": 3, "group": 32, "rank": 64, "top": 16}, [40]),
}

# DSpark: as DeepSpec writes them, with YaRN and an epsilon of its own; gated, as SpecForge writes
# them; the anchor's row no guess, capped logits. As speculators write them, with a head of some tokens,
# which Gemma 4's factor and cap are not for: with the key that says that the anchor's row guesses, and
# without, which then does not.
DRAFTS |= {
    "dspark_q3": ("q3_untied", DRAFT | {
        "layers": 2, "windows": [0, 0], "taps": [1, 4], "block": 7, "seed": 217, "rope": 1000000,
        "yarn": 32, "trained": 64, "truncate": True, "eps": 1e-3, "causal": None, "markov": "vanilla",
        "rank": 32, "top": 16, "confidence": "markov", "spelling": "deepspec",
        "from_anchor": True}, [16, 40]),
    "dspark_r2": ("r2_untied", DRAFT | {
        "layers": 2, "windows": [0, 0], "taps": [1, 5], "block": 8, "seed": 218, "causal": None,
        "markov": "gated", "rank": 64, "top": 16, "confidence": "hidden", "spelling": "specforge",
        "from_anchor": True}, [16, 40]),
    "dspark_g4": ("g4_dense", DRAFT | {
        "layers": 2, "windows": [0, 0], "taps": [1, 4], "block": 6, "seed": 219, "rope": 1000000,
        "cap": 2, "causal": None, "markov": "vanilla", "rank": 64, "top": 16, "confidence": "markov",
        "spelling": "specforge", "from_anchor": False}, [40]),
    "dspark_spec_g4": ("g4_dense", DRAFT | {
        "kind": "speculators", "layers": 2, "windows": [W, 0], "taps": [1, 4], "block": 8,
        "head": 120, "own": True, "bidirectional": True, "seed": 220, "rope": 1000000, "causal": None,
        "markov": "vanilla", "rank": 32, "top": 16, "confidence": "markov", "from_anchor": True},
        [40]),
    "dspark_spec_q3": ("q3_untied", DRAFT | {
        "kind": "speculators", "layers": 2, "windows": [0, 0], "taps": [1, 3], "block": 7,
        "head": 200, "own": True, "seed": 221, "rope": 1000000, "causal": None, "markov": "gated",
        "rank": 64, "top": 16, "confidence": "hidden", "from_anchor": False}, [16, 40]),
}


def probes(shapes, weight):
    """[name, innermost dim, index, float bits] of the first and last value of every 7th tensor."""
    out = []
    for name, shape in shapes[::7]:
        v = weight(name, shape).ravel().view("<u4")
        out += [[name, shape[-1], i, int(v[i])] for i in (0, len(v) - 1)]
    return out


def write(out, name, meta, rows):
    with open(os.path.join(out, name + ".bin"), "wb") as f:
        f.write(oracle.as_f32(rows).tobytes())
    with open(os.path.join(out, name + ".json"), "w", encoding="ascii") as f:
        json.dump(meta, f, separators=(",", ":"))
        f.write("\n")


def target_case(out, name, t):
    model = oracle.load_target(t)
    ids, ties = tiny_model.token_ids(t["seed"], 200, t["vocab"]), 0
    if t.get("experts"):
        ids, ties = oracle.steady_ids(model, t, 200)
    logits, streams = oracle.prefill(model, ids)
    step = oracle.relative_error(oracle.pieces(model, ids, [1] * 200), logits)
    ragged = oracle.relative_error(oracle.pieces(model, ids, PIECES), logits)
    exact, _ = oracle.prefill(model.double(), ids)
    model.float()
    print(f"{name}: token by token {step:.1e}, ragged {ragged:.1e}, "
          f"fp64 {oracle.relative_error(logits, exact):.1e}, logit std {float(logits.std()):.2f}, "
          f"{ties} near ties avoided")
    meta = {"target": t, "ids": ids, "positions": POSITIONS,
            "probes": probes(tiny_model.target_tensors(t),
                             lambda n, s: tiny_model.target_weight(t, n, s))}
    if tiny_model.is_listed(t):
        meta |= {"config": json.dumps(tiny_model.target_config(t)),
                 "tensors": tiny_model.target_tensors(t)}
    write(out, name, meta, logits[POSITIONS])
    return model, ids, logits, streams


def main():
    """Cases to make anew may be named behind the folder."""
    here = os.path.dirname(os.path.abspath(__file__))
    out = sys.argv[1] if len(sys.argv) > 1 else os.path.join(here, "../../tests/golden/data")
    os.makedirs(out, exist_ok=True)
    torch.set_num_threads(1)
    only = sys.argv[2:]
    bases = {base for name, (base, _, _) in DRAFTS.items() if name in only}
    known = {name: target_case(out, name, t) for name, t in TARGETS.items()
             if not only or name in only or name in bases}
    for name, (base, d, contexts) in DRAFTS.items():
        if base not in known or (only and name not in only):
            continue
        model, ids, logits, streams = known[base]
        rows, anchors, candidates, pairs = [], [], [], []
        for n in contexts:
            top = logits[n - 1].topk(2)
            assert float(top.values[0] - top.values[1]) > 1e-2, (name, n, "anchor is a near tie")
            anchors.append(int(top.indices[0]))
            features = oracle.taps(streams, d, n)
            found = oracle.draft_log_probs(model, TARGETS[base], d, features, anchors[-1])
            if d.get("top"):
                same = oracle.check_identity(model, TARGETS[base], d, features, anchors[-1])
                assert same < 1e-12, (name, same)
                found, ids_k, pairs_k = found
                names = tiny_model.draft_tokens(d) if d.get("head") else np.arange(TARGETS[base]["vocab"])
                candidates.append(names[ids_k].tolist())
                pairs.append(pairs_k.flatten())
            rows.append(found)
        meta = {"target": TARGETS[base], "draft": d, "ids": ids[:max(contexts)],
                "contexts": contexts, "anchors": anchors,
                "probes": probes(tiny_model.draft_tensors(TARGETS[base], d),
                                 lambda n, s: tiny_model.weight(d["seed"], n, s, True))}
        if tiny_model.is_listed(TARGETS[base]):
            meta |= {"config": json.dumps(tiny_model.target_config(TARGETS[base])),
                     "tensors": tiny_model.target_tensors(TARGETS[base])}
        if tiny_model.is_listed_draft(d):
            meta |= {"draft_config": json.dumps(tiny_model.draft_config(TARGETS[base], d)),
                     "draft_tensors": tiny_model.draft_tensors(TARGETS[base], d)}
        if candidates:
            meta["candidates"] = candidates
        if d.get("head"):
            meta["columns"] = d["head"]
        write(out, name, meta, torch.cat([x.flatten() for x in rows + pairs]))
        body = oracle.check_transcription(model, TARGETS[base], d, ids[:12])
        assert body < 1e-5, (name, body)
        print(f"{name}: {sum(len(r) for r in rows)} rows, anchors {anchors}, "
              f"against an ordinary body {body:.1e}")


if __name__ == "__main__":
    main()
