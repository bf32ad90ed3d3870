# SPDX-License-Identifier: Apache-2.0
"""Loads an exported target with HuggingFace transformers and compares logits with model.py.

usage: check_export.py TARGET_DIR   (prints the largest difference; exit 1 above 1e-3)
"""

import sys

import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from model import Target, TargetConfig


def main():
    path = sys.argv[1]
    hf = AutoModelForCausalLM.from_pretrained(
        path, dtype=torch.float32, attn_implementation="eager"
    ).eval()
    tok = AutoTokenizer.from_pretrained(path)
    m = Target(TargetConfig(vocab=hf.config.vocab_size))
    m.load_state_dict(
        {k[len("model.") :]: v.float() for k, v in load_file(path + "/model.safetensors").items()}
    )
    text = (
        "<|im_start|>user\nWhat does `read` do?<|im_end|>\n<|im_start|>assistant\n"
        + open(__file__).read()
    )
    ids = torch.tensor([tok(text)["input_ids"][:300]])
    assert tok.decode(ids[0]) == text[: len(tok.decode(ids[0]))]
    with torch.no_grad():
        a, b = hf(ids).logits, m.head(m(ids)[0])
    diff = (a - b).abs().max().item()
    print("tokens", ids.shape[1], "largest logit", a.abs().max().item(), "difference", diff)
    sys.exit(diff > 1e-3)


if __name__ == "__main__":
    main()
