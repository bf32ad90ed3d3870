# SPDX-License-Identifier: Apache-2.0
"""Writes tests/fixtures/convert/packed/: tiny models whose matrices are codes and scales.

Each case is a config.json (NAME.json) and its weights (NAME.safetensors): FP8 with scales of
blocks, rows and whole matrices, in F32, BF16 and powers of two; INT4 in groups, packed by
`compressed-tensors`. `expected.json` has for each tensor of the GGUF file that was packed the XXH64
of its F32 values, which torch decodes here.

Usage: python packed_fixtures.py [OUTPUT_DIR]
"""
import json
import pathlib
import shutil
import sys

import torch
import xxhash
from compressed_tensors.compressors.pack_quantized.helpers import pack_to_int32
from safetensors.torch import save_file

V = 8
FP8, E8M0 = torch.float8_e4m3fn, torch.float8_e8m0fnu


class Maker:
    """Collects a folder's tensors and what the packed ones decode to."""

    def __init__(self, seed):
        self.g = torch.Generator().manual_seed(seed)
        self.tensors, self.values = {}, {}

    def plain(self, name, *shape):
        self.tensors[name] = (torch.randn(shape, generator=self.g) * 0.3).to(torch.bfloat16)

    def fp8(self, name, shape, block, tail, dtype=torch.float32):
        """block: rows and columns of a scale, 0 for all."""
        w = torch.randn(shape, generator=self.g) * 0.3
        rows, columns = block[0] or shape[-2], block[1] or shape[-1]
        grid = (*shape[:-2], -(-shape[-2] // rows), -(-shape[-1] // columns))
        scale = torch.rand(grid, generator=self.g) * 0.01 + 0.001
        scale = (torch.exp2(torch.ceil(torch.log2(scale))) if dtype == E8M0 else scale).to(dtype)
        wide = scale.float().repeat_interleave(rows, -2).repeat_interleave(columns, -1)
        wide = wide[..., :shape[-2], :shape[-1]]
        codes = (w / wide).clamp(-448, 448).to(FP8)
        self.values[name] = codes.float() * wide
        self.tensors[name] = codes
        whole = block == (0, 0) and len(shape) == 2
        self.tensors[name + tail] = scale.reshape(1) if whole else scale

    def int4(self, name, shape, group):
        codes = torch.randint(-8, 8, shape, generator=self.g, dtype=torch.int8)
        scale = (torch.rand((shape[0], -(-shape[1] // group)), generator=self.g) * 0.1).to(
            torch.bfloat16)
        self.values[name] = codes.float() * scale.float().repeat_interleave(group, 1)[:, :shape[1]]
        self.tensors[name + "_packed"] = pack_to_int32(codes, 4)
        self.tensors[name + "_scale"] = scale
        self.tensors[name + "_shape"] = torch.tensor(shape)


def outside(m, d):
    m.plain("model.embed_tokens.weight", V, d)
    m.plain("model.norm.weight", d)
    m.plain("lm_head.weight", V, d)


def qwen3(m, matrix, d, f, hd=32):
    outside(m, d)
    p = "model.layers.0."
    for n in ("input_layernorm", "post_attention_layernorm"):
        m.plain(p + n + ".weight", d)
    for n in ("q_norm", "k_norm"):
        m.plain(p + f"self_attn.{n}.weight", hd)
    for n, shape in (("self_attn.q_proj", (2 * hd, d)), ("self_attn.k_proj", (hd, d)),
                     ("self_attn.v_proj", (hd, d)), ("self_attn.o_proj", (d, 2 * hd)),
                     ("mlp.gate_proj", (f, d)), ("mlp.up_proj", (f, d)), ("mlp.down_proj", (d, f))):
        if matrix and (f or not n.startswith("mlp")):
            matrix(p + n + ".weight", shape)
        elif not n.startswith("mlp"):
            m.plain(p + n + ".weight", *shape)


BASE = {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "vocab_size": V,
        "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 32,
        "hidden_act": "silu", "rms_norm_eps": 1e-6, "max_position_embeddings": 128,
        "rope_theta": 10000.0, "tie_word_embeddings": False, "eos_token_id": 4}
NAMES = {"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
         "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
         "mlp.down_proj": "ffn_down", "self_attn.kv_a_proj_with_mqa": "attn_kv_a_mqa"}


def layers(m):
    """Packed matrices of the layer under their names in a GGUF file."""
    return {f"blk.0.{NAMES[n[15:-7]]}.weight": v for n, v in m.values.items() if n[15:-7] in NAMES}


def compressed(form, weights):
    return {"quant_method": "compressed-tensors", "format": form, "ignore": ["lm_head"],
            "kv_cache_scheme": None, "quantization_status": "compressed", "config_groups": {
                "group_0": {"targets": ["Linear"], "input_activations": None,
                            "weights": {"symmetric": True, "dynamic": False, "actorder": None,
                                        "block_structure": None, "group_size": None, **weights}}}}


def deepseek_form(block, **more):
    return {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic",
            "weight_block_size": block, **more}


def dense(seed, d, f, block, tail, quantization, dtype=torch.float32, activations=False):
    m = Maker(seed)
    qwen3(m, lambda n, s: m.fp8(n, s, block, tail, dtype), d, f)
    if activations:
        for n in list(m.values):
            m.tensors[n.replace(".weight", ".input_scale")] = torch.ones(1)
    return m, {**BASE, "hidden_size": d, "intermediate_size": f,
               "quantization_config": quantization}, layers(m)


def experts_of(m, n):
    out = {}
    for kind, name in (("gate", "ffn_gate"), ("up", "ffn_up"), ("down", "ffn_down")):
        out[f"blk.0.{name}_exps.weight"] = torch.stack(
            [m.values[f"model.layers.0.mlp.experts.{e}.{kind}_proj.weight"] for e in range(n)])
    return out


MOE = {**BASE, "model_type": "qwen3_moe", "hidden_size": 32, "intermediate_size": 64,
       "num_experts": 2, "num_experts_per_tok": 1, "moe_intermediate_size": 48,
       "norm_topk_prob": True}


def int4_experts():
    m = Maker(5)
    qwen3(m, None, 32, 0)
    m.plain("model.layers.0.mlp.gate.weight", 2, 32)
    for e in range(2):
        for kind, shape in (("gate", (48, 32)), ("up", (48, 32)), ("down", (32, 48))):
            m.int4(f"model.layers.0.mlp.experts.{e}.{kind}_proj.weight", shape, 32)
    form = compressed("pack-quantized",
                      {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 32})
    return m, {**MOE, "quantization_config": form}, experts_of(m, 2)


def fused_experts():
    m = Maker(6)
    qwen3(m, None, 32, 0)
    m.plain("model.layers.0.mlp.gate.weight", 2, 32)
    p = "model.layers.0.mlp.experts."
    m.fp8(p + "gate_up_proj", (2, 96, 32), (16, 16), "_scale_inv")
    m.fp8(p + "down_proj", (2, 32, 48), (16, 16), "_scale_inv")
    both, down = m.values[p + "gate_up_proj"], m.values[p + "down_proj"]
    return m, {**MOE, "quantization_config": deepseek_form([16, 16])}, {
        "blk.0.ffn_gate_exps.weight": both[:, :48], "blk.0.ffn_up_exps.weight": both[:, 48:],
        "blk.0.ffn_down_exps.weight": down}


def deepseek():
    """Latent attention, whose matrix of keys and values is taken apart."""
    m = Maker(7)
    outside(m, 32)
    p, lora, nope, rope, v, heads = "model.layers.0.", 32, 32, 32, 32, 2
    for n, size in (("input_layernorm", 32), ("post_attention_layernorm", 32),
                    ("self_attn.kv_a_layernorm", lora)):
        m.plain(p + n + ".weight", size)
    for n, shape in (("self_attn.q_proj", (heads * (nope + rope), 32)),
                     ("self_attn.kv_a_proj_with_mqa", (lora + rope, 32)),
                     ("self_attn.kv_b_proj", (heads * (nope + v), lora)),
                     ("self_attn.o_proj", (32, heads * v))):
        m.fp8(p + n + ".weight", shape, (24, 20), "_scale_inv")
    m.plain(p + "mlp.gate.weight", 2, 32)
    m.tensors[p + "mlp.gate.e_score_correction_bias"] = torch.zeros(2)
    for e in ("experts.0", "experts.1", "shared_experts"):
        for kind in ("gate", "up", "down"):
            m.fp8(p + f"mlp.{e}.{kind}_proj.weight", (32, 32), (24, 20), "_scale_inv")
    kv = m.values[p + "self_attn.kv_b_proj.weight"].reshape(heads, nope + v, lora)
    m.fp8("model.layers.1.eh_proj.weight", (32, 64), (24, 20), "_scale_inv")
    config = {**BASE, "model_type": "deepseek_v3", "hidden_size": 32, "intermediate_size": 64,
              "kv_lora_rank": lora, "qk_nope_head_dim": nope, "qk_rope_head_dim": rope,
              "v_head_dim": v, "n_routed_experts": 2, "num_experts_per_tok": 1,
              "n_shared_experts": 1, "moe_intermediate_size": 32, "first_k_dense_replace": 0,
              "quantization_config": deepseek_form([24, 20])}
    config["num_key_value_heads"] = heads
    return m, config, layers(m) | experts_of(m, 2) | {
        "blk.0.attn_k_b.weight": kv[:, :nope].transpose(1, 2), "blk.0.attn_v_b.weight": kv[:, nope:]}


CASES = {
    "blocks": lambda: dense(1, 144, 136, (128, 128), "_scale_inv", deepseek_form([128, 128])),
    "powers": lambda: dense(2, 32, 40, (16, 24), "_scale_inv",
                            deepseek_form([16, 24], scale_fmt="ue8m0"), E8M0),
    "rows": lambda: dense(3, 32, 40, (1, 0), "_scale", compressed(
        "float-quantized", {"num_bits": 8, "type": "float", "strategy": "channel"}),
        torch.bfloat16),
    "whole": lambda: dense(4, 32, 40, (0, 0), "_scale", compressed(
        "float-quantized", {"num_bits": 8, "type": "float", "strategy": "tensor"}),
        activations=True),
    "int4": int4_experts,
    "fused": fused_experts,
    "latents": deepseek,
}


def main():
    here = pathlib.Path(__file__).resolve().parent
    out = (pathlib.Path(sys.argv[1]) if len(sys.argv) > 1
           else here / "../../tests/fixtures/convert/packed")
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    listing = {}
    for name, make in CASES.items():
        m, config, values = make()
        save_file(m.tensors, out / f"{name}.safetensors")
        (out / f"{name}.safetensors").chmod(0o644)
        (out / f"{name}.json").write_text(json.dumps(config))
        listing[name] = {k: xxhash.xxh64(v.contiguous().numpy().tobytes()).hexdigest()
                         for k, v in values.items()}
    (out / "expected.json").write_text(json.dumps(listing, indent=1))


if __name__ == "__main__":
    main()
