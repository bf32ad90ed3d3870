# SPDX-License-Identifier: Apache-2.0
"""Writes tests/fixtures/real/: what the two published files of scripts/real.sh must answer.

NAME-ids.jsonl: texts with their ids, control tokens in the text recognised, by sentencepiece or
tokenizers, to which the file's vocabulary is given. NAME-rows.jsonl: a prompt, the greedy
continuation, and at each of its positions the ten likeliest tokens with natural log-probabilities,
by transformers in float32 on the CPU with the weights as `gguf` decodes them. NAME-chats.jsonl:
conversations as jinja2 renders the file's chat template. NAME-text.jsonl: the ids that a text which does not change
begins with, and of what is behind them.

Usage: python real_fixtures.py FOLDER_OF_THE_FILES [OUTPUT_DIR]
"""
import json
import os
import re
import sys

import gguf
import jinja2.sandbox
import numpy as np
import sentencepiece
import torch
import transformers
from sentencepiece import sentencepiece_model_pb2
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from tokenizer_text import hostile_texts

HERE = os.path.dirname(os.path.abspath(__file__))
TEXTS, NEW, TOP = 300, 32, 10
WINDOW, BEHIND = 512, 4000  # tokens; characters
CONTROL, USER = 3, 4
MARKED = [
    "<start_of_turn>user\nhi<end_of_turn>\n<start_of_turn>model\n", "a<bos>b<eos>c",
    "<unused7> <unused99>", "<b>bold</b> <s>struck</s>\n", "\n" * 40, " " * 70 + "x",
    " " * 31 + "\n", " " * 33, "\t" * 35 + "end", "\n\n \n", "<start_of_image>",
    "  <end_of_turn>  ", "[multimodal] <mask> <unk> <pad>",
    "<table><tr><td> 1 </td></tr></table>", "</s", "<0x41>", "x  y   z    ", "\r\n\r\n",
    "\u200b\ufeff", "\U0001d49c\U0001d4c1\U0001d4c1 \U00010348 \U0001f9ff\U0010fffd", "e\u0301 é",
    "\x01\x7f", "<|im_start|>user\nhi<|im_end|>\n", "<|endoftext|><repo_name>a<file_sep>b",
    "1234567890 3.14 ½", "<|im_start", "you're I'LL we'd",
]
PROMPTS = [
    "The capital of France is", "def fibonacci(n):\n    ",
    "Once upon a time there was a small dog who", "Die Hauptstadt von Deutschland ist",
    "1, 2, 3, 4, 5, 6,", "<h1>Recipe</h1>\n<ul>\n<li>", "Q: What is the boiling point of water?\nA:",
    "import numpy as np\n\ndef softmax(x):\n", "La recette de la tarte aux pommes :",
    "水は", "To be, or not to be, that is the question:",
]
# Longer than the windows of a file that has some.
LONG = "".join(f"{i}. The number {i} comes after {i - 1} and before {i + 1}.\n" for i in range(1, 48))
CHATS = [
    [{"role": "user", "content": "Hello"}],
    [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Why?"}],
    [{"role": "user", "content": " two\nlines "}, {"role": "assistant", "content": "Yes."},
     {"role": "user", "content": "{{ not a template }} <|im_end|>"}],
]


def fields(path):
    return gguf.GGUFReader(path).fields


def vocabulary(path):
    f = fields(path)
    return [f["tokenizer.ggml." + k].contents() for k in ("tokens", "token_type")]


def pieces(path):
    """What encodes text without control tokens: the file's scores in sentencepiece."""
    tokens, types = vocabulary(path)
    scores = fields(path)["tokenizer.ggml.scores"].contents()
    m = sentencepiece_model_pb2.ModelProto()
    for text, score, kind in zip(tokens, scores, types):
        p = m.pieces.add()
        p.piece = text.replace(" ", "\u2581") if kind == USER else text
        p.score, p.type = score, 2 if text == "<unk>" else kind
    t, n = m.trainer_spec, m.normalizer_spec
    t.model_type, t.byte_fallback = 2, True
    t.pad_id, t.eos_id, t.bos_id, t.unk_id = (tokens.index(s) for s in
                                              ("<pad>", "<eos>", "<bos>", "<unk>"))
    t.pad_piece, t.eos_piece, t.bos_piece, t.unk_piece = "<pad>", "<eos>", "<bos>", "<unk>"
    n.name, n.escape_whitespaces = "identity", True
    n.add_dummy_prefix = n.remove_extra_whitespaces = False
    p = sentencepiece.SentencePieceProcessor(model_proto=m.SerializeToString())
    control = {s: i for i, (s, k) in enumerate(zip(tokens, types)) if k == CONTROL}
    cut = re.compile("(" + "|".join(map(re.escape, sorted(control, key=len, reverse=True))) + ")")

    def encode(text):
        parts = cut.split(text)
        return [i for k, s in enumerate(parts) for i in ([control[s]] if k % 2 else p.encode(s))]
    return encode


def pairs(path):
    tokens, types = vocabulary(path)
    merges = [tuple(m.split(" ")) for m in fields(path)["tokenizer.ggml.merges"].contents()]
    t = Tokenizer(models.BPE({s: i for i, s in enumerate(tokens)}, merges))
    t.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Digits(individual_digits=True),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)])
    t.decoder = decoders.ByteLevel()
    t.add_special_tokens([AddedToken(s, normalized=False) for s, k in zip(tokens, types)
                          if k in (CONTROL, USER)])

    def encode(text):
        ids = t.encode(text, add_special_tokens=False).ids
        # Bytes without a token are dropped there, which says nothing.
        return ids if t.decode(ids, skip_special_tokens=False) == text else None
    return encode


