# SPDX-License-Identifier: Apache-2.0
"""Writes the pair as HuggingFace-style folders that `coppice convert` reads.

Target: config.json (Qwen3_5ForCausalLM), model.safetensors, tokenizer files, generation_config.
Draft: the z-lab layout (config.json with dflash_config, model.safetensors). Weights are bf16
except the one-dimensional ones, which stay f32. Run as a script it exports a checkpoint made by
pipeline.py, or an untrained pair of the same shapes:

usage: export.py (CHECKPOINT.pt | --untrained) TOKENIZER_DIR OUT_DIR
"""

import json
import pathlib
import shutil
import sys

import torch
from safetensors.torch import save_file

from model import Draft, DraftConfig, Target, TargetConfig


def put(path, obj):
    path.write_text(json.dumps(obj, indent=1) + "\n")


def state(module, prefix="", exact=False):
    """exact: matrices as 32-bit floats too"""
    return {
        prefix
        + n: (p.detach().cpu().float() if p.dim() == 1 or exact else p.detach().cpu().bfloat16())
        .contiguous()
        .clone()
        for n, p in module.named_parameters()
    }


def export_target(m, tok_dir, out, exact=False, block=None):
    """tok_dir: None where the tokenizer is in `out`; block: a prediction block, which becomes `mtp.*`"""
    c, out = m.c, pathlib.Path(out)
    out.mkdir(parents=True, exist_ok=True)
    kinds = ["full_attention" if c.full(i) else "linear_attention" for i in range(c.layers)]
    put(
        out / "config.json",
        {
            "architectures": ["Qwen3_5ForCausalLM"],
            "model_type": "qwen3_5_text",
            "dtype": "bfloat16",
            "vocab_size": c.vocab,
            "hidden_size": c.dim,
            "num_hidden_layers": c.layers,
            "intermediate_size": c.ffn,
            "num_attention_heads": c.heads,
            "num_key_value_heads": c.kv_heads,
            "head_dim": c.head_dim,
            "hidden_act": "silu",
            "rms_norm_eps": c.eps,
            "max_position_embeddings": c.context,
            "tie_word_embeddings": True,
            "attention_bias": False,
            "full_attention_interval": c.interval,
            "layer_types": kinds,
            "linear_num_key_heads": c.key_heads,
            "linear_num_value_heads": c.value_heads,
            "linear_key_head_dim": c.state,
            "linear_value_head_dim": c.state,
            "linear_conv_kernel_dim": c.conv,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": c.theta,
                "partial_rotary_factor": c.rotary / c.head_dim,
                "mrope_section": [11, 11, 10],
                "mrope_interleaved": True,
            },
            "bos_token_id": None,
            "eos_token_id": 4082,
            "pad_token_id": 4080,
        }
        | ({"mtp_num_hidden_layers": 1} if block else {}),
    )
    put(
        out / "generation_config.json",
        {"eos_token_id": [4082, 4080], "pad_token_id": 4080, "do_sample": False},
    )
    weights = state(m, "model.", exact) | (state(block, "mtp.", exact) if block else {})
    save_file(weights, str(out / "model.safetensors"), {"format": "pt"})
    for f in ("tokenizer.json", "tokenizer_config.json") if tok_dir else ():
        shutil.copy(pathlib.Path(tok_dir) / f, out / f)


def selector(c):
    """DFlash2's keys of dflash_config"""
    if not c.conv:
        return {}
    return {
        "conv_kernel_size": c.conv,
        "conv_group_size": c.group,
        "selector_rank": c.rank,
        "selector_top_k": c.top,
    }


def export_draft(d, target, out):
    c, out = d.c, pathlib.Path(out)
    out.mkdir(parents=True, exist_ok=True)
    put(
        out / "config.json",
        {
            "architectures": ["DFlash2DraftModel" if c.conv else "DFlashDraftModel"],
            "model_type": "qwen3",
            "dtype": "bfloat16",
            "hidden_size": c.dim,
            "intermediate_size": c.ffn,
            "num_hidden_layers": c.layers,
            "num_attention_heads": c.heads,
            "num_key_value_heads": c.kv_heads,
            "head_dim": c.head_dim,
            "rms_norm_eps": c.eps,
            "vocab_size": target.vocab,
            "hidden_act": "silu",
            "max_position_embeddings": target.context,
            "num_target_layers": target.layers,
            "attention_bias": False,
            "tie_word_embeddings": False,
            "block_size": c.block,
            "rope_theta": c.theta,
            "use_sliding_window": True,
            "sliding_window": c.window,
            "layer_types": [k + "_attention" for k in c.kinds],
            "dflash_config": {
                "mask_token_id": c.mask_id,
                "target_layer_ids": c.taps,
                "block_size": c.block,
            }
            | selector(c),
        },
    )
    save_file(state(d), str(out / "model.safetensors"), {"format": "pt"})


def main():
    source, tok, out = sys.argv[1:4]
    torch.manual_seed(0)
    tc, dc = TargetConfig(), DraftConfig()
    t, d = Target(tc), Draft(dc)
    if source == "--untrained":
        for p in list(t.parameters()) + list(d.parameters()):
            if p.dim() == 1:
                p.data += 0.1 * torch.randn_like(p)
            elif p.dim() == 2:
                p.data.normal_(std=p.shape[1] ** -0.5)
    else:
        ck = torch.load(source, map_location="cpu")
        t.load_state_dict({k: v.float() for k, v in ck["target"].items()})
        d.load_state_dict({k: v.float() for k, v in ck["draft"].items()})
    export_target(t, tok, pathlib.Path(out) / "target")
    export_draft(d, tc, pathlib.Path(out) / "draft")


if __name__ == "__main__":
    main()
