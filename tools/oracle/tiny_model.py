# SPDX-License-Identifier: Apache-2.0
"""Random tiny models that Python and C build bit for bit alike (tests/golden/tiny_model.c).

No weight is stored anywhere. Element i of the tensor with HuggingFace name n is a function of
(seed, n, i) only:

    h = FNV-1a-64(n) xor seed
    u = splitmix64 finaliser of h + (i + 1) * 0x9E3779B97F4A7C15  (mod 2^64)
    normal:  mean + std * ((sum of the four 16-bit fields of u - 131070) / 37837.0)
    A_log:   ln(0.01 + 15.99 * (u >> 11) * 2^-53)

in double, rounded to float. The sum of four uniform fields has standard deviation 37837, so the
bracket is nearly a unit normal. n is the text-only name (`model.layers...`, `lm_head.weight`) even
where a folder stores it under another prefix. Default initialisation would hide bugs (norm weights
all equal, decays all equal), hence the spread in `recipe`.

Writes folders as HuggingFace checkpoints have them: config.json, model.safetensors (F32) and a
tokenizer of single bytes. Runs no model.
"""
import json
import math
import os

import numpy as np
from safetensors.numpy import save_file

GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def fnv1a(name):
    h = 0xCBF29CE484222325
    for b in name.encode():
        h = ((h ^ b) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return h


def counter_hash(seed, name, n):
    """u of elements 0..n-1 of a tensor."""
    x = np.arange(1, n + 1, dtype=np.uint64) * GOLDEN + np.uint64(fnv1a(name) ^ seed)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def recipe(name, shape, plain_norms, dt_mean, gemma=False):
    """(mean, std) of a tensor; A_log gives None."""
    if gemma and name.endswith("q_norm.weight"):
        return 0.3, 0.06  # scores are not scaled
    if name.endswith(("layer_scalar", "scale")):
        return 1.0, 0.2
    if name.endswith("A_log"):
        return None
    if name.endswith("base_kernel"):
        return 0.5, 0.3
    if name.endswith(("codebook", "markov_w1.weight", "markov_w2.weight")):
        return 0.0, 0.5
    if name.endswith("dt_bias"):
        return dt_mean, 1.0
    if name.endswith((".bias", "_proj_bias")):
        return 0.0, 0.5
    if name.endswith("sinks"):
        return 0.0, 1.0
    if name.endswith(("norm.weight", "norm_1.weight", "norm_2.weight")) or "_norms." in name:
        return (1.0 if plain_norms or name.endswith("linear_attn.norm.weight") else 0.0), 0.2
    if name.endswith("conv1d.weight"):
        return 0.0, 0.3
    if name.endswith("embed_tokens.weight") and not gemma:
        return 0.0, 1.0
    return 0.0, 1.0 / math.sqrt(float(shape[-1]))


def weight(seed, name, shape, plain_norms=False, dt_mean=0.0, gemma=False):
    u = counter_hash(seed, name, int(np.prod(shape)))
    how = recipe(name, shape, plain_norms, dt_mean, gemma)
    if how is None:
        v = np.log(0.01 + 15.99 * ((u >> np.uint64(11)).astype(np.float64) * 2.0 ** -53))
    else:
        mask = np.uint64(0xFFFF)
        total = sum(((u >> np.uint64(s)) & mask).astype(np.int64) for s in (0, 16, 32, 48))
        v = how[0] + how[1] * ((total - 131070).astype(np.float64) / 37837.0)
    return v.astype(np.float32).reshape(shape)


def is_plain(t):
    """A plain decoder: plain norms, attention without a gate in every layer."""
    return t.get("plain", False)


def kind(t):
    """Of a plain decoder: qwen3, qwen2, llama, gemma4, glm4_moe, or one of LISTED."""
    return t.get("kind", "qwen3")


def is_gemma(t):
    return kind(t) in ("gemma3", "gemma4")


def target_weight(t, name, shape):
    plain_norms = is_plain(t) and kind(t) != "gemma3"  # whose norms are counted from 1
    return weight(t["seed"], name, shape, plain_norms, float(t.get("dt_mean", 0)), is_gemma(t))


def full_attention(t, i):
    return is_plain(t) or (i + 1) % t["interval"] == 0


def attention_tensors(p, t):
    d, hd = t["hidden"], t["head_dim"]
    gate = 1 if is_plain(t) else 2
    out = [(p + "self_attn.q_proj.weight", (gate * hd * t["heads"], d)),
           (p + "self_attn.k_proj.weight", (hd * t["kv_heads"], d)),
           (p + "self_attn.v_proj.weight", (hd * t["kv_heads"], d)),
           (p + "self_attn.o_proj.weight", (d, hd * t["heads"]))]
    if t.get("bias"):
        out += [(p + "self_attn.q_proj.bias", (hd * t["heads"],)),
                (p + "self_attn.k_proj.bias", (hd * t["kv_heads"],)),
                (p + "self_attn.v_proj.bias", (hd * t["kv_heads"],))]
    if t.get("bias") and kind(t) == "llama":
        out += [(p + "self_attn.o_proj.bias", (d,))]
    if kind(t) == "qwen3" or t.get("norms"):
        out += [(p + "self_attn.q_norm.weight", (hd,)), (p + "self_attn.k_norm.weight", (hd,))]
    return out


def oss_layer(p, t):
    d, e, f = t["hidden"], t["experts"], t["expert_ffn"]
    q = p + "mlp."
    return attention_tensors(p, t) + [
        (p + "self_attn.o_proj.bias", (d,)), (p + "self_attn.sinks", (t["heads"],)),
        (p + "input_layernorm.weight", (d,)), (p + "post_attention_layernorm.weight", (d,)),
        (q + "router.weight", (e, d)), (q + "router.bias", (e,)),
        (q + "experts.gate_up_proj", (e, d, 2 * f)), (q + "experts.gate_up_proj_bias", (e, 2 * f)),
        (q + "experts.down_proj", (e, f, d)), (q + "experts.down_proj_bias", (e, d))]


def oss_config(t):
    return {
        "architectures": ["GptOssForCausalLM"], "model_type": "gpt_oss", "vocab_size": t["vocab"],
        "hidden_size": t["hidden"], "intermediate_size": t["expert_ffn"],
        "num_hidden_layers": t["layers"], "num_attention_heads": t["heads"],
        "num_key_value_heads": t["kv_heads"], "head_dim": t["head_dim"], "rms_norm_eps": 1e-6,
        "max_position_embeddings": 4096, "sliding_window": t["window"],
        "num_local_experts": t["experts"], "num_experts_per_tok": t["used"],
        "tie_word_embeddings": False, "attention_bias": True,
        "layer_types": ["full_attention" if i % 2 else "sliding_attention"
                        for i in range(t["layers"])],
        "rope_parameters": {"rope_type": "yarn", "factor": float(t["yarn"]), "beta_fast": 32.0,
                            "beta_slow": 1.0, "truncate": False, "rope_theta": float(t["rope"]),
                            "original_max_position_embeddings": t["trained"]},
    }


def gemma3_layer(p, t, _i):
    hd, d = t["head_dim"], t["hidden"]
    return attention_tensors(p, t) + mlp_tensors(p, d, t["ffn"]) + [
        (p + "self_attn.q_norm.weight", (hd,)), (p + "self_attn.k_norm.weight", (hd,)),
        (p + "pre_feedforward_layernorm.weight", (d,)),
        (p + "post_feedforward_layernorm.weight", (d,))]


def gemma3_config(t):
    """As the first published folders have it, or with `linear` as transformers 5 save it."""
    c = {
        "architectures": ["Gemma3ForCausalLM"], "model_type": "gemma3_text",
        "vocab_size": t["vocab"], "hidden_size": t["hidden"], "intermediate_size": t["ffn"],
        "num_hidden_layers": t["layers"], "num_attention_heads": t["heads"],
        "num_key_value_heads": t["kv_heads"], "head_dim": t["head_dim"], "rms_norm_eps": 1e-6,
        "max_position_embeddings": 4096, "hidden_activation": "gelu_pytorch_tanh",
        "query_pre_attn_scalar": t["scalar"], "sliding_window": t["window"],
        "attn_logit_softcapping": None, "final_logit_softcapping": t.get("cap"),
    }
    if not t.get("linear"):
        return c | {"sliding_window_pattern": t["period"], "rope_theta": 1000000.0,
                    "rope_local_base_freq": float(t["base_swa"])}
    return c | {
        "layer_types": ["full_attention" if gemma_is_full(t, i) else "sliding_attention"
                        for i in range(t["layers"])],
        "rope_parameters": {
            "full_attention": {"rope_type": "linear", "factor": float(t["linear"]),
                               "rope_theta": 1000000.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": float(t["base_swa"])}},
        "tie_word_embeddings": t["tied"],
    }


def gemma_is_full(t, i):
    return (i + 1) % t["period"] == 0


def gemma_layer(p, t, i):
    d, full = t["hidden"], gemma_is_full(t, i)
    hd = t["full_head_dim"] if full else t["head_dim"]
    kv = hd * (t["full_kv_heads"] if full else t["kv_heads"])
    borrows = i >= t["layers"] - t.get("borrowing", 0)
    f = t["ffn"] * (2 if borrows else 1)
    out = [(p + "self_attn.q_proj.weight", (hd * t["heads"], d)),
           (p + "self_attn.o_proj.weight", (d, hd * t["heads"])),
           (p + "self_attn.q_norm.weight", (hd,))]
    if not borrows:
        out += [(p + "self_attn.k_proj.weight", (kv, d)), (p + "self_attn.k_norm.weight", (hd,))]
        if not (full and t.get("k_eq_v")):
            out += [(p + "self_attn.v_proj.weight", (kv, d))]
    out += mlp_tensors(p, d, f)
    out += [(p + "pre_feedforward_layernorm.weight", (d,)),
            (p + "post_feedforward_layernorm.weight", (d,)), (p + "layer_scalar", (1,))]
    if t.get("experts"):
        e, f = t["experts"], t["expert_ffn"]
        out += [(p + "router.proj.weight", (e, d)), (p + "router.scale", (d,)),
                (p + "router.per_expert_scale", (e,)), (p + "experts.gate_up_proj", (e, 2 * f, d)),
                (p + "experts.down_proj", (e, d, f)),
                (p + "pre_feedforward_layernorm_2.weight", (d,)),
                (p + "post_feedforward_layernorm_1.weight", (d,)),
                (p + "post_feedforward_layernorm_2.weight", (d,))]
    if t.get("per_layer"):
        out += [(p + "per_layer_input_gate.weight", (t["per_layer"], d)),
                (p + "per_layer_projection.weight", (d, t["per_layer"])),
                (p + "post_per_layer_input_norm.weight", (d,))]
    return out


def gemma_outside(t):
    if not t.get("per_layer"):
        return []
    width = t["layers"] * t["per_layer"]
    return [("model.embed_tokens_per_layer.weight", (t["vocab"], width)),
            ("model.per_layer_model_projection.weight", (width, t["hidden"])),
            ("model.per_layer_projection_norm.weight", (t["per_layer"],))]


def linear_tensors(p, t):
    d, hd, nk, nv = t["hidden"], t["linear_head_dim"], t["key_heads"], t["value_heads"]
    c = hd * (2 * nk + nv)
    return [(p + "linear_attn.in_proj_qkv.weight", (c, d)),
            (p + "linear_attn.in_proj_z.weight", (hd * nv, d)),
            (p + "linear_attn.in_proj_b.weight", (nv, d)),
            (p + "linear_attn.in_proj_a.weight", (nv, d)),
            (p + "linear_attn.conv1d.weight", (c, 1, 4)),
            (p + "linear_attn.dt_bias", (nv,)), (p + "linear_attn.A_log", (nv,)),
            (p + "linear_attn.norm.weight", (hd,)),
            (p + "linear_attn.out_proj.weight", (d, hd * nv))]


def mlp_tensors(p, d, f):
    return [(p + "input_layernorm.weight", (d,)), (p + "post_attention_layernorm.weight", (d,)),
            (p + "mlp.gate_proj.weight", (f, d)), (p + "mlp.up_proj.weight", (f, d)),
            (p + "mlp.down_proj.weight", (d, f))]


def glm_tensors(p, t):
    d, e, f, s = t["hidden"], t["experts"], t["expert_ffn"], t["shared_ffn"]
    q = p + "mlp.shared_experts."
    out = [n for n in expert_tensors(p, t | {"shared_ffn": 0})]
    return out + [(p + "mlp.gate.e_score_correction_bias", (e,)), (q + "gate_proj.weight", (s, d)),
                  (q + "up_proj.weight", (s, d)), (q + "down_proj.weight", (d, s))]


def layer_feed_forward(p, t, i):
    if not t.get("experts") or i < t.get("lead", 0):
        return mlp_tensors(p, t["hidden"], t["ffn"])
    return glm_tensors(p, t) if kind(t) == "glm4_moe" else expert_tensors(p, t)


def expert_tensors(p, t):
    """Names as folders store them: plain models one tensor an expert, qwen35 all in one."""
    d, e, f, s = t["hidden"], t["experts"], t["expert_ffn"], t.get("shared_ffn", 0)
    out = [(p + "input_layernorm.weight", (d,)), (p + "post_attention_layernorm.weight", (d,)),
           (p + "mlp.gate.weight", (e, d))]
    if is_plain(t):
        for i in range(e):
            q = f"{p}mlp.experts.{i}."
            out += [(q + "gate_proj.weight", (f, d)), (q + "up_proj.weight", (f, d)),
                    (q + "down_proj.weight", (d, f))]
    else:
        out += [(p + "mlp.experts.gate_up_proj", (e, 2 * f, d)),
                (p + "mlp.experts.down_proj", (e, d, f))]
    if s:
        q = p + "mlp.shared_expert"
        out += [(q + "_gate.weight", (1, d)), (q + ".gate_proj.weight", (s, d)),
                (q + ".up_proj.weight", (s, d)), (q + ".down_proj.weight", (d, s))]
    return out


def is_listed(t):
    """Whether a fixture names configuration and tensors itself, so that C needs no list of them."""
    return kind(t) in LISTED or (kind(t) == "gemma4" and t.get("experts", 0) > 0)


def latent_tensors(p, t):
    d, h, lora, turns = t["hidden"], t["heads"], t["kv_lora"], t["turns"]
    q = h * (t["nope"] + turns)
    out = [(p + "self_attn.kv_a_proj_with_mqa.weight", (lora + turns, d)),
           (p + "self_attn.kv_a_layernorm.weight", (lora,)),
           (p + "self_attn.kv_b_proj.weight", (h * (t["nope"] + t["v"]), lora)),
           (p + "self_attn.o_proj.weight", (d, h * t["v"]))]
    if not t["q_lora"]:
        return out + [(p + "self_attn.q_proj.weight", (q, d))]
    return out + [(p + "self_attn.q_a_proj.weight", (t["q_lora"], d)),
                  (p + "self_attn.q_a_layernorm.weight", (t["q_lora"],)),
                  (p + "self_attn.q_b_proj.weight", (q, t["q_lora"]))]


def shared_moe_tensors(p, t, bias):
    d, e, f, s = t["hidden"], t["experts"], t["expert_ffn"], t["shared_ffn"]
    q = p + "mlp.shared_experts."
    out = [(p + "input_layernorm.weight", (d,)), (p + "post_attention_layernorm.weight", (d,)),
           (p + "mlp.gate.weight", (e, d)), (p + "mlp.experts.gate_up_proj", (e, 2 * f, d)),
           (p + "mlp.experts.down_proj", (e, d, f)), (q + "gate_proj.weight", (s, d)),
           (q + "up_proj.weight", (s, d)), (q + "down_proj.weight", (d, s))]
    return out + ([(p + bias, (e,))] if bias else [])


def deepseek_layer(p, t, i):
    bias = "mlp.gate.e_score_correction_bias" if kind(t) == "deepseek_v3" else None
    return latent_tensors(p, t) + (mlp_tensors(p, t["hidden"], t["ffn"]) if i < t["lead"] else
                                   shared_moe_tensors(p, t, bias))


def deepseek_config(t):
    v3 = kind(t) == "deepseek_v3"
    c = {
        "architectures": ["DeepseekV3ForCausalLM" if v3 else "DeepseekV2ForCausalLM"],
        "model_type": kind(t), "vocab_size": t["vocab"], "hidden_size": t["hidden"],
        "intermediate_size": t["ffn"], "num_hidden_layers": t["layers"],
        "num_attention_heads": t["heads"], "num_key_value_heads": t["heads"],
        "q_lora_rank": t["q_lora"] or None, "kv_lora_rank": t["kv_lora"],
        "qk_nope_head_dim": t["nope"], "qk_rope_head_dim": t["turns"], "v_head_dim": t["v"],
        "n_routed_experts": t["experts"], "num_experts_per_tok": t["used"],
        "n_shared_experts": t["shared_ffn"] // t["expert_ffn"], "n_group": t["groups"],
        "topk_group": t["groups_used"], "moe_intermediate_size": t["expert_ffn"],
        "first_k_dense_replace": t["lead"], "norm_topk_prob": v3, "rms_norm_eps": 1e-6,
        "routed_scaling_factor": t["routed"], "max_position_embeddings": 4096,
        "hidden_act": "silu", "attention_bias": False, "tie_word_embeddings": t["tied"],
        "rope_theta": float(t["rope"]),
    }
    if not v3:
        c["topk_method"] = "greedy" if t["groups"] == 1 else "group_limited_greedy"
    if t.get("yarn"):
        c["rope_scaling"] = {"type": "yarn", "rope_type": "yarn", "factor": float(t["yarn"]),
                             "original_max_position_embeddings": t["trained"], "beta_fast": 32.0,
                             "beta_slow": 1.0, "mscale": t["mscale"],
                             "mscale_all_dim": t["mscale"], "rope_theta": float(t["rope"])}
    return c


def laguna_is_full(t, i):
    return i % 4 == 0 or not t["window"]


def laguna_heads(t, i):
    return t["heads"] if laguna_is_full(t, i) else t["window_heads"]


def laguna_layer(p, t, i):
    d, hd, h = t["hidden"], t["head_dim"], laguna_heads(t, i)
    gates = h * hd if t["wide"] else h
    out = [(p + "self_attn.q_proj.weight", (h * hd, d)),
           (p + "self_attn.k_proj.weight", (t["kv_heads"] * hd, d)),
           (p + "self_attn.v_proj.weight", (t["kv_heads"] * hd, d)),
           (p + "self_attn.o_proj.weight", (d, h * hd)), (p + "self_attn.g_proj.weight", (gates, d)),
           (p + "self_attn.q_norm.weight", (hd,)), (p + "self_attn.k_norm.weight", (hd,))]
    return out + (mlp_tensors(p, d, t["ffn"]) if i < t["lead"] else
                  shared_moe_tensors(p, t, "mlp.gate.e_score_correction_bias"))


def laguna_config(t):
    n = t["layers"]
    return {
        "architectures": ["LagunaForCausalLM"], "model_type": "laguna", "vocab_size": t["vocab"],
        "hidden_size": t["hidden"], "intermediate_size": t["ffn"], "num_hidden_layers": n,
        "num_attention_heads": t["heads"], "num_key_value_heads": t["kv_heads"],
        "head_dim": t["head_dim"], "rms_norm_eps": 1e-6, "max_position_embeddings": 4096,
        "hidden_act": "silu", "tie_word_embeddings": t["tied"], "attention_bias": False,
        "num_attention_heads_per_layer": [laguna_heads(t, i) for i in range(n)],
        "layer_types": ["full_attention" if laguna_is_full(t, i) else "sliding_attention"
                        for i in range(n)],
        "mlp_layer_types": ["dense" if i < t["lead"] else "sparse" for i in range(n)],
        "sliding_window": t["window"], "gating": "per-element" if t["wide"] else True,
        "num_experts": t["experts"], "num_experts_per_tok": t["used"],
        "moe_intermediate_size": t["expert_ffn"],
        "shared_expert_intermediate_size": t["shared_ffn"], "moe_routed_scaling_factor": t["routed"],
        "moe_router_logit_softcapping": t["router_cap"],
        "rope_parameters": {
            "full_attention": {"rope_type": "yarn", "rope_theta": float(t["rope"]),
                               "partial_rotary_factor": 0.5, "factor": float(t["yarn"]),
                               "original_max_position_embeddings": t["trained"],
                               "beta_fast": 64.0, "beta_slow": 1.0,
                               "attention_factor": 1 + 0.1 * math.log(t["yarn"])},
            "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0,
                                  "partial_rotary_factor": 1.0}},
    }


LISTED = {"laguna": (laguna_layer, laguna_config),
          "gemma3": (gemma3_layer, gemma3_config),
          "gpt_oss": (lambda p, t, _i: oss_layer(p, t), oss_config),
          "deepseek_v2": (deepseek_layer, deepseek_config),
          "deepseek_v3": (deepseek_layer, deepseek_config)}


def packed_experts(t, state):
    """The same weights with those of one layer's experts in one tensor each, as transformers has
    them."""
    if is_listed(t) or kind(t) == "gpt_oss" or not (is_plain(t) and t.get("experts")):
        return state
    out = {n: v for n, v in state.items() if ".mlp.experts." not in n}
    for i in range(t.get("lead", 0), t["layers"]):
        p = f"model.layers.{i}.mlp.experts."
        gate, up, down = ([state[f"{p}{k}.{m}_proj.weight"] for k in range(t["experts"])]
                          for m in ("gate", "up", "down"))
        out[p + "gate_up_proj"] = np.stack([np.concatenate(both) for both in zip(gate, up)])
        out[p + "down_proj"] = np.stack(down)
    return out


def target_tensors(t):
    """(name, shape) of the tensors that the text model uses."""
    out = [("model.embed_tokens.weight", (t["vocab"], t["hidden"]))]
    for i in range(t["layers"]):
        p = f"model.layers.{i}."
        if kind(t) in LISTED:
            out += LISTED[kind(t)][0](p, t, i)
            continue
        if kind(t) == "gemma4":
            out += gemma_layer(p, t, i)
            continue
        if kind(t) == "gpt_oss":
            out += oss_layer(p, t)
            continue
        out += attention_tensors(p, t) if full_attention(t, i) else linear_tensors(p, t)
        out += layer_feed_forward(p, t, i)
    if kind(t) == "gemma4":
        out += gemma_outside(t)
    out.append(("model.norm.weight", (t["hidden"],)))
    if not t["tied"]:
        out.append(("lm_head.weight", (t["vocab"], t["hidden"])))
    return out


def extra_tensors(t):
    """A prediction head and a visual tower, which a text engine must drop ("full" folders)."""
    d = t["hidden"]
    out = [("mtp.fc.weight", (d, 2 * d)), ("mtp.norm.weight", (d,)),
           ("mtp.pre_fc_norm_embedding.weight", (d,)), ("mtp.pre_fc_norm_hidden.weight", (d,))]
    out += attention_tensors("mtp.layers.0.", t)
    out += expert_tensors("mtp.layers.0.", t) if t.get("experts") else \
        mlp_tensors("mtp.layers.0.", d, t["ffn"])
    return out + [("model.visual.patch_embed.proj.weight", (64, 3, 2, 4, 4))]


CLASSES = {"qwen3": "Qwen3ForCausalLM", "qwen2": "Qwen2ForCausalLM", "llama": "LlamaForCausalLM",
           "glm4_moe": "Glm4MoeForCausalLM"}


def plain_config(t):
    c = {
        "architectures": [CLASSES[kind(t)]], "model_type": kind(t), "vocab_size": t["vocab"],
        "hidden_size": t["hidden"], "intermediate_size": t["ffn"],
        "num_hidden_layers": t["layers"], "num_attention_heads": t["heads"],
        "num_key_value_heads": t["kv_heads"], "head_dim": t["head_dim"], "rms_norm_eps": 1e-6,
        "max_position_embeddings": 4096, "hidden_act": "silu",
        "attention_bias": kind(t) in ("llama", "glm4_moe") and t.get("bias", False),
        "tie_word_embeddings": t["tied"], "use_sliding_window": False, "rope_theta": t["rope"],
    }
    if t.get("bands"):
        c["rope_scaling"] = {"rope_type": "llama3", "factor": float(t["bands"]),
                             "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                             "original_max_position_embeddings": t["trained"]}
    if t.get("yarn"):
        c["rope_scaling"] = {"rope_type": "yarn", "factor": float(t["yarn"]),
                             "original_max_position_embeddings": t["trained"]}
    if t.get("slopes"):  # as Ministral's: the factor of cosines from two of them; a ramp as it is
        c["rope_scaling"] |= {"mscale": 1.0, "mscale_all_dim": 0.5, "truncate": False}
    if t.get("linear"):  # as older folders have it
        c["rope_scaling"] = {"type": "linear", "factor": float(t["linear"])}
    if kind(t) == "glm4_moe":
        return c | {"n_routed_experts": t["experts"], "num_experts_per_tok": t["used"],
                    "moe_intermediate_size": t["expert_ffn"], "norm_topk_prob": t["normalised"],
                    "n_shared_experts": t["shared_ffn"] // t["expert_ffn"],
                    "first_k_dense_replace": t["lead"], "n_group": t["groups"],
                    "topk_group": t["groups_used"], "routed_scaling_factor": 2.5,
                    "use_qk_norm": t["norms"], "partial_rotary_factor": 0.5}
    if t.get("experts"):
        c |= {"architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe",
              "norm_topk_prob": True, "decoder_sparse_step": 1, "mlp_only_layers": []}
        c |= expert_config(t)
    return c


def gemma_config(t):
    moe = {}
    if t.get("experts"):
        moe = {"enable_moe_block": True, "num_experts": t["experts"], "top_k_experts": t["used"],
               "moe_intermediate_size": t["expert_ffn"]}
    return moe | {
        "architectures": ["Gemma4ForCausalLM"], "model_type": "gemma4_text",
        "vocab_size": t["vocab"], "hidden_size": t["hidden"], "intermediate_size": t["ffn"],
        "num_hidden_layers": t["layers"], "num_attention_heads": t["heads"],
        "num_key_value_heads": t["kv_heads"], "head_dim": t["head_dim"],
        "global_head_dim": t["full_head_dim"], "num_global_key_value_heads": t["full_kv_heads"],
        "attention_k_eq_v": t.get("k_eq_v", False), "rms_norm_eps": 1e-6,
        "max_position_embeddings": 4096, "hidden_activation": "gelu_pytorch_tanh",
        "sliding_window": t["window"], "final_logit_softcapping": float(t["cap"]),
        "num_kv_shared_layers": t.get("borrowing", 0), "use_double_wide_mlp": True,
        "hidden_size_per_layer_input": t.get("per_layer", 0),
        "vocab_size_per_layer_input": t["vocab"], "tie_word_embeddings": t["tied"],
        "layer_types": ["full_attention" if gemma_is_full(t, i) else "sliding_attention"
                        for i in range(t["layers"])],
        "rope_parameters": {
            "full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.25,
                               "rope_theta": 1000000.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}},
    }


def expert_config(t):
    return {"num_experts": t["experts"], "num_experts_per_tok": t["used"],
            "moe_intermediate_size": t["expert_ffn"]}


def target_config(t):
    if kind(t) in LISTED:
        return LISTED[kind(t)][1](t)
    if kind(t) == "gemma4":
        return gemma_config(t)
    if kind(t) == "gpt_oss":
        return oss_config(t)
    if is_plain(t):
        return plain_config(t)
    text = {
        "model_type": "qwen3_5_text", "vocab_size": t["vocab"], "hidden_size": t["hidden"],
        "intermediate_size": t["ffn"], "num_hidden_layers": t["layers"],
        "full_attention_interval": t["interval"], "num_attention_heads": t["heads"],
        "num_key_value_heads": t["kv_heads"], "head_dim": t["head_dim"],
        "linear_num_key_heads": t["key_heads"], "linear_num_value_heads": t["value_heads"],
        "linear_key_head_dim": t["linear_head_dim"], "linear_value_head_dim": t["linear_head_dim"],
        "linear_conv_kernel_dim": 4, "rms_norm_eps": 1e-6, "max_position_embeddings": 4096,
        "attention_bias": False, "hidden_act": "silu", "tie_word_embeddings": t["tied"],
        "layer_types": ["full_attention" if full_attention(t, i) else "linear_attention"
                        for i in range(t["layers"])],
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e7,
                            "partial_rotary_factor": 64.0 / t["head_dim"],
                            "mrope_section": [11, 11, 10], "mrope_interleaved": True},
    }
    if t.get("yarn"):
        text["rope_parameters"] |= {"rope_type": "yarn", "factor": float(t["yarn"]),
                                    "original_max_position_embeddings": t["trained"]}
    base, name = "qwen3_5", "Qwen3_5"
    if t.get("experts"):
        base, name = "qwen3_5_moe", "Qwen3_5Moe"
        del text["intermediate_size"]
        text |= expert_config(t) | {"model_type": "qwen3_5_moe_text",
                                    "shared_expert_intermediate_size": t["shared_ffn"]}
    if not t["full"]:
        return {"architectures": [name + "ForCausalLM"], **text}
    text["mtp_num_hidden_layers"] = 1
    return {"architectures": [name + "ForConditionalGeneration"], "model_type": base,
            "tie_word_embeddings": t["tied"], "text_config": text, "vision_config": {"depth": 1}}


def stored_name(name, full):
    return name.replace("model.", "model.language_model.", 1) \
        if full and name.startswith("model.") and "visual" not in name else name


QWEN35_SPLIT = (
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}"
    "| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+")
