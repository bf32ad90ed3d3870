# SPDX-License-Identifier: Apache-2.0
"""Writes a checkpoint of the scorer as a HuggingFace folder that `coppice convert` reads.

usage: scorer_export.py CHECKPOINT.pt TARGET.gguf OUT_DIR

The layout is that of Qwen3ForCausalLM with tied embeddings; the tokenizer is that of TARGET.gguf. What of
the last layer is never run (values, output, feed-forward) is zero: as a language model the file
says nothing.
"""

import json
import pathlib
import sys

from safetensors.torch import save_file

import scorer_data
import scorer_model

IDLE = ("v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


def write(model, tok, out):
    """The folder of a scorer_model.Scorer with this tokenizer."""
    out = pathlib.Path(out)
    out.mkdir(parents=True, exist_ok=True)
    c, tensors = model.c, {}
    for name, p in model.named_parameters():
        for mlp in IDLE[2:]:
            name = name.replace(f".{mlp}.", f".mlp.{mlp}.")
        if f"layers.{c.layers - 1}." in name and any(w in name for w in IDLE):
            p = p * 0
        tensors["model." + name] = p.detach().float().contiguous().clone()
    save_file(tensors, str(out / "model.safetensors"), metadata={"format": "pt"})
    config = {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "dtype": "float32",
        "vocab_size": c.vocab,
        "hidden_size": c.dim,
        "num_hidden_layers": c.layers,
        "intermediate_size": c.ffn,
        "num_attention_heads": c.heads,
        "num_key_value_heads": c.kv_heads,
        "head_dim": c.head_dim,
        "hidden_act": "silu",
        "rms_norm_eps": c.eps,
        "rope_theta": c.theta,
        "max_position_embeddings": c.context,
        "tie_word_embeddings": True,
        "attention_bias": False,
        "eos_token_id": tok.token_to_id("<|im_end|>"),
        "pad_token_id": tok.token_to_id("<|endoftext|>"),
    }
    (out / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    tok.save(str(out / "tokenizer.json"))
    told = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "add_bos_token": False,
        "bos_token": None,
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
    }
    (out / "tokenizer_config.json").write_text(json.dumps(told, indent=1) + "\n")


def main():
    checkpoint, target, out = sys.argv[1:4]
    write(scorer_model.load(checkpoint)[0], scorer_data.read_tokenizer(target)[0], out)


if __name__ == "__main__":
    main()
