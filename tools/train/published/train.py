# SPDX-License-Identifier: Apache-2.0
"""Trains a DFlash draft for a published target of the architecture llama, from its GGUF file alone.

usage: train.py TARGET.gguf OUT_DIR [--gen-seconds N] [--until N] [--layers N] [--taps LIST] [--resume DIR] [--tiny]
       torchrun --standalone --nproc-per-node GPUS train.py ...

The target writes conversations (talk.py), then the draft is trained on its answers; features and the target's
distributions come of a forward pass inside every step. Learning rates follow the clock. OUT_DIR/draft is a folder for
`coppice convert`; OUT_DIR/log.json has the figures. docs/training.md tells how this went.
"""

import argparse
import json
import os
import pathlib
import sys
import time
from types import SimpleNamespace

import torch
import torch.distributed as dist
import torch.nn.functional as F
from safetensors.torch import load_file

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))
import export
from loops import tap_norm
from model import Draft, DraftConfig
from optim import Mixed
from pipeline import schedule
from talk import Talk
from target import Target, tokenizer

T0 = time.time()


def say(*words):
    if not dist.is_initialized() or dist.get_rank() == 0:
        print(f"[{time.time() - T0:7.1f}]", *words, flush=True)


def rows_loss(logits, wanted, labels, ok):
    """One slice of whole blocks. logits, wanted: the draft's and the target's [n,R,V]; labels, ok [n,R] ->
    gradient of the weighted loss by logits, weights, losses, rows whose likeliest token is the label"""
    lse = logits.logsumexp(-1)
    ce = lse - logits.gather(-1, labels[..., None])[..., 0]
    p = wanted.softmax(-1)
    kl = lse - (p * logits).sum(-1)  # but for the target's own entropy
    c = torch.where(ok, 0.5 * (-ce).exp() + 0.5, 1.0)  # D-PACE, alpha 0.5
    run = c.cumprod(-1) * ok
    w = run.flip(-1).cumsum(-1).flip(-1) * ok
    at = torch.arange(logits.shape[-1], device=logits.device) == labels[..., None]
    grad = w[..., None] * ((logits - lse[..., None]).exp() - 0.4 * p - 0.6 * at)
    hit = ((logits.argmax(-1) == labels) | ~ok).cumprod(-1) * ok
    return grad.to(torch.bfloat16), w.sum(), (w * (0.6 * ce + 0.4 * kl)).sum(), hit.sum()


def scores(h, weight):
    """h [n,R,D] -> logits [n,R,V] as 32-bit floats"""
    if h.is_cuda:
        return torch.mm(h.flatten(0, 1), weight.T, out_dtype=torch.float32).view(*h.shape[:-1], -1)
    return F.linear(h, weight).float()


class HeadLoss(torch.autograd.Function):
    """The loss over slices of blocks, so that logits of one slice exist at a time."""

    @staticmethod
    def forward(ctx, h, hid, weight, labels, ok, fn, blocks):
        grads, total = [], 0
        for a, b, y, o in zip(h.split(blocks), hid.split(blocks), labels.split(blocks), ok.split(blocks)):
            grad, *sums = fn(scores(a, weight), scores(b, weight), y, o)
            grads.append(grad.to(weight.dtype) @ weight)
            total = torch.stack(sums).float() + total
        ctx.save_for_backward(torch.cat(grads) / total[0].clamp(min=1))
        return total[1] / total[0].clamp(min=1), 1 + total[2] / len(h)

    @staticmethod
    def backward(ctx, g, _):
        return g * ctx.saved_tensors[0], None, None, None, None, None, None


def write_texts(a, target, dev, rank):
    tok, end = tokenizer(a.target)
    limits = (6, 40) if a.tiny else (256, 400)
    talk = Talk(target, lambda text: tok.encode(text).ids, end, a.length, limits=limits, seed=1000 * a.seed + rank)
    cache, ids, own, began = target.cache(a.rows, a.length), [], [], time.time()
    while not ids or time.time() - began < a.gen_seconds:
        x, o = talk.write(a.rows, cache)
        keep = (o == 2).sum(1) > (0 if a.tiny else 32)
        ids.append(x[keep].int())
        own.append(o[keep])
        say("texts", sum(map(len, ids)), "tokens of answers", int(sum((o == 2).sum() for o in own)))
        if len(ids) == 1:
            for row in x[:6].tolist():
                say("example", repr(tok.decode(row, skip_special_tokens=False)))
    del cache
    return torch.cat(ids), torch.cat(own)


