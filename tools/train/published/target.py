# SPDX-License-Identifier: Apache-2.0
"""A target out of its GGUF file, as plain PyTorch: the weights as they are served, dequantised. Here is llama; qwen35
is in hybrid.py.

Needed: torch, numpy, gguf. GGUF files of this architecture hold the rows of queries and keys in the order in which
neighbouring values are a rotated pair.
"""

import math

import numpy as np
import torch
import torch.nn.functional as F
from gguf import GGUFReader
from gguf.quants import dequantize

import hybrid


def rms(x, w, eps):
    return F.rms_norm(x.float(), (x.shape[-1],), w, eps).to(x.dtype)


class Target:
    """Frozen; B rows of T tokens at once (`forward`), or one token of each row a step (`step`)."""

    def __init__(self, path, device, dtype):
        file = GGUFReader(path)
        meta = {k: f.contents() for k, f in file.fields.items() if not k.startswith("tokenizer.ggml.")}
        key = lambda name: meta[f"llama.{name}"]
        self.dim, self.layers = key("embedding_length"), key("block_count")
        self.heads, self.kv_heads = key("attention.head_count"), key("attention.head_count_kv")
        self.head_dim, self.context = self.dim // self.heads, key("context_length")
        self.eps, self.theta = key("attention.layer_norm_rms_epsilon"), key("rope.freq_base")
        self.device, self.dtype, self.w = device, dtype, {}
        for t in file.tensors:
            x = torch.from_numpy(np.array(dequantize(t.data, t.tensor_type), np.float32)).to(device)
            self.w[t.name.removesuffix(".weight")] = x if x.dim() == 1 else x.to(dtype)
        self.embed = self.w["token_embd"]
        self.vocab = len(self.embed)
        self.head = self.w.get("output", self.embed)
        angle = torch.arange(0, self.head_dim, 2, device=device).float() / self.head_dim
        angle = torch.arange(self.context, device=device).float()[:, None] * self.theta**-angle
        self.cos, self.sin = angle.cos(), angle.sin()

    def cut(self):
        """For a try on a CPU."""
        self.layers = 2

    def compile(self):
        torch._dynamo.config.recompile_limit = 64
        self.whole = torch.compile(self.whole, dynamic=False)

    def rope(self, x, cos, sin):
        """x [B,heads,T,head_dim]; cos, sin [T,head_dim/2]"""
        a, b = x.float().unflatten(-1, (-1, 2)).unbind(-1)
        return torch.stack((a * cos - b * sin, a * sin + b * cos), -1).flatten(-2).to(x.dtype)

    def weights(self, i):
        return [self.w[f"blk.{i}.{name}"] for name in ("attn_norm", "attn_q", "attn_k", "attn_v", "attn_output",
                                                       "ffn_norm", "ffn_gate", "ffn_up", "ffn_down")]  # fmt: skip

    def project(self, w, h, cos, sin):
        """h [B,T,D] -> queries, keys, values [B,heads,T,head_dim]"""
        split = lambda x, n: x.unflatten(-1, (n, self.head_dim)).transpose(1, 2)
        x = rms(h, w[0], self.eps)
        q, k, v = (split(x @ m.T, n) for m, n in zip(w[1:4], (self.heads, self.kv_heads, self.kv_heads)))
        return self.rope(q, cos, sin), self.rope(k, cos, sin), v

    def rest(self, w, h, o):
        h = h + o.transpose(1, 2).flatten(2) @ w[4].T
        x = rms(h, w[5], self.eps)
        return h + (F.silu(x @ w[6].T) * (x @ w[7].T)) @ w[8].T

    def whole(self, w, h, cos, sin):
        """One layer over whole texts"""
        q, k, v = self.project(w, h, cos, sin)
        r = self.heads // self.kv_heads
        k, v = k.repeat_interleave(r, 1), v.repeat_interleave(r, 1)
        return self.rest(w, h, F.scaled_dot_product_attention(q, k, v, is_causal=True))

    @torch.no_grad()
    def forward(self, ids, taps):
        """ids [B,T] -> hidden states after the output norm [B,T,D], outputs of the layers `taps`
        [B,T,len(taps) D], None without taps"""
        h, seen, t = self.embed[ids], {}, ids.shape[1]
        for i in range(self.layers):
            h = self.whole(self.weights(i), h, self.cos[:t], self.sin[:t])
            if i in taps:
                seen[i] = h
        return rms(h, self.w["output_norm"], self.eps), torch.cat([seen[i] for i in taps], -1) if taps else None

    def cache(self, rows, length):
        """-> keys and values of every layer for `rows` texts"""
        shape = (self.layers, 2, rows, self.kv_heads, length, self.head_dim)
        return torch.empty(shape, device=self.device, dtype=self.dtype)

    def reshaped(self, cache, rows, length):
        """The same memory for fewer and longer texts"""
        shape = (self.layers, 2, rows, self.kv_heads, length, self.head_dim)
        return cache.flatten()[: math.prod(shape)].view(shape)

    @torch.no_grad()
    def step(self, ids, t, cache):
        """ids [B], the tokens at position t of every row -> logits [B,vocab]"""
        r, h, here = self.heads // self.kv_heads, self.embed[ids][:, None], slice(t, t + 1)
        for i in range(self.layers):
            w, (keys, values) = self.weights(i), cache[i]
            q, k, v = self.project(w, h, self.cos[here], self.sin[here])
            keys[:, :, t], values[:, :, t] = k[:, :, 0], v[:, :, 0]
            q = q[:, :, 0].unflatten(1, (self.kv_heads, r))  # heads that share keys become rows
            o = F.scaled_dot_product_attention(q, keys[:, :, : t + 1], values[:, :, : t + 1])
            h = self.rest(w, h, o.flatten(1, 2)[:, :, None])
        return (rms(h[:, 0], self.w["output_norm"], self.eps) @ self.head.T).float()


def architecture(path):
    return GGUFReader(path).fields["general.architecture"].contents()


def read(path, device, dtype):
    if architecture(path) == "llama":
        return Target(path, device, dtype)
    if architecture(path) == "qwen35":
        return hybrid.Target(path, device, dtype)
    raise SystemExit(f"{path}: only targets of the architectures llama and qwen35 are known here")


def tokenizer(path):
    """-> the tokenizer, and the id that ends a message"""
    if architecture(path) == "qwen35":
        return hybrid.tokenizer(path)
    from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers

    fields = GGUFReader(path).fields
    read = lambda name: fields[f"tokenizer.ggml.{name}"].contents()
    if read("model") != "gpt2" or read("pre") != "smollm":
        raise SystemExit(f"{path}: only the tokenizer of SmolLM is known here, not {read('pre')}")
    tokens = read("tokens")
    merges = [tuple(m.split(" ")) for m in read("merges")]
    tok = Tokenizer(models.BPE({t: i for i, t in enumerate(tokens)}, merges))
    tok.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    special = [AddedToken(t, special=True) for t, kind in zip(tokens, read("token_type")) if kind == 3]
    tok.add_special_tokens(special)
    return tok, read("eos_token_id")
