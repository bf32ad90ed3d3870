# SPDX-License-Identifier: Apache-2.0
"""Writes tests/fixtures/tokenizer/families/: every pre-tokeniser, SentencePiece and gemma4.

One byte-level vocabulary serves all pre-tokenisers: it is trained across the borders of words,
digits and symbols, so that a wrong cut changes the ids, and every seventh merge is taken out, so
that tokenizers that take whole pieces give other ids than those that merge. The SentencePiece
vocabulary is trained by `sentencepiece`, whose own ids must agree with those of `tokenizers`.

Usage: python family_fixtures.py [OUTPUT_DIR]
"""
import json
import os
import sys
import tempfile

import gguf
import sentencepiece
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers
from tokenizers import trainers

from tokenizer_text import SENTENCES, SPECIALS, hostile_texts, training_text

C = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
W = r"\s*[\r\n]+|\s+(?!\S)|\s+"
U = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
L = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
P = r"[^\r\n\p{L}\p{N}]?"
UH = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]"
LH = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]"
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
QWEN2 = C + "|" + P + r"\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + W
LLAMA = C + "|" + P + r"\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + W
CASED = ("A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚ"
         "Ḁ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-\u1f7dᾀ-ᾴᾶ-ᾼ\u1fbeῂ-ῄῆ-ῌῐ-\u1fd3ῖ-\u1fdbῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤ\u2126ℨ"
         "\u212a-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃")
ASIAN = "[一-龥\u0800-一가-\ud7ff]+"

