#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the seed inputs of the fuzz targets into tests/fuzz/corpus. The files are committed; run
this again after changing it. Everything is made here, nothing comes from other files."""
import json
import struct
from pathlib import Path

CORPUS = Path(__file__).resolve().parent / "corpus"
U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)
FORMAT = {U8: "<B", I8: "<b", U16: "<H", I16: "<h", U32: "<I", I32: "<i", F32: "<f", BOOL: "<?",
          U64: "<Q", I64: "<q", F64: "<d"}


def save(folder, name, data):
    (CORPUS / folder).mkdir(parents=True, exist_ok=True)
    (CORPUS / folder / name).write_bytes(data if isinstance(data, bytes) else data.encode())


def text(s):
    b = s.encode()
    return struct.pack("<Q", len(b)) + b


def value(kind, v):
    return text(v) if kind == STRING else struct.pack(FORMAT[kind], v)


def entry(key, kind, v, element=None):
    head = text(key) + struct.pack("<I", kind)
    if kind != ARRAY:
        return head + value(kind, v)
    return head + struct.pack("<IQ", element, len(v)) + b"".join(value(element, x) for x in v)


def gguf(entries, tensors=(), version=3, alignment=32):
    """tensors: (name, type, dims, bytes)."""
    out = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(entries)) + b"".join(entries)
    offset, data = 0, b""
    for name, kind, dims, payload in tensors:
        out += text(name) + struct.pack("<I", len(dims)) + struct.pack(f"<{len(dims)}Q", *dims)
        out += struct.pack("<IQ", kind, offset)
        data += payload + bytes(-len(payload) % alignment)
        offset = len(data)
    return out + bytes(-len(out) % alignment) + data


def every_kind():
    numbers = [(U8, 200), (I8, -3), (U16, 60000), (I16, -300), (U32, 1 << 31), (I32, -5), (F32, 0.5),
               (BOOL, True), (U64, 1 << 40), (I64, -(1 << 40)), (F64, 1e300)]
    out = [entry(f"test.k{k}", k, v) for k, v in numbers]
    out += [entry(f"test.a{k}", ARRAY, [v, v], k) for k, v in numbers]
    return out + [entry("general.architecture", STRING, "qwen35"),
                  entry("test.words", ARRAY, ["", "a", "grow \u00e9"], STRING)]


def byte_letters():
    """The printable stand-ins that byte-level BPE uses for the 256 bytes."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [b for b in range(256) if b not in plain]
    return {**{b: chr(b) for b in plain}, **{b: chr(256 + i) for i, b in enumerate(rest)}}


def vocabulary(pre="qwen2", extra=()):
    letters = byte_letters()
    tokens = [letters[b] for b in range(256)]
    pairs = [("t", "h"), ("th", "e"), (letters[32], "the"), ("e", "r"), ("i", "n"), ("in", "g"),
             (letters[32], "a"), ("1", "2"), (letters[10], letters[10]), (letters[0xE4], letters[0xBD])]
    merges = [f"{a} {b}" for a, b in pairs]
    tokens += [a + b for a, b in pairs]
    tokens += ["<|end|>", "<|start|>", "<tool>"]
    types = [1] * (256 + len(pairs)) + [3, 3, 4]
    return [entry("general.architecture", STRING, "qwen35"),
            entry("tokenizer.ggml.model", STRING, "gpt2"),
            entry("tokenizer.ggml.pre", STRING, pre),
            entry("tokenizer.ggml.tokens", ARRAY, tokens, STRING),
            entry("tokenizer.ggml.token_type", ARRAY, types, I32),
            entry("tokenizer.ggml.merges", ARRAY, merges, STRING),
            entry("tokenizer.ggml.eos_token_id", U32, len(tokens) - 3), *extra]


def chat_vocabulary():
    letters = byte_letters()
    tokens = [letters[b] for b in range(256)] + ["<|im_start|>", "<|im_end|>", "<think>", "us", "use", "user"]
    return [entry("general.architecture", STRING, "qwen35"), entry("tokenizer.ggml.model", STRING, "gpt2"),
            entry("tokenizer.ggml.pre", STRING, "qwen2"),
            entry("tokenizer.ggml.tokens", ARRAY, tokens, STRING),
            entry("tokenizer.ggml.token_type", ARRAY, [1] * 256 + [3, 3, 4, 1, 1, 1], I32),
            entry("tokenizer.ggml.merges", ARRAY, ["u s", "us e", "use r"], STRING),
            entry("tokenizer.ggml.eos_token_id", U32, 257)]


def escaped(model):
    """Texts with U+2581 for a blank: with scores ("llama") or merges ("gemma4")."""
    words = ["\u2581", "t", "h", "e", "th", "the", "\u2581the", "\u2581\u2581", "a", "\u00e9", "12",
             "\n\n", "\n", "\u2581t", "he"]
    tokens = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)] + words + ["<tool>"]
    types = [2, 3, 3] + [6] * 256 + [1] * len(words) + [4]
    out = [entry("general.architecture", STRING, "llama"),
           entry("tokenizer.ggml.model", STRING, model),
           entry("tokenizer.ggml.tokens", ARRAY, tokens, STRING),
           entry("tokenizer.ggml.token_type", ARRAY, types, I32)]
    if model == "llama":
        return out + [entry("tokenizer.ggml.scores", ARRAY, [-float(i) for i in range(len(tokens))], F32)]
    return out + [entry("tokenizer.ggml.merges", ARRAY, ["t h", "th e", "\u2581 the", "\u2581 \u2581",
                                                        "h e", "\u2581 t"], STRING)]


