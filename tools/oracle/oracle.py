# SPDX-License-Identifier: Apache-2.0
"""The right answers: the target by HuggingFace transformers, the draft by a transcription.

Target: Qwen3_5ForCausalLM or a plain decoder's class in fp32 on the CPU, eager attention, the pure PyTorch
delta rule.
Draft: the DFlash block forward written here from its description (arXiv 2602.06036 and the public
checkpoints' conventions), in fp64, without a cache: every context row is computed anew. It shares
no code with the engine and none with other implementations.
"""
import functools
import math

import numpy as np
import torch

import tiny_model


def load_target(t):
    import transformers as tf
    config = tiny_model.target_config(t)
    if tiny_model.is_plain(t):
        name = config["architectures"][0]
        text = "Text" if name.startswith(("Gemma3", "Gemma4")) else ""
        config = getattr(tf, name.removesuffix("ForCausalLM") + text + "Config")(**config)
    else:
        kind = "Qwen3_5Moe" if t.get("experts") else "Qwen3_5"
        name = kind + "ForCausalLM"
        config = getattr(tf, kind + "TextConfig")(**config.get("text_config", config))
    config._attn_implementation = config._experts_implementation = "eager"
    torch.manual_seed(0)
    model = getattr(tf, name)(config).float().eval()
    state = tiny_model.packed_experts(t, {n: tiny_model.target_weight(t, n, s)
                                          for n, s in tiny_model.target_tensors(t)})
    state = {n: torch.from_numpy(v) for n, v in state.items()}
    missing, unexpected = model.load_state_dict(state, strict=False)
    allowed = {"lm_head.weight"} if t["tied"] else set()
    assert set(missing) <= allowed and not unexpected, (missing, unexpected)
    return model


def tokens(ids):
    return torch.tensor([ids], dtype=torch.long)


@torch.no_grad()
def prefill(model, ids):
    """Logits [n][V] and the residual stream after every layer, [layers][n][D]."""
    streams = {}
    hooks = [layer.register_forward_hook(
        lambda _m, _a, out, i=i: streams.__setitem__(i, out[0] if isinstance(out, tuple) else out))
        for i, layer in enumerate(model.model.layers)]
    logits = model(tokens(ids), use_cache=False).logits[0]
    for h in hooks:
        h.remove()
    return logits, torch.stack([streams[i][0] for i in range(len(hooks))])


@torch.no_grad()
def pieces(model, ids, sizes):
    """Logits [n][V] with the prompt cut into pieces that share one cache."""
    cache, at, out = None, 0, []
    for n in sizes:
        r = model(tokens(ids[at:at + n]), past_key_values=cache, use_cache=True)
        cache, at = r.past_key_values, at + n
        out.append(r.logits[0])
    assert at == len(ids)
    return torch.cat(out)


NOISE, DRAWS = 2.0 ** -7, 16


def routers(model):
    """What chooses experts, by name: the router, or the whole block that has the choice in it."""
    found = ((name, dict(m.named_children())) for name, m in model.named_modules())
    return [(name, kids.get("router", model.get_submodule(name)))
            for name, kids in found if "experts" in kids]


@torch.no_grad()
def near_ties(model, ids):
    """Rows whose choice of experts, in some layer, changes when each value that the router reads is
    off by up to NOISE of itself, in one of DRAWS ways. For a model in fp64."""
    choices, rows, busy = [], set(), set()
    topk = torch.topk

    def recorded(*args, **kw):
        out = topk(*args, **kw)
        choices.append(out[1])  # the last one of a router is its choice
        return out

    def choice(router, x):
        router.forward(x.reshape(1, -1, x.shape[-1]))
        return choices[-1].reshape(*x.shape[:-1], -1).sort(-1).values

    def look(router, args):
        if router in busy:
            return
        busy.add(router)
        x = args[0].reshape(-1, args[0].shape[-1])
        draws = torch.Generator().manual_seed(1)
        off = 2 * torch.rand((DRAWS, *x.shape), generator=draws, dtype=x.dtype) - 1
        changed = choice(router, x * (1 + NOISE * off)) != choice(router, x)
        rows.update(changed.any(-1).any(0).nonzero().flatten().tolist())
        busy.remove(router)

    hooks = [m.register_forward_pre_hook(look) for _, m in routers(model)]
    torch.topk = recorded
    try:
        model(tokens(ids), use_cache=False)
    finally:
        torch.topk = topk
        for h in hooks:
            h.remove()
    return sorted(rows)


