# SPDX-License-Identifier: Apache-2.0
"""The tiny scorer: a qwen3 model of a few layers whose attention says which tokens matter.

A token's score is what coppice computes (src/compress): in every layer and head the softmax of the
queries of the question's tokens over all keys before them, both before the rotary embedding, the
largest of all layers and heads, the mean over the question's tokens. So positions play no part in
a score itself; they only serve the layers below, which mix neighbouring tokens. The attention
output and the feed-forward of the last layer are never run.
"""

from dataclasses import asdict, dataclass

import torch
import torch.nn.functional as F
from torch import nn

from model import RMSNorm, rope


@dataclass
class Config:
    vocab: int = 4096
    dim: int = 256
    layers: int = 3
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 64
    ffn: int = 512
    theta: float = 10000.0
    eps: float = 1e-6
    context: int = 131072


def norm(n, eps):
    return RMSNorm(n, False, eps)


class Attention(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c = c
        self.q_proj = nn.Linear(c.dim, c.heads * c.head_dim, bias=False)
        self.k_proj = nn.Linear(c.dim, c.kv_heads * c.head_dim, bias=False)
        self.v_proj = nn.Linear(c.dim, c.kv_heads * c.head_dim, bias=False)
        self.o_proj = nn.Linear(c.heads * c.head_dim, c.dim, bias=False)
        self.q_norm, self.k_norm = norm(c.head_dim, c.eps), norm(c.head_dim, c.eps)

    def heads(self, x, proj, n):
        return proj(x).unflatten(-1, (n, self.c.head_dim)).transpose(1, 2)

    def queries(self, x):
        return self.q_norm(self.heads(x, self.q_proj, self.c.heads))

    def keys(self, x):
        return self.k_norm(self.heads(x, self.k_proj, self.c.kv_heads))

    def mix(self, x, q, k, angles, bias):
        v = self.heads(x, self.v_proj, self.c.kv_heads)
        q, k, n = rope(q, *angles), rope(k, *angles), self.c.heads // self.c.kv_heads
        k, v = k.repeat_interleave(n, 1), v.repeat_interleave(n, 1)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=bias, is_causal=bias is None)
        return self.o_proj(y.transpose(1, 2).flatten(2))


class Layer(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.input_layernorm = norm(c.dim, c.eps)
        self.self_attn = Attention(c)
        self.post_attention_layernorm = norm(c.dim, c.eps)
        self.gate_proj = nn.Linear(c.dim, c.ffn, bias=False)
        self.up_proj = nn.Linear(c.dim, c.ffn, bias=False)
        self.down_proj = nn.Linear(c.ffn, c.dim, bias=False)

    def mlp(self, x):
        x = self.post_attention_layernorm(x)
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Scorer(nn.Module):
    def __init__(self, c, embeddings=None):
        super().__init__()
        self.c = c
        self.embed_tokens = nn.Embedding(c.vocab, c.dim)
        self.layers = nn.ModuleList(Layer(c) for _ in range(c.layers))
        self.norm = norm(c.dim, c.eps)
        for p in self.parameters():
            if p.dim() == 2:
                nn.init.normal_(p, std=0.02 if p.shape[0] == c.vocab else p.shape[1] ** -0.5)
        for l in self.layers:  # equal tokens find each other from the start
            n = c.heads // c.kv_heads
            k = l.self_attn.k_proj.weight.unflatten(0, (c.kv_heads, c.head_dim))
            with torch.no_grad():
                l.self_attn.q_proj.weight.copy_(k.repeat_interleave(n, 0).flatten(0, 1))
                l.self_attn.o_proj.weight.mul_(0.5)
                l.down_proj.weight.mul_(0.5)
        with torch.no_grad():
            self.layers[-1].self_attn.q_norm.weight.fill_(2.0)
            if embeddings is not None:
                self.embed_tokens.weight.copy_(embeddings)

    def angles(self, positions):
        half = self.c.head_dim // 2
        inv = self.c.theta ** (-torch.arange(half, dtype=torch.float64) / half)
        a = (positions.double()[:, None] * inv).float()
        return a.cos(), a.sin()

    def each_layer(self, ids, positions, bias):
        """Yields the queries [b,heads,n,d] and keys [b,kv,n,d] of each layer, before the rotation."""
        x, angles = self.embed_tokens(ids), self.angles(positions)
        for i, l in enumerate(self.layers):
            h = l.input_layernorm(x)
            q, k = l.self_attn.queries(h), l.self_attn.keys(h)
            yield q, k
            if i + 1 < self.c.layers:
                x = x + l.self_attn.mix(h, q, k, angles, bias)
                x = x + l.mlp(x)

    def train_scores(self, ids, context, width, far, near):
        """Scores [b, questions, context] of b rows of a context and several questions of `width`
        ids each. Questions do not see each other. Context keys farther than 48 positions weigh
        exp(far) as much in the layers, as if there were so many of them; near [b, context] is
        added to the logits of the context's keys in the scores."""
        n, questions = ids.shape[1], (ids.shape[1] - context) // width
        positions, bias = lay_out(n, context, width, far)
        best, d, g = None, self.c.head_dim**-0.5, self.c.heads // self.c.kv_heads
        own = torch.full((width, width), float("-inf")).triu(1)
        for q, k in self.each_layer(ids, positions, bias):
            k = k.repeat_interleave(g, 1)
            q = q[:, :, context:]
            there = q @ k[:, :, :context].transpose(-1, -2) * d + near[:, None, None]
            fold = lambda t: t.unflatten(2, (questions, width))
            here = fold(q) @ fold(k[:, :, context:]).transpose(-1, -2) * d + own
            p = torch.cat((there, here.flatten(2, 3)), -1).softmax(-1)[..., :context].amax(1)
            best = p if best is None else torch.maximum(best, p)
        return best.unflatten(1, (questions, width))

    @torch.no_grad()
    def score(self, ids, first, count):
        """Scores [n] of ids [n], asked by the tokens first .. first+count-1; plain causal."""
        d, best = self.c.head_dim**-0.5, None
        rows = torch.arange(first, first + count)
        unseen = torch.arange(len(ids))[None] > rows[:, None]
        for q, k in self.each_layer(ids[None], torch.arange(len(ids)), None):
            k = k.repeat_interleave(self.c.heads // self.c.kv_heads, 1)
            a = q[0, :, rows] @ k[0].transpose(-1, -2) * d
            p = a.masked_fill(unseen, float("-inf")).softmax(-1).amax(0)
            best = p if best is None else torch.maximum(best, p)
        return best.mean(0)


def lay_out(n, context, width, far):
    """Positions [n] and additive mask [n,n] of train_scores."""
    place = torch.arange(n)
    block = torch.where(place < context, -1, (place - context) // width)
    positions = torch.where(place < context, place, context + (place - context) % width)
    seen = (place[None] <= place[:, None]) & ((block[None] == -1) | (block[None] == block[:, None]))
    gap = positions[:, None] - positions[None]
    bias = torch.zeros(n, n).masked_fill(gap > 48, far)
    return positions, bias.masked_fill(~seen, float("-inf"))


def smooth(s):
    """Mean over 13 neighbours along the last axis, of those that exist."""
    return F.avg_pool1d(s.flatten(0, -2)[:, None], 13, 1, 6, count_include_pad=False)[:, 0].view_as(s)


def save(path, model, **more):
    torch.save({"config": asdict(model.c), "model": model.state_dict(), **more}, path)


def load(path):
    saved = torch.load(path, weights_only=True)
    model = Scorer(Config(**saved["config"]))
    model.load_state_dict(saved["model"])
    return model, saved
