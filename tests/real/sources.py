# SPDX-License-Identifier: Apache-2.0
"""What quantisers are given: an F16 file of a published one, and importances from a text that does not change, behind the
part that perplexity is of (tests/fixtures/real/NAME-text.jsonl). Standard library only."""
import json
import os

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TEXT = os.path.join(ROOT, "LICENSE")
# All but the ternary ones, which are for weights that were trained so. The first ask for importances.
WEIGHTED = ["IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ2_M", "IQ3_XXS", "IQ3_XS", "Q2_K_S"]
TYPES = ["F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q2_K", "Q3_K_S", "Q3_K_M", "Q3_K_L", "Q4_K_S", "Q4_K_M",
         "Q5_K_S", "Q5_K_M", "Q6_K", "IQ4_NL", "IQ4_XS", "IQ3_S", "IQ3_M", "MXFP4_MOE"] + WEIGHTED


def ids(name, part):
    """The text's beginning (0), or what is behind it (1), as an option's list of ids."""
    with open(os.path.join(ROOT, f"tests/fixtures/real/{name}-text.jsonl"), encoding="ascii") as f:
        return ",".join(map(str, json.loads(f.read().splitlines()[part])["ids"]))


def make(run, name, file, full, matrix=None):
    """run: of words of `coppice`."""
    run("quantize", "--allow-requantize", file, full, "F16")
    if matrix:
        run("imatrix", "--device", "cpu", "-m", full, "--ids", ids(name, 1), matrix)