QWEN2_SPLIT = (
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}"
    "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+")


def write_tokenizer(folder, vocab, split=QWEN35_SPLIT):
    """One token a byte; ids from 256 are special, as far as the names go."""
    own = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    rest = [b for b in range(256) if b not in own]
    text = {b: chr(b) for b in own} | {b: chr(0x100 + i) for i, b in enumerate(rest)}
    added = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    tok = {
        "version": "1.0", "normalizer": None, "post_processor": None,
        "added_tokens": [{"id": 256 + i, "content": a, "single_word": False, "lstrip": False,
                          "rstrip": False, "normalized": False, "special": True}
                         for i, a in enumerate(added)],
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": split}, "behavior": "Isolated",
             "invert": False},
            {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False,
             "use_regex": False}]},
        "decoder": {"type": "ByteLevel"},
        "model": {"type": "BPE", "vocab": {text[b]: b for b in range(256)}, "merges": []},
    }
    with open(os.path.join(folder, "tokenizer.json"), "w", encoding="utf-8") as f:
        json.dump(tok, f, ensure_ascii=False)
    with open(os.path.join(folder, "tokenizer_config.json"), "w", encoding="utf-8") as f:
        json.dump({"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>",
                   "add_bos_token": False}, f)
    assert vocab >= 256 + len(added)


