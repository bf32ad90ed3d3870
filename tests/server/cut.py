# SPDX-License-Identifier: Apache-2.0
"""A model of the first layers of a GGUF file, with its tokenizer and its chat template: for checks whose answers are
judged by their form, where a whole model would only take longer.
"""
import re
import struct

SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}  # bytes of a value, by GGUF's number of its type
BOOLEAN, TEXT, LIST = 7, 8, 9


class Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, form):
        values = struct.unpack_from("<" + form, self.data, self.at)
        self.at += struct.calcsize("<" + form)
        return values[0] if len(values) == 1 else values

    def text(self):
        n = self.take("Q")
        self.at += n
        return self.data[self.at - n:self.at].decode()

    def skip(self, kind, n=1):
        """Goes past n values of a type."""
        if kind in SIZES:
            self.at += SIZES[kind] * n
            return
        for _ in range(n):
            if kind == TEXT:
                self.text()
            else:
                self.skip(*self.take("IQ"))


def first_layers(source, n, out):
    """Writes the model of the first n layers of the file `source` to `out`."""
    with open(source, "rb") as file:
        data = file.read()
    r = Reader(data)
    magic, version, n_tensors, n_values = r.take("4sIQQ")
    assert (magic, version) == (b"GGUF", 3), source
    values, layers = bytearray(), None
    for _ in range(n_values):
        begin = r.at
        key, kind = r.text(), r.take("I")
        at = r.at
        r.skip(kind)
        assert key != "general.alignment", "an alignment of its own is not read here"
        value = data[at:r.at]
        if key.endswith(".block_count"):
            layers, value = struct.unpack("<I", value)[0], struct.pack("<I", n)
        elif kind == LIST and value[:4] == struct.pack("<I", BOOLEAN):  # one for each layer
            assert struct.unpack_from("<Q", value, 4)[0] == layers, key
            value = value[:4] + struct.pack("<Q", n) + value[12:12 + n]
        values += data[begin:at] + value
    tensors = []
    for _ in range(n_tensors):
        name, n_dims = r.text(), r.take("I")
        at = r.at
        r.at += 8 * n_dims + 4
        tensors.append((r.take("Q"), name, struct.pack("<I", n_dims) + data[at:r.at - 8]))
    start, tensors = -(-r.at // 32) * 32, sorted(tensors)
    ends = [offset for offset, _, _ in tensors[1:]] + [len(data) - start]
    infos, body, kept = bytearray(), bytearray(), 0
    for (offset, name, shape), end in zip(tensors, ends):
        layer = re.match(r"blk\.(\d+)\.", name)
        if layer and int(layer[1]) >= n:
            continue
        infos += struct.pack("<Q", len(name)) + name.encode() + shape + struct.pack("<Q", len(body))
        body += data[start + offset:start + end]
        kept += 1
    head = struct.pack("<4sIQQ", magic, version, kept, n_values) + values + infos
    with open(out, "wb") as file:
        file.write(head + bytes(-len(head) % 32) + body)
