# SPDX-License-Identifier: Apache-2.0
"""Writes tests/fixtures/convert/gemma4/: a tiny Gemma 4 folder as its authors publish them.

The vocabulary is trained by `sentencepiece`, its merges and the folder's files are those that
transformers make of it (the class of the published tokenizer). Beside them: `expected.json`, the
tokenizer's keys by the `gguf` package's readers of such folders, as the established converter
writes them; `ids.jsonl`, texts with the ids of `tokenizers`, one object a line.

Usage: python gemma_fixtures.py [OUTPUT_DIR]
"""
import json
import pathlib
import shutil
import sys
import tempfile

import gguf
import numpy as np
import sentencepiece
from safetensors.numpy import save_file
from transformers import GemmaTokenizer
from transformers.tokenization_utils_sentencepiece import SentencePieceExtractor

from tokenizer_text import SENTENCES, hostile_texts

NAMED = {"boi_token": "<|image>", "eoi_token": "<image|>", "image_token": "<|image|>",
         "sot_token": "<|turn>", "eot_token": "<turn|>", "soc_token": "<|channel>",
         "eoc_token": "<channel|>", "think_token": "<|think|>", "escape_token": '<|"|>',
         "str_token": "<|tool_response>", "etr_token": "<tool_response|>",
         "stc_token": "<|tool_call>", "etc_token": "<tool_call|>", "std_token": "<|tool>",
         "etd_token": "<tool|>"}
VISIBLE = {NAMED[n] for n in ("soc_token", "eoc_token", "stc_token", "etc_token", "str_token",
                              "etr_token", "escape_token")}
TEMPLATE = """{{ bos_token }}{% for m in messages -%}
<|turn>{{ 'model' if m.role == 'assistant' else m.role }}
{{ m.content | trim }}<turn|>
{% endfor -%}
{% if add_generation_prompt %}<|turn>model
{% endif %}"""
PIECES = 760
D, HEADS, WINDOWED, FULL, FFN, LAYERS = 32, 2, 32, 64, 32, 2


def train(path):
    """A vocabulary like Gemma's: pairs, digits alone, runs of blanks and of line ends."""
    lines = [part for t in (SENTENCES[:13] + SENTENCES[30:]) * 3 for part in t.split("\n") if part.strip()]
    named = [v for v in NAMED.values()]
    sentencepiece.SentencePieceTrainer.Train(
        sentence_iterator=iter(lines), model_prefix=str(path), model_type="bpe",
        vocab_size=PIECES, byte_fallback=True, normalization_rule_name="identity",
        remove_extra_whitespaces=False, add_dummy_prefix=False, split_digits=True,
        allow_whitespace_only_pieces=True, character_coverage=0.98, minloglevel=2,
        pad_id=0, eos_id=1, bos_id=2, unk_id=3, pad_piece="<pad>", eos_piece="<eos>",
        bos_piece="<bos>", unk_piece="<unk>",
        user_defined_symbols=["<mask>", "<unused0>"] + named + ["\n" * k for k in range(1, 7)]
        + ["▁" * k for k in range(2, 5)] + ["<b>", "</b>"])


def tokenizer(folder):
    with tempfile.TemporaryDirectory() as tmp:
        train(pathlib.Path(tmp) / "m")
        vocab, _, merges = SentencePieceExtractor(tmp + "/m.model").extract()
    tok = GemmaTokenizer(vocab=vocab, merges=merges, add_bos_token=True, padding_side="left",
                         extra_special_tokens=NAMED)
    tok.chat_template = TEMPLATE
    tok.save_pretrained(folder)
    return tok, len(vocab)


def weights(vocab):
    r = np.random.default_rng(5)
    shapes = {"embed_tokens.weight": (vocab, D), "norm.weight": (D,)}
    for i in range(LAYERS):
        hd, p = (WINDOWED, FULL)[i % 2], f"layers.{i}."
        shapes |= {p + f"self_attn.{n}_proj.weight": (HEADS * hd if n == "q" else hd, D)
                   for n in ("q", "k") + (("v",) if i % 2 == 0 else ())}
        shapes |= {p + "self_attn.o_proj.weight": (D, HEADS * hd), p + "layer_scalar": (1,),
                   p + "self_attn.q_norm.weight": (hd,), p + "self_attn.k_norm.weight": (hd,),
                   p + "mlp.gate_proj.weight": (FFN, D), p + "mlp.up_proj.weight": (FFN, D),
                   p + "mlp.down_proj.weight": (D, FFN)}
        shapes |= {p + n + ".weight": (D,) for n in (
            "input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm",
            "post_feedforward_layernorm")}
    out = {"model.language_model." + n: (r.standard_normal(s) * 0.3).astype(np.float16)
           for n, s in shapes.items()}
    return out | {"model.vision_tower.patch.weight": np.zeros((2, 2), np.float16)}


