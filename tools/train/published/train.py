# SPDX-License-Identifier: Apache-2.0
"""Trains a DFlash or DFlash2 draft for a target of the architecture llama or qwen35, from its GGUF file.

usage: train.py TARGET.gguf OUT_DIR [--gen-seconds N] [--until N] [--layers N] [--taps LIST] [--resume DIR] [--tiny]
                [--texts-from DIR] [--keep] [--conv 2 --rank N] [--prompts DIR] [--long N]
       torchrun --standalone --nproc-per-node GPUS train.py ...

The target writes texts (texts.py), then the draft is trained on what it chose; features and the target's distributions
come of a forward pass inside every step, or of one pass over all texts (--keep). Learning rates follow the clock.
OUT_DIR/draft is a folder for `coppice convert`, written anew every minute; its log.json has the figures. With --conv and
--rank it is a DFlash2 draft, which begins as the DFlash one that --resume names. docs/training.md tells how this went.
"""

import argparse
import json
import os
import pathlib
import sys
import time
from functools import partial
from types import SimpleNamespace

import torch
import torch.distributed as dist
import torch.nn.functional as F
from safetensors.torch import load_file

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))
import export
import imported
import measure
import target as targets
import texts
from loops import tap_norm
from model import Draft, DraftConfig
from optim import Mixed
from pipeline import schedule

T0 = time.time()


def say(*words):
    if not dist.is_initialized() or dist.get_rank() == 0:
        print(f"[{time.time() - T0:7.1f}]", *words, flush=True)


def rows_loss(logits, wanted, labels, ok, top, soft=0.4):
    """One slice of whole blocks. logits, wanted: the draft's and the target's [n,R,V]; labels, ok [n,R] ->
    gradient of the weighted loss by logits; sums of weights, losses, rows whose likeliest token is the label; the
    weights [n,R]; the `top` likeliest tokens [n,R,top]. soft: share of the target's distribution beside the label"""
    lse = logits.logsumexp(-1)
    ce = lse - logits.gather(-1, labels[..., None])[..., 0]
    p = wanted.softmax(-1)
    kl = lse - (p * logits).sum(-1)  # but for the target's own entropy
    c = torch.where(ok, 0.5 * (-ce).exp() + 0.5, 1.0)  # D-PACE, alpha 0.5
    run = c.cumprod(-1) * ok
    w = run.flip(-1).cumsum(-1).flip(-1) * ok
    at = torch.arange(logits.shape[-1], device=logits.device) == labels[..., None]
    grad = w[..., None] * ((logits - lse[..., None]).exp() - soft * p - (1 - soft) * at)
    hit = ((logits.argmax(-1) == labels) | ~ok).cumprod(-1) * ok
    sums = torch.stack((w.sum(), (w * ((1 - soft) * ce + soft * kl)).sum(), hit.sum().float()))
    return grad.to(torch.bfloat16), sums, w, logits.topk(top, -1).indices


def selector_loss(selector, head, h, hid, before, best, labels, ok, w):
    """DFlash2's selector among the candidates `best` [n,R,k] of rows h [n,R,D], after the tokens `before` [n,R] ->
    loss over rows whose label is a candidate, mean length of its chains"""
    rows = F.embedding(best, head)
    unary, wanted = (torch.einsum("nrd,nrkd->nrk", y, rows).float() for y in (h, hid))
    q = (unary + selector(h, before, best)).log_softmax(-1)
    at = (best == labels[..., None]).float()
    p, inside = wanted.softmax(-1), at.sum(-1) * ok
    loss = -((0.6 * at + 0.4 * p) * q).sum(-1) * w * inside
    hit = ((best.gather(-1, q.argmax(-1, True))[..., 0] == labels) | ~ok).cumprod(-1) * ok
    return loss.sum() / w.sum().clamp(min=1), 1 + hit.sum() / len(h)


def scores(h, weight):
    """h [n,R,D] -> logits [n,R,V] as 32-bit floats"""
    if h.is_cuda:
        return torch.mm(h.flatten(0, 1), weight.T, out_dtype=torch.float32).view(*h.shape[:-1], -1)
    return F.linear(h, weight).float()


