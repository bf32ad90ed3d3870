# SPDX-License-Identifier: Apache-2.0
"""The tensors of a GGUF file as one hash, so that files of two programs compare. Standard library only."""
import hashlib
import mmap
import struct

PLAIN = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
STRING, ARRAY = 8, 9


class Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, form):
        value = struct.unpack_from("<" + form, self.data, self.at)
        self.at += struct.calcsize("<" + form)
        return value[0] if len(value) == 1 else value

    def text(self):
        n = self.take("Q")
        self.at += n
        return bytes(self.data[self.at - n:self.at])

    def value(self, kind):
        if kind == STRING:
            return self.text()
        if kind != ARRAY:
            return self.take(PLAIN[kind])
        kind, n = self.take("I"), self.take("Q")
        if kind in PLAIN:
            self.at += n * struct.calcsize("<" + PLAIN[kind])
        else:
            for _ in range(n):
                self.value(kind)
        return None


def digest(path):
    """SHA-256 over the names of all tensors, in order of these, with their types, sizes and bytes."""
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        r = Reader(data)
        r.take("II")
        n, keys = r.take("QQ")
        known = {}
        for _ in range(keys):
            name = r.text()
            known[name] = r.value(r.take("I"))
        tensors = []
        for _ in range(n):
            name, shape = r.text(), r.take("I")
            shape = [r.take("Q") for _ in range(shape)]
            tensors.append((r.take("I"), r.take("Q"), name, shape))
        align = known.get(b"general.alignment", 32)
        base = -(-r.at // align) * align
        starts = sorted(t[1] for t in tensors) + [len(data) - base]
        end = {start: starts[i + 1] for i, start in enumerate(starts[:-1])}
        sums = hashlib.sha256()
        for kind, start, name, shape in sorted(tensors, key=lambda t: t[2]):
            sums.update(b"%s %d %r\n" % (name, kind, shape))
            sums.update(hashlib.sha256(data[base + start:base + end[start]].rstrip(b"\0")).digest())  # without padding
        return sums.hexdigest()
