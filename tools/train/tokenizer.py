# SPDX-License-Identifier: Apache-2.0
"""Trains the byte-level BPE vocabulary of the tiny pair.

usage: tokenizer.py PIECES.jsonl OUT_DIR [MEGABYTES]

4080 ordinary entries and 16 added ones (end of text, chat turns, think and tool tags, the draft's
MASK, spares). The split is the regular expression that GGUF files call qwen35; no normaliser, all
256 bytes in the alphabet, so nothing is unknown.
"""

import json
import random
import sys

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}|"
    r" ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
VOCAB = 4096
CONTROL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|mask|>"]
ADDED = [
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<think>",
    "</think>",
    "<|mask|>",
    "<tool_call>",
    "</tool_call>",
] + [f"<|spare_{i}|>" for i in range(8)]
TEMPLATE = (
    "{%- set s = messages[0].role == 'system' %}{%- if tools %}{{ '<|im_start|>system\\n' + "
    "(messages[0].content + '\\n\\n' if s else '') + '# Tools\\n' }}{%- for t in tools %}"
    "{{ '\\n' + t.function | tojson }}{%- endfor %}{{ '\\n\\nTo call one:\\n<tool_call>\\n"
    "<function=NAME>\\n<parameter=KEY>\\nVALUE\\n</parameter>\\n</function>\\n</tool_call>"
    "<|im_end|>\\n' }}{%- endif %}{%- for m in (messages[1:] if tools and s else messages) %}"
    "{{ '<|im_start|>' + m.role + '\\n' + (m.content or '') }}{%- for c in m.tool_calls or [] %}"
    "{{ ('\\n' if m.content or not loop.first else '') + '<tool_call>\\n<function=' + "
    "c.function.name + '>\\n' }}{%- for k, v in c.function.arguments.items() %}{{ '<parameter=' + k "
    "+ '>\\n' + (v if v is string else v | tojson) + '\\n</parameter>\\n' }}{%- endfor %}"
    "{{ '</function>\\n</tool_call>' }}{%- endfor %}{{ '<|im_end|>\\n' }}{%- endfor %}"
    "{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{%- endif %}"
)
CONFIG = {
    "tokenizer_class": "PreTrainedTokenizerFast",
    "add_bos_token": False,
    "bos_token": None,
    "eos_token": "<|im_end|>",
    "pad_token": "<|endoftext|>",
    "model_max_length": 65536,
    "clean_up_tokenization_spaces": False,
    "chat_template": TEMPLATE,
}


def main():
    pieces, out = sys.argv[1], sys.argv[2]
    limit = int(sys.argv[3]) * 1_000_000 if len(sys.argv) > 3 else 40_000_000
    texts = [json.loads(line) for line in open(pieces)]
    random.Random(1).shuffle(texts)
    docs = [p["text"] for p in texts if p["kind"] == "doc"]
    code = [p["text"] for p in texts if p["kind"] != "doc"]

    def sample():
        size = 0
        for t in docs[:4000]:
            yield t
        for t in code:
            size += len(t)
            if size > limit:
                return
            yield t

    tok = Tokenizer(models.BPE())
    tok.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(SPLIT), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tok.decoder = decoders.ByteLevel()
    tok.train_from_iterator(
        sample(),
        trainers.BpeTrainer(
            vocab_size=VOCAB - len(ADDED),
            min_frequency=2,
            show_progress=False,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        ),
    )
    assert tok.get_vocab_size() == VOCAB - len(ADDED)
    tok.add_tokens(
        [AddedToken(t, special=t in CONTROL or "spare" in t, normalized=False) for t in ADDED]
    )
    assert tok.get_vocab_size() == VOCAB
    tok.save(f"{out}/tokenizer.json")
    json.dump(CONFIG, open(f"{out}/tokenizer_config.json", "w"), indent=1)


if __name__ == "__main__":
    main()