def write_target(folder, t):
    os.makedirs(folder, exist_ok=True)
    full = t.get("full", False)
    names = target_tensors(t) + (extra_tensors(t) if full else [])
    save_file({stored_name(n, full): target_weight(t, n, s) for n, s in names},
              os.path.join(folder, "model.safetensors"))
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as f:
        json.dump(target_config(t), f, indent=1)
    write_tokenizer(folder, t["vocab"], QWEN2_SPLIT if is_plain(t) else QWEN35_SPLIT)


def draft_tensors(t, d):
    """Laguna's drafts have gates, a norm for each tap, and one matrix of queries, keys and values;
    those of speculators a head for some tokens, and an embedding of their own."""
    h, hd, laguna = t["hidden"], d["head_dim"], d.get("kind") == "laguna"
    q, kv = hd * d["heads"], hd * d["kv_heads"]
    out = [("fc.weight", (h, len(d["taps"]) * h)), ("hidden_norm.weight", (h,)),
           ("norm.weight", (h,))]
    if d.get("own"):
        out.append(("embed_tokens.weight", (t["vocab"], h)))
    if d.get("head"):
        out += [("lm_head.weight", (d["head"], h)), ("d2t", (d["head"],))]
    if laguna:
        out += [(f"aux_hidden_norms.{i}.weight", (h,)) for i in range(len(d["taps"]))]
    for i in range(d["layers"]):
        p = f"layers.{i}."
        if laguna:
            out += [(p + "self_attn.qkv_proj.weight", (q + 2 * kv, h)),
                    (p + "self_attn.g_proj.weight", (q if d["wide"] else d["heads"], h))]
        else:
            out += [(p + "self_attn.q_proj.weight", (q, h)), (p + "self_attn.k_proj.weight", (kv, h)),
                    (p + "self_attn.v_proj.weight", (kv, h))]
        out += [(p + "self_attn.o_proj.weight", (h, q)),
                (p + "self_attn.q_norm.weight", (hd,)), (p + "self_attn.k_norm.weight", (hd,))]
        if d.get("bias"):
            out += [(f"{p}self_attn.{n}_proj.bias", (size,))
                    for n, size in (("q", q), ("k", kv), ("v", kv), ("o", h))]
        if d.get("sinks"):
            out += [(p + "self_attn.attention_sink_bias", (d["heads"],))]
        out += mlp_tensors(p, h, d["ffn"])
        if d.get("conv"):
            for name in ("attention_conv", "mlp_conv"):
                out += [(f"{p}{name}.base_kernel", (2, d["conv"], h)),
                        (f"{p}{name}.kernel_projection.weight",
                         (2 * d["conv"] * h // d["group"], h))]
    if d.get("conv"):
        p = "candidate_selector."
        out += [(p + "hidden_projection.weight", (d["rank"], h)),
                (p + "predecessor_codebook", (t["vocab"], d["rank"])),
                (p + "successor_codebook", (t["vocab"], d["rank"]))]
    if d.get("gru"):
        out += [("prefix_gru.weight_ih_l0", (3 * d["gru"], h)),
                ("prefix_gru.weight_hh_l0", (3 * d["gru"], d["gru"])),
                ("embed_proj.0.weight", (d["emb"], h + d["gru"])),
                ("embed_proj.2.weight", (t["vocab"], d["emb"]))]
    return out + (dspark_tensors(t, d) if d.get("markov") else [])


def dspark_tensors(t, d):
    """What is not read is there as well: embedding and head, which are no copies of the target's
    here, and a confidence head. Those of a head for some tokens are read."""
    h, p = t["hidden"], "markov_head."
    out = [(p + "markov_w1.weight", (t["vocab"], d["rank"])),
           (p + "markov_w2.weight", (d.get("head", t["vocab"]), d["rank"]))]
    if d["markov"] == "gated":
        out += [(p + "gate_proj.weight", (d["rank"], h + d["rank"])),
                (p + "gate_proj.bias", (d["rank"],))]
    wide = h + d["rank"] if d["confidence"] == "markov" else h
    out += [("confidence_head.proj.weight", (1, wide)), ("confidence_head.proj.bias", (1,))]
    if d.get("head"):
        return out
    return out + [("embed_tokens.weight", (t["vocab"], h)), ("lm_head.weight", (t["vocab"], h))]


def is_listed_draft(d):
    """As is_listed: drafts that have what the first ones lack."""
    return any(k in d for k in ("kind", "bias", "yarn", "cap", "conv", "head", "gru", "markov"))


def draft_config(t, d):
    own = {"mask_token_id": d["mask"], "target_layer_ids": d["taps"]}
    c = {
        "architectures": ["DFlashDraftModel"], "model_type": "qwen3", "hidden_size": t["hidden"],
        "intermediate_size": d["ffn"], "num_hidden_layers": d["layers"],
        "num_attention_heads": d["heads"], "num_key_value_heads": d["kv_heads"],
        "head_dim": d["head_dim"], "rms_norm_eps": d.get("eps", 1e-6), "vocab_size": t["vocab"],
        "max_position_embeddings": 4096, "rope_theta": d.get("rope", 1e7),
        "num_target_layers": t["layers"],
        "block_size": d["block"], "attention_bias": bool(d.get("bias")), "hidden_act": "silu",
        "dflash_config": own,
        "layer_types": ["sliding_attention" if w else "full_attention" for w in d["windows"]],
    }
    if any(d["windows"]):
        c |= {"sliding_window": max(d["windows"]), "use_sliding_window": True}
    if d.get("yarn"):
        c["rope_scaling"] = {"rope_type": "yarn", "factor": float(d["yarn"]),
                             "original_max_position_embeddings": d["trained"], "beta_fast": 32.0,
                             "beta_slow": 1.0, "truncate": d["truncate"]}
    if d.get("cap"):
        c["final_logit_softcapping"] = float(d["cap"])
    if d.get("sinks"):
        own["attention_sink_bias"] = True
    if d.get("conv"):
        c["architectures"] = ["DFlash2DraftModel"]
        own |= {"block_size": c.pop("block_size"), "conv_kernel_size": d["conv"],
                "conv_group_size": d["group"], "selector_rank": d["rank"],
                "selector_top_k": d["top"]}
    if d.get("gru"):
        own |= {"projector_type": d.get("projector", "domino"), "gru_hidden_dim": d["gru"],
                "emb_dim": d["emb"], "pure_draft_prefix_len": d["skip"], "shift_label": d["shift"]}
    if d.get("kind") == "laguna":
        c |= {"architectures": ["DFlashLagunaForCausalLM"], "model_type": "laguna",
              "gating": "per-element" if d["wide"] else "per-head", "draft_vocab_size": t["vocab"],
              "rope_parameters": {"rope_type": "default", "rope_theta": d["rope"]}}
        own |= {"block_size": c.pop("block_size"), "causal": d["causal"],
                "num_target_layers": c.pop("num_target_layers")}
        del c["rope_theta"]
    elif d["causal"] is not None:
        c["is_causal"] = d["causal"]
    if d.get("markov") and d.get("kind") != "speculators":
        put_dspark(c, own, d)
    return speculators_config(t, d, c) if d.get("kind") == "speculators" else c


def speculators_config(t, d, c):
    """What describes a layer apart; layers whose input is read."""
    layer = {k: v for k, v in c.items() if k not in ("architectures", "dflash_config",
                                                     "num_target_layers", "block_size")}
    layer["rope_parameters"] = {"rope_type": "default", "rope_theta": layer.pop("rope_theta")}
    top = markov_config(d) if d.get("markov") else {}
    if d.get("from_anchor"):
        top["sample_from_anchor"] = True
    return top | {
            "architectures": ["DSparkDraftModel" if d.get("markov") else "DFlashDraftModel"],
            "model_type": "speculators", "block_size": d["block"],
            "speculators_model_type": "dspark" if d.get("markov") else "dflash",
            "mask_token_id": d["mask"], "draft_vocab_size": d["head"], "target_hidden_size": None,
            "aux_hidden_state_layer_ids": [i + 1 for i in d["taps"]],
            "sliding_window_non_causal": bool(d.get("bidirectional")),
            "transformer_layer_config": layer}


def draft_offsets(d):
    """d2t of every other token, counted from 1: how much each is above the number of its row."""
    return np.arange(d["head"], dtype=np.int64) + 1


def draft_tokens(d):
    """Tokens of the head's rows."""
    return draft_offsets(d) + np.arange(d["head"], dtype=np.int64)


def markov_config(d):
    return {"markov_rank": d["rank"], "markov_head_type": d["markov"],
            "enable_confidence_head": True,
            "confidence_head_with_markov": d["confidence"] == "markov"}


def put_dspark(c, own, d):
    """DeepSpec has all settings at the top, SpecForge within dflash_config."""
    head = markov_config(d)
    if d["spelling"] == "deepspec":
        c |= {"architectures": ["Qwen3DSparkModel"], "num_anchors": 512} | head | own
        del c["dflash_config"]
    else:
        c["architectures"] = ["DSparkDraftModel"]
        own |= {"projector_type": "dspark", "attention_mode": "gqa"} | head
    if not d["from_anchor"]:
        c["sample_from_anchor"] = False


def draft_weights(t, d):
    return {n: draft_offsets(d) if n == "d2t" else weight(d["seed"], n, s, plain_norms=True)
            for n, s in draft_tensors(t, d)}


def write_draft(folder, t, d):
    os.makedirs(folder, exist_ok=True)
    save_file(draft_weights(t, d), os.path.join(folder, "model.safetensors"))
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as f:
        json.dump(draft_config(t, d), f, indent=1)


def token_ids(seed, n, vocab):
    """n pseudo-random ids below vocab."""
    return [int(u % np.uint64(vocab)) for u in counter_hash(seed, "ids", n)]
