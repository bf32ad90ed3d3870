# SPDX-License-Identifier: Apache-2.0
"""Writes tests/fixtures/convert/: tiny HuggingFace folders, and what the established converter makes
of each.

The folders hold random weights and small tokenizers trained here. The converter is that of
ggml-org/llama.cpp, given as a checkout; of its outcome only a listing is kept: every key with type
and value (of arrays the XXH64), every tensor with type, shape and XXH64 of its bytes. Its guess of the pre-tokenizer's
name, by a hash over known vocabularies, is answered here, since these vocabularies are not known.

Usage: python convert_fixtures.py LLAMA_CPP_CHECKOUT [OUTPUT_DIR]
"""
import json
import os
import pathlib
import shutil
import struct
import sys
import tempfile

sys.path[:0] = [sys.argv[1], os.path.join(sys.argv[1], "gguf-py")]  # its own, before any other

import conversion
import gguf
import numpy as np
import sentencepiece
import torch
import xxhash
from conversion import ModelType, base
from safetensors.torch import save_file
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers, processors
from tokenizers import decoders, trainers

from tokenizer_fixtures import CONTRACTION, REGEX, TAIL
from tokenizer_text import SENTENCES

V = 336
LLAMA3 = CONTRACTION + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + TAIL
TEMPLATE = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"


def weights(shapes, dtype, seed):
    g = torch.Generator().manual_seed(seed)
    return {n: (torch.randn(s, generator=g) * 0.2).to(dtype) for n, s in shapes.items()}


def save_shards(folder, tensors, shards):
    names = sorted(tensors)
    if shards == 1:
        save_file(tensors, folder / "model.safetensors")
        return
    index = {"metadata": {}, "weight_map": {}}
    for k in range(shards):
        file = f"model-{k + 1:05d}-of-{shards:05d}.safetensors"
        part = {n: tensors[n] for n in names[k::shards]}
        save_file(part, folder / file)
        index["weight_map"] |= {n: file for n in part}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def write_json(folder, name, value):
    (folder / name).write_text(json.dumps(value, ensure_ascii=False), encoding="utf-8")


