# SPDX-License-Identifier: Apache-2.0
"""Writes tests/fixtures/quant/errors.tsv: what the quantisers of ggml leave as error.

For seeded tensors and for rows of the bundled model, in every block type, with and without
importances: the root mean square of the errors, each counted by its column's importance. The test
tests/unit/test_quant_error.c makes the same tensors and compares our encoders with these figures.
All arithmetic of the tensors is exact or one IEEE operation a step, so that both sides agree.

Usage: python quant_errors.py LIBGGML-BASE.SO MODEL.GGUF [OUTPUT]
"""
import ctypes
import sys

import gguf
import numpy as np

ROWS, COLUMNS = 16, 1024
MODEL_ROWS = 64
TYPES = ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL",
         "IQ4_XS", "MXFP4", "NVFP4", "IQ3_S", "IQ3_XXS", "IQ2_S", "IQ2_XS", "IQ2_XXS", "IQ1_M", "IQ1_S",
         "TQ1_0", "TQ2_0"]
UNWEIGHTED = ["Q8_0", "MXFP4", "NVFP4", "TQ1_0", "TQ2_0"]
# Those that ggml does not write without importances.
WEIGHTED = ["IQ2_XS", "IQ2_XXS", "IQ1_M", "IQ1_S", "IQ3_XXS", "IQ2_S"]
HOW = {**dict.fromkeys(UNWEIGHTED, ["plain"]), **dict.fromkeys(WEIGHTED, ["weighted"])}
TENSORS = ["token_embd", "blk.0.attn_qkv", "blk.0.attn_gate", "blk.0.ssm_out", "blk.0.ffn_down",
           "blk.3.attn_q", "blk.3.attn_k", "blk.3.attn_v", "blk.3.attn_output", "blk.11.ffn_gate",
           "blk.11.ffn_up", "blk.11.ffn_down"]


class Draws:
    def __init__(self, seed):
        self.state = seed

    def uniform(self):
        self.state = (self.state * 1664525 + 1013904223) & 0xFFFFFFFF
        return (self.state >> 12) / 1048576.0

    def normal(self):
        total = 0.0
        for _ in range(12):
            total += self.uniform()
        return total - 6.0


def outlier(d, i):
    return d.normal() * (1.0 if i % 97 == 0 else 0.0625)


def sparse(d, i):
    x = d.normal()
    return x if d.uniform() < 0.3 else 0.0


def cubed(d, i):
    x = d.normal()
    return x * x * x


SEEDED = {
    "normal": lambda d, i: d.normal(),
    "small": lambda d, i: d.normal() * 0.015625,
    "uniform": lambda d, i: d.uniform() - 0.5,
    "cubed": cubed,
    "outlier": outlier,
    "shifted": lambda d, i: d.normal() * 0.125 + 0.25,
    "sparse": sparse,
    "columns": lambda d, i: d.normal() * (1 + i % COLUMNS % 17),
}


def importances(n):
    """Few columns count much: fourth powers, none of them 0."""
    d = Draws(777)
    draws = [d.normal() for _ in range(n)]
    return np.array([x * x * (x * x) + 0.0625 for x in draws], dtype=np.float32)


def tensors(model):
    for seed, (name, fill) in enumerate(SEEDED.items()):
        d = Draws(1000 + seed)
        values = [fill(d, i) for i in range(ROWS * COLUMNS)]
        yield name, np.array(values, dtype=np.float32).reshape(ROWS, COLUMNS)
    stored = {t.name: t for t in gguf.GGUFReader(model).tensors}
    for name in TENSORS:
        t = stored[name + ".weight"]
        yield name, gguf.quants.dequantize(t.data, t.tensor_type)[:MODEL_ROWS].astype(np.float32)


def quantise(library, kind, x, weights):
    rows, columns = x.shape
    block, size = gguf.GGML_QUANT_SIZES[kind]
    out = np.zeros((rows, columns // block * size), dtype=np.uint8)
    x = np.ascontiguousarray(x)
    pointer = weights.ctypes.data if weights is not None else None
    library.ggml_quantize_chunk(int(kind), x.ctypes.data, out.ctypes.data, 0, rows, columns, pointer)
    return gguf.quants.dequantize(out, kind)


def main():
    library = ctypes.CDLL(sys.argv[1])
    library.ggml_quantize_chunk.argtypes = [
        ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64,
        ctypes.c_int64, ctypes.c_void_p]
    library.ggml_quantize_chunk.restype = ctypes.c_size_t
    with open(sys.argv[3] if len(sys.argv) > 3 else "tests/fixtures/quant/errors.tsv", "w") as out:
        for name, x in tensors(sys.argv[2]):
            weights = importances(x.shape[1])
            for kind in TYPES:
                for how in HOW.get(kind, ["plain", "weighted"]):
                    w = weights if how == "weighted" else None
                    error = x.astype(np.float64) - quantise(
                        library, gguf.GGMLQuantizationType[kind], x, w)
                    v = np.ones(x.shape[1]) if w is None else w.astype(np.float64)
                    rms = np.sqrt((error * error * v).sum() / (v.sum() * x.shape[0]))
                    out.write(f"{name}\t{kind}\t{how}\t{rms:.9g}\n")


if __name__ == "__main__":
    main()