def steady_ids(model, t, n):
    """n ids that do not bring a router near a tie.

    A device that rounds activations to 11 bits may choose another expert than the oracle where two
    are nearly alike; that row is then wrong by far more than rounding, and so are those that see
    it. Of some hundred rows of a random model a few are such, so the ids are chosen: one whose row
    is (near_ties) gives way to the next of its sequence, until none is.
    """
    model.double()
    ids = tiny_model.token_ids(t["seed"], 100 * n, t["vocab"])
    ids, spare = ids[:n], iter(ids[n:])
    first = bad = near_ties(model, ids)
    while bad:
        for row in bad:
            ids[row] = next(spare)
        bad = near_ties(model, ids)
    model.float()
    return ids, len(first)


def relative_error(a, b):
    return float((a - b).double().norm() / b.double().norm())


def eight_bits(x, group=32):
    """Activations as the CPU's quantised kernels read them: int8 codes, one scale a group."""
    y = x.reshape(*x.shape[:-1], -1, group)
    most = y.abs().amax(-1, keepdim=True)
    return (torch.round(y * (127.0 / most.clamp(min=1e-30))) * (most / 127.0)).reshape(x.shape)


def round_activations(model, quantised):
    """Every linear layer whose weight name is in `quantised` reads its input in eight bits."""
    for name, layer in model.named_modules():
        if isinstance(layer, torch.nn.Linear) and name + ".weight" in quantised:
            layer.register_forward_pre_hook(lambda _layer, args: (eight_bits(args[0]),))


def rms(x, w, eps=1e-6):
    return x / torch.sqrt((x * x).mean(-1, keepdim=True) + eps) * w


def frequencies(d, half):
    """Radians a position of each pair; with YaRN, fast ones keep theirs and slow ones are divided."""
    theta = d.get("rope", 1e7)
    own = theta ** (-torch.arange(half).double() / half)
    if not d.get("yarn"):
        return own, 1.0
    ends = [half * math.log(d["trained"] / (turns * 2 * math.pi)) / math.log(theta)
            for turns in (32, 1)]
    if d["truncate"]:
        ends = [math.floor(ends[0]), math.ceil(ends[1])]
    low, high = max(ends[0], 0), min(ends[1], 2 * half - 1)
    slow = ((torch.arange(half).double() - low) / (high - low)).clamp(0, 1)
    return own * (1 - slow) + own / d["yarn"] * slow, 1 + 0.1 * math.log(d["yarn"])


def rope(x, positions, d):
    """NEOX pairing over all dims of x [rows][heads][dim]."""
    half = x.shape[-1] // 2
    speed, size = frequencies(d, half)
    angle = positions.double()[:, None] * speed
    cos, sin = size * angle.cos()[:, None, :], size * angle.sin()[:, None, :]
    lo, hi = x[..., :half], x[..., half:]
    return torch.cat([lo * cos - hi * sin, hi * cos + lo * sin], -1)


def visible(q_pos, k_pos, window, causal):
    """[rows][keys]: window 0 is a full layer; causal None means sliding layers only."""
    dist = q_pos[:, None] - k_pos[None, :]
    causal = window > 0 if causal is None else causal
    ok = dist >= 0 if causal else torch.ones_like(dist, dtype=torch.bool)
    return ok & (dist.abs() < window) if window else ok