def batch(ids, own, n, anchors, block, user):
    """user: weight of an anchor in a user's turn beside one in an answer -> ids [n,T], anchors [n,A], labels and
    whether they count [n,A,block-1], places of the labels [n,A(block-1)]"""
    pick = torch.randint(len(ids), (n,), device=ids.device)
    x, o = ids[pick].long(), own[pick]
    weight = torch.tensor([0.0, user, 1.0], device=ids.device)
    start = weight[F.pad(o[:, 1:], (0, 1)).long()]  # by the token behind the anchor
    anchor = torch.multinomial(start, anchors, replacement=True)
    at = anchor[..., None] + torch.arange(1, block, device=ids.device)
    inside, flat = at < x.shape[1], at.clamp(max=x.shape[1] - 1).flatten(1)
    ok = ((o.gather(1, flat).view_as(at) > 0) & inside).cumprod(-1).bool()
    return x, anchor, x.gather(1, flat).view_as(at), ok, flat


def losses(a, target, draft, fn, ids, own, noise, user):
    c = draft.c
    x, anchor, labels, ok, flat = batch(ids, own, a.texts, a.anchors, c.block, user)
    hid, raw = target.forward(x, c.taps)
    hid = hid.gather(1, (flat - 1)[..., None].expand(-1, -1, c.dim)).view(-1, c.block - 1, c.dim)
    raw = raw.float()
    raw = raw + (torch.rand_like(raw) - 0.5) * noise * tap_norm(raw, c.dim)
    tok, live = target.embed[x.gather(1, anchor)], torch.ones_like(anchor, dtype=torch.bool)
    with torch.autocast(target.device.type, torch.bfloat16, enabled=target.dtype == torch.bfloat16):
        h = draft(raw.to(target.dtype), anchor, live, tok, target.embed[c.mask_id])[:, :, 1:]
    return HeadLoss.apply(h.to(target.dtype).flatten(0, 1), hid, target.head, labels.flatten(0, 1), ok.flatten(0, 1),
                          fn, a.slice)  # fmt: skip


def average(params):
    """The mean of all ranks' gradients."""
    if dist.is_initialized():
        flat = torch.cat([p.grad.flatten() for p in params])
        dist.all_reduce(flat, op=dist.ReduceOp.AVG)
        for p, g in zip(params, flat.split([p.numel() for p in params])):
            p.grad = g.view_as(p)


def train(a, target, draft, ids, own, fn):
    held, ids, held_own, own = ids[: a.held], ids[a.held :], own[: a.held], own[a.held :]
    opt = Mixed(draft, a.lr, a.lr, wd=0.05)
    log, step, began, mark, seen = [], 0, None, time.time(), 0
    over = torch.zeros((), device=target.device)  # ranks end at the same step
    while not over:
        loss, length = losses(a, target, draft, fn, ids, own, 0.1, 0.5)
        loss.backward()
        average(opt.params)
        if step == 3:
            began = time.time()
        share = (time.time() - began) / max(1e-6, T0 + a.until - began) if began else 0.0
        opt.step(schedule(share, 0.03, 0.3))
        step += 1
        if step % 100 == 0 or a.tiny:
            over += share >= 1
            if dist.is_initialized():
                dist.all_reduce(over)
            test = [losses(a, target, draft, fn, held, held_own, 0.0, 0.0)[1].item() for _ in range(2)]
            row = {"step": step, "loss": loss.item(), "block": length.item(), "share": round(share, 4)}
            row |= {"held out": sum(test) / 2, "steps/s": (step - seen) / (time.time() - mark)}
            if step % 500 == 0 or a.tiny:
                say(row)
            log.append(row)
            seen, mark = step, time.time()
    say("done after", step, "steps", log[-1])
    return log


