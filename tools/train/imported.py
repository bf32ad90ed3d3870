# SPDX-License-Identifier: Apache-2.0
"""Reads the pair back out of its GGUF files, so that training can go on where no checkpoint is left.

usage: imported.py TARGET.gguf DRAFT.gguf OUT.pt TOKENIZER_DIR

Writes a checkpoint as pipeline.py does, and tokenizer.json with tokenizer_config.json. Matrices are
the dequantised Q8_0 ones. GGUF keeps value heads in the order of llama.cpp (head i of key head k is
i * key_heads + k), the modules in that of HuggingFace (k * r + i).
"""

import json
import pathlib
import sys

import numpy as np
import torch
from gguf import GGUFReader
from gguf.quants import dequantize

import scorer_data
from model import Draft, DraftConfig, Target, TargetConfig
from tokenizer import CONFIG

LAYER = {
    "attn_norm.weight": "input_layernorm.weight",
    "post_attention_norm.weight": "post_attention_layernorm.weight",
    "ffn_norm.weight": "post_attention_layernorm.weight",
    "ffn_gate.weight": "mlp.gate_proj.weight",
    "ffn_up.weight": "mlp.up_proj.weight",
    "ffn_down.weight": "mlp.down_proj.weight",
    "attn_q.weight": "self_attn.q_proj.weight",
    "attn_k.weight": "self_attn.k_proj.weight",
    "attn_v.weight": "self_attn.v_proj.weight",
    "attn_output.weight": "self_attn.o_proj.weight",
    "attn_q_norm.weight": "self_attn.q_norm.weight",
    "attn_k_norm.weight": "self_attn.k_norm.weight",
    "attn_qkv.weight": "linear_attn.in_proj_qkv.weight",
    "attn_gate.weight": "linear_attn.in_proj_z.weight",
    "ssm_alpha.weight": "linear_attn.in_proj_a.weight",
    "ssm_beta.weight": "linear_attn.in_proj_b.weight",
    "ssm_a": "linear_attn.A_log",
    "ssm_dt.bias": "linear_attn.dt_bias",
    "ssm_conv1d.weight": "linear_attn.conv1d.weight",
    "ssm_norm.weight": "linear_attn.norm.weight",
    "ssm_out.weight": "linear_attn.out_proj.weight",
}
WHOLE = {
    "token_embd.weight": "embed_tokens.weight",
    "output_norm.weight": "norm.weight",
    "fc.weight": "fc.weight",
    "enc.output_norm.weight": "hidden_norm.weight",
}


def tensors(path):
    for t in GGUFReader(path).tensors:
        name = WHOLE.get(t.name)
        if name is None:
            _, i, rest = t.name.split(".", 2)
            name = f"layers.{i}.{LAYER[rest]}"
        yield name, torch.from_numpy(np.array(dequantize(t.data, t.tensor_type), np.float32))


def grouped(x, c, size, dim=0):
    """Blocks of `size` along dim, one a value head, from the file's order to that of the modules."""
    r = c.value_heads // c.key_heads
    order = [i * c.key_heads + k for k in range(c.key_heads) for i in range(r)]
    blocks = x.unflatten(dim, (c.value_heads, size))
    return blocks.index_select(dim, torch.tensor(order)).flatten(dim, dim + 1)


def target_state(path, c):
    out, keys = {}, 2 * c.key_heads * c.state
    for name, x in tensors(path):
        last = name.rsplit("linear_attn.", 1)[-1]
        if last == "A_log":
            x = grouped((-x).log(), c, 1)
        elif last in ("dt_bias", "in_proj_a.weight", "in_proj_b.weight"):
            x = grouped(x, c, 1)
        elif last == "in_proj_z.weight":
            x = grouped(x, c, c.state)
        elif last in ("in_proj_qkv.weight", "conv1d.weight"):
            x = torch.cat((x[:keys], grouped(x[keys:], c, c.state)))
            x = x[:, None] if last == "conv1d.weight" else x
        elif last == "out_proj.weight":
            x = grouped(x, c, c.state, 1)
        elif x.dim() == 1 and last != "norm.weight" or name == "norm.weight":
            x = x - 1  # the target's norms are zero-centred, but for that of the delta rule
        out[name] = x
    return out


def main():
    target, draft, out, folder = sys.argv[1:5]
    t, d = Target(TargetConfig()), Draft(DraftConfig())
    t.load_state_dict(target_state(target, t.c))
    d.load_state_dict(dict(tensors(draft)))
    torch.save({"target": t.state_dict(), "draft": d.state_dict()}, out)
    tok, _ = scorer_data.read_tokenizer(target)
    pathlib.Path(folder).mkdir(parents=True, exist_ok=True)
    tok.save(f"{folder}/tokenizer.json")
    json.dump(CONFIG, open(f"{folder}/tokenizer_config.json", "w"), indent=1)


if __name__ == "__main__":
    main()