def draft_weights(t, d):
    """In fp64, with queries, keys and values apart; DSpark's embedding and head are not used."""
    w = {n: torch.from_numpy(v).double() for n, v in tiny_model.draft_weights(t, d).items()
         if n != "d2t"}
    q, kv = d["heads"] * d["head_dim"], d["kv_heads"] * d["head_dim"]
    for n in [n for n in w if n.endswith("qkv_proj.weight")]:
        for part, v in zip("qkv", w.pop(n).split([q, kv, kv])):
            w[n.replace("qkv_proj", part + "_proj")] = v
    if d.get("markov") and not d.get("head"):
        del w["embed_tokens.weight"], w["lm_head.weight"]
    return w


def draft_context(w, d, features):
    """What the context's keys and values are made of, before a layer's own norm if it has one."""
    f = features.double()
    if d.get("kind") == "laguna":
        f = torch.cat([rms(x, w[f"aux_hidden_norms.{i}.weight"])
                       for i, x in enumerate(f.chunk(len(d["taps"]), -1))], -1)
    return rms(f @ w["fc.weight"].T, w["hidden_norm.weight"], d.get("eps", 1e-6))


def attention_weights(score, sink):
    """Softmax over keys [heads][rows][keys]; a sink is one more score of a head, without a value."""
    if sink is None:
        return score.softmax(-1)
    more = sink[:, None, None].expand(-1, score.shape[1], 1)
    return torch.cat([score, more], -1).softmax(-1)[..., :-1]


class Convolution:
    """DFlash2's convolution around a sublayer, over the rows of a block: of each row and the ones
    before it in the block, with a kernel of a row's own, one for `group` channels each, added to a
    common one. What it adds is made of the sublayer's normed input, for the input and the output."""

    def __init__(self, w, d, name, n):
        self.n, self.taps, self.dim = n, d.get("conv", 0), n.shape[1]
        if not self.taps:
            return
        own = n @ w[name + ".kernel_projection.weight"].T
        own = own.view(len(n), 2, self.taps, -1).repeat_interleave(d["group"], -1)
        self.kernel = w[name + ".base_kernel"] + own  # [rows][input, output][taps][D]

    def run(self, y, side):
        if not self.taps:
            return y
        before = torch.cat([torch.zeros(self.taps - 1, self.dim).double(), y])
        return sum(self.kernel[:, side, o] * before[self.taps - 1 - o:len(before) - o]
                   for o in range(self.taps))


def draft_pairs(w, d, hidden, logits, anchor):
    """DFlash2's selector or DSpark's Markov head: the `top` best rows of the head [rows][top] and
    the log-probabilities of each of them after each of the row before, [rows][top before][top];
    before the first row there is only the anchor, whose line is repeated."""
    unary, ids = logits.topk(d["top"], -1)
    named = torch.from_numpy(tiny_model.draft_tokens(d))[ids] if d.get("head") else ids
    before = torch.cat([torch.full((1, d["top"]), anchor), named[:-1]])
    if d.get("markov"):
        bias = markov_bias(w, d, hidden[:, None].expand(-1, d["top"], -1), before)
        score = unary[:, None] + bias.gather(-1, ids[:, None].expand(-1, d["top"], -1))
        return ids, score.log_softmax(-1)
    gate = hidden @ w["candidate_selector.hidden_projection.weight"].T
    pred = w["candidate_selector.predecessor_codebook"][before] * gate[:, None]
    succ = w["candidate_selector.successor_codebook"][ids]
    score = unary[:, None] + torch.einsum("ipr,icr->ipc", pred, succ)
    return ids, score.log_softmax(-1)


def markov_bias(w, d, hidden, before):
    """What a Markov head adds to the logits of all tokens, [..., V], after tokens `before` [...] at
    rows whose normed hidden states are `hidden` [..., D]."""
    linear, p = torch.nn.functional.linear, "markov_head."
    latent = torch.nn.functional.embedding(before, w[p + "markov_w1.weight"])
    if d["markov"] == "gated":
        gate = linear(torch.cat([hidden, latent], -1), w[p + "gate_proj.weight"],
                      w[p + "gate_proj.bias"])
        latent = gate.sigmoid() * latent
    return linear(latent, w[p + "markov_w2.weight"])