def config(tok, vocab):
    full = {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1e6}
    return {"architectures": ["Gemma4ForConditionalGeneration"], "model_type": "gemma4",
            "eos_token_id": [tok.eos_token_id, tok.convert_tokens_to_ids("<turn|>")],
            "vision_config": {"model_type": "gemma4_vision"}, "tie_word_embeddings": True,
            "text_config": {
                "model_type": "gemma4_text", "vocab_size": vocab, "hidden_size": D,
                "num_hidden_layers": LAYERS, "intermediate_size": FFN, "num_attention_heads": HEADS,
                "num_key_value_heads": 1, "num_global_key_value_heads": 1, "head_dim": WINDOWED,
                "global_head_dim": FULL, "hidden_activation": "gelu_pytorch_tanh",
                "rms_norm_eps": 1e-6, "max_position_embeddings": 1024, "sliding_window": 64,
                "layer_types": ["sliding_attention", "full_attention"], "attention_k_eq_v": True,
                "attention_bias": False, "final_logit_softcapping": 30.0,
                "hidden_size_per_layer_input": 0, "num_kv_shared_layers": 0,
                "enable_moe_block": False, "num_experts": None, "use_double_wide_mlp": False,
                "bos_token_id": tok.bos_token_id, "eos_token_id": tok.eos_token_id,
                "pad_token_id": tok.pad_token_id, "tie_word_embeddings": True,
                "rope_parameters": {"full_attention": full, "sliding_attention": {
                    "rope_type": "default", "rope_theta": 10000.0}}}}


def expected(folder):
    """The keys as conversion/gemma.py of ggml-org/llama.cpp writes them."""
    vocab = gguf.LlamaHfVocab(folder)
    rows = list(vocab.all_tokens())
    kinds = [gguf.TokenType.USER_DEFINED if t.decode() in VISIBLE else k for t, _, k in rows]
    special = gguf.SpecialVocab(folder, load_merges=True)
    return {"tokens": [t.decode() for t, _, _ in rows], "scores": [s for _, s, _ in rows],
            "token_type": [int(k) for k in kinds], "merges": special.merges,
            "ids": special.special_token_ids}


def chat(tok):
    """A conversation as transformers render and encode it."""
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": " What?\n"},
                {"role": "assistant", "content": "Nothing <b>."}, {"role": "user", "content": "So"}]
    text = tok.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    return {"messages": messages, "text": text, "ids": encode(tok, text, True)}


def encode(tok, text, special):
    backend = tok.backend_tokenizer
    backend.encode_special_tokens = not special
    return backend.encode(text, add_special_tokens=False).ids


def main():
    here = pathlib.Path(__file__).resolve().parent
    folder = (pathlib.Path(sys.argv[1]) if len(sys.argv) > 1
              else here / "../../tests/fixtures/convert/gemma4")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    tok, vocab = tokenizer(folder)
    save_file(weights(vocab), folder / "model.safetensors")
    (folder / "model.safetensors").chmod(0o644)
    (folder / "config.json").write_text(json.dumps(config(tok, vocab)))
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [
        tok.eos_token_id, tok.convert_tokens_to_ids("<turn|>"),
        tok.convert_tokens_to_ids("<|tool_response>")]}))
    (folder / "expected.json").write_text(json.dumps(
        expected(folder) | {"chat": chat(tok)}, separators=(",", ":")))
    texts = SENTENCES + [t for i, t in enumerate(hostile_texts()) if len(t) <= 60 and i % 5 == 0]
    texts += ["\n" * k for k in range(1, 20)] + [" " * k + "x" for k in range(1, 9)]
    texts += ["a<|turn>b<turn|>\n", "<unused0><b>x</b>", '<|"|>k<|"|>', " <bos> \n <eos>"]
    with open(folder / "ids.jsonl", "w", encoding="ascii") as f:
        for text in texts:
            f.write(json.dumps({"text": text, "ids": encode(tok, text, True)},
                               separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
