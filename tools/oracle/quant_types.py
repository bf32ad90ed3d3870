# SPDX-License-Identifier: Apache-2.0
"""Writes tests/fixtures/quant/types.tsv: which tensor llama.cpp's quantiser gives which type.

Makes small files with the tensor names of several kinds of model, quantises each by every mixture
with llama_model_quantize, and notes the types. The test tests/unit/test_convert_types.c makes files
of the same names and compares what our quantiser picks.

Lines: "model NAME ARCHITECTURE LAYERS HEADS KV_HEADS EXPERTS ROW WEIGHED", then for each mixture
"types MODEL MIXTURE TENSOR COUNT*TYPE...": the types of all layers, - where one has no such tensor.

Usage: python quant_types.py FOLDER_OF_LIBLLAMA [OUTPUT]
"""
import ctypes
import itertools
import os
import sys
import tempfile

import gguf
import numpy as np

MIXTURES = {"Q4_0": 2, "Q4_1": 3, "Q8_0": 7, "Q5_0": 8, "Q5_1": 9, "Q2_K": 10, "Q3_K_S": 11,
            "Q3_K_M": 12, "Q3_K_L": 13, "Q4_K_S": 14, "Q4_K_M": 15, "Q5_K_S": 16, "Q5_K_M": 17,
            "Q6_K": 18, "Q2_K_S": 21, "IQ4_NL": 25, "IQ4_XS": 30, "MXFP4_MOE": 38,
            "IQ1_S": 24, "IQ1_M": 31, "IQ2_XXS": 19, "IQ2_XS": 20, "IQ2_S": 28, "IQ2_M": 29,
            "IQ3_XXS": 23, "IQ3_XS": 22, "IQ3_S": 26, "IQ3_M": 27, "TQ1_0": 36, "TQ2_0": 37}
# Those that llama.cpp refuses to write without importances.
WEIGHTED = ["Q2_K_S", "IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ2_M", "IQ3_XXS", "IQ3_XS"]
DENSE = ["attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"]
EXPERTS = DENSE[:4] + ["ffn_gate_exps", "ffn_up_exps", "ffn_down_exps"]
DELTA = ["attn_qkv", "attn_gate", "ssm_out", "ffn_gate", "ffn_up", "ffn_down"]
# name: architecture, layers, heads, kv heads, experts, row, weighed, tied
MODELS = {
    "dense": ("llama", 24, 8, 8, 0, 256, 0, 0),
    "weighed": ("llama", 24, 8, 8, 0, 256, 1, 0),
    "shared": ("llama", 17, 32, 8, 0, 256, 0, 1),
    "experts": ("llama", 32, 32, 8, 8, 256, 0, 0),
    "large": ("llama", 80, 64, 8, 0, 256, 0, 0),
    "hybrid": ("qwen35", 32, 16, 4, 0, 256, 0, 1),
    "narrow": ("llama", 8, 8, 2, 0, 96, 0, 0),
    "odd": ("llama", 8, 8, 8, 0, 48, 0, 0),
}


class ImatrixData(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("data", ctypes.c_void_p), ("size", ctypes.c_size_t)]


class Params(ctypes.Structure):
    _fields_ = [("nthread", ctypes.c_int32), ("ftype", ctypes.c_int), ("output", ctypes.c_int),
                ("embedding", ctypes.c_int), ("allow_requantize", ctypes.c_bool),
                ("quantize_output", ctypes.c_bool), ("only_copy", ctypes.c_bool),
                ("pure", ctypes.c_bool), ("keep_split", ctypes.c_bool), ("dry_run", ctypes.c_bool),
                ("imatrix", ctypes.c_void_p), ("kv", ctypes.c_void_p), ("tt", ctypes.c_void_p),
                ("prune", ctypes.c_void_p), ("max_buf", ctypes.c_size_t)]


def names_of(model):
    arch, layers, _, _, experts, _, _, tied = MODELS[model]
    yield "token_embd", -1
    if not tied:
        yield "output", -1
    for layer in range(layers):
        stems = EXPERTS if experts else DENSE
        if arch == "qwen35" and layer % 4 != 3:
            stems = DELTA
        for stem in stems:
            yield stem, layer


