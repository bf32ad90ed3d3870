# SPDX-License-Identifier: Apache-2.0
"""The right answers of a prediction block (multi-token prediction): a transcription in fp64.

One more decoder block after the model's last layer guesses the token after next. Row p has token
p + 1 of the text and the model's hidden state of position p after the output norm:

    x = eh [ RMS(E(t[p+1]), enorm) ; RMS(h[p], hnorm) ]
    g = RMS(block(x) at rotary position p over rows 0..p, head norm), logits = head g -> t[p+2]

A chain goes on with the guessed token and g in the places of the token and of h. The block is a full
attention layer of the model with its feed-forward part. Everything is computed anew for every row
and shares no code with the engine; check_block() compares the layer with the one of transformers.
"""
import torch

import oracle
import tiny_model


def is_qwen35(t):
    return not tiny_model.is_plain(t)


def prefix(t):
    """Where the folder keeps the block's layer."""
    return "mtp.layers.0." if is_qwen35(t) else f"model.layers.{t['layers']}."


def single_experts(p, t):
    """Names of experts that have a tensor each instead of one for all."""
    d, e, f = t["hidden"], t["experts"], t["expert_ffn"]
    return [(f"{p}mlp.experts.{i}.{m}_proj.weight", (d, f) if m == "down" else (f, d))
            for i in range(e) for m in ("gate", "up", "down")]


def block_tensors(t, m):
    """(stored name, shape[, name of whose values it has]) of the block. m: "unfused" experts, "own"
    embedding and head, or "copies" of the model's."""
    d, p = t["hidden"], prefix(t)
    layer, kind = t["layers"], tiny_model.kind(t)
    if is_qwen35(t):
        out = tiny_model.attention_tensors(p, t)
        out += tiny_model.layer_feed_forward(p, t, layer)
        if m.get("unfused"):
            out = [x for x in out if ".experts." not in x[0]] + single_experts(p, t)
        return out + [("mtp.fc.weight", (d, 2 * d)), ("mtp.norm.weight", (d,)),
                      ("mtp.pre_fc_norm_embedding.weight", (d,)),
                      ("mtp.pre_fc_norm_hidden.weight", (d,))]
    if kind in tiny_model.LISTED:
        out = tiny_model.LISTED[kind][0](p, t, layer)
    else:
        out = tiny_model.attention_tensors(p, t) + tiny_model.layer_feed_forward(p, t, layer)
    out += [(p + "eh_proj.weight", (d, 2 * d)), (p + "enorm.weight", (d,)),
            (p + "hnorm.weight", (d,)), (p + "shared_head.norm.weight", (d,))]
    if m.get("own") or m.get("copies"):
        of = ("model.embed_tokens.weight", "lm_head.weight") if m.get("copies") else (None, None)
        for name, source in zip(("embed_tokens.weight", "shared_head.head.weight"), of):
            out.append((p + name, (t["vocab"], d)) + ((source,) if source else ()))
    return out


def weights_of(t, tensors):
    """In fp64, with experts in one tensor each way."""
    w = {x[0]: torch.from_numpy(tiny_model.target_weight(t, x[-1] if len(x) > 2 else x[0], x[1]))
         .double() for x in tensors}
    for p in {n.split("mlp.experts.0.")[0] + "mlp.experts." for n in w if "mlp.experts.0." in n}:
        gate, up, down = (torch.stack([w.pop(f"{p}{k}.{m}_proj.weight")
                                       for k in range(t["experts"])])
                          for m in ("gate", "up", "down"))
        w[p + "gate_up_proj"] = torch.cat([gate, up], 1)
        w[p + "down_proj"] = down
    return w


