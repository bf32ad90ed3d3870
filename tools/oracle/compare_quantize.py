# SPDX-License-Identifier: Apache-2.0
"""Compares whole files of `coppice quantize` with those of llama.cpp's quantiser, byte by byte.

Makes an F16 file of the bundled target and importances from a text, quantises it by every mixture with
both programs, plainly and with the importances, and prints how many tensors have the same type and
bytes. All must, but ssm_alpha and ssm_beta, which we keep at Q8_0.

Usage: python compare_quantize.py FOLDER_OF_LIBLLAMA COPPICE MODEL.GGUF TEXT
"""
import ctypes
import os
import subprocess
import sys
import tempfile

import gguf
import numpy as np

from quant_types import MIXTURES, ImatrixData, load_library


def run(*command):
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def importances(path):
    """Entries of the file at `path`, and the arrays that must stay alive."""
    stored = {t.name: t.data.astype(np.float32).ravel() for t in gguf.GGUFReader(path).tensors}
    keep, entries = [], []
    for name in stored:
        if name.endswith(".in_sum2"):
            stem = name[:-len(".in_sum2")]
            keep.append((stored[name] / stored[stem + ".counts"][0]).astype(np.float32))
            entries.append(ImatrixData(stem.encode(), keep[-1].ctypes.data, len(keep[-1])))
    return (ImatrixData * (len(entries) + 1))(*entries), keep


def differences(ours, theirs):
    a = {t.name: t for t in gguf.GGUFReader(ours).tensors}
    b = {t.name: t for t in gguf.GGUFReader(theirs).tensors}
    if set(a) != set(b):
        raise SystemExit("the files hold different tensors")
    return len(a), [n for n in a if a[n].tensor_type != b[n].tensor_type
                    or not np.array_equal(a[n].data, b[n].data)]


def main():
    folder, coppice, model, text = sys.argv[1:5]
    library = load_library(folder)
    unexpected = 0
    with tempfile.TemporaryDirectory() as work:
        source, ours, theirs, matrix = (os.path.join(work, n) for n in ["f", "a", "b", "m"])
        run(coppice, "quantize", model, source, "F16")
        run(coppice, "imatrix", "-m", model, "-f", text, "--pieces", "20", matrix)
        array, keep = importances(matrix)
        for mixture, number in MIXTURES.items():
            for weighted in [False, True]:
                p = library.llama_model_quantize_default_params()
                p.ftype = number
                if weighted:
                    p.imatrix = ctypes.cast(array, ctypes.c_void_p)
                elif mixture == "Q2_K_S":
                    continue  # refused by llama.cpp
                if library.llama_model_quantize(source.encode(), theirs.encode(), ctypes.byref(p)):
                    raise SystemExit(f"{mixture}: llama_model_quantize failed")
                run(coppice, "quantize", source, ours, mixture,
                    *(["--imatrix", matrix] if weighted else []))
                total, differ = differences(ours, theirs)
                others = [n for n in differ if "ssm_alpha" not in n and "ssm_beta" not in n]
                unexpected += len(others)
                print(f"{mixture:10} {'weighted' if weighted else 'plain':8} "
                      f"{total - len(differ)} of {total} tensors are the same, "
                      f"{len(others)} of the others are not ssm_alpha or ssm_beta")
        del keep
    sys.exit(unexpected > 0)


if __name__ == "__main__":
    main()