def save(a, target, draft, log, tokens):
    if dist.is_initialized() and dist.get_rank():
        return
    shape = SimpleNamespace(vocab=target.vocab, context=target.context, layers=target.layers)
    export.export_draft(draft, shape, pathlib.Path(a.out) / "draft")
    facts = {"tokens": tokens, "ranks": dist.get_world_size() if dist.is_initialized() else 1, "log": log}
    (pathlib.Path(a.out) / "log.json").write_text(json.dumps(facts))


def arguments():
    ap = argparse.ArgumentParser()
    ap.add_argument("target")
    ap.add_argument("out")
    ap.add_argument("--gen-seconds", type=float, default=100)
    ap.add_argument("--until", type=float, default=540, help="end so many seconds after the start")
    ap.add_argument("--length", type=int, default=1024)
    ap.add_argument("--rows", type=int, default=2048, help="conversations that are written at once")
    ap.add_argument("--texts", type=int, default=16, help="texts of a step, on each GPU")
    ap.add_argument("--anchors", type=int, default=64, help="blocks of a text")
    ap.add_argument("--slice", type=int, default=256, help="blocks whose logits exist at once")
    ap.add_argument("--held", type=int, default=256, help="texts kept for measuring")
    ap.add_argument("--layers", type=int, default=4)
    ap.add_argument("--ffn", type=int, default=1536)
    ap.add_argument("--taps", default="1,7,14,20,27")
    ap.add_argument("--window", type=int, default=256)
    ap.add_argument("--mask", type=int, default=16, help="a token that occurs in no text")
    ap.add_argument("--resume", help="OUT_DIR of another run, whose draft is trained on")
    ap.add_argument("--lr", type=float, default=2e-3)
    ap.add_argument("--seed", type=int, default=1)
    ap.add_argument("--tiny", action="store_true", help="small sizes and two layers of the target, for a try on a CPU")
    a = ap.parse_args()
    if a.tiny:
        a.rows, a.length, a.texts, a.anchors, a.slice, a.held, a.taps = 4, 96, 2, 3, 4, 2, "0,1"
    return a


def main():
    a = arguments()
    cuda, rank = torch.cuda.is_available(), int(os.environ.get("RANK", 0))
    dev = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0))) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(dev)
        torch.backends.cuda.enable_cudnn_sdp(False)  # it costs 50 ms a step while the number of keys grows
    if int(os.environ.get("WORLD_SIZE", 1)) > 1:
        dist.init_process_group("nccl" if cuda else "gloo")
    os.makedirs(a.out, exist_ok=True)
    torch.manual_seed(a.seed)
    target = Target(a.target, dev, torch.bfloat16 if cuda else torch.float32)
    target.layers = 2 if a.tiny else target.layers
    kinds = ["sliding"] * (a.layers - 1) + ["full"]
    taps = [int(x) for x in a.taps.split(",")]
    draft = Draft(DraftConfig(dim=target.dim, layers=a.layers, ffn=a.ffn, heads=target.heads, kv_heads=target.kv_heads,
                              head_dim=target.head_dim, taps=taps, window=a.window, kinds=kinds, theta=target.theta,
                              mask_id=a.mask)).to(dev)  # fmt: skip
    if a.resume:
        draft.load_state_dict(load_file(f"{a.resume}/draft/model.safetensors"))
    say("parameters", sum(p.numel() for p in draft.parameters()), "cuda" if cuda else "cpu")
    torch.manual_seed(a.seed * 100 + rank)
    ids, own = write_texts(a, target, dev, rank)
    counts = torch.tensor([ids.numel(), int((own == 1).sum()), int((own == 2).sum())], device=dev)
    if dist.is_initialized():
        dist.all_reduce(counts)
    say("tokens, of users, of answers:", counts.tolist(), "texts", len(ids), "on this GPU")
    fn = rows_loss
    if cuda:
        fn, target.whole = torch.compile(rows_loss, dynamic=False), torch.compile(target.whole, dynamic=False)
        for layer in draft.layers:
            layer.compile(dynamic=False)
    log = train(a, target, draft, ids, own, fn)
    save(a, target, draft, log, counts.tolist())
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