def draft_hidden(model, t, d, features, anchor, w):
    """What the rows of the first block after features [nT*D per token] are before the head."""
    norm = functools.partial(rms, eps=d.get("eps", 1e-6))
    s, block, hd, laguna = features.shape[0], d["block"], d["head_dim"], d.get("kind") == "laguna"
    ctx = draft_context(w, d, features)
    ids = torch.tensor([anchor] + [d["mask"]] * (block - 1))
    embed = w.get("embed_tokens.weight", model.model.embed_tokens.weight.detach().double())
    x = embed[ids] * (1.0 if d.get("kind") == "speculators" else target_scale(t))
    q_pos, k_pos = torch.arange(s, s + block), torch.arange(s + block)
    group = d["heads"] // d["kv_heads"]
    for i, window in enumerate(d["windows"]):
        p = f"layers.{i}."
        n = norm(x, w[p + "input_layernorm.weight"])
        conv = Convolution(w, d, p + "attention_conv", n)
        n = conv.run(n, 0)
        own = norm(ctx, w[p + "input_layernorm.weight"]) if laguna else ctx
        both = torch.cat([own, n])

        def project(y, name, p=p):
            return y @ w[f"{p}self_attn.{name}_proj.weight"].T + \
                w.get(f"{p}self_attn.{name}_proj.bias", 0)
        q = project(n, "q").view(block, -1, hd)
        k = project(both, "k").view(s + block, -1, hd)
        v = project(both, "v").view(s + block, -1, hd)
        q = rope(norm(q, w[p + "self_attn.q_norm.weight"]), q_pos, d)
        k = rope(norm(k, w[p + "self_attn.k_norm.weight"]), k_pos, d)
        k, v = (y.repeat_interleave(group, dim=1) for y in (k, v))
        score = torch.einsum("qhd,khd->hqk", q, k) / hd ** 0.5
        score = score.masked_fill(~visible(q_pos, k_pos, window, causality(d))[None], -torch.inf)
        a = torch.einsum("hqk,khd->qhd", attention_weights(
            score, w.get(p + "self_attn.attention_sink_bias")), v)
        if laguna:
            gates = torch.nn.functional.softplus(n @ w[p + "self_attn.g_proj.weight"].T)
            a = a * gates.view(block, d["heads"], -1)
        x = x + conv.run(project(a.reshape(block, -1), "o"), 1)
        m = norm(x, w[p + "post_attention_layernorm.weight"])
        conv = Convolution(w, d, p + "mlp_conv", m)
        m = conv.run(m, 0)
        gate, up = m @ w[p + "mlp.gate_proj.weight"].T, m @ w[p + "mlp.up_proj.weight"].T
        down = (torch.nn.functional.silu(gate) * up) @ w[p + "mlp.down_proj.weight"].T
        x = x + conv.run(down, 1)
    return norm(x, w["norm.weight"])


def draft_log_probs(model, t, d, features, anchor, w=None):
    """Rows 1..B-1 (from_anchor: 0..B-1) of the first block after features [nT*D per token], log-softmax over the tokens of
    the head; of DFlash2 and DSpark these and draft_pairs(). Where the draft has an embedding or a head of its
    own the target's are not used; the target's factor and cap are none of speculators'."""
    w = w or draft_weights(t, d)
    hidden = draft_hidden(model, t, d, features, anchor, w)
    head = w.get("lm_head.weight", model.lm_head.weight.detach().double())
    logits = hidden @ head.T * d.get("scale", 1.0)
    if d.get("cap"):
        logits = d["cap"] * torch.tanh(logits / d["cap"])
    first = 0 if d.get("from_anchor") else 1
    rows = logits[first:].log_softmax(-1)
    if not d.get("top"):
        return rows
    return rows, *draft_pairs(w, d, hidden[first:], logits[first:], anchor)


def causality(d):
    """As visible() takes it: speculators' flag is of layers with a window, the others are never."""
    return False if d.get("bidirectional") else d["causal"]


def target_scale(t):
    """What the target multiplies its embeddings with."""
    return t["hidden"] ** 0.5 if tiny_model.is_gemma(t) else 1.0


