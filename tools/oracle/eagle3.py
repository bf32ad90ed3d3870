# SPDX-License-Identifier: Apache-2.0
"""The right answers of an EAGLE-3 draft (arXiv 2503.01840): a transcription in fp64.

Row p has token p + 1 of the text and a hidden state of position p:

    u = fc [ states of the tapped layers at p ]     (with input_norm: of that row as a whole, normed)
    a = r + o_proj attention(q, k, v of [ RMS(E(t[p+1]), input_layernorm) ; RMS(u, hidden_norm) ])
        r = u, or RMS(u, hidden_norm) with norm_before_residual; rotary position p, rows 0..p
    s = a + mlp(RMS(a, post_attention_layernorm)), logits = lm_head RMS(s, norm) -> t[p+2]

A chain goes on with the guessed token and s, or RMS(s, norm) with norm_output, in the place of u.
Row i of the head is of token i + d2t[i]. Everything is computed anew for every row and shares no
code with the engine.
"""
import math

import numpy as np
import torch

import oracle
import tiny_model


def draft_tensors(t, d):
    """(stored name, shape) in the order of the file."""
    h, w, p = d["hidden"], t["hidden"], d.get("prefix", "midlayer.")
    q, kv = d["head_dim"] * d["heads"], d["head_dim"] * d["kv_heads"]
    out = [("fc.weight", (h, len(d["inputs"]) * w)), ("norm.weight", (h,)),
           (p + "input_layernorm.weight", (h,)), (p + "hidden_norm.weight", (h,)),
           (p + "post_attention_layernorm.weight", (h,)),
           (p + "self_attn.q_proj.weight", (q, 2 * h)), (p + "self_attn.k_proj.weight", (kv, 2 * h)),
           (p + "self_attn.v_proj.weight", (kv, 2 * h)), (p + "self_attn.o_proj.weight", (h, q)),
           (p + "mlp.gate_proj.weight", (d["ffn"], h)), (p + "mlp.up_proj.weight", (d["ffn"], h)),
           (p + "mlp.down_proj.weight", (h, d["ffn"]))]
    if d.get("bias"):
        out += [(f"{p}self_attn.{n}_proj.bias", (size,)) for n, size in (("q", q), ("k", kv),
                                                                        ("v", kv))]
    if d.get("norm_before_fc"):
        out.append(("input_norm.weight", (len(d["inputs"]) * w,)))
    if d.get("own"):
        out.append(("embed_tokens.weight", (t["vocab"], h)))
    if d.get("head"):
        out += [("lm_head.weight", (d["head"], h)), ("d2t", (d["head"],))]
    return out


