# SPDX-License-Identifier: Apache-2.0
"""cpu_no_vocab.py IN OUT: a copy of a synthetic model that says that it has no tokenizer.

llama.cpp opens a GGUF file without a tokenizer only when the metadata name the tokenizer "no_vocab"
and give the vocabulary's size. Tensors are copied as they are: their offsets count from the aligned
begin of the data, so only the header grows.
"""
import shutil
import struct
import sys

SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
STRING, ARRAY, U32 = 8, 9, 4


class Reader:
    """Walks over a header; what it has passed is f.read(0, tell)."""

    def __init__(self, f):
        self.f = f

    def number(self, form):
        return struct.unpack("<" + form, self.f.read(struct.calcsize("<" + form)))[0]

    def text(self):
        return self.f.read(self.number("Q")).decode()

    def value(self, kind):
        if kind == STRING:
            return self.text()
        if kind != ARRAY:
            return self.f.read(SIZES[kind])
        item, count = self.number("I"), self.number("Q")
        return [self.value(item) for _ in range(count)]


def string(s):
    return struct.pack("<Q", len(s.encode())) + s.encode()


def main(source, target):
    with open(source, "rb") as f, open(target, "wb") as out:
        r = Reader(f)
        magic, version, tensors, keys = struct.unpack("<4sIQQ", f.read(24))
        if magic != b"GGUF":
            sys.exit(f"{source} is not a GGUF file; name a file made by synth")
        known = {}
        for _ in range(keys):
            key = r.text()
            known[key] = r.value(r.number("I"))
        keys_end = f.tell()
        vocab = 0
        for _ in range(tensors):
            name = r.text()
            ne = [r.number("Q") for _ in range(r.number("I"))]
            f.read(12)
            vocab = ne[1] if name == "token_embd.weight" else vocab
        infos_end = f.tell()
        if "tokenizer.ggml.model" in known or not vocab:
            sys.exit(f"{source} has a tokenizer or no embeddings; use it as it is")
        more = string("tokenizer.ggml.model") + struct.pack("<I", STRING) + string("no_vocab")
        more += string(known["general.architecture"] + ".vocab_size")
        more += struct.pack("<II", U32, vocab)
        align = struct.unpack("<I", known.get("general.alignment", b"\x20\0\0\0"))[0]
        f.seek(24)
        head = struct.pack("<4sIQQ", magic, version, tensors, keys + 2)
        head += f.read(keys_end - 24) + more + f.read(infos_end - keys_end)
        out.write(head + bytes(-len(head) % align))
        f.seek(infos_end + -infos_end % align)
        shutil.copyfileobj(f, out, 1 << 20)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: cpu_no_vocab.py IN OUT")
    main(sys.argv[1], sys.argv[2])