def byte_tokenizer(folder, regex, added, nfc, whole=False, bos=None):
    tok = Tokenizer(models.BPE(ignore_merges=whole))
    tok.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(regex), behavior="isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tok.decoder = decoders.ByteLevel()
    if nfc:
        tok.normalizer = normalizers.NFC()
    trainer = trainers.BpeTrainer(vocab_size=310, show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tok.train_from_iterator(SENTENCES, trainer)
    tok.add_tokens([AddedToken(t, special=s, normalized=False) for t, s in added])
    if bos:
        single = f"{bos} $A"
        tok.post_processor = processors.Sequence([
            processors.ByteLevel(trim_offsets=False),
            processors.TemplateProcessing(single=single, pair=f"{single} {bos} $B",
                                          special_tokens=[(bos, tok.token_to_id(bos))])])
    else:
        tok.post_processor = processors.ByteLevel(trim_offsets=False)
    tok.save(str(folder / "tokenizer.json"))
    return tok


QWEN_ADDED = [("<|endoftext|>", True), ("<|im_start|>", True), ("<|im_end|>", True),
              ("<think>", False), ("</think>", False), ("<|vision_start|>", False)]


def qwen_tokenizer(folder, regex):
    tok = byte_tokenizer(folder, regex, QWEN_ADDED, True)
    write_json(folder, "tokenizer_config.json", {
        "tokenizer_class": "PreTrainedTokenizerFast", "add_bos_token": False, "bos_token": None,
        "eos_token": "<|im_end|>", "pad_token": "<|endoftext|>",
        "chat_template": [{"name": "default", "template": TEMPLATE},
                          {"name": "tool_use", "template": "{{ tools }}" + TEMPLATE}]})
    end = tok.token_to_id("<|im_end|>")
    write_json(folder, "generation_config.json",
               {"eos_token_id": [end, tok.token_to_id("<|endoftext|>")]})
    return end


def attention(prefix, d, q, kv, hd):
    return {prefix + "q_proj.weight": (q, d), prefix + "k_proj.weight": (kv, d),
            prefix + "v_proj.weight": (kv, d), prefix + "o_proj.weight": (d, hd),
            }


def mlp(prefix, d, f):
    return {prefix + "gate_proj.weight": (f, d), prefix + "up_proj.weight": (f, d),
            prefix + "down_proj.weight": (d, f)}


def qwen35_shapes(prefix, d, layers, feed):
    nk, nv, hd, heads, kv = 2, 4, 16, 2, 1
    out = {prefix + "embed_tokens.weight": (V, d), prefix + "norm.weight": (d,)}
    for i in range(layers):
        p = f"{prefix}layers.{i}."
        out |= {p + "input_layernorm.weight": (d,), p + "post_attention_layernorm.weight": (d,)}
        out |= feed(p + "mlp.")
        if i % 2:
            a = p + "self_attn."
            out |= attention(a, d, 2 * heads * hd, kv * hd, heads * hd)
            out |= {a + "q_norm.weight": (hd,), a + "k_norm.weight": (hd,)}
        else:
            a = p + "linear_attn."
            c = 2 * nk * 8 + nv * 8
            out |= {a + "in_proj_qkv.weight": (c, d), a + "in_proj_z.weight": (nv * 8, d),
                    a + "in_proj_a.weight": (nv, d), a + "in_proj_b.weight": (nv, d),
                    a + "A_log": (nv,), a + "dt_bias": (nv,), a + "conv1d.weight": (c, 1, 4),
                    a + "norm.weight": (8,), a + "out_proj.weight": (d, nv * 8)}
    return out


def qwen35_config(d, layers, end):
    return {"vocab_size": V, "hidden_size": d, "num_hidden_layers": layers,
            "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16, "hidden_act": "silu",
            "rms_norm_eps": 1e-6, "max_position_embeddings": 4096, "full_attention_interval": 2,
            "layer_types": ["linear_attention", "full_attention"] * (layers // 2),
            "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 8,
            "linear_value_head_dim": 8, "linear_conv_kernel_dim": 4, "eos_token_id": end,
            "attn_output_gate": True,
            "rope_parameters": {"rope_type": "default", "rope_theta": 10000000.0,
                                "partial_rotary_factor": 0.25, "mrope_section": [1, 1, 0],
                                "mrope_interleaved": True}}


def predict(d, attend, feed):
    """The block of a qwen3_5 folder that predicts further tokens: a layer of full attention, its
    joining matrix and norms."""
    p = "mtp.layers.0."
    out = {"mtp.fc.weight": (d, 2 * d), "mtp.norm.weight": (d,),
           "mtp.pre_fc_norm_embedding.weight": (d,), "mtp.pre_fc_norm_hidden.weight": (d,),
           p + "input_layernorm.weight": (d,), p + "post_attention_layernorm.weight": (d,)}
    return out | attend(p + "self_attn.") | feed(p + "mlp.")


def gated(prefix, d=32, heads=2, kv=1, hd=16):
    return attention(prefix, d, 2 * heads * hd, kv * hd, heads * hd) | {
        prefix + "q_norm.weight": (hd,), prefix + "k_norm.weight": (hd,)}


def qwen35(folder, mtp=False):
    end = qwen_tokenizer(folder, REGEX["qwen35"])
    write_json(folder, "config.json", {
        "architectures": ["Qwen3_5ForConditionalGeneration"], "model_type": "qwen3_5",
        "tie_word_embeddings": True, "vision_config": {"depth": 1},
        "text_config": {**qwen35_config(32, 2, end), "model_type": "qwen3_5_text",
                        "intermediate_size": 48, "tie_word_embeddings": True}
        | ({"mtp_num_hidden_layers": 1} if mtp else {})})
    shapes = qwen35_shapes("model.language_model.", 32, 2, lambda p: mlp(p, 32, 48))
    shapes |= {"model.visual.patch_embed.proj.bias": (4,)}
    if mtp:
        shapes |= predict(32, gated, lambda p: mlp(p, 32, 48))
    save_shards(folder, weights(shapes, torch.bfloat16, 8 if mtp else 1), 1 if mtp else 3)


def experts(prefix, fused, d=32, f=16, n=4):
    out = {prefix + "gate.weight": (n, d), prefix + "shared_expert_gate.weight": (1, d)}
    out |= mlp(prefix + "shared_expert.", d, 24)
    if fused:
        return out | {prefix + "experts.gate_up_proj": (n, 2 * f, d),
                      prefix + "experts.down_proj": (n, d, f)}
    for e in range(n):
        out |= mlp(f"{prefix}experts.{e}.", d, f)
    return out


def qwen35moe(folder, fused=True, mtp=False):
    end = qwen_tokenizer(folder, REGEX["qwen35"])
    write_json(folder, "config.json", {
        "architectures": ["Qwen3_5MoeForCausalLM"], "model_type": "qwen3_5_moe_text",
        "tie_word_embeddings": False, **qwen35_config(32, 2, end), "moe_intermediate_size": 16,
        "shared_expert_intermediate_size": 24, "num_experts": 4, "num_experts_per_tok": 2}
        | ({"mtp_num_hidden_layers": 1} if mtp else {}))
    shapes = qwen35_shapes("model.", 32, 2, lambda p: experts(p, fused))
    shapes |= {"lm_head.weight": (V, 32)}
    if mtp:  # published folders have its experts one by one
        shapes |= predict(32, gated, lambda p: experts(p, False))
    save_shards(folder, weights(shapes, torch.bfloat16, 9 if mtp else 2), 2)


GLM_ADDED = [("<|endoftext|>", True), ("[MASK]", True), ("[gMASK]", True), ("<sop>", True),
             ("<|system|>", True), ("<|user|>", True), ("<|assistant|>", True),
             ("<|observation|>", True)]


def glm_experts(prefix, d=32, f=16, n=4):
    out = {prefix + "gate.weight": (n, d), prefix + "gate.e_score_correction_bias": (n,)}
    for name in [f"experts.{e}." for e in range(n)] + ["shared_experts."]:
        out |= mlp(prefix + name, d, f)
    return out


def glm_folder(folder, config, attend, seed, untied):
    """A dense layer, one with experts, and a block that predicts further tokens."""
    tok = byte_tokenizer(folder, LLAMA3, GLM_ADDED, False)
    ids = [tok.token_to_id(t) for t in ("<|endoftext|>", "<|user|>", "<|observation|>")]
    write_json(folder, "tokenizer_config.json", {
        "tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "[gMASK]",
        "eos_token": "<|endoftext|>", "unk_token": "<|endoftext|>", "pad_token": "<|endoftext|>",
        "eot_token": "<|user|>", "chat_template": TEMPLATE})
    write_json(folder, "config.json", {
        "vocab_size": V, "hidden_size": 32, "num_hidden_layers": 2, "intermediate_size": 48,
        "num_attention_heads": 4, "hidden_act": "silu", "rms_norm_eps": 1e-5,
        "max_position_embeddings": 131072, "n_routed_experts": 4, "num_experts_per_tok": 2,
        "n_shared_experts": 1, "moe_intermediate_size": 16, "first_k_dense_replace": 1,
        "n_group": 1, "topk_group": 1, "norm_topk_prob": True, "routed_scaling_factor": 1.5,
        "num_nextn_predict_layers": 1, "tie_word_embeddings": False, "eos_token_id": ids, **config})
    shapes = {"model.embed_tokens.weight": (V, 32), "model.norm.weight": (32,),
              "lm_head.weight": (V, 32)}
    for i in range(3):
        p = f"model.layers.{i}."
        shapes |= {p + "input_layernorm.weight": (32,), p + "post_attention_layernorm.weight": (32,)}
        shapes |= attend(p + "self_attn.")
        shapes |= glm_experts(p + "mlp.") if i else mlp(p + "mlp.", 32, 48)
    shapes |= {p + "eh_proj.weight": (32, 64), p + "enorm.weight": (32,), p + "hnorm.weight": (32,),
               p + "shared_head.norm.weight": (32,)}
    if untied:
        shapes |= {p + "embed_tokens.weight": (V, 32), p + "shared_head.head.weight": (V, 32)}
    save_shards(folder, weights(shapes, torch.bfloat16, seed), 1)


def glm4moe(folder):
    def attend(p):
        out = attention(p, 32, 64, 32, 64) | {p + "q_norm.weight": (16,), p + "k_norm.weight": (16,)}
        return out | {p + "q_proj.bias": (64,), p + "k_proj.bias": (32,), p + "v_proj.bias": (32,)}
    glm_folder(folder, {
        "architectures": ["Glm4MoeForCausalLM"], "model_type": "glm4_moe", "head_dim": 16,
        "num_key_value_heads": 2, "attention_bias": True, "use_qk_norm": True,
        "partial_rotary_factor": 0.5, "rope_theta": 1000000}, attend, 10, True)


def glm4lite(folder):
    def attend(p):
        return {p + "q_a_proj.weight": (16, 32), p + "q_a_layernorm.weight": (16,),
                p + "q_b_proj.weight": (4 * 24, 16), p + "kv_a_proj_with_mqa.weight": (24, 32),
                p + "kv_a_layernorm.weight": (16,), p + "kv_b_proj.weight": (4 * 32, 16),
                p + "o_proj.weight": (32, 64)}
    glm_folder(folder, {
        "architectures": ["Glm4MoeLiteForCausalLM"], "model_type": "glm4_moe_lite",
        "num_key_value_heads": 4, "q_lora_rank": 16, "kv_lora_rank": 16, "qk_nope_head_dim": 16,
        "qk_rope_head_dim": 8, "v_head_dim": 16, "rope_theta": 1000000, "scoring_func": "sigmoid",
        "attention_bias": False}, attend, 11, False)


def plain_shapes(d, layers, heads, kv, hd, f, norms):
    out = {"model.embed_tokens.weight": (V, d), "model.norm.weight": (d,)}
    for i in range(layers):
        p = f"model.layers.{i}."
        out |= {p + "input_layernorm.weight": (d,), p + "post_attention_layernorm.weight": (d,)}
        out |= attention(p + "self_attn.", d, heads * hd, kv * hd, heads * hd) | mlp(p + "mlp.", d, f)
        if norms:
            out |= {p + "self_attn.q_norm.weight": (hd,), p + "self_attn.k_norm.weight": (hd,)}
    return out


def qwen3(folder):
    end = qwen_tokenizer(folder, REGEX["qwen2"])
    write_json(folder, "config.json", {
        "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "vocab_size": V,
        "hidden_size": 32, "num_hidden_layers": 2, "intermediate_size": 48, "head_dim": 16,
        "num_attention_heads": 4, "num_key_value_heads": 2, "hidden_act": "silu",
        "rms_norm_eps": 1e-6, "max_position_embeddings": 40960, "rope_theta": 1000000,
        "rope_scaling": {"rope_type": "yarn", "factor": 4.0,
                         "original_max_position_embeddings": 32768},
        "tie_word_embeddings": True, "attention_bias": False, "sliding_window": None,
        "use_sliding_window": False, "bos_token_id": 310, "eos_token_id": end})
    save_shards(folder, weights(plain_shapes(32, 2, 4, 2, 16, 48, True), torch.bfloat16, 3), 1)


def qwen3moe(folder):
    end = qwen_tokenizer(folder, REGEX["qwen2"])
    write_json(folder, "config.json", {
        "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "vocab_size": V,
        "hidden_size": 32, "num_hidden_layers": 2, "intermediate_size": 96, "head_dim": 16,
        "num_attention_heads": 4, "num_key_value_heads": 2, "hidden_act": "silu",
        "rms_norm_eps": 1e-6, "max_position_embeddings": 262144, "rope_theta": 10000000,
        "rope_scaling": None, "num_experts": 4, "num_experts_per_tok": 2, "norm_topk_prob": True,
        "moe_intermediate_size": 16, "decoder_sparse_step": 1, "mlp_only_layers": [],
        "tie_word_embeddings": False, "attention_bias": False, "sliding_window": None,
        "use_sliding_window": False, "bos_token_id": 310, "eos_token_id": end})
    shapes = plain_shapes(32, 2, 4, 2, 16, 48, True) | {"lm_head.weight": (V, 32)}
    shapes = {n: s for n, s in shapes.items() if ".mlp." not in n}
    for i in range(2):
        p = f"model.layers.{i}.mlp."
        shapes |= {n: s for n, s in experts(p, False).items() if "shared" not in n}
    save_shards(folder, weights(shapes, torch.bfloat16, 7), 1)


def llama3(folder):
    added = [("<|begin_of_text|>", True), ("<|end_of_text|>", True), ("<|eot_id|>", True),
             ("<|python_tag|>", False)]
    tok = byte_tokenizer(folder, LLAMA3, added, False, True, "<|begin_of_text|>")
    write_json(folder, "tokenizer_config.json", {
        "tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<|begin_of_text|>",
        "eos_token": "<|eot_id|>", "model_input_names": ["input_ids"]})
    (folder / "chat_template.jinja").write_text("{{ bos_token }}" + TEMPLATE)
    write_json(folder, "config.json", {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": V,
        "hidden_size": 32, "num_hidden_layers": 2, "intermediate_size": 48, "head_dim": 32,
        "num_attention_heads": 4, "num_key_value_heads": 2, "hidden_act": "silu",
        "rms_norm_eps": 1e-5, "max_position_embeddings": 131072, "rope_theta": 500000.0,
        "rope_scaling": {"rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0,
                         "high_freq_factor": 4.0, "original_max_position_embeddings": 8192},
        "tie_word_embeddings": True, "attention_bias": False, "mlp_bias": False,
        "bos_token_id": tok.token_to_id("<|begin_of_text|>"),
        "eos_token_id": [tok.token_to_id("<|end_of_text|>"), tok.token_to_id("<|eot_id|>")]})
    save_shards(folder, weights(plain_shapes(32, 2, 4, 2, 32, 48, False), torch.bfloat16, 4), 2)


def llama2(folder):
    with tempfile.TemporaryDirectory() as tmp:
        sentencepiece.SentencePieceTrainer.Train(
            sentence_iterator=iter(SENTENCES[:8] * 3), model_prefix=tmp + "/m", model_type="bpe",
            vocab_size=V - 6, byte_fallback=True, normalization_rule_name="identity",
            remove_extra_whitespaces=False, add_dummy_prefix=True, split_digits=True, minloglevel=2)
        shutil.copy(tmp + "/m.model", folder / "tokenizer.model")
    write_json(folder, "tokenizer_config.json", {
        "tokenizer_class": "LlamaTokenizer", "add_bos_token": True, "add_eos_token": False,
        "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>",
        "add_prefix_space": True, "chat_template": "{{ bos_token }}[INST] {{ x }} [/INST]",
        "added_tokens_decoder": {
            "0": {"content": "<unk>", "special": True}, "1": {"content": "<s>", "special": True},
            "2": {"content": "</s>", "special": True}, "330": {"content": "▁▁x", "special": False},
            "331": {"content": "<|tool|>", "special": False}}})
    write_json(folder, "added_tokens.json", {"<extra>": 332})
    write_json(folder, "config.json", {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": V,
        "hidden_size": 32, "num_hidden_layers": 2, "intermediate_size": 48,
        "num_attention_heads": 4, "num_key_value_heads": 4, "hidden_act": "silu",
        "rms_norm_eps": 1e-5, "max_position_embeddings": 4096, "tie_word_embeddings": False,
        "rope_theta": 10000.0, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0})
    shapes = plain_shapes(32, 2, 4, 4, 8, 48, False) | {"lm_head.weight": (V, 32)}
    shapes |= {f"model.layers.{i}.self_attn.rotary_emb.inv_freq": (4,) for i in range(2)}
    save_shards(folder, weights(shapes, torch.float16, 5), 1)


def draft(folder):
    write_json(folder, "config.json", {
        "architectures": ["DFlashDraftModel"], "model_type": "qwen3", "vocab_size": V,
        "hidden_size": 32, "num_hidden_layers": 2, "intermediate_size": 48, "head_dim": 16,
        "num_attention_heads": 2, "num_key_value_heads": 1, "rms_norm_eps": 1e-6,
        "max_position_embeddings": 4096, "rope_theta": 10000000, "num_target_layers": 2,
        "layer_types": ["sliding_attention", "full_attention"], "sliding_window": 64,
        "use_sliding_window": True, "is_causal": False, "block_size": 8,
        "dflash_config": {"mask_token_id": 312, "target_layer_ids": [0, 1]}})
    shapes = plain_shapes(32, 2, 2, 1, 16, 48, True)
    shapes = {n.removeprefix("model."): s for n, s in shapes.items() if "embed" not in n}
    shapes |= {"fc.weight": (32, 64), "hidden_norm.weight": (32,)}
    save_shards(folder, weights(shapes, torch.bfloat16, 6), 1)


def draft2(folder):
    """DFlash2: convolutions around the sublayers of a layer, and a selector."""
    d, kernel, group, rank = 32, 2, 16, 8
    write_json(folder, "config.json", {
        "architectures": ["DFlash2DraftModel"], "model_type": "qwen3", "vocab_size": V,
        "hidden_size": d, "num_hidden_layers": 2, "intermediate_size": 48, "head_dim": 16,
        "num_attention_heads": 2, "num_key_value_heads": 1, "rms_norm_eps": 1e-6,
        "max_position_embeddings": 4096, "rope_theta": 10000000, "num_target_layers": 2,
        "layer_types": ["sliding_attention"] * 2, "sliding_window": 64, "hidden_act": "silu",
        "use_sliding_window": True, "is_causal": False,
        "dflash_config": {"block_size": 8, "mask_token_id": 312, "target_layer_ids": [0, 1],
                          "conv_kernel_size": kernel, "conv_group_size": group,
                          "selector_rank": rank, "selector_top_k": 4}})
    shapes = plain_shapes(d, 2, 2, 1, 16, 48, True)
    shapes = {n.removeprefix("model."): s for n, s in shapes.items() if "embed" not in n}
    shapes |= {"fc.weight": (d, 64), "hidden_norm.weight": (d,)}
    for i in range(2):
        for conv in ("attention_conv", "mlp_conv"):
            p = f"layers.{i}.{conv}."
            shapes |= {p + "base_kernel": (2, kernel, d),
                       p + "kernel_projection.weight": (2 * kernel * d // group, d)}
    p = "candidate_selector."
    shapes |= {p + "hidden_projection.weight": (rank, d), p + "predecessor_codebook": (V, rank),
               p + "successor_codebook": (V, rank)}
    save_shards(folder, weights(shapes, torch.bfloat16, 12), 1)


CASES = {  # folder: maker, pre-tokenizer, types; -mtp: of the prediction block alone
    "qwen35": (qwen35, "qwen35", ("f16", "q8_0")),
    "qwen35moe": (qwen35moe, "qwen35", ("bf16",)),
    "qwen35moe-parts": (lambda f: qwen35moe(f, False), "qwen35", ("f16",)),
    "qwen35-mtp": (lambda f: qwen35(f, True), "qwen35", ("f16", "f16-mtp")),
    "qwen35moe-mtp": (lambda f: qwen35moe(f, mtp=True), "qwen35", ("bf16",)),
    "glm4moe": (glm4moe, "smaug-bpe", ("f16",)),
    "glm4lite": (glm4lite, "smaug-bpe", ("bf16", "bf16-mtp")),
    "qwen3": (qwen3, "qwen2", ("bf16",)),
    "qwen3moe": (qwen3moe, "qwen2", ("bf16",)),
    "llama3": (llama3, "llama-bpe", ("f16",)),
    "llama2": (llama2, None, ("f32",)),
    "draft": (draft, "qwen35", ("f16",)),
    "draft2": (draft2, "qwen35", ("f16",)),
}


PACK = {"INT32": "<i", "UINT32": "<I", "FLOAT32": "<f", "BOOL": "<?"}


def array_hash(kind, values):
    """XXH64 of an array as a GGUF file holds it."""
    h = xxhash.xxh64()
    for v in values:
        raw = v.encode() if kind == "STRING" else struct.pack(PACK[kind], v)
        h.update((struct.pack("<Q", len(raw)) if kind == "STRING" else b"") + raw)
    return h.hexdigest()


def listing(path):
    """Keys: [type, value], of arrays [type[], count, hash]. Tensors: [type, shape, hash], but the
    values of ssm_a, since exponential functions differ in the last bit."""
    reader = gguf.GGUFReader(path)
    keys = {}
    for name, field in reader.fields.items():
        if name.startswith("GGUF."):
            continue
        kind, value = field.types[-1].name, field.contents()
        keys[name] = [kind, value]
        if isinstance(value, list):
            keys[name] = [kind + "[]", len(value), array_hash(kind, value)]
    tensors = {t.name: [t.tensor_type.name, [int(n) for n in t.shape],
                        t.data.tolist() if t.name.endswith("ssm_a")
                        else xxhash.xxh64(t.data.tobytes()).hexdigest()] for t in reader.tensors}
    return {"keys": keys, "tensors": tensors}


def predicts(folder):
    config = json.loads((folder / "config.json").read_text())
    config = config.get("text_config", config)
    return "mtp_num_hidden_layers" in config or "num_nextn_predict_layers" in config


def convert(folder, pre, kind, target):
    """Runs the established converter on a folder; returns the listing of its file."""
    base.ModelBase.get_vocab_base_pre = base.TextModel.get_vocab_base_pre = lambda self, tok: pre
    types = {"f32": "ALL_F32", "f16": "MOSTLY_F16", "bf16": "MOSTLY_BF16", "q8_0": "MOSTLY_Q8_0"}
    with tempfile.TemporaryDirectory() as tmp:
        out = pathlib.Path(tmp) / "out.gguf"
        hparams = base.ModelBase.load_hparams(folder, False)
        cls = conversion.get_model_class(base.get_model_architecture(hparams, ModelType.TEXT))
        cls.no_mtp, cls.mtp_only = not predicts(folder), kind.endswith("-mtp")
        file_type = gguf.LlamaFileType[types[kind.removesuffix("-mtp")]]
        model = cls(folder, file_type, out, target_model_dir=target)
        model.write()
        return listing(out)


def main():
    here = pathlib.Path(__file__).resolve().parent
    out = pathlib.Path(sys.argv[2]) if len(sys.argv) > 2 else here / "../../tests/fixtures/convert"
    shutil.rmtree(out, ignore_errors=True)
    for name, (make, pre, kinds) in CASES.items():
        folder = out / name
        folder.mkdir(parents=True)
        make(folder)
        target = out / "qwen35" if name.startswith("draft") else None
        for kind in kinds:
            write_json(out, f"{name}.{kind}.json", convert(folder, pre, kind, target))


if __name__ == "__main__":
    main()
