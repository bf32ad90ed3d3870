# SPDX-License-Identifier: Apache-2.0
"""Writes tests/fixtures/convert/oss/: a folder as the authors of gpt-oss publish them, experts in
MXFP4 as blocks and scales, and beside it what transformers decode them to (expected.safetensors:
the second layer's matrices, F32, transposed as transformers have them).

Usage: python oss_fixtures.py [OUTPUT_DIR]
"""
import json
import os
import sys

import torch
from safetensors.torch import save_file
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

import tiny_model

T = {"plain": True, "kind": "gpt_oss", "bias": True, "vocab": 260, "hidden": 32, "layers": 2, "heads": 2,
     "kv_heads": 1, "head_dim": 32, "window": 16, "experts": 3, "used": 2, "expert_ffn": 64,
     "ffn": 64, "rope": 150000, "yarn": 32, "trained": 64, "tied": False, "seed": 130}


def packed(generator, experts, rows, k):
    """Random blocks and scales: all codes, scales from 2^-12 to 2^3."""
    blocks = torch.randint(0, 256, (experts, rows, k // 32, 16), generator=generator)
    scales = torch.randint(115, 131, (experts, rows, k // 32), generator=generator)
    return blocks.to(torch.uint8), scales.to(torch.uint8)


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    out = sys.argv[1] if len(sys.argv) > 1 else os.path.join(here, "../../tests/fixtures/convert/oss")
    os.makedirs(out, exist_ok=True)
    generator = torch.Generator().manual_seed(T["seed"])
    tensors, expected = {}, {}
    for name, shape in tiny_model.target_tensors(T):
        if name.endswith(("gate_up_proj", "down_proj")):
            experts, k, rows = shape
            blocks, scales = packed(generator, experts, rows, k)
            tensors[name + "_blocks"], tensors[name + "_scales"] = blocks, scales
            if ".1." in name:
                part = "gate_up" if "gate_up" in name else "down"
                expected[part] = convert_moe_packed_tensors(blocks, scales, dtype=torch.float32)
                assert tuple(expected[part].shape) == shape
        else:
            value = torch.from_numpy(tiny_model.target_weight(T, name, shape))
            tensors[name] = value.to(torch.bfloat16)
    save_file(tensors, os.path.join(out, "model.safetensors"))
    save_file({n: t.contiguous() for n, t in expected.items()},
              os.path.join(out, "expected.safetensors"))
    with open(os.path.join(out, "config.json"), "w", encoding="utf-8") as f:
        json.dump(tiny_model.target_config(T), f, indent=1)
    tiny_model.write_tokenizer(out, T["vocab"], tiny_model.QWEN2_SPLIT)


if __name__ == "__main__":
    main()