class HeadLoss(torch.autograd.Function):
    """The loss over slices of blocks, so that logits of one slice exist at a time; also the mean length of chains,
    weights and likeliest tokens of rows."""

    @staticmethod
    def forward(ctx, h, hid, weight, labels, ok, fn, blocks):
        out = []
        for a, b, y, o in zip(h.split(blocks), hid.split(blocks), labels.split(blocks), ok.split(blocks)):
            grad, *rest = fn(scores(a, weight), scores(b, weight), y, o)
            out.append((grad.to(weight.dtype) @ weight, *rest))
        grads, sums, w, best = zip(*out)
        total, w, best = sum(sums), torch.cat(w), torch.cat(best)
        ctx.save_for_backward(torch.cat(grads) / total[0].clamp(min=1))
        ctx.mark_non_differentiable(w, best)
        return total[1] / total[0].clamp(min=1), 1 + total[2] / len(h), w, best

    @staticmethod
    def backward(ctx, g, *_):
        return g * ctx.saved_tensors[0], None, None, None, None, None, None


def rows(target, draft, x, anchor, raw):
    """-> the draft's normed outputs [B,A,R,D] behind anchors [B,A] of texts x [B,T]"""
    tok, live = target.embed[x.gather(1, anchor)], torch.ones_like(anchor, dtype=torch.bool)
    with torch.autocast(target.device.type, torch.bfloat16, enabled=target.dtype == torch.bfloat16):
        h = draft(raw.to(target.dtype), anchor, live, tok, target.embed[draft.c.mask_id])[:, :, 1:]
    return h.to(target.dtype)


def guesses(target, draft, x, anchor, truth, hid, raw):
    """-> the chain's guesses [B,A,R], each as if those before it were right, which truth [B,A,R] is"""
    h = rows(target, draft, x, anchor, raw)
    logits = scores(h.flatten(0, 1), target.head)
    if draft.candidate_selector is None:
        return logits.argmax(-1).view_as(truth)
    best = logits.topk(draft.c.top, -1)
    before = torch.cat((x.gather(1, anchor)[..., None], truth[..., :-1]), -1).flatten(0, 1)
    q = best.values + draft.candidate_selector(h.flatten(0, 1), before, best.indices)
    return best.indices.gather(-1, q.argmax(-1, True))[..., 0].view_as(truth)


def losses(a, target, draft, fn, texts, noise, user):
    """-> the loss, the lengths of chains (of the selector too)"""
    c = draft.c
    x, anchor, labels, ok, flat, hid, raw = texts.draw(a.texts, a.anchors, c.block, user, c.taps)
    hid = hid.gather(1, (flat - 1)[..., None].expand(-1, -1, c.dim)).view(-1, c.block - 1, c.dim)
    raw = raw.float()
    raw = raw + (torch.rand_like(raw) - 0.5) * noise * tap_norm(raw, c.dim)
    h = rows(target, draft, x, anchor, raw)
    before = torch.cat((x.gather(1, anchor)[..., None], labels[..., :-1]), -1)
    h, before, labels, ok = (y.flatten(0, 1) for y in (h, before, labels, ok))
    loss, length, w, best = HeadLoss.apply(h, hid, target.head, labels, ok, fn, a.slice)
    if draft.candidate_selector is None:
        return loss, length
    chosen, longer = a.selected(draft.candidate_selector, target.head, h, hid, before, best, labels, ok, w)
    return loss + chosen, torch.stack((length, longer))


def average(params):
    """The mean of all ranks' gradients."""
    if dist.is_initialized():
        flat = torch.cat([p.grad.flatten() for p in params])
        dist.all_reduce(flat)
        flat /= dist.get_world_size()
        for p, g in zip(params, flat.split([p.numel() for p in params])):
            p.grad = g.view_as(p)


def train(a, target, draft, texts, fn, losses, save):
    """losses: as above; save(log): called every minute and at the end"""
    held, texts = texts.split(a.held)
    opt = Mixed(draft, a.lr, a.lr, wd=0.05)
    log, step, began, mark, seen, saved = [], 0, None, time.time(), 0, time.time()
    over = torch.zeros((), device=target.device)  # ranks end at the same step
    while not over:
        loss, length = losses(a, target, draft, fn, texts, 0.1, 0.5)
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
            test = [sum(losses(a, target, draft, fn, h, 0.0, 0.0)[1] for _ in range(2)) / 2 for h in held.each()]
            row = {"step": step, "loss": loss.item(), "block": length.tolist(), "share": round(share, 4)}
            row |= {"held out": [t.tolist() for t in test], "steps/s": (step - seen) / (time.time() - mark)}
            if step % 500 == 0 or a.tiny:
                say(row)
            log.append(row)
            seen, mark = step, time.time()
        if time.time() > saved + 60:
            save(log)
            saved = time.time()
    say("done after", step, "steps", log[-1])
    save(log)