LAYER = {"attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
         "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
         "attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm",
         "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}
NORMS = {"gemma3": {"post_attention_norm": "post_attention_layernorm",
                    "ffn_norm": "pre_feedforward_layernorm",
                    "post_ffw_norm": "post_feedforward_layernorm"},
         "llama": {"ffn_norm": "post_attention_layernorm"}}
ENDS = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight",
        "output.weight": "lm_head.weight"}


def hf_name(arch, name):
    if name in ENDS:
        return ENDS[name]
    _, i, rest = name.split(".", 2)
    return f"model.layers.{i}.{(LAYER | NORMS[arch])[rest.removesuffix('.weight')]}.weight"


def config(arch, f, vocab):
    def get(key, otherwise=None):
        return f[f"{arch}.{key}"].contents() if f"{arch}.{key}" in f else otherwise
    heads = get("attention.head_count")
    common = {
        "vocab_size": vocab, "hidden_size": get("embedding_length"),
        "intermediate_size": get("feed_forward_length"), "num_hidden_layers": get("block_count"),
        "num_attention_heads": heads, "num_key_value_heads": get("attention.head_count_kv", heads),
        "head_dim": get("attention.key_length", get("embedding_length") // heads),
        "max_position_embeddings": get("context_length"),
        "rms_norm_eps": get("attention.layer_norm_rms_epsilon"), "tie_word_embeddings": True,
        "attn_implementation": "eager"}
    base = {"rope_type": "default", "rope_theta": get("rope.freq_base")}
    if arch == "llama":
        return transformers.LlamaConfig(**common, rope_parameters=base)
    return transformers.Gemma3TextConfig(
        **common, query_pre_attn_scalar=common["head_dim"],
        sliding_window=get("attention.sliding_window"),
        rope_parameters={"full_attention": base,
                         "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}})


def value(arch, t, heads):
    v = gguf.dequantize(t.data, t.tensor_type).astype(np.float32)
    v = v.reshape([int(n) for n in reversed(t.shape)])
    if arch == "gemma3" and "norm" in t.name:
        return v - 1  # transformers add it
    for part, n in heads.items():
        if arch == "llama" and t.name.endswith(part + ".weight"):  # neighbours to halves
            return v.reshape(n, -1, 2, v.shape[-1]).swapaxes(1, 2).reshape(v.shape)
    return v


def load(path):
    r = gguf.GGUFReader(path)
    arch = r.fields["general.architecture"].contents()
    c = config(arch, r.fields, len(r.fields["tokenizer.ggml.tokens"].contents()))
    kind = transformers.LlamaForCausalLM if arch == "llama" else transformers.Gemma3ForCausalLM
    model = kind(c).float().eval()
    heads = {"attn_q": c.num_attention_heads, "attn_k": c.num_key_value_heads}
    state = {hf_name(arch, t.name): torch.from_numpy(np.ascontiguousarray(value(arch, t, heads)))
             for t in r.tensors}
    missing, unexpected = model.load_state_dict(state, strict=False)
    assert set(missing) <= {"lm_head.weight"} and not unexpected, (missing, unexpected)
    return model


@torch.no_grad()
def greedy(model, ids):
    """Ids that follow, and the likeliest tokens at each of their positions."""
    cache, out, rows, now = None, [], [], ids
    for _ in range(NEW):
        r = model(torch.tensor([now]), past_key_values=cache, use_cache=True)
        cache, p = r.past_key_values, r.logits[0, -1].double().log_softmax(-1)
        best = p.topk(TOP)
        rows.append([[int(i), round(float(v), 4)] for v, i in zip(best.values, best.indices)])
        out.append(rows[-1][0][0])
        now = out[-1:]
    return out, rows


def write(folder, name, rows):
    with open(os.path.join(folder, name), "w", encoding="ascii") as f:
        for row in rows:
            f.write(json.dumps(row, separators=(",", ":")) + "\n")


def chats(path):
    f = fields(path)
    if "tokenizer.chat_template" not in f:
        return []
    tokens = f["tokenizer.ggml.tokens"].contents()
    env = jinja2.sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    t = env.from_string(f["tokenizer.chat_template"].contents())
    special = {k + "_token": tokens[f[f"tokenizer.ggml.{k}_token_id"].contents()]
               for k in ("bos", "eos")}
    return [{"messages": m, "text": t.render(messages=m, add_generation_prompt=True, **special)}
            for m in CHATS]


def pieces_of_text(bos, encode):
    """The first window of a text, and what is behind it."""
    with open(os.path.join(HERE, "../../LICENSE"), encoding="ascii") as f:
        text = f.read()
    return [{"file": "LICENSE", "ids": (bos + encode(text))[:WINDOW]},
            {"file": "LICENSE", "from": BEHIND, "ids": bos + encode(text[BEHIND:])}]


def main():
    out = sys.argv[2] if len(sys.argv) > 2 else os.path.join(HERE, "../../tests/fixtures/real")
    os.makedirs(out, exist_ok=True)
    torch.set_num_threads(1)
    hostile = hostile_texts()
    texts = list(dict.fromkeys(MARKED + hostile))[:len(MARKED)]
    rest = [t for t in hostile if t not in texts]
    step = len(rest) // (TEXTS - len(texts))
    texts += rest[::step] + rest[1::step]  # some more than are taken
    for name, file, of in (("smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf", pairs),
                           ("gemma3", "gemma-3-270m-q4_k_m.gguf", pieces)):
        path = os.path.join(sys.argv[1], file)
        encode = of(path)
        known = [{"text": t, "ids": i} for t in texts if (i := encode(t)) is not None][:TEXTS]
        assert len(known) == TEXTS
        write(out, name + "-ids.jsonl", known)
        model = load(path)
        bos = [2] if name == "gemma3" else []
        rows = []
        for p in PROMPTS + [LONG]:
            ids = bos + encode(p)
            following, top = greedy(model, ids)
            rows.append({"ids": ids, "next": following, "top": top})
        write(out, name + "-rows.jsonl", rows)
        write(out, name + "-chats.jsonl", chats(path))
        write(out, name + "-text.jsonl", pieces_of_text(bos, encode))


if __name__ == "__main__":
    main()
