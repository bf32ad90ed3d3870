# SPDX-License-Identifier: Apache-2.0
"""A qwen35 target out of its GGUF file: the modules of model.py with the weights as they are served,
dequantised. Dense ones with a tied head and without a prediction block; every n-th layer is one of full attention.

usage: hybrid.py TARGET.gguf LOGITS IDS   (the largest difference to what `coppice logits --all --raw LOGITS --ids IDS` wrote)
"""

import pathlib
import sys

import torch
from gguf import GGUFReader

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))
import imported
import model
import scorer_data


def config(path):
    fields = GGUFReader(path).fields
    key = lambda name: fields[f"qwen35.{name}"].contents()
    return model.TargetConfig(
        vocab=len(fields["tokenizer.ggml.tokens"].data), dim=key("embedding_length"), layers=key("block_count"),
        ffn=key("feed_forward_length"), heads=key("attention.head_count"), kv_heads=key("attention.head_count_kv"),
        head_dim=key("attention.key_length"), key_heads=key("ssm.group_count"), value_heads=key("ssm.time_step_rank"),
        state=key("ssm.state_size"), conv=key("ssm.conv_kernel"), interval=key("full_attention_interval"),
        rotary=key("rope.dimension_count"), theta=key("rope.freq_base"),
        eps=float(f"{key('attention.layer_norm_rms_epsilon'):.6g}"), context=key("context_length"))  # fmt: skip


class Target:
    """Frozen; as target.Target, but for writing, which loops.Stream does with `m`."""

    def __init__(self, path, device, dtype):
        self.c, self.device, self.dtype = config(path), device, dtype
        self.m = model.Target(self.c).to(device).eval().requires_grad_(False)
        self.m.load_state_dict(imported.target_state(path, self.c))
        for name in ("dim", "layers", "heads", "kv_heads", "head_dim", "context", "theta", "vocab"):
            setattr(self, name, getattr(self.c, name))
        self.embed = self.m.embed_tokens.weight.detach().to(dtype)
        self.head = self.embed

    def amp(self):
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self.dtype == torch.bfloat16)

    def cut(self):
        """Small enough for a try as it is."""

    def compile(self):
        torch._dynamo.config.recompile_limit = 64
        for layer in self.m.layers:
            layer.compile(dynamic=False)

    @torch.no_grad()
    def forward(self, ids, taps):
        """ids [B,T] -> hidden states after the output norm [B,T,D], outputs of the layers `taps`
        [B,T,len(taps) D], None without taps"""
        with self.amp():
            hid, raw = self.m(ids, taps)
        return hid.to(self.dtype), None if raw is None else raw.to(self.dtype)


def tokenizer(path):
    """-> the tokenizer, and the id that ends a message"""
    return scorer_data.read_tokenizer(path)[0], GGUFReader(path).fields["tokenizer.ggml.eos_token_id"].contents()


def tokenizer_config(path):
    fields = GGUFReader(path).fields
    read = lambda name: fields[f"tokenizer.{name}"].contents()
    mark = lambda name: read("ggml.tokens")[read(f"ggml.{name}_token_id")]
    return {"tokenizer_class": "PreTrainedTokenizerFast", "add_bos_token": False, "bos_token": None,
            "eos_token": mark("eos"), "pad_token": mark("padding"), "chat_template": read("chat_template"),
            "model_max_length": config(path).context, "clean_up_tokenization_spaces": False}  # fmt: skip


def main():
    path, rows, ids = sys.argv[1], sys.argv[2], [int(x) for x in sys.argv[3].split(",")]
    target = Target(path, torch.device("cpu"), torch.float32)
    mine = target.forward(torch.tensor([ids]), ())[0][0] @ target.head.T
    theirs = torch.from_file(rows, size=mine.numel(), dtype=torch.float32).view_as(mine)
    off = (mine - theirs).abs().max().item()
    same = (mine.argmax(-1) == theirs.argmax(-1)).sum().item()
    print(f"{len(ids)} tokens; largest logit {theirs.abs().max():.2f}, largest difference {off:.2g}, same likeliest {same}")


if __name__ == "__main__":
    main()