class Block:
    """A full attention layer with its feed-forward part, of a prediction block or of the model."""

    def __init__(self, t, w, p):
        self.t, self.w, self.p = t, w, p
        self.ties = 0  # last rows whose choice of experts rounding may change

    def __getitem__(self, name):
        return self.w[self.p + name]

    def norm(self, x, name):
        """Norms of Qwen3.5 are counted from 1."""
        w = self[name + ".weight"]
        return oracle.rms(x, 1 + w if is_qwen35(self.t) else w)

    def linear(self, x, name):
        bias = self.w.get(f"{self.p}{name}.bias")
        y = x @ self[name + ".weight"].T
        return y if bias is None else y + bias

    def turn(self, x, positions):
        """The first rotary dimensions of each head, the two halves paired."""
        n = {"glm4_moe": x.shape[-1] // 2, "qwen3": x.shape[-1]}.get(tiny_model.kind(self.t))
        n = 64 if is_qwen35(self.t) else n
        base = {"rope": self.t.get("rope", 1e7)}
        return torch.cat([oracle.rope(x[..., :n], positions, base), x[..., n:]], -1)

    def attend(self, x, positions):
        t = self.t
        n, heads, hd = len(x), t["heads"], t["head_dim"]
        q = self.linear(x, "self_attn.q_proj").view(n, heads, -1)
        k = self.linear(x, "self_attn.k_proj").view(n, -1, hd)
        v = self.linear(x, "self_attn.v_proj").view(n, -1, hd)
        q, gate = q[..., :hd], q[..., hd:]
        if self.p + "self_attn.q_norm.weight" in self.w:
            q, k = self.norm(q, "self_attn.q_norm"), self.norm(k, "self_attn.k_norm")
        q, k = self.turn(q, positions), self.turn(k, positions)
        group = heads // k.shape[1]
        a = weighted(q, k.repeat_interleave(group, 1), v.repeat_interleave(group, 1), hd ** -0.5)
        if gate.shape[-1]:
            a = a * gate.sigmoid()
        return a.reshape(n, -1) @ self["self_attn.o_proj.weight"].T

    def attend_latent(self, x, positions):
        t = self.t
        n, heads, nope, turns, lora = len(x), t["heads"], t["nope"], t["turns"], t["kv_lora"]
        if t["q_lora"]:
            q = self.linear(self.norm(self.linear(x, "self_attn.q_a_proj"),
                                      "self_attn.q_a_layernorm"), "self_attn.q_b_proj")
        else:
            q = self.linear(x, "self_attn.q_proj")
        q = q.view(n, heads, nope + turns)
        c = self.linear(x, "self_attn.kv_a_proj_with_mqa")
        kv = self.linear(self.norm(c[:, :lora], "self_attn.kv_a_layernorm"), "self_attn.kv_b_proj")
        kv = kv.view(n, heads, nope + t["v"])
        shared = beside(c[:, None, lora:], positions, t["rope"]).expand(n, heads, turns)
        q = torch.cat([q[..., :nope], beside(q[..., nope:], positions, t["rope"])], -1)
        k = torch.cat([kv[..., :nope], shared], -1)
        a = weighted(q, k, kv[..., nope:], (nope + turns) ** -0.5)
        return a.reshape(n, -1) @ self["self_attn.o_proj.weight"].T

    def swiglu(self, x, name):
        gate = torch.nn.functional.silu(self.linear(x, name + ".gate_proj"))
        return self.linear(gate * self.linear(x, name + ".up_proj"), name + ".down_proj")

    def near_tie(self, x):
        """Whether row x chooses other experts when each value is off by up to oracle.NOISE of
        itself, in one of oracle.DRAWS ways."""
        draws = torch.Generator().manual_seed(1)
        off = 2 * torch.rand((oracle.DRAWS, len(x)), generator=draws, dtype=x.dtype) - 1
        near = self.choose(x * (1 + oracle.NOISE * off))[0].sort(-1).values
        return bool((near != self.choose(x[None])[0].sort(-1).values).any())

    def choose(self, x):
        """Experts of each row and their weights, [n][used]."""
        t = self.t
        score = x @ self["mlp.gate.weight"].T
        if is_qwen35(t):
            top = score.softmax(-1).topk(t["used"], -1)
            return top.indices, top.values / top.values.sum(-1, keepdim=True)
        score = score.sigmoid()
        ranked = score + self["mlp.gate.e_score_correction_bias"]
        groups = ranked.view(len(x), t["groups"], -1)
        best = groups.topk(2, -1).values.sum(-1).topk(t["groups_used"], -1).indices
        kept = torch.zeros(len(x), t["groups"], dtype=torch.bool).scatter(1, best, True)
        ranked = groups.masked_fill(~kept[..., None], -torch.inf).view(len(x), -1)
        ids = ranked.topk(t["used"], -1).indices
        weight = score.gather(1, ids)
        if t.get("normalised", True):
            weight = weight / weight.sum(-1, keepdim=True)
        return ids, weight * t.get("routed", 2.5)

    def experts(self, x):
        ids, weight = self.choose(x)
        self.ties += self.near_tie(x[-1])
        out = torch.zeros_like(x)
        for row in range(len(x)):
            for e, share in zip(ids[row].tolist(), weight[row]):
                gate, up = (self["mlp.experts.gate_up_proj"][e] @ x[row]).chunk(2)
                act = torch.nn.functional.silu(gate) * up
                out[row] += share * (self["mlp.experts.down_proj"][e] @ act)
        if is_qwen35(self.t):
            return out + (x @ self["mlp.shared_expert_gate.weight"].T).sigmoid() * \
                self.swiglu(x, "mlp.shared_expert")
        return out + self.swiglu(x, "mlp.shared_experts")

    def run(self, x, positions):
        latent = self.p + "self_attn.kv_a_layernorm.weight" in self.w
        n = self.norm(x, "input_layernorm")
        x = x + (self.attend_latent(n, positions) if latent else self.attend(n, positions))
        n = self.norm(x, "post_attention_layernorm")
        return x + (self.experts(n) if self.t.get("experts") else self.swiglu(n, "mlp"))


def beside(x, positions, base):
    """Rotary pairs that lie side by side, as in latent attention."""
    half = x.shape[-1] // 2
    angle = positions.double()[:, None] * float(base) ** (-torch.arange(half).double() / half)
    cos, sin = angle.cos()[:, None], angle.sin()[:, None]
    a, b = x[..., 0::2], x[..., 1::2]
    return torch.stack([a * cos - b * sin, b * cos + a * sin], -1).flatten(-2)


def weighted(q, k, v, scale):
    """Causal attention of rows [n][heads][dim]."""
    n = len(q)
    score = torch.einsum("qhd,khd->hqk", q, k) * scale
    score = score.masked_fill(torch.ones(n, n, dtype=torch.bool).triu(1), -torch.inf)
    return torch.einsum("hqk,khd->qhd", score.softmax(-1), v)


class Mtp:
    """The block of a target with its own or the model's embedding and head."""

    def __init__(self, model, t, m):
        p = prefix(t)
        self.block = Block(t, weights_of(t, block_tensors(t, m)), p)
        self.names = ("mtp.fc.weight", "mtp.pre_fc_norm_embedding", "mtp.pre_fc_norm_hidden",
                      "mtp.norm") if is_qwen35(t) else \
            (p + "eh_proj.weight", p + "enorm", p + "hnorm", p + "shared_head.norm")
        w = self.block.w
        self.embed = w.get(p + "embed_tokens.weight", model.model.embed_tokens.weight.double())
        self.head = w.get(p + "shared_head.head.weight", model.lm_head.weight.double())

    def norm(self, x, name):
        return Block(self.block.t, self.block.w, "").norm(x, name)

    @torch.no_grad()
    def rows(self, ids, hidden):
        """Hidden states and logits of rows 0..n-1: ids [n] and hidden [n][D] of each."""
        eh, enorm, hnorm, last = self.names
        e = self.norm(self.embed[torch.tensor(ids)], enorm)
        x = torch.cat([e, self.norm(hidden, hnorm)], -1) @ self.block.w[eh].T
        g = self.norm(self.block.run(x, torch.arange(len(ids))), last)
        return g, g @ self.head.T

    def chain(self, ids, hidden, guesses):
        """Log-probabilities of a chain below n tokens whose states are known: after the root, and
        after each guess. ids: the text with the root at n; returns [1 + guesses][V] and the last
        state."""
        n = len(hidden)
        row, states, out = list(ids[1:n + 1]), hidden, []
        for guess in [*guesses, None]:
            g, logits = self.rows(row, states)
            out.append(logits[-1].log_softmax(-1))
            if guess is not None:
                row, states = [*row, guess], torch.cat([states, g[-1:]])
        return torch.stack(out)


@torch.no_grad()
def hidden_states(model, ids):
    """After the output norm, [n][D]. The model is in fp64."""
    return model.model(oracle.tokens(ids), use_cache=False).last_hidden_state[0]


@torch.no_grad()
def check_block(model, t, ids):
    """The transcribed block with the weights of the target's last full layer against that layer of
    transformers: relative difference. The model is in fp64."""
    i = max(k for k in range(t["layers"])
            if tiny_model.full_attention(t, k) and k >= t.get("lead", 0))
    p = f"model.layers.{i}."
    own = [x for x in tiny_model.target_tensors(t) if x[0].startswith(p)]
    _, streams = oracle.prefill(model, ids)
    y = Block(t, weights_of(t, own), p).run(streams[i - 1], torch.arange(len(ids)))
    return oracle.relative_error(y, streams[i])