def draft_config(t, d):
    """As the authors' files have it, or nested as those of `speculators`."""
    layer = {
        "model_type": "llama", "hidden_size": d["hidden"], "intermediate_size": d["ffn"],
        "num_hidden_layers": 1, "num_attention_heads": d["heads"], "hidden_act": "silu",
        "num_key_value_heads": d["kv_heads"], "head_dim": d["head_dim"], "rms_norm_eps": 1e-6,
        "vocab_size": t["vocab"], "max_position_embeddings": 4096, "rope_theta": d["rope"],
    }
    c = {"architectures": ["LlamaForCausalLMEagle3"], "draft_vocab_size": d.get("head", t["vocab"])}
    if d["hidden"] != t["hidden"]:
        c["target_hidden_size"] = t["hidden"]
    c |= {k: True for k in ("norm_before_residual", "norm_before_fc", "norm_output") if d.get(k)}
    if d.get("bands"):
        layer["rope_scaling"] = {"rope_type": "llama3", "factor": float(d["bands"]),
                                 "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                                 "original_max_position_embeddings": d["trained"]}
    if d.get("listed"):
        c["eagle_aux_hidden_state_layer_ids"] = d["listed"]
    if d.get("nested"):
        return c | {"architectures": ["Eagle3Speculator"], "speculators_model_type": "eagle3",
                    "model_type": "speculators", "transformer_layer_config": layer}
    return layer | c


def offsets(n):
    """d2t of every other token, counted from 1."""
    return np.arange(n, dtype=np.int64) + 1


def slow_bands(speed, d):
    """Long waves turn by a factor slower, short ones as they are, those between by both."""
    wave = 2 * math.pi / speed
    ratio = ((d["trained"] / wave - 1.0) / (4.0 - 1.0)).clamp(0, 1)
    return speed * (ratio + (1 - ratio) / d["bands"])


class Eagle3:
    def __init__(self, model, t, d):
        self.d = d
        p = d.get("prefix", "midlayer.")
        self.w = {n.removeprefix(p): torch.from_numpy(
            tiny_model.weight(d["seed"], n, s, plain_norms=True)).double()
            for n, s in draft_tensors(t, d) if n != "d2t"}
        self.embed = self.w.get("embed_tokens.weight", model.model.embed_tokens.weight.double())
        self.head = self.w.get("lm_head.weight", model.lm_head.weight.double())
        n = d.get("head")
        self.token = torch.from_numpy(np.arange(n) + offsets(n)) if n else None

    def norm(self, x, name):
        return oracle.rms(x, self.w[name + ".weight"])

    def linear(self, x, name):
        y = x @ self.w[name + ".weight"].T
        return y + self.w[name + ".bias"] if name + ".bias" in self.w else y

    def fused(self, streams):
        """Of all positions: streams are the outputs of layers, so the input of layer k is k - 1."""
        x = torch.cat([streams[k - 1] for k in self.d["inputs"]], -1).double()
        if self.d.get("norm_before_fc"):
            x = self.norm(x, "input_norm")
        return self.linear(x, "fc")

    def turn(self, x):
        half = x.shape[-1] // 2
        speed = float(self.d["rope"]) ** (-torch.arange(half).double() / half)
        if self.d.get("bands"):
            speed = slow_bands(speed, self.d)
        angle = torch.arange(len(x)).double()[:, None] * speed
        cos, sin = angle.cos()[:, None, :], angle.sin()[:, None, :]
        lo, hi = x[..., :half], x[..., half:]
        return torch.cat([lo * cos - hi * sin, hi * cos + lo * sin], -1)

    def attend(self, x):
        n, heads, hd = len(x), self.d["heads"], self.d["head_dim"]
        q = self.turn(self.linear(x, "self_attn.q_proj").view(n, heads, hd))
        k = self.turn(self.linear(x, "self_attn.k_proj").view(n, -1, hd))
        v = self.linear(x, "self_attn.v_proj").view(n, -1, hd)
        k, v = (y.repeat_interleave(heads // y.shape[1], 1) for y in (k, v))
        score = torch.einsum("qhd,khd->hqk", q, k) / math.sqrt(hd)
        score = score.masked_fill(torch.ones(n, n, dtype=torch.bool).triu(1), -torch.inf)
        a = torch.einsum("hqk,khd->qhd", score.softmax(-1), v)
        return self.linear(a.reshape(n, -1), "self_attn.o_proj")

    @torch.no_grad()
    def rows(self, ids, u):
        """States for the children and logits of rows 0..n-1: ids [n] and states [n][D] of each."""
        e = self.norm(self.embed[torch.tensor(ids)], "input_layernorm")
        h = self.norm(u, "hidden_norm")
        a = (h if self.d.get("norm_before_residual") else u) + self.attend(torch.cat([e, h], -1))
        n = self.norm(a, "post_attention_layernorm")
        gate = torch.nn.functional.silu(self.linear(n, "mlp.gate_proj"))
        s = a + self.linear(gate * self.linear(n, "mlp.up_proj"), "mlp.down_proj")
        g = self.norm(s, "norm")
        return (g if self.d.get("norm_output") else s), g @ self.head.T

    def chain(self, ids, u, guesses):
        """Log-probabilities over the head's rows of a chain below n tokens whose states are known:
        after the root, at n of ids, and after each guess."""
        n = len(u)
        row, states, out = list(ids[1:n + 1]), u, []
        for guess in [*guesses, None]:
            s, logits = self.rows(row, states)
            out.append(logits[-1].log_softmax(-1))
            if guess is not None:
                row, states = [*row, guess], torch.cat([states, s[-1:]])
        return torch.stack(out)

    def best(self, row, k):
        """Tokens of the k largest."""
        top = row.topk(k).indices
        return (self.token[top] if self.token is not None else top).tolist()