def saver(a, folder, facts, write, prompts, guesses):
    """-> save(log): writes the draft, with accept lengths over prompts where there are some"""
    measured = []

    def save(log):
        if dist.is_initialized() and dist.get_rank():
            return
        if prompts:
            measured.append({"seconds": round(time.time() - T0)} | prompts.accept_lengths(guesses))
            say("accept lengths of chains:", measured[-1])
        put(folder, facts | {"log": log, "accept lengths": measured}, write)

    return save


def put(folder, facts, write):
    """write(FOLDER) makes the files, which take the place of older ones whole."""
    part = pathlib.Path(f"{folder}.part")
    part.mkdir(parents=True, exist_ok=True)
    write(part)
    (part / "log.json").write_text(json.dumps(facts))
    folder.mkdir(exist_ok=True)
    for f in part.iterdir():
        os.replace(f, folder / f.name)
    part.rmdir()


def arguments(more=()):
    """more: options of another script, (name, type, help)"""
    ap = argparse.ArgumentParser()
    ap.add_argument("target")
    ap.add_argument("out")
    ap.add_argument("--gen-seconds", type=float, default=100)
    ap.add_argument("--until", type=float, default=540, help="end so many seconds after the start")
    ap.add_argument("--length", type=int, default=1024)
    ap.add_argument("--long", type=int, default=0, help="length of longer conversations, which are written beside those")
    ap.add_argument("--long-every", type=int, default=4, help="one step in so many is of longer ones")
    ap.add_argument("--rows", type=int, default=2048, help="conversations that are written at once")
    ap.add_argument("--texts", type=int, default=16, help="texts of a step, on each GPU")
    ap.add_argument("--anchors", type=int, default=64, help="blocks of a text")
    ap.add_argument("--slice", type=int, default=256, help="blocks whose logits exist at once")
    ap.add_argument("--held", type=int, default=256, help="texts kept for measuring")
    ap.add_argument("--texts-from", help="folder of redraft_data.py, in place of conversations")
    ap.add_argument("--written", type=float, default=0.4, help="share of continuations among texts of such a folder")
    ap.add_argument("--shards", type=int, default=20, help="files of tasks of such a folder, on each GPU")
    ap.add_argument("--slots", type=int, default=2048, help="prompts of such a folder that are continued at once")
    ap.add_argument("--gen-steps", type=int, default=6000, help="most tokens of a slot")
    ap.add_argument("--limit", type=int, default=128, help="most tokens of a continuation")
    ap.add_argument("--keep", action="store_true", help="keep the target's features of all texts in memory")
    ap.add_argument("--eager", action="store_true", help="without torch.compile, where that fails or is too slow")
    ap.add_argument("--layers", type=int, default=4)
    ap.add_argument("--heads", type=int, help="of the draft; the target's number otherwise, as with the next two")
    ap.add_argument("--kv-heads", type=int)
    ap.add_argument("--head-dim", type=int)
    ap.add_argument("--conv", type=int, default=0, help="DFlash2: rows of its convolutions (2); 0 makes a DFlash draft")
    ap.add_argument("--group", type=int, default=16, help="DFlash2: channels that share a kernel")
    ap.add_argument("--rank", type=int, default=0, help="DFlash2: of the selector's codebooks")
    ap.add_argument("--top", type=int, default=16, help="DFlash2: candidates between which it chooses")
    ap.add_argument("--ffn", type=int, default=1536)
    ap.add_argument("--taps", default="1,7,14,20,27")
    ap.add_argument("--window", type=int, default=256)
    ap.add_argument("--mask", type=int, default=16, help="a token that occurs in no text")
    ap.add_argument("--resume", help="OUT_DIR of another run or a draft's GGUF file; it is trained on")
    ap.add_argument("--prompts", help="folder of prompts as in bench/prompts: every minute and at the end the draft's chains"
                    " over the target's answers are measured, as in use")  # fmt: skip
    ap.add_argument("--prompt-tokens", type=int, default=128, help="of these answers")
    ap.add_argument("--soft", type=float, default=0.4, help="share of the target's distribution beside the label")
    ap.add_argument("--lr", type=float, default=2e-3)
    ap.add_argument("--seed", type=int, default=1)
    ap.add_argument("--tiny", action="store_true", help="small sizes and, without --resume, two layers of the target, for a try on a CPU")
    for name, kind, text in more:
        ap.add_argument(name, type=kind, help=text)
    a = ap.parse_args()
    if a.tiny:
        a.rows, a.texts, a.anchors, a.slice, a.held, a.gen_steps = 4, 2, 3, 4, 2, 300
        a.length, a.long, a.prompt_tokens = a.length if a.texts_from else 96, a.long and 192, 12
    return a


