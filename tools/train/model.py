# SPDX-License-Identifier: Apache-2.0
"""The tiny Qwen3.5-style target and its drafts (DFlash, DFlash2, a prediction block) as plain PyTorch modules.

Module and parameter names are those of the published checkpoints (HuggingFace names for the
target, z-lab names for the draft), so a state dict is an export. Target norms are zero-centred
(the layer multiplies by 1 + w), value head h uses key head h // r. The gated delta rule exists
three times here: as a recurrence (the definition), as chunks in plain PyTorch, and through the
Triton kernels of flash-linear-attention when they are installed and asked for.
Training loops, data and export are in other files.
"""

from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import nn


@dataclass
class TargetConfig:
    vocab: int = 4096
    dim: int = 256
    layers: int = 12
    ffn: int = 768
    heads: int = 2
    kv_heads: int = 1
    head_dim: int = 256
    key_heads: int = 2
    value_heads: int = 4
    state: int = 128
    conv: int = 4
    interval: int = 4
    rotary: int = 64
    theta: float = 1e7
    eps: float = 1e-6
    context: int = 65536

    def full(self, i):
        return (i + 1) % self.interval == 0


@dataclass
class DraftConfig:
    dim: int = 256
    layers: int = 3
    ffn: int = 512
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 128
    block: int = 16
    taps: list = field(default_factory=lambda: [1, 5, 9])
    window: int = 256
    kinds: list = field(default_factory=lambda: ["sliding", "sliding", "full"])
    theta: float = 1e7
    eps: float = 1e-6
    mask_id: int = 4085
    conv: int = 0  # DFlash2: rows of its convolutions; 0: DFlash
    group: int = 16  # channels that share a kernel of a row
    rank: int = 0  # of the selector's codebooks; 0: no selector
    top: int = 16  # candidates of a row between which it chooses
    vocab: int = 4096


def rms(x, w, eps=1e-6):
    y = x.float()
    y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + eps)
    return (y * w.float()).to(x.dtype)


class RMSNorm(nn.Module):
    """Weight stored as it is (draft, gated norm) or zero-centred (target)."""

    def __init__(self, n, centred, eps=1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(n) if centred else torch.ones(n))
        self.centred, self.eps = centred, eps

    def forward(self, x):
        return rms(x, 1 + self.weight.float() if self.centred else self.weight, self.eps)


def rope_tables(n, rotary, theta, device):
    f = theta ** (-torch.arange(0, rotary, 2, device=device, dtype=torch.float32) / rotary)
    a = torch.arange(n, device=device, dtype=torch.float32)[:, None] * f
    return a.cos(), a.sin()


def rope(x, cos, sin):
    """x [..., T, d]; cos, sin broadcast against [..., T, rotary/2]; halves are paired."""
    h = cos.shape[-1]
    a, b, rest = x[..., :h].float(), x[..., h : 2 * h].float(), x[..., 2 * h :]
    a, b = a * cos - b * sin, b * cos + a * sin
    return torch.cat((a.to(x.dtype), b.to(x.dtype), rest), -1)


def gdn_recurrent(q, k, v, g, beta, s):
    """The definition. q, k [B,T,H,K], v [B,T,H,V], g, beta [B,T,H], s [B,H,K,V]; all float32."""
    out = []
    for t in range(q.shape[1]):
        s = s * g[:, t, :, None, None].exp()
        d = beta[:, t, :, None] * (v[:, t] - torch.einsum("bhkv,bhk->bhv", s, k[:, t]))
        s = s + k[:, t, :, :, None] * d[:, :, None]
        out.append(torch.einsum("bhkv,bhk->bhv", s, q[:, t]))
    return torch.stack(out, 1), s


def unit_lower_inverse(A):
    """(I + A)^-1 of strictly lower A [...,c,c], by substitution: powers of A lose all digits where
    keys repeat."""
    eye = torch.eye(A.shape[-1], device=A.device, dtype=A.dtype)
    return torch.linalg.solve_triangular(eye + A, eye.expand_as(A), upper=False, unitriangular=True)