def body_of(t, d, length):
    """An ordinary decoder of transformers with the draft's layers: Qwen3, or Laguna with gates."""
    import transformers as tf
    rotary = {"rope_type": "default", "rope_theta": float(d.get("rope", 1e7))}
    if d.get("yarn"):
        rotary |= tiny_model.draft_config(t, d)["rope_scaling"]
    sizes = {
        "vocab_size": t["vocab"], "hidden_size": t["hidden"], "intermediate_size": d["ffn"],
        "num_hidden_layers": d["layers"], "num_attention_heads": d["heads"],
        "head_dim": d["head_dim"], "num_key_value_heads": d["kv_heads"], "rms_norm_eps": 1e-6,
        "tie_word_embeddings": False, "attention_bias": bool(d.get("bias")),
        "max_position_embeddings": 4096, "attn_implementation": "eager"}
    if d.get("kind") != "laguna":
        return tf.Qwen3ForCausalLM(tf.Qwen3Config(**sizes, rope_parameters=rotary))
    rotary["partial_rotary_factor"] = 1.0
    return tf.LagunaForCausalLM(tf.LagunaConfig(
        **sizes, gating="per-element" if d["wide"] else True, num_experts=2,
        mlp_layer_types=["dense"] * d["layers"], layer_types=["full_attention"] * d["layers"],
        num_attention_heads_per_layer=[d["heads"]] * d["layers"],
        rope_parameters={"full_attention": rotary, "sliding_attention": rotary}))


@torch.no_grad()
def check_transcription(model, t, d, ids):
    """Without context, sinks, cap and convolutions, and causal, the draft is an ordinary body: relative
    difference."""
    d = d | {"windows": [0] * d["layers"], "causal": True, "block": len(ids), "sinks": False,
             "cap": 0, "scale": 1.0, "conv": 0, "top": 0, "from_anchor": False, "eps": 1e-6,
             "bidirectional": False}
    body, w = body_of(t, d, len(ids)).float().eval(), draft_weights(t, d)
    own = ("fc.", "hidden_norm.", "aux_hidden_norms.", "lm_head.", "markov_head.",
           "confidence_head.")
    scale = 1.0 if d.get("kind") == "speculators" else target_scale(t)
    state = {"model.embed_tokens.weight": model.model.embed_tokens.weight * scale,
             "lm_head.weight": w.get("lm_head.weight", model.lm_head.weight).float()}
    state |= {"model." + n: v.float() for n, v in w.items() if not n.startswith(own)}

    body.lm_head = torch.nn.Linear(t["hidden"], d.get("head", t["vocab"]), bias=False)
    body.load_state_dict(state)
    masked = [ids[0]] + [d["mask"]] * (len(ids) - 1)
    want = body(tokens(masked)).logits[0][1:].log_softmax(-1)
    empty = torch.zeros(0, len(d["taps"]) * t["hidden"])
    return relative_error(draft_log_probs(model, t, d, empty, ids[0]), want)


def check_identity(model, t, d, features, anchor):
    """DFlash2 with kernels that keep the row and with empty codebooks is DFlash, and so is DSpark with
    an empty Markov head; what they say of a token does not depend on the one before: relative
    difference of both."""
    w = draft_weights(t, d)
    for n in w:
        if n.endswith("base_kernel"):
            w[n] = torch.zeros_like(w[n])
            w[n][:, 0] = 1
        elif "kernel_projection" in n or n.endswith(("successor_codebook", "markov_w2.weight")):
            w[n] = torch.zeros_like(w[n])
    rows, ids, pairs = draft_log_probs(model, t, d, features, anchor, w)
    alone = rows.gather(1, ids).log_softmax(-1)[:, None].expand_as(pairs)
    want = draft_log_probs(model, t, d | {"conv": 0, "top": 0}, features, anchor, w)
    return relative_error(rows, want) + relative_error(pairs, alone)


def taps(streams, d, n):
    """Features [n][nT*D] of the first n tokens."""
    return torch.cat([streams[i][:n] for i in d["taps"]], -1)


def as_f32(x):
    return np.ascontiguousarray(x.detach().numpy().astype("<f4"))