def start(a):
    """-> the target, this process's number, how many there are, which texts there are"""
    cuda, rank = torch.cuda.is_available(), int(os.environ.get("RANK", 0))
    dev = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0))) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(dev)
        torch.set_float32_matmul_precision("high")
        torch.backends.cuda.enable_cudnn_sdp(False)  # it costs 50 ms a step while the number of keys grows
    ranks = int(os.environ.get("WORLD_SIZE", 1))
    if ranks > 1:
        dist.init_process_group("nccl" if cuda else "gloo")
    os.makedirs(a.out, exist_ok=True)
    torch.manual_seed(a.seed)
    target = targets.read(a.target, dev, torch.bfloat16 if cuda else torch.float32)
    if a.tiny and not a.resume:
        target.cut()
    return target, rank, ranks


def compiled(a, target):
    return target.device.type == "cuda" and not a.eager


def gather(a, target, rank, ranks, taps):
    """-> texts, with features where they are kept; their numbers of tokens of all ranks"""
    torch.manual_seed(a.seed * 100 + rank)
    found = texts.write(a, target, rank, ranks, say)
    counts = found.counts().to(target.device)
    if dist.is_initialized():
        dist.all_reduce(counts)
    say("tokens, of users, of answers:", counts.tolist())
    if a.keep:
        found.keep(taps)
        say("features are kept")
    elif compiled(a, target):
        target.compile()
    return found, {"tokens": counts.tolist(), "ranks": ranks}


def make_draft(a, target):
    kinds = ["sliding"] * (a.layers - 1) + ["full"]
    head, taps = a.head_dim or target.head_dim, [int(x) for x in a.taps.split(",")]
    if a.tiny:
        taps = [i for i in taps if i < target.layers]
    c = DraftConfig(dim=target.dim, layers=a.layers, ffn=a.ffn, heads=a.heads or target.heads,
                    kv_heads=a.kv_heads or target.kv_heads, head_dim=head, taps=taps,
                    window=a.window, kinds=kinds, theta=target.theta, mask_id=a.mask, vocab=target.vocab,
                    conv=a.conv, group=a.group, rank=a.rank, top=a.top)  # fmt: skip
    draft = Draft(c).to(target.device)
    if a.resume:
        gguf = a.resume.endswith(".gguf")
        old = dict(imported.tensors(a.resume)) if gguf else load_file(f"{a.resume}/draft/model.safetensors")
        missing, strange = draft.load_state_dict(old, strict=False)
        new = ("attention_conv.", "mlp_conv.", "candidate_selector.")
        wrong = [n for n in missing if not any(k in n for k in new)] + strange
        if wrong:
            raise SystemExit(f"{a.resume}: another draft, its tensors differ: {', '.join(wrong[:4])}")
    return draft


def main():
    a = arguments()
    target, rank, ranks = start(a)
    draft = make_draft(a, target)
    say("parameters", sum(p.numel() for p in draft.parameters()), target.device.type)
    prompts = measure.read(a, target, rank, draft.c.taps)
    found, facts = gather(a, target, rank, ranks, draft.c.taps)
    fn, a.selected = partial(rows_loss, top=a.top if a.rank else 0, soft=a.soft), selector_loss
    if compiled(a, target):
        fn, a.selected = torch.compile(fn, dynamic=False), torch.compile(selector_loss, dynamic=False)
        for layer in draft.layers:
            layer.compile(dynamic=False)
    shape = SimpleNamespace(vocab=target.vocab, context=target.context, layers=target.layers)
    write = lambda folder: export.export_draft(draft, shape, folder)
    save = saver(a, pathlib.Path(a.out) / "draft", facts, write, prompts, partial(guesses, target, draft))
    train(a, target, draft, found, fn, losses, save)
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