def full_name(stem, layer):
    return f"{stem}.weight" if layer < 0 else f"blk.{layer}.{stem}.weight"


def write_model(model, path):
    arch, layers, heads, kv, experts, row, _, _ = MODELS[model]
    w = gguf.GGUFWriter(path, arch)
    w.add_block_count(layers)
    w.add_context_length(128)
    w.add_embedding_length(row)
    w.add_feed_forward_length(row)
    w.add_head_count(heads)
    w.add_head_count_kv(kv)
    w.add_layer_norm_rms_eps(1e-6)
    w.add_rope_dimension_count(16)
    w.add_key_length(16)
    w.add_value_length(16)
    w.add_vocab_size(2)
    if experts:
        w.add_expert_count(experts)
        w.add_expert_used_count(2)
    if arch == "qwen35":
        w.add_rope_dimension_sections([4, 4, 0, 0])
        w.add_ssm_conv_kernel(4)
        w.add_ssm_state_size(16)
        w.add_ssm_group_count(4)
        w.add_ssm_time_step_rank(4)
        w.add_ssm_inner_size(64)
        w.add_full_attention_interval(4)
    for stem, layer in names_of(model):
        shape = (experts, 2, row) if stem.endswith("_exps") else (2, row)
        w.add_tensor(full_name(stem, layer), np.zeros(shape, dtype=np.float16))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def imatrix_of(model):
    """One entry per matrix, and the arrays that must stay alive."""
    row, experts = MODELS[model][5], MODELS[model][4]
    keep, entries = [], []
    for stem, layer in names_of(model):
        n = row * (experts if stem.endswith("_exps") else 1)
        keep.append(np.ones(n, dtype=np.float32))
        entries.append(ImatrixData(full_name(stem, layer).encode(), keep[-1].ctypes.data, n))
    return (ImatrixData * (len(entries) + 1))(*entries), keep


def runs(types):
    """["a", "a", "b"] as "2*a 1*b"."""
    return " ".join(f"{len(list(same))}*{kind}" for kind, same in itertools.groupby(types))


def quantise(library, model, mixture, source, target):
    p = library.llama_model_quantize_default_params()
    p.ftype = MIXTURES[mixture]
    p.nthread = 1
    if MODELS[model][6] or mixture in WEIGHTED:
        array, keep = imatrix_of(model)
        p.imatrix = ctypes.cast(array, ctypes.c_void_p)
    if library.llama_model_quantize(source.encode(), target.encode(), ctypes.byref(p)):
        raise SystemExit(f"{model} {mixture}: llama_model_quantize failed")
    return {t.name: t.tensor_type.name for t in gguf.GGUFReader(target).tensors}


def load_library(folder):
    for name in ["libggml-base.so", "libggml-cpu.so", "libggml.so"]:
        ctypes.CDLL(os.path.join(folder, name), mode=ctypes.RTLD_GLOBAL)
    library = ctypes.CDLL(os.path.join(folder, "libllama.so"))
    library.llama_model_quantize_default_params.restype = Params
    library.llama_model_quantize.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_void_p]
    library.llama_model_quantize.restype = ctypes.c_uint32
    library.llama_backend_init()
    quiet = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)(lambda *a: None)
    library.llama_log_set(quiet, None)
    library.quiet = quiet  # stays alive with it
    return library


def main():
    library = load_library(sys.argv[1])
    output = sys.argv[2] if len(sys.argv) > 2 else "tests/fixtures/quant/types.tsv"
    with tempfile.TemporaryDirectory() as work, open(output, "w") as out:
        source, target = os.path.join(work, "in.gguf"), os.path.join(work, "out.gguf")
        for model, (arch, layers, heads, kv, experts, row, weighed, _) in MODELS.items():
            write_model(model, source)
            out.write(f"model {model} {arch} {layers} {heads} {kv} {experts} {row} {weighed}\n")
            names = list(names_of(model))
            for mixture in MIXTURES:
                types = quantise(library, model, mixture, source, target)
                for stem in sorted({stem for stem, _ in names}):
                    listed = [types[full_name(stem, -1)]] if (stem, -1) in names else [
                        types.get(full_name(stem, i), "-") for i in range(layers)]
                    out.write(f"types {model} {mixture} {stem} {runs(listed)}\n")


if __name__ == "__main__":
    main()
