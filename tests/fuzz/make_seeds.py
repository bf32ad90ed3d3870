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


def vocabulary(pre="qwen2"):
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
            entry("tokenizer.ggml.eos_token_id", U32, len(tokens) - 3)]


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
    save("tokenizer", "vocabulary.gguf", gguf(vocabulary()))
    save("tokenizer", "vocabulary35.gguf", gguf(vocabulary("qwen35")))
    save("tokenizer", "kimi.gguf", gguf(vocabulary("kimi-k2")))
    save("tokenizer", "deepseek.gguf", gguf(vocabulary("deepseek-llm")))
    save("tokenizer", "scores.gguf", gguf(escaped("llama")))
    save("tokenizer", "escaped.gguf", gguf(escaped("gemma4")))
    save("tokenizer", "prose", "The other thing, they'll say:\n\n  12345 ther\u00e9in\u2026 \u4f60\u597d")
    save("tokenizer", "special", "<|start|>user\nhi<|end|><tool>\n<|en d|><|end|")
    save("tokenizer", "broken", b"ok \xff\xc3 \xe4\xbd not")
    save("tokenizer", "marks", "e\u0301\u0301 \U0001F44D\U0001F3FD \u200d\u00a0\t\r\n   x   ")
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
    save("safetensors", "other.safetensors", safetensors(
        {"q": {"dtype": "F8_E4M3", "shape": [2], "data_offsets": [0, 2]}}, bytes(2)))
    save("imatrix", "new.gguf", imatrix())
    entries = [("blk.0.a.weight", 4, (4, 8, 0, 1)), ("output.weight", 0, (1.5,))]
    save("imatrix", "old", old_imatrix(entries))
    # A row that a fit by importances put beyond the range of a half.
    save("imatrix", "half_overflow", bytes.fromhex("088b1000010ac7c7c7c7c7c7c77ec7c7c7c7c7c7c7c7c7c7c7c7c7c7c7"))
    save("imatrix", "old_with_text", old_imatrix(entries, struct.pack("<ii4s", 17, 4, b"wiki")))


if __name__ == "__main__":
    main()