def gdn_chunks(q, k, v, g, beta, c=64):
    """Chunk form, zero initial state; same shapes. T is padded to a multiple of c."""
    b, t, h, d = q.shape
    pad = -t % c
    if pad:
        q, k, v = (F.pad(x, (0, 0, 0, 0, 0, pad)) for x in (q, k, v))
        g, beta = (F.pad(x, (0, 0, 0, pad)) for x in (g, beta))
    n = (t + pad) // c
    q, k, v = (x.float().view(b, n, c, h, -1).permute(0, 3, 1, 2, 4) for x in (q, k, v))
    g, beta = (x.float().view(b, n, c, h).permute(0, 3, 1, 2) for x in (g, beta))
    G = g.cumsum(-1)
    low = torch.ones(c, c, device=q.device, dtype=torch.bool).tril()
    E = (G[..., :, None] - G[..., None, :]).masked_fill(~low, float("-inf")).exp()
    A = beta[..., None] * E * (k @ k.transpose(-1, -2))
    R = unit_lower_inverse(A.tril(-1))
    U = R @ (beta[..., None] * v)
    W = R @ ((beta * G.exp())[..., None] * k)
    P = E * (q @ k.transpose(-1, -2))
    Kd = (G[..., -1:] - G).exp()[..., None] * k
    M = G[..., -1, None, None].exp() * torch.eye(d, device=q.device) - Kd.transpose(-1, -2) @ W
    J = Kd.transpose(-1, -2) @ U
    S = torch.zeros(b, h, d, v.shape[-1], device=q.device)
    before = []
    for i in range(n):
        before.append(S)
        S = M[:, :, i] @ S + J[:, :, i]
    S0 = torch.stack(before, 2)
    o = (G.exp()[..., None] * q) @ S0 + P @ (U - W @ S0)
    return o.permute(0, 2, 3, 1, 4).reshape(b, t + pad, h, -1)[:, :t]


