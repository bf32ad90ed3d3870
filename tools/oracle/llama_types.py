# SPDX-License-Identifier: Apache-2.0
"""Writes tests/fixtures/real/NAME-types.jsonl: what llama.cpp's quantiser makes of a published file by each type, as a hash
of all tensors, and the perplexity that llama.cpp finds for it. The quantiser gets an F16 file that `coppice` makes of the
published one, and for types that ask for them the importances that `coppice` finds (tests/real/sources.py, which
tests/real/test_real.py takes too). Standard library only.

Usage: python llama_types.py COPPICE FILE NAME BUILD LLAMA_QUANTIZE LLAMA_PERPLEXITY [TYPE]...
BUILD is what `llama-server --version` says.
"""
import json
import os
import re
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../../tests/real"))
import sources  # noqa: E402
from tensors import digest  # noqa: E402


def main():
    coppice, file, name, build, quantiser, perplexity = sys.argv[1:7]
    rows = [{"program": "llama.cpp", "build": build}]
    with tempfile.TemporaryDirectory() as work:
        full, matrix, out, text = (os.path.join(work, n) for n in ("f16.gguf", "imatrix.gguf", "out.gguf", "text"))
        types = sys.argv[7:] or sources.TYPES
        sources.make(lambda *words: subprocess.run([coppice, *words], check=True, capture_output=True), name, file,
                     full, matrix if set(types) & set(sources.WEIGHTED) else None)
        with open(sources.TEXT, "rb") as of, open(text, "wb") as to:
            to.write(of.read())
        for kind in types:
            weighted = ["--imatrix", matrix] if kind in sources.WEIGHTED else []
            done = subprocess.run([quantiser, *weighted, full, out, kind], capture_output=True)
            if done.returncode:
                print(f"{kind}: refused")
                continue
            seen = subprocess.run([perplexity, "-m", out, "-f", text, "-c", "512", "--chunks", "1", "-t", "1"],
                                  capture_output=True, text=True)
            found = re.search(r"PPL = ([0-9.]+)", seen.stdout + seen.stderr)
            rows.append({"type": kind, "sha256": digest(out), "perplexity": float(found[1])})
            print(rows[-1], flush=True)
            os.unlink(out)
    with open(os.path.join(HERE, "../../tests/fixtures/real", f"{name}-types.jsonl"), "w", encoding="ascii") as f:
        for row in rows:
            f.write(json.dumps(row, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
