# SPDX-License-Identifier: Apache-2.0
"""Writes tests/fixtures/tokenizer/: two small tokenizers and the ids HuggingFace gives.

Trains a byte-level BPE for each of the regexes `qwen35` and `qwen2` with the `tokenizers`
library, stores each as a GGUF file that holds metadata only, one also as tokenizer.json, and
encodes the texts of tokenizer_text.py. No normaliser: GGUF readers apply none.

Usage: python tokenizer_fixtures.py [OUTPUT_DIR]
"""
import json
import os
import sys

import gguf
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from tokenizer_text import SPECIALS, hostile_texts, training_text

CONTRACTION = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
TAIL = r"\s*[\r\n]+|\s+(?!\S)|\s+"
REGEX = {
    "qwen35": CONTRACTION + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}"
              r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|" + TAIL,
    "qwen2": CONTRACTION + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
             r"| ?[^\s\p{L}\p{N}]+[\r\n]*|" + TAIL,
}
ORDINARY = 2034  # ordinary entries; added tokens and padding follow up to SIZE
SIZE = 2048


def train(pre):
    tok = Tokenizer(models.BPE())
    tok.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(REGEX[pre]), behavior="isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ])
    tok.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=ORDINARY, min_frequency=2, show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tok.train_from_iterator(training_text(), trainer)
    tok.add_tokens([AddedToken(t, special=control, normalized=False) for t, control in SPECIALS])
    return tok


def write_gguf(tok, pre, path):
    model = json.loads(tok.to_str())["model"]
    tokens = [f"[PAD{i}]" for i in range(SIZE)]
    types = [int(gguf.TokenType.UNUSED)] * SIZE
    for text, i in model["vocab"].items():
        tokens[i], types[i] = text, int(gguf.TokenType.NORMAL)
    for text, control in SPECIALS:
        i = tok.token_to_id(text)
        kind = gguf.TokenType.CONTROL if control else gguf.TokenType.USER_DEFINED
        tokens[i], types[i] = text, int(kind)
    w = gguf.GGUFWriter(path, "qwen35")
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre(pre)
    w.add_token_list(tokens)
    w.add_token_types(types)
    w.add_token_merges([m if isinstance(m, str) else " ".join(m) for m in model["merges"]])
    w.add_eos_token_id(tok.token_to_id("<|im_end|>"))
    w.add_pad_token_id(tok.token_to_id("<|endoftext|>"))
    w.add_mask_token_id(tok.token_to_id("<|mask|>"))
    w.add_add_bos_token(False)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.close()


def encode(tok, text, special):
    tok.encode_special_tokens = not special
    return tok.encode(text, add_special_tokens=False).ids


def byte_of():
    """The byte-level map: printable Latin-1 bytes stand for themselves, the rest follow U+0100."""
    own = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    rest = [b for b in range(256) if b not in own]
    return {chr(b): b for b in own} | {chr(0x100 + i): b for i, b in enumerate(rest)}


def check_bytes(tok, ids, text, table=byte_of()):
    """Ids give the text back. Added tokens are verbatim (the library's decoder maps them too)."""
    added = {tok.token_to_id(t): t.encode() for t, _ in SPECIALS}
    parts = [added[i] if i in added else bytes(table[c] for c in tok.id_to_token(i)) for i in ids]
    assert b"".join(parts) == text.encode(), (ids, text)


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    out = sys.argv[1] if len(sys.argv) > 1 else os.path.join(here, "../../tests/fixtures/tokenizer")
    os.makedirs(out, exist_ok=True)
    toks = {pre: train(pre) for pre in REGEX}
    for pre, tok in toks.items():
        write_gguf(tok, pre, os.path.join(out, f"{pre}.gguf"))
    hf = json.loads(toks["qwen35"].to_str())
    with open(os.path.join(out, "tokenizer.json"), "w", encoding="utf-8") as f:
        json.dump(hf, f, ensure_ascii=False, separators=(",", ":"))
    with open(os.path.join(out, "ids.jsonl"), "w", encoding="ascii") as f:
        for text in hostile_texts():
            row = {"text": text}
            for pre, tok in toks.items():
                row[pre] = encode(tok, text, True)
                plain = encode(tok, text, False)
                if plain != row[pre]:
                    row[pre + "_plain"] = plain
                check_bytes(tok, row[pre], text)
                check_bytes(tok, plain, text)
            f.write(json.dumps(row, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
