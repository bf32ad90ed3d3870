# SPDX-License-Identifier: Apache-2.0
"""A qwen35 GGUF file back to HuggingFace tensors: the inverse of every converter transformation.

Reads with the `gguf` package, dequantises, undoes the +1 of zero-centred norms, the -exp of A_log
and the reordering of value heads. Used to check the converter by itself and to give transformers
the very weights that a quantised file holds.
"""
import numpy as np
from gguf import GGUFReader
from gguf.quants import dequantize

import tiny_model

GLOBAL = {"model.embed_tokens.weight": "token_embd.weight",
          "model.norm.weight": "output_norm.weight", "lm_head.weight": "output.weight"}
LAYER = {
    "input_layernorm.weight": "attn_norm.weight",
    "post_attention_layernorm.weight": "post_attention_norm.weight",
    "self_attn.q_proj.weight": "attn_q.weight", "self_attn.k_proj.weight": "attn_k.weight",
    "self_attn.v_proj.weight": "attn_v.weight", "self_attn.o_proj.weight": "attn_output.weight",
    "self_attn.q_norm.weight": "attn_q_norm.weight",
    "self_attn.k_norm.weight": "attn_k_norm.weight",
    "linear_attn.in_proj_qkv.weight": "attn_qkv.weight",
    "linear_attn.in_proj_z.weight": "attn_gate.weight",
    "linear_attn.in_proj_a.weight": "ssm_alpha.weight",
    "linear_attn.in_proj_b.weight": "ssm_beta.weight",
    "linear_attn.conv1d.weight": "ssm_conv1d.weight", "linear_attn.dt_bias": "ssm_dt.bias",
    "linear_attn.A_log": "ssm_a", "linear_attn.norm.weight": "ssm_norm.weight",
    "linear_attn.out_proj.weight": "ssm_out.weight", "mlp.gate_proj.weight": "ffn_gate.weight",
    "mlp.up_proj.weight": "ffn_up.weight", "mlp.down_proj.weight": "ffn_down.weight",
}


def gguf_name(hf):
    if hf in GLOBAL:
        return GLOBAL[hf]
    layer, rest = hf.removeprefix("model.layers.").split(".", 1)
    return f"blk.{layer}.{LAYER[rest]}"


def to_hf_heads(x, axis, t, block):
    """Value heads along an axis from GGUF order (j * nK + k) to HuggingFace order (k * r + j)."""
    nk, nv = t["key_heads"], t["value_heads"]
    x = np.moveaxis(x, axis, 0)
    x = x.reshape(nv // nk, nk, block, *x.shape[1:]).swapaxes(0, 1)
    return np.moveaxis(x.reshape(nv * block, *x.shape[3:]), 0, axis)


def undo(hf, x, t):
    hd, keys = t["linear_head_dim"], 2 * t["key_heads"] * t["linear_head_dim"]
    if hf.endswith("norm.weight") and not hf.endswith("linear_attn.norm.weight"):
        return x - np.float32(1)
    if hf.endswith("A_log"):
        return np.log(-to_hf_heads(x, 0, t, 1))
    if hf.endswith(("dt_bias", "in_proj_a.weight", "in_proj_b.weight")):
        return to_hf_heads(x, 0, t, 1)
    if hf.endswith("in_proj_z.weight"):
        return to_hf_heads(x, 0, t, hd)
    if hf.endswith("out_proj.weight"):
        return to_hf_heads(x, 1, t, hd)
    if hf.endswith(("in_proj_qkv.weight", "conv1d.weight")):
        return np.concatenate([x[:keys], to_hf_heads(x[keys:], 0, t, hd)])
    return x


def load(path, t):
    """{HuggingFace name: f32 array} and {HuggingFace name: type name in the file}."""
    file = {x.name: x for x in GGUFReader(path).tensors}
    weights, types = {}, {}
    for hf, shape in tiny_model.target_tensors(t):
        x = file.pop(gguf_name(hf))
        types[hf] = x.tensor_type.name
        flat = dequantize(x.data, x.tensor_type).reshape([int(n) for n in reversed(x.shape)])
        weights[hf] = undo(hf, flat, t).reshape(shape).astype(np.float32)
    left = [n for n in file if not n.startswith(f"blk.{t['layers']}.")]
    assert not left, f"tensors that nothing explains: {left}"
    return weights, types


def worst_difference(weights, t):
    """Largest |back - original| over all tensors, relative to the tensor's largest value."""
    worst = 0.0
    for hf, shape in tiny_model.target_tensors(t):
        w = tiny_model.target_weight(t, hf, shape)
        worst = max(worst, float(np.abs(weights[hf] - w).max() / np.abs(w).max()))
    return worst