def tensors():
    return [("token_embd.weight", 0, (8, 3), struct.pack("<24f", *range(24))),
            ("blk.0.attn_q.weight", 8, (32, 2), bytes(range(68))),
            ("blk.0.ffn_up.weight", 12, (256, 1), bytes(range(144))),
            ("blk.0.ssm_conv1d.weight", 1, (4, 2, 1, 2), bytes(32))]


def safetensors(header, data=b""):
    h = json.dumps(header).encode()
    h += b" " * (-len(h) % 8)
    return struct.pack("<Q", len(h)) + h + data


def parts(*files):
    """Several files in one input: "==" LETTER ":" and the bytes of each."""
    return b"".join(f"=={letter}:".encode() + (data if isinstance(data, bytes) else data.encode())
                    for letter, data in files)


def shard(shapes, dtype="F16"):
    """A safetensors file of small numbers."""
    header, data = {}, b""
    for name, shape in shapes.items():
        count = 1
        for n in shape:
            count *= n
        values = [((7 * i + len(name)) % 17 - 8) / 16 for i in range(count)]
        piece = struct.pack(f"<{count}{'e' if dtype == 'F16' else 'f'}", *values)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(piece)]}
        data += piece
    return safetensors(header, data)


D, V, F, HD, HEADS = 8, 6, 8, 4, 2
MLP = {"mlp.gate_proj.weight": [F, D], "mlp.up_proj.weight": [F, D], "mlp.down_proj.weight": [D, F]}
NORMS = {"input_layernorm.weight": [D], "post_attention_layernorm.weight": [D]}
ATTENTION = {"self_attn.q_proj.weight": [HEADS * HD, D], "self_attn.k_proj.weight": [HD, D],
             "self_attn.v_proj.weight": [HD, D], "self_attn.o_proj.weight": [D, HEADS * HD]}
HEAD_NORMS = {"self_attn.q_norm.weight": [HD], "self_attn.k_norm.weight": [HD]}
LINEAR = {"linear_attn.in_proj_qkv.weight": [16, D], "linear_attn.in_proj_z.weight": [8, D],
          "linear_attn.in_proj_a.weight": [2, D], "linear_attn.in_proj_b.weight": [2, D],
          "linear_attn.A_log": [2], "linear_attn.dt_bias": [2], "linear_attn.conv1d.weight": [16, 1, 4],
          "linear_attn.norm.weight": [4], "linear_attn.out_proj.weight": [D, 8]}
MOE = {"mlp.gate.weight": [2, D], "mlp.experts.gate_up_proj": [2, 2 * F, D],
       "mlp.experts.down_proj": [2, D, F], "mlp.shared_expert.gate_proj.weight": [F, D],
       "mlp.shared_expert.up_proj.weight": [F, D], "mlp.shared_expert.down_proj.weight": [D, F],
       "mlp.shared_expert_gate.weight": [1, D]}


def layers(*kinds):
    return {f"layers.{i}.{name}": shape for i, kind in enumerate(kinds) for name, shape in kind.items()}


def prefixed(tensors_, prefix="model."):
    return {prefix + name: shape for name, shape in tensors_.items()}


def config(architecture, kind, count, **more):
    return json.dumps({"architectures": [architecture], "model_type": kind, "vocab_size": V, "hidden_size": D,
                       "num_hidden_layers": count, "intermediate_size": F, "num_attention_heads": HEADS,
                       "num_key_value_heads": 1, "head_dim": HD, "rms_norm_eps": 1e-06,
                       "max_position_embeddings": 64, "rope_theta": 10000.0, "hidden_act": "silu",
                       "tie_word_embeddings": True, "eos_token_id": 4, **more}, separators=(",", ":"))


def qwen35_config(kind, **more):
    return config("Qwen3_5ForCausalLM", kind, 2, layer_types=["linear_attention", "full_attention"],
                  linear_num_key_heads=1, linear_num_value_heads=2, linear_key_head_dim=4,
                  linear_value_head_dim=4, linear_conv_kernel_dim=4,
                  rope_parameters={"rope_type": "default", "rope_theta": 1e7, "partial_rotary_factor": 0.5,
                                   "mrope_section": [1, 0, 0]}, **more)


QWEN2 = ("(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|"
         "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+")


def tokenizer_json(expression=QWEN2, **more):
    steps = [{"type": "ByteLevel"}]
    if expression:
        steps = [{"type": "Split", "pattern": {"Regex": expression}}, {"type": "ByteLevel", "use_regex": False}]
    return json.dumps({
        "added_tokens": [{"id": 4, "content": "<|end|>", "special": True}], "normalizer": {"type": "NFC"},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": steps},
        "post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<|end|>"}},
                                                                   {"Sequence": {"id": "A"}}]},
        "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "\u0120": 2, "ab": 3},
                  "merges": [["a", "b"], "ab \u0120"], **more}}, separators=(",", ":"))