def gdn_backward_qkwg(q, k, v, do, h, dh, w=None, g=None, dv=None, scale=None, chunk_size=64, **_):
    """Gradients of q, k, w and the cumulated log2 decay g inside chunks, by batched products.

    Takes the place of the library's kernel, which some Triton versions miscompile on Hopper GPUs.
    q, k [B,T,H,K], v (the deltas), do, dv [B,T,H,V], h, dh [B,n,H,K,V] states before / gradients
    after each chunk, w [B,T,H,K] (deltas = u - w h). T is a multiple of the chunk.
    """
    b, t, heads, _ = k.shape
    c = chunk_size
    cut = lambda x: x.view(b, t // c, c, heads, -1).transpose(2, 3)
    join = lambda x, like: x.transpose(2, 3).reshape(b, t, heads, -1).to(like.dtype)
    G = g.view(b, t // c, c, heads).transpose(2, 3)
    low = torch.ones(c, c, device=q.device, dtype=torch.bool).tril()
    E = torch.exp2((G[..., :, None] - G[..., None, :]).masked_fill(~low, float("-inf")))
    q_, k_, v_, do_, dv_ = (cut(x).to(k.dtype) for x in (q, k, v, do, dv))
    h_, dh_ = h.to(k.dtype).transpose(-1, -2), dh.to(k.dtype).transpose(-1, -2)
    ds = ((do_ @ v_.transpose(-1, -2)).float() * E * scale).to(k.dtype)
    dq = (do_ @ h_).float() * torch.exp2(G)[..., None] * scale + (ds @ k_).float()
    end = G[..., -1:]
    dk_in = (v_ @ dh_).float() * torch.exp2(end - G)[..., None]
    dk = dk_in + (ds.transpose(-1, -2) @ q_).float()
    dg = (dq * q_.float()).sum(-1) - (dk * k_.float()).sum(-1)
    last = torch.exp2(end[..., 0]) * (h.float() * dh.float()).sum((-1, -2))
    last = last + (dk_in * k_.float()).sum((-1, -2))
    dg = torch.cat((dg[..., :-1], dg[..., -1:] + last[..., None]), -1)
    dw = -(dv_ @ h_).float()
    return join(dq, q), join(dk, k), join(dw, w), dg.transpose(2, 3).reshape(b, t, heads)


@torch.compiler.disable
def gdn_triton(q, k, v, g, beta):
    from fla.ops.gated_delta_rule import chunk

    if not getattr(chunk.chunk_bwd_dqkwg, "ours", False):
        fast = torch.compile(gdn_backward_qkwg)
        chunk.chunk_bwd_dqkwg = lambda *a, **kw: fast(*a, **kw)
        chunk.chunk_bwd_dqkwg.ours = True
    return chunk.chunk_gated_delta_rule(q, k, v, g, beta, scale=1.0)[0]


class Attention(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c = c
        self.q_proj = nn.Linear(c.dim, 2 * c.heads * c.head_dim, bias=False)
        self.k_proj = nn.Linear(c.dim, c.kv_heads * c.head_dim, bias=False)
        self.v_proj = nn.Linear(c.dim, c.kv_heads * c.head_dim, bias=False)
        self.o_proj = nn.Linear(c.heads * c.head_dim, c.dim, bias=False)
        self.q_norm = RMSNorm(c.head_dim, True, c.eps)
        self.k_norm = RMSNorm(c.head_dim, True, c.eps)

    def project(self, x, cos, sin):
        """x [B,T,D] -> q [B,H,T,hd], k, v [B,KV,T,hd], gate [B,T,H*hd]; cos, sin [T or B,1,T]"""
        c, (b, t, _) = self.c, x.shape
        p = self.q_proj(x).view(b, t, c.heads, 2, c.head_dim)
        q, gate = p[..., 0, :], p[..., 1, :].reshape(b, t, -1)
        k = self.k_proj(x).view(b, t, c.kv_heads, c.head_dim)
        v = self.v_proj(x).view(b, t, c.kv_heads, c.head_dim).transpose(1, 2)
        q = rope(self.q_norm(q).transpose(1, 2), cos, sin)
        k = rope(self.k_norm(k).transpose(1, 2), cos, sin)
        return q, k, v, gate

    def forward(self, x, cos, sin):
        b, t, _ = x.shape
        q, k, v, gate = self.project(x, cos, sin)
        r = self.c.heads // self.c.kv_heads
        k, v = k.repeat_interleave(r, 1), v.repeat_interleave(r, 1)
        o = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o_proj(o.transpose(1, 2).reshape(b, t, -1) * torch.sigmoid(gate))


class DeltaNet(nn.Module):
    def __init__(self, c, kernel="torch"):
        super().__init__()
        self.c, self.kernel = c, kernel
        self.kd, self.vd = c.key_heads * c.state, c.value_heads * c.state
        ch = 2 * self.kd + self.vd
        self.in_proj_qkv = nn.Linear(c.dim, ch, bias=False)
        self.in_proj_z = nn.Linear(c.dim, self.vd, bias=False)
        self.in_proj_b = nn.Linear(c.dim, c.value_heads, bias=False)
        self.in_proj_a = nn.Linear(c.dim, c.value_heads, bias=False)
        self.conv1d = nn.Conv1d(ch, ch, c.conv, groups=ch, bias=False)
        self.A_log = nn.Parameter(torch.empty(c.value_heads).uniform_(0.01, 16).log())
        dt = torch.empty(c.value_heads).uniform_(-6.9078, -2.3026).exp()
        self.dt_bias = nn.Parameter(dt + torch.log(-torch.expm1(-dt)))
        self.norm = RMSNorm(c.state, False, c.eps)
        self.out_proj = nn.Linear(self.vd, c.dim, bias=False)

    def gates(self, x):
        beta = torch.sigmoid(self.in_proj_b(x).float())
        g = -self.A_log.float().exp() * F.softplus(self.in_proj_a(x).float() + self.dt_bias.float())
        return g, beta

    def heads(self, y):
        """Convolved, activated channels [...,C] -> q, k (unit length, q scaled), v per head."""
        c, lead = self.c, y.shape[:-1]
        q, k, v = y.split((self.kd, self.kd, self.vd), -1)
        q, k, v = (x.reshape(*lead, -1, c.state) for x in (q, k, v))
        q, k = (
            x.float() * torch.rsqrt(x.float().pow(2).sum(-1, keepdim=True) + 1e-6) for x in (q, k)
        )
        r = c.value_heads // c.key_heads
        q = q.repeat_interleave(r, -2) * c.state**-0.5
        return q, k.repeat_interleave(r, -2), v

    def finish(self, o, z):
        """o [...,H,V], z [...,Vd] -> [...,D]"""
        o = self.norm(o.to(z.dtype)) * F.silu(z.view_as(o).float()).to(z.dtype)
        return self.out_proj(o.flatten(-2))

    def forward(self, x):
        t = x.shape[1]
        u, z = self.in_proj_qkv(x), self.in_proj_z(x)
        g, beta = self.gates(x)
        w = self.conv1d.weight[:, 0].to(u.dtype)
        up = F.pad(u, (0, 0, self.c.conv - 1, 0))
        y = F.silu(sum(up[:, i : i + t] * w[:, i] for i in range(self.c.conv)))
        q, k, v = self.heads(y)
        if self.kernel == "triton":
            o = gdn_triton(
                q.to(u.dtype).contiguous(),
                k.to(u.dtype).contiguous(),
                v.contiguous(),
                g.contiguous(),
                beta.contiguous(),
            )
        else:
            with torch.autocast(x.device.type, enabled=False):
                o = gdn_chunks(q, k, v, g, beta)
        return self.finish(o, z)


class MLP(nn.Module):
    def __init__(self, dim, ffn):
        super().__init__()
        self.gate_proj = nn.Linear(dim, ffn, bias=False)
        self.up_proj = nn.Linear(dim, ffn, bias=False)
        self.down_proj = nn.Linear(ffn, dim, bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class TargetLayer(nn.Module):
    def __init__(self, c, i, kernel):
        super().__init__()
        self.input_layernorm = RMSNorm(c.dim, True, c.eps)
        self.post_attention_layernorm = RMSNorm(c.dim, True, c.eps)
        self.is_full = c.full(i)
        if self.is_full:
            self.self_attn = Attention(c)
        else:
            self.linear_attn = DeltaNet(c, kernel)
        self.mlp = MLP(c.dim, c.ffn)

    def forward(self, h, cos, sin):
        x = self.input_layernorm(h)
        h = h + (self.self_attn(x, cos, sin) if self.is_full else self.linear_attn(x))
        return h + self.mlp(self.post_attention_layernorm(h))


class Target(nn.Module):
    def __init__(self, c, kernel="torch"):
        super().__init__()
        self.c = c
        self.embed_tokens = nn.Embedding(c.vocab, c.dim)
        self.layers = nn.ModuleList(TargetLayer(c, i, kernel) for i in range(c.layers))
        self.norm = RMSNorm(c.dim, True, c.eps)
        for n, p in self.named_parameters():
            if p.dim() == 2:
                out = n.endswith(("o_proj.weight", "out_proj.weight", "down_proj.weight"))
                nn.init.normal_(p, std=0.02 / ((2 * c.layers) ** 0.5 if out else 1))
            elif "conv1d" in n:
                nn.init.uniform_(p, -0.5, 0.5)

    def forward(self, ids, taps=(), pos=None):
        """ids [B,T] -> final normed hidden [B,T,D], tapped streams [B,T,len(taps)*D] or None; pos
        [B,T] where positions are not 0, 1, ..."""
        h = self.embed_tokens(ids)
        if pos is None:
            cos, sin = rope_tables(ids.shape[1], self.c.rotary, self.c.theta, ids.device)
        else:
            cos, sin = (t[pos][:, None] for t in rope_tables(self.c.context, self.c.rotary,
                                                             self.c.theta, ids.device))  # fmt: skip
        seen = {}
        for i, layer in enumerate(self.layers):
            h = layer(h, cos, sin)
            if i in taps:
                seen[i] = h
        return self.norm(h), torch.cat([seen[i] for i in taps], -1) if taps else None

    def head(self, h):
        return F.linear(h, self.embed_tokens.weight.to(h.dtype))


class Slots:
    """Step-by-step decoding of many independent sequences, one token each a step.

    All state is preallocated and updated in place with fixed shapes, so a step can be captured
    as a CUDA graph. A slot is reset by `fresh`, a [B] mask of slots that start at position 0.
    """

    def __init__(self, m, b, length, device, dtype):
        c = m.c
        self.m, self.b, self.length = m, b, length
        z = lambda *s, dt=dtype: torch.zeros(*s, device=device, dtype=dt)
        self.kv = {
            i: (z(b, c.kv_heads, length, c.head_dim), z(b, c.kv_heads, length, c.head_dim))
            for i in range(c.layers)
            if c.full(i)
        }
        ch = (2 * c.key_heads + c.value_heads) * c.state
        self.rec = {
            i: (z(b, c.value_heads, c.state, c.state, dt=torch.float32), z(b, c.conv - 1, ch))
            for i in range(c.layers)
            if not c.full(i)
        }
        self.cos, self.sin = rope_tables(length, c.rotary, c.theta, device)
        self.index = torch.arange(length, device=device)

    def attention(self, i, a, x, pos):
        c = self.m.c
        cos, sin = (t[pos][:, None, None] for t in (self.cos, self.sin))
        q, k, v, gate = a.project(x[:, None], cos, sin)
        kc, vc = self.kv[i]
        at = pos[:, None, None, None].expand(-1, c.kv_heads, 1, c.head_dim)
        kc.scatter_(2, at, k)
        vc.scatter_(2, at, v)
        q = q.view(self.b, c.kv_heads, -1, c.head_dim)
        s = (q @ kc.transpose(-1, -2)).float() * c.head_dim**-0.5
        s = s.masked_fill((self.index > pos[:, None])[:, None, None], float("-inf"))
        o = s.softmax(-1).to(vc.dtype) @ vc
        return a.o_proj((o.reshape(self.b, -1) * torch.sigmoid(gate[:, 0])))

    def deltanet(self, i, d, x, keep):
        S, hist = self.rec[i]
        u, z = d.in_proj_qkv(x), d.in_proj_z(x)
        g, beta = d.gates(x)
        hist.mul_(keep[:, None, None].to(hist.dtype))
        rows = torch.cat((hist, u[:, None]), 1)
        y = F.silu((rows * d.conv1d.weight[:, 0].t().to(u.dtype)).sum(1))
        hist.copy_(rows[:, 1:])
        q, k, v = d.heads(y)
        decay = g.exp() * keep[:, None].float()
        read = decay[..., None] * torch.einsum("bhkv,bhk->bhv", S, k)
        delta = beta[..., None] * (v.float() - read)
        S.mul_(decay[..., None, None]).add_(k[..., None] * delta[:, :, None])
        o = torch.einsum("bhkv,bhk->bhv", S, q)
        return d.finish(o, z)

    @torch.no_grad()
    def step(self, ids, pos, fresh):
        """ids, pos [B] -> logits [B,V]. The caller never lets pos reach the slot length."""
        m = self.m
        keep = ~fresh
        h = m.embed_tokens(ids)
        for i, layer in enumerate(m.layers):
            x = layer.input_layernorm(h)
            if layer.is_full:
                h = h + self.attention(i, layer.self_attn, x, pos)
            else:
                h = h + self.deltanet(i, layer.linear_attn, x, keep)
            h = h + layer.mlp(layer.post_attention_layernorm(h))
        return m.head(m.norm(h)).float()


class DraftAttention(nn.Module):
    def __init__(self, c, kind):
        super().__init__()
        self.c, self.sliding = c, kind == "sliding"
        self.q_proj = nn.Linear(c.dim, c.heads * c.head_dim, bias=False)
        self.k_proj = nn.Linear(c.dim, c.kv_heads * c.head_dim, bias=False)
        self.v_proj = nn.Linear(c.dim, c.kv_heads * c.head_dim, bias=False)
        self.o_proj = nn.Linear(c.heads * c.head_dim, c.dim, bias=False)
        self.q_norm = RMSNorm(c.head_dim, False, c.eps)
        self.k_norm = RMSNorm(c.head_dim, False, c.eps)

    def kv(self, x, cos, sin):
        """x [B,T,D] -> k (normed, rotated), v as [B,KV,T,hd]"""
        b, t, _ = x.shape
        k = self.k_norm(self.k_proj(x).view(b, t, self.c.kv_heads, -1)).transpose(1, 2)
        return rope(k, cos, sin), self.v_proj(x).view(b, t, self.c.kv_heads, -1).transpose(1, 2)

    def forward(self, n, feat, anchor, live, tabs):
        """n [B,A,R,D] block rows; feat [B,S,D]; anchor [B,A] positions; live [B,A] -> like n"""
        c, (b, a, r, _), s = self.c, n.shape, feat.shape[1]
        cos, sin = tabs
        row = torch.arange(r, device=n.device)
        pos = (anchor[..., None] + row).view(b, a * r)
        flat = n.view(b, a * r, -1)
        rc, rs = cos[pos][:, None], sin[pos][:, None]
        q = self.q_norm(self.q_proj(flat).view(b, a * r, c.heads, -1)).transpose(1, 2)
        kc, vc = self.kv(feat, cos[:s], sin[:s])
        kb, vb = self.kv(flat, rc, rs)
        k, v = torch.cat((kc, kb), 2), torch.cat((vc, vb), 2)  # the features, then the blocks
        k, v = (t.repeat_interleave(c.heads // c.kv_heads, 1) for t in (k, v))
        key = torch.arange(s, device=n.device)
        see = (key < anchor[..., None, None]) & live[..., None, None]  # [B,A,1,S]
        at = torch.arange(a * r, device=n.device)
        own = at[:, None] // r == at // r
        if self.sliding:
            see, own = see & (pos.view(b, a, r, 1) - key < c.window), own & (at[:, None] >= at)
        see = see.expand(b, a, r, s).reshape(b, a * r, s)
        see = torch.cat((see, own.expand(b, a * r, a * r)), -1)[:, None]
        o = F.scaled_dot_product_attention(rope(q, rc, rs), k, v, attn_mask=see)
        return self.o_proj(o.transpose(1, 2).reshape(b, a, r, -1))


class BlockConv(nn.Module):
    """DFlash2's convolution around a sublayer, over the rows of a block: a row and those before it in
    the block, with a common kernel plus one that its normed input makes, one for `group` channels each.
    Side 0 is the sublayer's input, side 1 its output. Begins as one that keeps the row."""

    def __init__(self, c):
        super().__init__()
        self.c = c
        self.base_kernel = nn.Parameter(torch.zeros(2, c.conv, c.dim))
        self.base_kernel.data[:, 0] = 1
        self.kernel_projection = nn.Linear(c.dim, 2 * c.conv * c.dim // c.group, bias=False)

    def kernels(self, n):
        """n [B,A,R,D], the sublayer's normed input -> [B,A,R,2,conv,D]"""
        own = self.kernel_projection(n).unflatten(-1, (2, self.c.conv, -1))
        return self.base_kernel.to(own.dtype) + own.repeat_interleave(self.c.group, -1)

    def forward(self, y, kernels, side):
        """y, result [B,A,R,D]"""
        r = y.shape[2]
        return sum(kernels[..., side, o, :] * F.pad(y, (0, 0, o, 0))[:, :, :r] for o in range(self.c.conv))


class DraftLayer(nn.Module):
    def __init__(self, c, kind):
        super().__init__()
        self.input_layernorm = RMSNorm(c.dim, False, c.eps)
        self.post_attention_layernorm = RMSNorm(c.dim, False, c.eps)
        self.self_attn = DraftAttention(c, kind)
        self.mlp = MLP(c.dim, c.ffn)
        if c.conv:
            self.attention_conv, self.mlp_conv = BlockConv(c), BlockConv(c)
        else:
            self.attention_conv = self.mlp_conv = None

    def sublayer(self, fn, conv, n):
        if conv is None:
            return fn(n)
        kernels = conv.kernels(n)
        return conv(fn(conv(n, kernels, 0)), kernels, 1)

    def forward(self, x, *where):
        attend = lambda n: self.self_attn(n, *where)
        x = x + self.sublayer(attend, self.attention_conv, self.input_layernorm(x))
        return x + self.sublayer(self.mlp, self.mlp_conv, self.post_attention_layernorm(x))


class Selector(nn.Module):
    """DFlash2's selector: what the token of the row before adds to the logits of a row's candidates. The
    codebook of successors begins at zero, so it adds nothing."""

    def __init__(self, c):
        super().__init__()
        self.hidden_projection = nn.Linear(c.dim, c.rank, bias=False)
        self.predecessor_codebook = nn.Parameter(torch.randn(c.vocab, c.rank))
        self.successor_codebook = nn.Parameter(torch.zeros(c.vocab, c.rank))

    def forward(self, h, before, candidates):
        """h [...,D] normed hidden states of rows, before [...] tokens of the rows before them,
        candidates [...,k] -> [...,k]"""
        gate = F.linear(h.float(), self.hidden_projection.weight.float())
        p = F.embedding(before, self.predecessor_codebook).float() * gate
        return (F.embedding(candidates, self.successor_codebook).float() * p[..., None, :]).sum(-1)


class Draft(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c = c
        self.fc = nn.Linear(len(c.taps) * c.dim, c.dim, bias=False)
        self.hidden_norm = RMSNorm(c.dim, False, c.eps)
        self.layers = nn.ModuleList(DraftLayer(c, k) for k in c.kinds)
        self.norm = RMSNorm(c.dim, False, c.eps)
        self.candidate_selector = Selector(c) if c.rank else None
        for n, p in self.named_parameters():
            if p.dim() == 2 and "codebook" not in n:
                out = n.endswith(("o_proj.weight", "down_proj.weight"))
                nn.init.normal_(p, std=0.02 / ((2 * c.layers) ** 0.5 if out else 1))
            if n.endswith("kernel_projection.weight"):
                nn.init.zeros_(p)

    def forward(self, raw, anchor, live, tok, mask):
        """raw [B,S,nT*D] tapped streams, anchor [B,A] positions (the block of anchor a sees raw
        rows < a), live [B,A], tok [B,A,D] anchor embeddings, mask [D] -> normed hidden [B,A,R,D]
        whose row i predicts the token at position a + i (row 0 predicts nothing)."""
        b, a, d = tok.shape
        feat = self.hidden_norm(self.fc(raw))
        rest = mask.to(tok.dtype).expand(b, a, self.c.block - 1, d)
        x = torch.cat((tok[:, :, None], rest), 2).to(feat.dtype)
        n = raw.shape[1] + self.c.block
        tabs = rope_tables(n, self.c.head_dim, self.c.theta, raw.device)
        for layer in self.layers:
            x = layer(x, feat, anchor, live, tabs)
        return self.norm(x)


class PredictionBlock(nn.Module):
    """One more full attention layer of a target, which guesses the token after next: row q joins the
    token at q + 1 and the target's hidden state (after the output norm) at q. A chain goes on with the
    guessed token and the block's own normed output. Names are those behind `mtp.` of the target's."""

    def __init__(self, c):
        super().__init__()
        self.c = c
        self.fc = nn.Linear(2 * c.dim, c.dim, bias=False)  # columns: the token's half first
        self.pre_fc_norm_embedding = RMSNorm(c.dim, True, c.eps)
        self.pre_fc_norm_hidden = RMSNorm(c.dim, True, c.eps)
        self.layers = nn.ModuleList([TargetLayer(c, c.interval - 1, "torch")])
        self.norm = RMSNorm(c.dim, True, c.eps)
        for n, p in self.named_parameters():
            if p.dim() == 2:
                out = n.endswith(("o_proj.weight", "down_proj.weight"))
                nn.init.normal_(p, std=0.02 / (2**0.5 if out else 1))

    def attend(self, q, keys, values):
        """Pass j of all rows at once. q [B,H,T,hd]; keys, values: of passes 0 to j. Row t of pass j is
        the row j places below the root of a chain: it sees rows of pass 0 up to t - j, then of each
        later pass the one row of its own chain, the last of them itself."""
        j, t, scale = len(keys) - 1, q.shape[2], q.shape[-1] ** -0.5
        if not j:
            return F.scaled_dot_product_attention(q, keys[0], values[0], is_causal=True)
        at = torch.arange(t, device=q.device)
        s = (q @ keys[0].transpose(-1, -2)).float() * scale
        s = s.masked_fill(at > at[:, None] - j, float("-inf"))
        down = lambda x, n: F.pad(x, (0, 0, n, 0))[:, :, :t]
        own = [(q * down(keys[i], j - i)).float().sum(-1, keepdim=True) * scale for i in range(1, j + 1)]
        p = torch.cat([s, *own], -1).softmax(-1).to(q.dtype)
        o = p[..., :t] @ values[0]
        return o + sum(p[..., t + i - 1, None] * down(values[i], j - i) for i in range(1, j + 1))

    def forward(self, tok, hid, passes):
        """tok [B,T,D] embeddings of the tokens at 1, 2, ...; hid [B,T,D] of positions 0, 1, ... ->
        normed outputs of each pass, [B,T,D] each: that of pass j at t guesses the token at t + 2, t - j
        being the root row of its chain."""
        layer, (b, t, _), keys, values, out = self.layers[0], tok.shape, [], [], []
        attn = layer.self_attn
        cos, sin = rope_tables(t, self.c.rotary, self.c.theta, tok.device)
        e, r = self.pre_fc_norm_embedding(tok), self.c.heads // self.c.kv_heads
        for _ in range(passes):
            x = self.fc(torch.cat((e, self.pre_fc_norm_hidden(hid.to(e.dtype))), -1))
            q, k, v, gate = attn.project(layer.input_layernorm(x), cos, sin)
            keys.append(k.repeat_interleave(r, 1))
            values.append(v.repeat_interleave(r, 1))
            o = self.attend(q, keys, values).transpose(1, 2).reshape(b, t, -1)
            x = x + attn.o_proj(o * torch.sigmoid(gate))
            x = x + layer.mlp(layer.post_attention_layernorm(x))
            out.append(self.norm(x))
            hid = F.pad(out[-1], (0, 0, 1, 0))[:, :t]
        return out


@torch.no_grad()
def q8_0(w):
    """The Q8_0 round trip: blocks of 32 along the rows, scale max|x|/127 kept as fp16."""
    x = w.float().reshape(-1, 32)
    d = x.abs().amax(1, keepdim=True) / 127
    y = torch.where(d > 0, x / torch.where(d > 0, d, torch.ones_like(d)), torch.zeros_like(x))
    q = torch.sign(y) * torch.floor(y.abs() + 0.5)
    return (q * d.half().float()).reshape(w.shape).to(w.dtype)


@torch.no_grad()
def quantise_(module):
    """In place: every value to bf16 (the export's type), then each matrix through Q8_0."""
    for n, p in module.named_parameters():
        if p.dim() == 1:
            continue
        p.copy_(p.bfloat16().to(p.dtype))
        if p.dim() == 2 and "in_proj_a" not in n and "in_proj_b" not in n:
            p.copy_(q8_0(p))
    return module
