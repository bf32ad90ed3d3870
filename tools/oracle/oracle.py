# SPDX-License-Identifier: Apache-2.0
"""The right answers: the target by HuggingFace transformers, the draft by a transcription.

Target: Qwen3_5ForCausalLM or a plain decoder's class in fp32 on the CPU, eager attention, the pure PyTorch
delta rule.
Draft: the DFlash block forward written here from its description (arXiv 2602.06036 and the public
checkpoints' conventions), in fp64, without a cache: every context row is computed anew. It shares
no code with the engine and none with other implementations.
"""
import numpy as np
import torch

import tiny_model


def load_target(t):
    import transformers as tf
    config = tiny_model.target_config(t)
    if tiny_model.is_plain(t):
        name = config["architectures"][0]
        text = "Text" if name.startswith("Gemma4") else ""
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


def rope(x, positions, theta=1e7):
    """NEOX pairing over all dims of x [rows][heads][dim]."""
    half = x.shape[-1] // 2
    angle = positions.double()[:, None] * theta ** (-torch.arange(half).double() / half)
    cos, sin = angle.cos()[:, None, :], angle.sin()[:, None, :]
    lo, hi = x[..., :half], x[..., half:]
    return torch.cat([lo * cos - hi * sin, hi * cos + lo * sin], -1)


def visible(q_pos, k_pos, window, causal):
    """[rows][keys]: window 0 is a full layer; causal None means sliding layers only."""
    dist = q_pos[:, None] - k_pos[None, :]
    causal = window > 0 if causal is None else causal
    ok = dist >= 0 if causal else torch.ones_like(dist, dtype=torch.bool)
    return ok & (dist.abs() < window) if window else ok


def draft_log_probs(model, t, d, features, anchor):
    """Rows 1..B-1 of the first block after features [nT*D per token], log-softmax over V."""
    w = {n: torch.from_numpy(v).double() for n, v in tiny_model.draft_weights(t, d).items()}
    s, block, hd = features.shape[0], d["block"], d["head_dim"]
    ctx = rms(features.double() @ w["fc.weight"].T, w["hidden_norm.weight"])
    ids = torch.tensor([anchor] + [d["mask"]] * (block - 1))
    x = model.model.embed_tokens.weight.detach().double()[ids]
    q_pos, k_pos = torch.arange(s, s + block), torch.arange(s + block)
    group, theta = d["heads"] // d["kv_heads"], d.get("rope", 1e7)
    for i, window in enumerate(d["windows"]):
        p = f"layers.{i}."
        n = rms(x, w[p + "input_layernorm.weight"])
        both = torch.cat([ctx, n])
        q = (n @ w[p + "self_attn.q_proj.weight"].T).view(block, -1, hd)
        k = (both @ w[p + "self_attn.k_proj.weight"].T).view(s + block, -1, hd)
        v = (both @ w[p + "self_attn.v_proj.weight"].T).view(s + block, -1, hd)
        q = rope(rms(q, w[p + "self_attn.q_norm.weight"]), q_pos, theta)
        k = rope(rms(k, w[p + "self_attn.k_norm.weight"]), k_pos, theta)
        k, v = (y.repeat_interleave(group, dim=1) for y in (k, v))
        score = torch.einsum("qhd,khd->hqk", q, k) / hd ** 0.5
        score = score.masked_fill(~visible(q_pos, k_pos, window, d["causal"])[None], -torch.inf)
        a = torch.einsum("hqk,khd->qhd", score.softmax(-1), v).reshape(block, -1)
        x = x + a @ w[p + "self_attn.o_proj.weight"].T
        m = rms(x, w[p + "post_attention_layernorm.weight"])
        gate, up = m @ w[p + "mlp.gate_proj.weight"].T, m @ w[p + "mlp.up_proj.weight"].T
        x = x + (torch.nn.functional.silu(gate) * up) @ w[p + "mlp.down_proj.weight"].T
    logits = rms(x, w["norm.weight"]) @ model.lm_head.weight.detach().double().T
    return logits[1:].log_softmax(-1)


@torch.no_grad()
def check_transcription(model, t, d, ids):
    """Without context, and causal, the draft is an ordinary Qwen3 body: relative difference."""
    from transformers import Qwen3Config, Qwen3ForCausalLM
    d = d | {"windows": [0] * d["layers"], "causal": True, "block": len(ids)}
    body = Qwen3ForCausalLM(Qwen3Config(
        vocab_size=t["vocab"], hidden_size=t["hidden"], intermediate_size=d["ffn"],
        num_hidden_layers=d["layers"], num_attention_heads=d["heads"], head_dim=d["head_dim"],
        num_key_value_heads=d["kv_heads"], rms_norm_eps=1e-6, tie_word_embeddings=False,
        rope_parameters={"rope_type": "default", "rope_theta": d.get("rope", 1e7)},
        attn_implementation="eager")).float().eval()
    state = {"model." + n: torch.from_numpy(w) for n, w in tiny_model.draft_weights(t, d).items()
             if not n.startswith(("fc.", "hidden_norm."))}
    state |= {"model.embed_tokens.weight": model.model.embed_tokens.weight,
              "lm_head.weight": model.lm_head.weight}
    body.load_state_dict(state)
    masked = [ids[0]] + [d["mask"]] * (len(ids) - 1)
    want = body(tokens(masked)).logits[0][1:].log_softmax(-1)
    empty = torch.zeros(0, len(d["taps"]) * t["hidden"])
    return relative_error(draft_log_probs(model, t, d, empty, ids[0]), want)


def taps(streams, d, n):
    """Features [n][nT*D] of the first n tokens."""
    return torch.cat([streams[i][:n] for i in d["taps"]], -1)


def as_f32(x):
    return np.ascontiguousarray(x.detach().numpy().astype("<f4"))