def pieces():
    """tokenizer.model: field 1 pieces of text, score and type; field 2 the settings of training."""
    def field(number, wire, payload):
        return bytes([number << 3 | wire]) + payload

    def piece(text_, score, kind):
        b = text_.encode()
        body = (field(1, 2, bytes([len(b)]) + b) + field(2, 5, struct.pack("<f", score)) + field(3, 0, bytes([kind])))
        return field(1, 2, bytes([len(body)]) + body)
    out = piece("<unk>", 0, 2) + piece("<s>", 0, 3) + piece("</s>", 0, 3) + piece("<0x41>", 0, 6)
    out += piece("\u2581a", -1, 1)
    return out + field(2, 2, bytes([2]) + field(3, 0, b"\x02"))


def folders():
    """Folders of every kind that can be converted, the smallest that are taken."""
    outside = {"embed_tokens.weight": [V, D], "norm.weight": [D]}
    qwen3 = config("Qwen3ForCausalLM", "qwen3", 1)
    weights = shard(prefixed({**outside, **layers({**NORMS, **MLP, **ATTENTION, **HEAD_NORMS})}))
    special = json.dumps({"eos_token": "<|end|>", "bos_token": {"content": "a"}, "add_bos_token": False,
                          "chat_template": [{"name": "default", "template": "x"},
                                            {"name": "tool_use", "template": "{{ y }}"}]})
    save("convert", "qwen3", parts(("c", qwen3), ("t", tokenizer_json()), ("o", special), ("m", weights),
                                   ("g", '{"eos_token_id":[4,3]}'), ("j", "{{ messages }}")))
    yarn = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}
    save("convert", "gpt2_split", parts(("R", "\x02"), ("c", config("Qwen3ForCausalLM", "qwen3", 1, rope_scaling=yarn)),
                                        ("t", tokenizer_json("")), ("m", weights)))
    plain = layers({**NORMS, **MLP, **ATTENTION})
    halves = [prefixed(outside), {**prefixed(plain), "lm_head.weight": [V, D]}]
    names = {name: file for file, half in zip(("a.safetensors", "b.safetensors"), halves) for name in half}
    save("convert", "llama", parts(("c", config("LlamaForCausalLM", "llama", 1, tie_word_embeddings=False,
                                                rope_scaling={"rope_type": "llama3", "factor": 8.0,
                                                              "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                                                              "original_max_position_embeddings": 32})),
                                   ("p", pieces()), ("a", '{"<x>":5}'), ("i", json.dumps({"weight_map": names})),
                                   ("x", shard(halves[0])), ("y", shard(halves[1], "F32"))))
    gated = {**ATTENTION, "self_attn.q_proj.weight": [2 * HEADS * HD, D], **HEAD_NORMS}
    both = {**outside, **layers({**NORMS, **MLP, **LINEAR}, {**NORMS, **MLP, **gated})}
    save("convert", "qwen35", parts(("c", qwen35_config("qwen3_5_text")), ("t", tokenizer_json()),
                                    ("m", shard(prefixed(both, "model.language_model.")))))
    experts = {**outside, **layers({**NORMS, **MOE, **LINEAR}, {**NORMS, **MOE, **gated})}
    save("convert", "qwen35moe", parts(
        ("c", qwen35_config("qwen3_5_moe_text", num_experts=2, num_experts_per_tok=1, moe_intermediate_size=F,
                            shared_expert_intermediate_size=F)),
        ("t", tokenizer_json()), ("m", shard(prefixed(experts)))))
    own = {f"mtp.layers.0.{name}": shape for name, shape in {**NORMS, **MLP, **gated}.items()}
    own |= {"mtp.fc.weight": [D, 2 * D], "mtp.norm.weight": [D], "mtp.pre_fc_norm_embedding.weight": [D],
            "mtp.pre_fc_norm_hidden.weight": [D]}
    for number, name in enumerate(("qwen35_block", "qwen35_no_block", "qwen35_block_alone")):
        save("convert", name, parts(("R", bytes([1 | number << 6])), ("c", qwen35_config("qwen3_5_text")),
                                    ("t", tokenizer_json()), ("m", shard({**prefixed(both), **own}))))
    routed = {"mlp.gate.weight": [2, D], "mlp.gate.e_score_correction_bias": [2],
              **{f"mlp.{part}.{name[4:]}": shape for part in ("experts.0", "experts.1", "shared_experts")
                 for name, shape in MLP.items()}}
    after = {"eh_proj.weight": [D, 2 * D], "enorm.weight": [D], "hnorm.weight": [D], "shared_head.norm.weight": [D],
             "embed_tokens.weight": [V, D], "shared_head.head.weight": [V, D]}
    glm = {**outside, **layers({**NORMS, **ATTENTION, **routed}, {**NORMS, **ATTENTION, **routed, **after})}
    save("convert", "glm_block", parts(
        ("c", config("Glm4MoeForCausalLM", "glm4_moe", 1, n_routed_experts=2, num_experts_per_tok=1,
                     moe_intermediate_size=F, num_nextn_predict_layers=1)),
        ("t", tokenizer_json()), ("m", shard(prefixed(glm)))))
    draft = {"fc.weight": [D, D], "hidden_norm.weight": [D], "norm.weight": [D],
             **layers({**NORMS, **MLP, **ATTENTION, **HEAD_NORMS})}
    settings = {"mask_token_id": 5, "target_layer_ids": [0], "block_size": 4}
    save("convert", "draft", parts(
        ("c", config("DFlashDraftModel", "qwen3", 1, num_target_layers=2, layer_types=["sliding_attention"],
                     sliding_window=16, dflash_config=settings)),
        ("m", shard(draft, "F32")), ("C", qwen35_config("qwen3_5_text")), ("T", tokenizer_json())))


def packed_shard(plain, packed):
    """Plain numbers, and bytes of other dtypes: name to dtype, shape, bytes."""
    header, data = {}, b""
    for name, shape in plain.items():
        packed[name] = ("F16", shape, b"\0\x38" * (shape[0] * (shape[1] if len(shape) > 1 else 1)))
    for name, (dtype, shape, piece) in packed.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(piece)]}
        data += piece
    return safetensors(header, data)


def packed_folders():
    """Codes and scales apart: FP8 in blocks with scales of two kinds, INT4 in groups."""
    names = prefixed({"embed_tokens.weight": [V, D], "norm.weight": [D], **layers({**NORMS, **MLP, **ATTENTION,
                                                                                   **HEAD_NORMS})})
    matrices = {n: s for n, s in names.items() if "_proj" in n}
    plain = {n: s for n, s in names.items() if n not in matrices}
    fp8, int4 = {}, {}
    for i, (n, (m, k)) in enumerate(matrices.items()):
        scales = -(-m // 4) * -(-k // 8)
        fp8[n] = ("F8_E4M3", [m, k], bytes((11 * j + i) % 127 for j in range(m * k)))
        fp8[n + "_scale_inv"] = (("F8_E8M0", [-(-m // 4), -(-k // 8)], b"\x78" * scales) if i % 2 else
                                 ("F32", [-(-m // 4), -(-k // 8)], struct.pack("<f", 0.01) * scales))
        int4[n + "_packed"] = ("I32", [m, -(-k // 8)], bytes((13 * j + i) % 256 for j in range(m * 4 * -(-k // 8))))
        int4[n + "_scale"] = ("BF16", [m, -(-k // 4)], b"\0\x3d" * (m * -(-k // 4)))
        int4[n + "_shape"] = ("I64", [2], struct.pack("<qq", m, k))
    blocks = {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [4, 8]}
    weights = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 4, "symmetric": True}
    groups = {"quant_method": "compressed-tensors", "format": "pack-quantized",
              "config_groups": {"group_0": {"weights": weights}}}
    for name, quantization, tensors_ in (("fp8", blocks, fp8), ("int4", groups, int4)):
        save("convert", name, parts(("c", config("Qwen3ForCausalLM", "qwen3", 1, quantization_config=quantization)),
                                    ("t", tokenizer_json()), ("m", packed_shard(plain, tensors_))))


def gemma_folder():
    """Gemma 4 with a token for each byte; the rest of its sizes as small as may be."""
    vocab = {t: i for i, t in enumerate(["<pad>", "<eos>", "<bos>", "<unk>", "<turn|>", "a", "\u2581", "\u2581a", "\n",
                                         "\n\n"] + [f"<0x{b:02X}>" for b in range(256)])}
    tokenizer = {"normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"},
                 "pre_tokenizer": {"type": "Split", "pattern": {"String": " "}},
                 "added_tokens": [{"id": i, "content": t, "special": True} for t, i in vocab.items() if i < 5],
                 "model": {"type": "BPE", "byte_fallback": True, "unk_token": "<unk>", "vocab": vocab,
                           "merges": [["\n", "\n"], ["\u2581", "a"]]}}
    c = config("Gemma4ForCausalLM", "gemma4_text", 1, vocab_size=len(vocab), hidden_activation="gelu_pytorch_tanh",
               sliding_window=8, layer_types=["full_attention"], global_head_dim=HD, hidden_size_per_layer_input=0)
    norms = {n + ".weight": [D] for n in ("input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm",
                                          "post_feedforward_layernorm")}
    names = {"embed_tokens.weight": [len(vocab), D], "norm.weight": [D],
             **layers({**norms, **MLP, **ATTENTION, **HEAD_NORMS, "layer_scalar": [1]})}
    save("convert", "gemma4", parts(("c", c), ("t", json.dumps(tokenizer, separators=(",", ":"))),
                                    ("o", '{"eos_token":"<eos>","eot_token":"<turn|>","bos_token":"<bos>"}'),
                                    ("m", shard(prefixed(names)))))


def split_model():
    """The two files of one split model."""
    def file(no, tensors_):
        keys = [entry("split.no", U16, no), entry("split.count", U16, 2), entry("split.tensors.count", I32, 4)]
        return gguf(keys + (every_kind()[-2:-1] if no == 0 else []), tensors_)
    return parts(("A", file(0, tensors()[:1])), ("B", file(1, tensors()[1:])))


def draft_folder():
    """A draft as safetensors for the target of the model seeds (dim 32, one head of 32)."""
    d = 32
    shapes = {"fc.weight": [d, 2 * d], "hidden_norm.weight": [d], "norm.weight": [d],
              **layers({"input_layernorm.weight": [d], "post_attention_layernorm.weight": [d],
                        "mlp.gate_proj.weight": [d, d], "mlp.up_proj.weight": [d, d], "mlp.down_proj.weight": [d, d],
                        "self_attn.q_proj.weight": [d, d], "self_attn.k_proj.weight": [d, d],
                        "self_attn.v_proj.weight": [d, d], "self_attn.o_proj.weight": [d, d],
                        "self_attn.q_norm.weight": [d], "self_attn.k_norm.weight": [d]})}
    text_ = json.dumps({"architectures": ["DFlashDraftModel"], "model_type": "qwen3", "vocab_size": 24, "hidden_size": d,
                        "num_hidden_layers": 1, "intermediate_size": d, "num_attention_heads": 1,
                        "num_key_value_heads": 1, "head_dim": d, "rms_norm_eps": 1e-06,
                        "max_position_embeddings": 256, "num_target_layers": 2, "rope_theta": 1e7,
                        "layer_types": ["full_attention"], "block_size": 4,
                        "dflash_config": {"mask_token_id": 20, "target_layer_ids": [0, 1], "block_size": 4}})
    return parts(("c", text_), ("m", shard(shapes)))


def edited_target(key, number):
    """The target of the model seeds with another number after a key of kind f32."""
    data = (CORPUS / "model" / "target.gguf").read_bytes()
    at = data.index(text(key)) + len(text(key))
    assert struct.unpack_from("<I", data, at)[0] == F32
    return data[:at + 4] + struct.pack("<f", number) + data[at + 8:]


def old_imatrix(entries, tail=b""):
    """entries: (name, calls, values)."""
    out = struct.pack("<i", len(entries))
    for name, calls, values in entries:
        b = name.encode()
        out += struct.pack("<i", len(b)) + b + struct.pack(f"<ii{len(values)}f", calls, len(values),
                                                           *values)
    return out + tail


def imatrix():
    keys = [entry("general.type", STRING, "imatrix"),
            entry("imatrix.datasets", ARRAY, ["text"], STRING),
            entry("imatrix.chunk_count", U32, 2), entry("imatrix.chunk_size", U32, 512)]
    f = lambda *v: struct.pack(f"<{len(v)}f", *v)
    return gguf(keys, [("blk.0.a.weight.in_sum2", 0, (4,), f(1, 2, 3, 4)),
                       ("blk.0.a.weight.counts", 0, (1,), f(8)),
                       ("blk.0.b.weight.in_sum2", 0, (2, 3), f(1, 2, 3, 4, 0, 0)),
                       ("blk.0.b.weight.counts", 0, (1, 3), f(8, 9, 0))])


def main():
    save("gguf", "every_kind.gguf", gguf(every_kind(), tensors()))
    save("gguf", "version2.gguf", gguf(every_kind()[:3], tensors()[:1], version=2))
    save("gguf", "aligned64.gguf",
         gguf([entry("general.alignment", U32, 64)], tensors(), alignment=64))
    save("gguf", "empty.gguf", gguf([]))
    save("gguf", "split.gguf", gguf([entry("split.no", U16, 0), entry("split.count", U16, 1),
                                     entry("split.tensors.count", I32, 4)], tensors()))
    save("gguf", "two_files", split_model())
    save("tokenizer", "nfc.gguf", gguf(vocabulary("qwen35", [entry("tokenizer.ggml.normalizer.nfc", BOOL, True)])))
    save("tokenizer", "chatml.gguf", gguf(chat_vocabulary()))
    save("tokenizer", "vocabulary.gguf", gguf(vocabulary()))
    save("tokenizer", "vocabulary35.gguf", gguf(vocabulary("qwen35")))
    save("tokenizer", "kimi.gguf", gguf(vocabulary("kimi-k2")))
    save("tokenizer", "deepseek.gguf", gguf(vocabulary("deepseek-llm")))
    save("tokenizer", "scores.gguf", gguf(escaped("llama")))
    save("tokenizer", "escaped.gguf", gguf(escaped("gemma4")))
    save("tokenizer", "prose", "0The other thing, they'll say:\n\n  12345 ther\u00e9in\u2026 \u4f60\u597d")
    save("tokenizer", "special", "0<|start|>user\nhi<|end|><tool>\n<|en d|><|end|")
    save("tokenizer", "broken", b"0ok \xff\xc3 \xe4\xbd not")
    save("tokenizer", "marks", "0e\u0301\u0301 \U0001F44D\U0001F3FD \u200d\u00a0\t\r\n   x   ")
    save("tokenizer", "normal", "1e\u0301 A\u030a \u212b \u1112\u1161\u11ab they'll <|end|>")
    save("tokenizer", "blanks", "2the  the\u2581 the\n\t\u00e9\U0001F999<tool> a</s>")
    save("tokenizer", "lines", "3the the\n\n\nthe\n 12 \u2581\u2581\u00e9<tool>")
    families = ["it's WE'LL 12345 x=1;\r\n\r\n  y", "\u00c9cole \u4e2d\u6587 \u0663\u00bd \u3000caf\u00e9's\n \n",
                "camelCase HTTPServer //a/ ''s 'Re \t\v\u00a0...", "<sentinel:12>IMGIMGABZ    \u01c5\u02b0\u0301 !?"]
    for i in range(21):
        save("split", f"family{i:02}", bytes([i]) + families[i % 4].encode())
    save("split", "name", "\x7fdeepseek-llm")
    save("split", "unknown", "\x7fqwen4")
    folder = CORPUS.parent.parent / "fixtures" / "templates"
    contexts = [json.loads(line) for line in (folder / "contexts.jsonl").read_text().split("\n") if line]
    chosen = ["turns", "call_parallel", "call_odd_arguments", "thinking_history", "forged", "documents",
              "parts", "unicode", "prefill", "tools_no_system"]
    for path, context in zip(sorted(folder.glob("*.jinja")), chosen):
        variables = next(c["variables"] for c in contexts if c["name"] == context)
        save("template", path.stem, "==T:" + path.read_text() + "==J:" +
             json.dumps(variables, ensure_ascii=False))
    save("template", "plain", "{% for m in messages %}{{ m['content'] | default('x') }}{% endfor %}")
    save("template", "loop", "{% for i in range(99999999) %}{{ i ~ messages }}{% endfor %}")
    save("template", "macro", "{% macro f(x) %}{{ f(x ~ 'ab') }}{% endmacro %}{{ f('ab') }}")
    for i, text in enumerate(["<think>why</think>Hi", "why</think>\n\nHi",
                              "<|channel>thought\nwhy<channel|>Hi",
                              "<|channel|>analysis<|message|>why<|end|><|start|>assistant"
                              "<|channel|>final<|message|>Hi<|return|>"]):
        save("reasoning", f"reply{i}", bytes([(2, 3, 14, 16)[i]]) + text.encode())
    bar, und = "\uff5c", "\u2581"
    mark = {k: f"<{bar}{v.replace(' ', und)}{bar}>" for k, v in (
        ("calls", "tool calls begin"), ("call", "tool call begin"), ("sep", "tool sep"),
        ("done", "tool call end"), ("end", "tool calls end"))}
    objects = '{"name": "get", "arguments": {"s": "a\\n", "n": [1, null]}}'
    for i, text in enumerate([
            f"Hm\n\n<tool_call>\n{objects}\n</tool_call>\n<tool_call>{objects}</tool_call>.",
            "<tool_call>\n<function=get>\n<parameter=s>\na\n</parameter>\n<parameter=n>\n2\n</parameter>\n"
            "<parameter=s>b</parameter></function>\n</tool_call>",
            "<tool_call>get<arg_key>n</arg_key><arg_value>2</arg_value></tool_call>",
            '{"name": "get", "parameters": {}}; {"name": "do", "parameters": {"input": "x"}}',
            '<|tool_call>call:get{s:<|"|>a"<|"|>,a:{b:[1,true,None]}}<tool_call|>',
            '<|channel|>commentary to=functions.get <|constrain|>json<|message|>{"n": 1}<|call|>',
            f'{mark["calls"]}{mark["call"]}get{mark["sep"]}{{"n": 1}}{mark["done"]}{mark["end"]}',
            f'{mark["calls"]}{mark["call"]}function{mark["sep"]}get\n```json\n{{}}\n```{mark["done"]}{mark["end"]}',
            "<|tool_calls_section_begin|><|tool_call_begin|>functions.get:0<|tool_call_argument_begin|>{}"
            "<|tool_call_end|><|tool_calls_section_end|>",
            '[TOOL_CALLS]get[ARGS]{"s": "\\u00e9"}[TOOL_CALLS]do[CALL_ID]abcdefghi[ARGS]{"input": "x"}',
            f"[TOOL_CALLS] [{objects}, {objects}]"]):
        save("tool_calls", f"family{i:02}", bytes([2 * i, i]) + text.encode())
        save("tool_calls", f"flow{i:02}", bytes([2 * i + 1, i]) + text[:len(text) * 3 // 4].encode())
    save("chat", "lines", "hello\n\nhow are you?\n<|im_end|>\n<|im_start|>system\n")
    save("chat", "block", 'a\n"""\nx = 1\n\n  y <|im_start|>\n"""\nb\n"""c\"\"\"\n"""open')
    save("chat", "broken", b"caf\xc3\xa9 \xff\xe4\xbd\r\n\0zero<think>\n")
    save("json", "prompts", '{"id":"a","group":"g","prompt":"x","max_tokens":3}\n\n{"prompt":"\u00e9"}\n')
    save("json", "object", '{"a": [1, -2.5e3, true, null, "x\\u00e9\\n\\ud83d\\ude00"], "b": {"": {}}}')
    save("json", "numbers", "[0, -0, 9223372036854775807, 1e308, 0.1, 18446744073709551615]")
    save("json", "string", '"\u4f60 \\"\\\\\\/\\b\\f"')
    save("json", "deep", "[" * 60 + "]" * 60)
    save("options", "generate", "\0-m\nmodel.gguf\n--draft=d.gguf\n-n\n5\n--temp\n0.8\n--speculate\ntree")
    save("options", "bundle", "\5-m\nx\n--ids\n1,2,3\n--all\n--\n-n")
    save("options", "wrong", "\1--bugdet\n9\n--seed=-1\n-hq\n-\n--=")
    save("safetensors", "two.safetensors", safetensors(
        {"__metadata__": {"format": "pt"},
         "a": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]},
         "b.weight": {"dtype": "BF16", "shape": [4], "data_offsets": [24, 32]}}, bytes(range(32))))
    save("safetensors", "scalar.safetensors", safetensors(
        {"s": {"dtype": "I64", "shape": [], "data_offsets": [0, 8]},
         "z": {"dtype": "F16", "shape": [0, 5], "data_offsets": [8, 8]}}, bytes(8)))
    save("safetensors", "folder", parts(
        ("i", '{"weight_map":{"a":"a.safetensors","b":"b.safetensors"}}'), ("x", shard({"a": [2, 2]})),
        ("y", shard({"b": [3], "c": [1]}, "F32"))))
    save("safetensors", "plain_folder", parts(("m", shard({"a": [2, 2]}))))
    save("model", "folder", draft_folder())
    # A base of rotation beyond the range of 64-bit integers.
    save("model", "rope_base.gguf", edited_target("qwen35.rope.freq_base", 2.8e21))
    folders()
    packed_folders()
    gemma_folder()
    save("options", "types", "\x09attn_v=Q8_0,output=F16\n--type\nQ4_K_M")
    save("safetensors", "other.safetensors", safetensors(
        {"q": {"dtype": "F8_E4M3", "shape": [2], "data_offsets": [0, 2]}}, bytes(2)))
    save("imatrix", "new.gguf", imatrix())
    entries = [("blk.0.a.weight", 4, (4, 8, 0, 1)), ("output.weight", 0, (1.5,))]
    save("imatrix", "old", old_imatrix(entries))
    # A row that a fit by importances put beyond the range of a half.
    save("imatrix", "half_overflow", bytes.fromhex("088b1000010ac7c7c7c7c7c7c77ec7c7c7c7c7c7c7c7c7c7c7c7c7c7c7"))
    save("imatrix", "old_with_text", old_imatrix(entries, struct.pack("<ii4s", 17, 4, b"wiki")))


def http_seeds():
    host = "Host: localhost\r\n"
    seeds = {
        "get": f"GET /x?a=b%20 HTTP/1.1\r\n{host}Accept: */*\r\n\r\n",
        "post": f"POST /v1/x HTTP/1.1\r\n{host}Content-Length: 2\r\nContent-Type: a/b\r\n\r\n{{}}",
        "chunked": f"POST /s HTTP/1.1\r\n{host}Transfer-Encoding: chunked\r\n\r\n"
                   "3;a=b\r\nabc\r\n0A\r\n0123456789\r\n0\r\nT: u\r\n\r\n",
        "pipelined": f"GET /h HTTP/1.1\r\n{host}\r\nHEAD /s HTTP/1.1\r\n{host}\r\n\r\n"
                     f"POST /h HTTP/1.1\r\n{host}Content-Length: 1\r\n\r\naGET /a HTTP/1.1\r\n{host}\r\n",
        "old": "GET /s HTTP/1.0\r\n\r\n",
        "old_kept": "GET /x HTTP/1.0\r\nConnection: keep-alive\r\n\r\nGET /h HTTP/1.0\r\n\r\n",
        "expect": f"POST /h HTTP/1.1\r\n{host}Expect: 100-continue\r\nContent-Length: 3\r\n\r\nabc",
        "absolute": f"GET http://[::1]:80/?q HTTP/1.1\r\n{host}Connection: close\r\n\r\n",
        "preflight": f"OPTIONS * HTTP/1.1\r\n{host}Origin: http://localhost:1\r\n"
                     "Access-Control-Request-Method: POST\r\nAccess-Control-Request-Headers: x-a\r\n"
                     "Access-Control-Request-Private-Network: true\r\n\r\n",
        "foreign": f"POST / HTTP/1.1\r\n{host}Sec-Fetch-Site: cross-site\r\nContent-Length: 0\r\n\r\n",
        "rebound": "GET / HTTP/1.1\r\nHost: a.example\r\n\r\n",
        "both": f"POST / HTTP/1.1\r\n{host}Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "twice": f"POST / HTTP/1.1\r\n{host}Content-Length: 1\r\ncontent-length: 1\r\n\r\na",
        "large": f"POST / HTTP/1.1\r\n{host}Content-Length: 99999\r\n\r\nabc",
        "large_chunk": f"POST / HTTP/1.1\r\n{host}Transfer-Encoding: chunked\r\n\r\nfffff\r\nabc",
        "unframed": f"POST / HTTP/1.1\r\n{host}\r\nGET / HTTP/1.1\r\n{host}\r\n",
        "fields": f"GET / HTTP/1.1\r\n{host}" + "a: b\r\n" * 130 + "\r\n",
        "long_head": f"GET / HTTP/1.1\r\n{host}A: " + "a" * 2100,
        "folded": f"GET / HTTP/1.1\r\n{host}A: b\r\n c\r\n\r\n",
        "http2": "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        "tls": "\x16\x03\x01\x02\x00\x01",
        "methods": "".join(f"{m} /x HTTP/1.1\r\n{host}Content-Length: 0\r\n\r\n"
                           for m in ("PUT", "DELETE", "PATCH", "BREW")),
    }
    for name, text in seeds.items():
        save("http", name, text)


def jinja_seeds():
    seeds = {
        "chat": "{%- for m in messages %}\n<|{{ m.role }}|>{{ m['content']|trim if m.content is string else m.content[0].text }}"
                "{% if loop.last %}!{% elif loop.nextitem.role == 'tool' %}?{% endif %}\n{%- endfor -%}\n"
                "{% if add_generation_prompt %}{{ '<|' ~ 'assistant' + '|>\\n' }}{% endif %}",
        "tools": "{% macro show(v, d=0) %}{% if v is mapping %}{ {%- for k, x in v|dictsort %}{{ k }}:{{ show(x, d + 1) }},{% endfor -%} }"
                 "{% elif v is iterable and v is not string %}[{% for x in v %}{{ show(x) }}{% endfor %}]{% else %}{{ v|tojson }}"
                 "{% endif %}{% endmacro %}{{ show(tools) }}{{ tools|tojson(indent=2, sort_keys=true) }}{{ tools }}",
        "scopes": "{% set ns = namespace(a=0) %}{% for i in range(9) if i is odd %}{% set ns.a = ns.a + i %}{% if i > 5 %}{% break %}"
                  "{% else %}{% continue %}{% endif %}{% else %}none{% endfor %}{{ ns.a }}{% with x = 1 %}{{ x }}{% endwith %}"
                  "{% set y | upper %}a{{ s }}{% endset %}{{ y }}{% filter indent(2) %}b\nc{% endfilter %}",
        "calls": "{% macro m() %}<{{ caller('k') }}{{ varargs }}{{ kwargs }}>{% endmacro %}{% call(x) m(1, q=2) %}{{ x }}{{ s }}{% endcall %}"
                 "{% for i in l recursive %}{{ loop.index }}{{ loop.changed(i) }}{{ loop.cycle('a', 'b') }}{% endfor %}",
        "text": "{{ s.split(' ')|join('-') }}{{ s[::-1] }}{{ s|replace('a', 'b', 1) }}{{ '%-5s|%05.1f|%x' % (s, 2.5, n) }}"
                "{{ '{0:>8}{a!r}'.format(s, a=l) }}{{ s.title() }}{{ s.center(9, '*') }}{{ s|e }}{{ s|truncate(2, true) }}{{ s|urlencode }}",
        "lists": "{{ l|sort }}{{ l|unique|list }}{{ l|map('string')|select('in', s)|list }}{{ messages|groupby('role') }}{{ l|batch(2)|list }}"
                 "{{ messages|selectattr('content', 'string')|map(attribute='role')|first }}{{ l|sum if l|min else l|max }}",
        "numbers": "{{ 7 // -2 }}{{ -7 % 3 }}{{ 2 ** 0.5 }}{{ 1e22 }}{{ 0x1F + 0b1 }}{{ n / 2 }}{{ 2.675|round(2) }}{{ '0x1f'|int(0, 16) }}{{ 1_0.5 }}",
        "space": "a \n {%- if n -%} \n b {#- c -#} \n {%+ raw +%} {{ x }} {% endraw -%} \n{% endif +%}\n\n{{- 'x' -}}\n",
        "errors": "{{ q.x }}{% nope %}{{ 'a",
        "variables": "{{ a }}{{ b|tojson }}\0{\"a\": 1.0, \"b\": {\"c\": [1e22, -0, \"\\u00e9\"]}}",
    }
    for name, text in seeds.items():
        save("jinja", name, text)


def select_seeds():
    """Sixteen bytes of options, then a text; see fuzz_select.c."""
    prose = "The harbour master wrote: \u201cNo ship left today.\u201d He went home, as always.\n\nThen it rained. "
    code = "int f(int a, int b) {\n    if (a < b && b > 0)\n        return a;\n    return g(b, 1,000);\n}\n\n"
    wide = "\u4f60\u597d\uff0c\u4e16\u754c\u3002\u4eca\u5929\u5f88\u597d\uff01e\u0301\U0001F469\u200d\U0001F680 <tag a=\"b c\">"
    options = {"ratio": (1, 6, 40, 9, 3, 20, 1, 9, 30, 1, 0, 0, 20), "mass": (2, 9, 200, 60, 0, 0, 0, 0, 0, 0, 0, 0, 90)}
    for name, head in options.items():
        head = bytes(head).ljust(16, b"\0")
        save("select", name + "_prose", head + prose.encode() * 30)
        save("select", name + "_code", head + code.encode() * 20)
        save("select", name + "_wide", head + wide.encode() * 20)
        save("select", name + "_run", head + b"short words " * 40 + b"QUJD" * 700 + b" and more. " * 30)
        save("select", name + "_broken", head + b"\xff\xe4\xbd \x80\x80 \r\n" * 60)
    save("select", "curve", b"\xff10000:.5 40000:.2,100000:.1")
    save("select", "curve_twice", b"\xff10:.5 10:.2")


def grammar_seeds():
    """Kind and walk, then a text; see fuzz_grammar.c. Schemas are those of the unit test."""
    regexes = ["^(a|b)*a(a|b){3}$", "[a-z]{2,70}(\\.\\d+)?", "\\u00e4|[^\\W\\d]+?|(?:x{0,3}|.)*",
               "(((a{1,9}){1,9}){1,9})*", "(a|b)*a(a|b){40}"]
    gbnf = ['root ::= "(" root ")" root | [a-c]{2,5} | "" # x\n',
            'root ::= item ("," item)*\nitem ::= "\\"" [^"\\\\\\x00-\\x1f]* "\\"" | num\nnum ::= [0-9]+\n',
            'root ::= "a" root "a" | "b" root "b" | .?\n', 'root ::= root "a" | "b"']
    for i, x in enumerate(regexes):
        save("grammar", f"regex{i}", b"\0" + bytes([i]) + x.encode())
    for i, x in enumerate(gbnf):
        save("grammar", f"gbnf{i}", b"\1" + bytes([i]) + x.encode())
    fixtures = CORPUS.parent.parent / "fixtures" / "grammar" / "schemas.jsonl"
    for i, line in enumerate(fixtures.read_text().splitlines()):
        schema = json.dumps(json.loads(line)["schema"], separators=(",", ":"), ensure_ascii=False)
        if i % 2 == 0 or i > 50:
            save("grammar", f"schema{i:02}", bytes([2 + i // 2 % 2, i]) + schema.encode())


if __name__ == "__main__":
    main()
    http_seeds()
    jinja_seeds()
    select_seeds()
    grammar_seeds()