# Stages of each family; the first name of a row of src/text/tokenizer/rules.c.
FAMILIES = {
    "gpt-2": [GPT2],
    "qwen2": [QWEN2],
    "qwen35": [C + "|" + P + r"[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|" + W],
    "llama-bpe": [LLAMA],
    "smaug-bpe": [LLAMA],
    "glm4": [LLAMA],
    "gpt-4o": [f"{P}{U}*{L}+{C}?|{P}{U}+{L}*{C}?" + r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|" + W],
    "tekken": [f"{P}{U}*{L}+|{P}{U}+{L}*" + r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|" + W],
    "deepseek-v3": [r"\p{N}{1,3}", "[一-龥\u3040-ゟ゠-ヿ]+",
                    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+"""
                    r"|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|" + W],
    "deepseek-llm": [r"[\r\n]", rf"\s?[{CASED}]+", r"\s?[!-/:-~！-／：-～‘-‟　-。]+", r"\s+$", ASIAN,
                     r"\p{N}+"],
    "deepseek-coder": [r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", ASIAN, r"\p{N}"],
    "laguna": [r"(?:\r?\n)+(?!\r?\n)", QWEN2],
    "kimi-k2": [r"[\p{Han}]+|" + f"{P}{UH}*{LH}+{C}?|{P}{UH}+{LH}*{C}?"
                + r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + W],
    "starcoder": [r"\p{N}", GPT2],
    "falcon": [r"[\p{P}\$\+<=>\^~\|`]+", GPT2, "[0-9][0-9][0-9]"],
    "default": [r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", "[0-9][0-9][0-9]"],
    "bailingmoe": [r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}"
                   r"| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"],
    "youtu": ["[가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-〿︰-﹏]+|[ㄅ-ㄯ]+|[一-龥\u3040-ゟ゠-ヿ]+",
              f"{P}{U}*{L}+{C}?|{P}{U}+{L}*{C}?" + r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|" + W],
    "minicpm5": [r"\p{N}{1,3}",
                 C + "|" + P + r"\p{L}+|\p{N}+| ?[^\s\p{L}\p{N}]+[\r\n]*|" + W],
    "chameleon": ["<sentinel:[0-9]+>", "(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z", r"[\t\n]|    |  ",
                  r"\p{N}", r"[\p{P}!-/:-@\[-`{-~]", GPT2],
}
WHOLE = {"llama-bpe", "glm4", "tekken", "youtu", "minicpm5"}  # ignore_merges
EXTRA = ["IMGIMGABZIMGIMGJZ<sentinel:12>x<sentinel:>", "1234567 12 1 1a2", "a\u3007b 々漢〻字ABcd",
         "HTTPServer's iPhone'LL McDonald'Ve", "x=1;//c\n\n/*d*/", "…“引”—、︰ㄅㄯㄱ가", "a'B'sC'tD",
         "tab\t\tx\n\ty  z   w    v", "ﬁΑβ\u00b5ʔƻ ᴬ𐐀", "「」。～！abc　def", "日本語ＡＢＣ１２３ＡＢＣ", "~~~`x` $+<=>^|"]
SIZE, SPM_SIZE, GEMMA_SIZE = 1536, 1280, 1024


def splits(name):
    how = {("laguna", 0): "merged_with_next"}
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(r), how.get((name, i), "isolated"))
                                    for i, r in enumerate(FAMILIES[name])])


def train_bytes():
    """Vocabulary and merges that pay no heed to words."""
    tok = Tokenizer(models.BPE())
    loose = pre_tokenizers.Split(Regex(r"\s{0,3}[^\s]{1,7}\s{0,2}|\s+"), behavior="isolated")
    tok.pre_tokenizer = pre_tokenizers.Sequence(
        [loose, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    trainer = trainers.BpeTrainer(vocab_size=SIZE - len(SPECIALS), min_frequency=2,
                                  show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tok.train_from_iterator(training_text() + EXTRA * 3, trainer)
    model = json.loads(tok.to_str())["model"]
    merges = [tuple(m.split(" ")) if isinstance(m, str) else tuple(m) for m in model["merges"]]
    return model["vocab"], [m for i, m in enumerate(merges) if i % 7 != 6]


def add_specials(tok):
    tok.add_tokens([AddedToken(t, special=control, normalized=False) for t, control in SPECIALS])
    return tok


def byte_level(name, vocab, merges):
    tok = Tokenizer(models.BPE(vocab=vocab, merges=merges, ignore_merges=name in WHOLE))
    tok.pre_tokenizer = pre_tokenizers.Sequence(
        [splits(name), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tok.decoder = decoders.ByteLevel()
    return add_specials(tok)


def token_kind(text, base):
    special = dict(SPECIALS)
    if text in special:
        return gguf.TokenType.CONTROL if special[text] else gguf.TokenType.USER_DEFINED
    return base.get(text, gguf.TokenType.NORMAL)


def write_gguf(path, model, pre, tokens, kinds, merges=None, scores=None):
    w = gguf.GGUFWriter(path, "llama")
    w.add_tokenizer_model(model)
    if pre:
        w.add_tokenizer_pre(pre)
    w.add_token_list(tokens)
    w.add_token_types([int(k) for k in kinds])
    if scores:
        w.add_token_scores(scores)
    if merges:
        w.add_token_merges([" ".join(m) for m in merges])
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.close()


def by_id(vocab):
    return [t for t, _ in sorted(vocab.items(), key=lambda item: item[1])]


def encode(tok, text, special):
    tok.encode_special_tokens = not special
    return tok.encode(text, add_special_tokens=False).ids


BYTES = [f"<0x{b:02X}>" for b in range(256)]


def scored_merges(pieces):
    """Merges in the order of scores: every cut of a piece into two pieces."""
    ids = {p: i for i, (p, _) in enumerate(pieces)}
    out = []
    for rank, (p, score) in sorted(enumerate(pieces), key=lambda x: -x[1][1]):
        for cut in range(1, len(p)):
            if p[:cut] in ids and p[cut:] in ids:
                out.append((p[:cut], p[cut:]))
    return out


def sentence_pieces(out):
    """The SentencePiece vocabulary; returns its tokenizer as `tokenizers` runs it, and its own."""
    with tempfile.TemporaryDirectory() as tmp:
        prefix = os.path.join(tmp, "m")
        lines = [line for t in SENTENCES * 4 for line in t.split("\n") if line.strip()]
        sentencepiece.SentencePieceTrainer.Train(
            sentence_iterator=iter(lines), model_prefix=prefix, model_type="bpe",
            vocab_size=SPM_SIZE, byte_fallback=True, normalization_rule_name="identity",
            remove_extra_whitespaces=False, add_dummy_prefix=True, character_coverage=0.98,
            allow_whitespace_only_pieces=True, split_digits=True, minloglevel=2)
        sp = sentencepiece.SentencePieceProcessor(model_file=prefix + ".model")
    n = sp.get_piece_size()
    pieces = [(sp.id_to_piece(i), sp.get_score(i)) for i in range(n)]
    kinds = [gguf.TokenType.UNKNOWN if sp.is_unknown(i) else gguf.TokenType.CONTROL
             if sp.is_control(i) else gguf.TokenType.BYTE if sp.is_byte(i)
             else gguf.TokenType.NORMAL for i in range(n)]
    normal = [(p, s) for (p, s), k in zip(pieces, kinds) if k == gguf.TokenType.NORMAL]
    tok = Tokenizer(models.BPE(vocab={p: i for i, (p, _) in enumerate(pieces)},
                               merges=scored_merges(normal), unk_token="<unk>", fuse_unk=True,
                               byte_fallback=True))
    tok.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    add_specials(tok)
    tokens = [p for p, _ in pieces] + [t for t, _ in SPECIALS]
    scores = [s for _, s in pieces] + [0.0] * len(SPECIALS)
    write_gguf(os.path.join(out, "spm.gguf"), "llama", None, tokens,
               kinds + [token_kind(t, {}) for t, _ in SPECIALS], scores=scores)
    return tok, sp


def gemma(out):
    """Merges over escaped raw text, which never cross a line end."""
    tok = Tokenizer(models.BPE())
    tok.normalizer = normalizers.Replace(" ", "▁")
    tok.pre_tokenizer = pre_tokenizers.Split(Regex(r"[^\n]{1,9}|\n+"), behavior="isolated")
    trainer = trainers.BpeTrainer(vocab_size=GEMMA_SIZE - 260 - len(SPECIALS), min_frequency=2,
                                  show_progress=False, limit_alphabet=400)
    tok.train_from_iterator(training_text() + ["\n" * k for k in range(2, 9)] * 9, trainer)
    model = json.loads(tok.to_str())["model"]
    named = ["<pad>", "<eos>", "<bos>", "<unk>"]
    tokens = named + BYTES + by_id(model["vocab"])
    kinds = [gguf.TokenType.CONTROL] * 3 + [gguf.TokenType.UNKNOWN] + [gguf.TokenType.BYTE] * 256
    kinds += [gguf.TokenType.NORMAL] * len(model["vocab"])
    kinds += [token_kind(t, {}) for t, _ in SPECIALS]
    merges = [tuple(m.split(" ")) if isinstance(m, str) else tuple(m) for m in model["merges"]]
    tok = Tokenizer(models.BPE(vocab={t: i for i, t in enumerate(tokens)}, merges=merges,
                               unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tok.normalizer = normalizers.Replace(" ", "▁")
    add_specials(tok)
    write_gguf(os.path.join(out, "gemma4.gguf"), "gemma4", None, tokens + [t for t, _ in SPECIALS],
               kinds, merges=merges)
    return tok


def grouped(values):
    """{family: value} to {"family family": value}, equal values together."""
    groups = {}
    for name, value in values.items():
        groups.setdefault(json.dumps(value), []).append(name)
    return {" ".join(names): json.loads(v) for v, names in groups.items()}


def texts():
    every = hostile_texts()
    return EXTRA + [t for i, t in enumerate(every) if len(t) <= 90 and (i < 240 or i % 4 == 0)]


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    out = sys.argv[1] if len(sys.argv) > 1 else os.path.join(
        here, "../../tests/fixtures/tokenizer/families")
    os.makedirs(out, exist_ok=True)
    vocab, merges = train_bytes()
    toks = {name: byte_level(name, vocab, merges) for name in FAMILIES}
    tokens = by_id(vocab)
    write_gguf(os.path.join(out, "bytes.gguf"), "gpt2", "default",
               tokens + [t for t, _ in SPECIALS], [token_kind(t, {}) for t in tokens]
               + [token_kind(t, {}) for t, _ in SPECIALS], merges=merges)
    toks["spm"], sp = sentence_pieces(out)
    toks["gemma4"] = gemma(out)
    differ = 0
    with open(os.path.join(out, "families.jsonl"), "w", encoding="ascii") as f:
        for text in texts():
            if not any(t in text for t, _ in SPECIALS):
                if text and sp.encode(text) != encode(toks["spm"], text, True):
                    differ += 1
                    continue
            row = {"text": text, "ids": grouped({n: encode(t, text, True) for n, t in toks.items()})}
            plain = {n: encode(t, text, False) for n, t in toks.items()}
            if any(plain[n] != encode(t, text, True) for n, t in toks.items()):
                row["plain"] = grouped(plain)
            row["cuts"] = grouped({n: [len(p.encode()) for p, _ in splits(n).pre_tokenize_str(text)]
                                   for n in FAMILIES})
            f.write(json.dumps(row, separators=(",", ":")) + "\n")
    print(f"{differ} texts left out, on which sentencepiece and tokenizers disagree")


if __name__ == "__main__":
    main()
