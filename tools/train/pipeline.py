# SPDX-License-Identifier: Apache-2.0
"""Trains the pair: target, Q8_0 round trip, on-policy generation, draft, evaluation.

usage: pipeline.py DATA_DIR OUT_DIR [--prompts bench.jsonl --tokenizer tokenizer.json]
           [--target-seconds N] [--gen-seconds N] [--draft-seconds N] [--kernel triton|torch]
           [--no-draft (target only)] [--resume CHECKPOINT.pt (skips the target phase)] [--tiny]

DATA_DIR is filled by prepare.py, which may still be running. Learning rates follow the clock, so
every phase ends when its seconds are spent, whatever the machine's speed. Checkpoints (bf16 state
dicts) are written to OUT_DIR after every phase. README.md explains the choices.
"""

import argparse
import gc
import glob
import json
import math
import os
import time

import numpy as np
import torch
import torch.nn.functional as F

import loops
from model import Draft, DraftConfig, Target, TargetConfig, quantise_
from optim import Mixed

MIX = {"code": 0.47, "doc": 0.11, "tasks": 0.42}


def say(*words):
    print(f"[{time.time() - T0:7.1f}]", *words, flush=True)


class Data:
    """Token streams on the device; rows begin at the start of a document."""

    def __init__(self, folder, device):
        self.folder, self.device, self.shards, self.streams = folder, device, {}, {}
        while not (os.path.exists(f"{folder}/code.npy") and glob.glob(f"{folder}/tasks_*.npy")):
            time.sleep(0.5)
        for n in ("code", "doc"):
            self.streams[n] = self.load(f"{folder}/{n}.npy")
        self.refresh()

    def load(self, path):
        x = torch.from_numpy(np.load(path).astype(np.int16))
        ends = torch.nonzero((x.int() & 0x7FFF) == loops.END)[:, 0] + 1
        return x.to(self.device), torch.cat((ends.new_zeros(1), ends[:-1])).to(self.device)

    def refresh(self):
        for f in sorted(glob.glob(f"{self.folder}/tasks_*.npy")):
            if f not in self.shards:
                self.shards[f] = self.load(f)
        parts, at, starts = list(self.shards.values()), 0, []
        for x, s in parts:
            starts.append(s + at)
            at += len(x)
        self.streams["tasks"] = (torch.cat([p[0] for p in parts]), torch.cat(starts))

    def batch(self, rows, length, names=None):
        """-> ids [rows,length], labels [rows,length] (-100 where no loss)"""
        out = []
        for n, share in MIX.items():
            k = round(rows * share) if n != "tasks" else rows - sum(o.shape[0] for o in out)
            x, starts = self.streams[n]
            s = starts[starts < len(x) - length - 1] if len(x) < 4_000_000 else starts
            at = s[torch.randint(len(s), (k,), device=self.device)].clamp(max=len(x) - length - 1)
            out.append(x[at[:, None] + torch.arange(length + 1, device=self.device)])
        v = torch.cat(out).int() & 0xFFFF
        ids = (v & 0x7FFF).long()
        labels = torch.where(v[:, 1:] >= 0x8000, ids[:, 1:], torch.full_like(ids[:, 1:], -100))
        return ids[:, :-1], labels


def head_loss(h, weight, labels):
    """Mean cross entropy over marked labels, plus 1e-4 of the squared log partition."""
    logits = F.linear(h, weight).float()
    lse = logits.logsumexp(-1)
    ok = labels >= 0
    ce = lse - logits.gather(-1, labels.clamp(min=0)[..., None])[..., 0]
    n = ok.sum().clamp(min=1)
    return ((ce + 1e-4 * lse * lse) * ok).sum() / n, (ce * ok).sum() / n


def schedule(x, warm=0.02, flat=0.5):
    """Share of the time spent -> learning rate factor: warm up, hold, linear to zero."""
    return min(1.0, x / warm, max(0.0, (1 - x) / (1 - flat))) if x > 0 else 0.01


def train_target(a, data, dev):
    c = TargetConfig(layers=4, dim=64, ffn=128, vocab=4096) if a.tiny else TargetConfig()
    torch.manual_seed(a.seed)
    m = Target(c, a.kernel).to(dev)
    loss_fn = head_loss
    if dev == "cuda" or a.compile:
        torch._dynamo.config.recompile_limit = 64
        for layer in m.layers:
            layer.compile()
        loss_fn = torch.compile(head_loss)
    opt = Mixed(m, a.lr, a.lr)
    rows, length = (4, 128) if a.tiny else (64, 1024)
    step, began, seen, mark = 0, None, 0, time.time()
    while True:
        ids, labels = data.batch(rows, length)
        with torch.autocast(dev, torch.bfloat16, enabled=dev == "cuda"):
            h, _ = m(ids)
            loss, ce = loss_fn(h, m.embed_tokens.weight, labels)
        loss.backward()
        now = time.time()
        if step == 3:
            began = time.time()
            say("target compiled; first steps took", round(now - mark, 1))
        x = (now - began) / a.target_seconds if began else 0.0
        opt.step(schedule(x))
        step += 1
        if step % 100 == 0 or a.tiny:
            say(
                "target step",
                step,
                "ce",
                round(ce.item(), 4),
                "tok/s",
                round(rows * length * (step - seen) / (time.time() - mark)),
                "x",
                round(x, 3),
            )
            seen, mark = step, time.time()
        if step % 400 == 0:
            data.refresh()
            if not math.isfinite(ce.item()):
                raise SystemExit("target diverged")
        if x >= 1:
            say("target done after", step, "steps,", step * rows * length / 1e6, "M tokens")
            return m


@torch.no_grad()
def make_stream(a, m, taps, dev, data_dir, part=(0, 1)):
    """part: (i, n) takes every n-th prompt from the i-th on."""
    while not os.path.exists(f"{data_dir}/prompts.npz"):
        time.sleep(0.5)
    z = {k: x[part[0] :: part[1]] for k, x in np.load(f"{data_dir}/prompts.npz").items()}
    n = len(z["plen"])
    g = torch.Generator().manual_seed(5)
    p = {
        "ids": torch.from_numpy(z["ids"].astype(np.int16)).to(dev),
        "plen": torch.from_numpy(z["plen"]).long().to(dev),
        "forced": torch.from_numpy(z["forced"]).long().to(dev),
        "temp": torch.where(torch.rand(n, generator=g) < 0.3, 0.8, 0.0).to(dev),
        "limit": torch.full((n,), getattr(a, "limit", 192), device=dev),
    }
    slots, steps = (8, 300) if a.tiny else (getattr(a, "slots", 2048), a.gen_steps)
    dtype = torch.bfloat16 if dev == "cuda" else torch.float32
    st = loops.Stream(m, taps, p, slots, 512, dev, dtype)
    rec = st.run(steps, time.time() + a.gen_seconds, time.time)
    return p, rec, loops.documents(rec, n)


class DraftData:
    """Draws padded documents and anchors from a recording."""

    def __init__(self, p, rec, docs, length=512):
        self.rec, self.length = rec, length
        t0, slot, n, pid = docs
        first = torch.where(p["forced"][pid] > 0, torch.full_like(n, 8), p["plen"][pid])
        ok = n - first >= 6
        ids = rec["ids"]
        tail = [ids[(t0 + n - 1 - k).clamp(min=0), slot] for k in range(1, 25)]
        loop = torch.zeros_like(ok)  # drop texts that end in a short cycle
        for per in (1, 2, 3, 4, 6, 8):
            same = torch.stack([tail[k] == tail[k + per] for k in range(24 - per)]).all(0)
            loop |= same & (n - first > 32)
        self.share_loops = (loop & ok).float().sum().item() / max(1, ok.sum().item())
        ok &= ~loop
        self.t0, self.slot, self.n, self.first, self.pid = (
            x[ok] for x in (t0, slot, n, first, pid)
        )
        self.tokens = (self.n - self.first).sum().item()

    def batch(self, rows, anchors, block, dev):
        pick = torch.randint(len(self.n), (rows,), device=dev)
        t0, slot, n, first = (x[pick] for x in (self.t0, self.slot, self.n, self.first))
        at = torch.arange(self.length, device=dev)
        t = (t0[:, None] + at).clamp(max=self.rec["ids"].shape[0] - 1)
        s = slot[:, None].expand_as(t)
        ids = self.rec["ids"][t, s].long()
        u = torch.rand(rows, anchors, device=dev)
        anc = (first[:, None] + u * (n - 1 - first)[:, None]).long()
        lab = anc[..., None] + torch.arange(1, block, device=dev)
        ok = lab < n[:, None, None]
        lab = lab.clamp(max=self.length - 1)
        flat = lab.flatten(1)
        labels = ids.gather(1, flat).view_as(lab)
        hid = self.rec["hid"][t.gather(1, flat - 1), s[:, :1].expand_as(flat)].view(*lab.shape, -1)
        return ids, self.rec["taps"][t, s], anc, labels, ok, hid


def draft_loss(d, raw, anc, tok, mask, weight, labels, ok, hid):
    live = torch.ones_like(anc, dtype=torch.bool)
    h = d(raw, anc, live, tok, mask)[:, :, 1:]
    logq = F.linear(h, weight).float().log_softmax(-1)
    ce = -logq.gather(-1, labels[..., None])[..., 0]
    with torch.no_grad():
        p = F.linear(hid, weight).float().softmax(-1)
        c = 0.5 * (-ce).exp() + 0.5  # D-PACE, alpha 0.5
        c = torch.where(ok, c, torch.ones_like(c))
        run = c.cumprod(-1) * ok
        w = run.flip(-1).cumsum(-1).flip(-1) * ok
        hit = ((logq.argmax(-1) == labels) | ~ok).cumprod(-1) * ok
    kl = -(p * logq).sum(-1)
    loss = (w * (0.6 * ce + 0.4 * kl)).sum() / w.sum().clamp(min=1)
    return loss, 1 + hit.sum(-1).float().mean()


def train_draft(a, target, dd, dev, d, seconds, lr, fn=None, save=None):
    """save: called every half minute"""
    c = d.c
    if fn is None:
        fn = torch.compile(draft_loss, dynamic=False) if dev == "cuda" or a.compile else draft_loss
    opt = Mixed(d, lr, lr, wd=0.05)
    weight = target.embed_tokens.weight.detach()
    mask = weight[c.mask_id]
    rows, anchors = (4, 6) if a.tiny else (128, 32)
    step, began, mark, seen, x, avg = 0, None, time.time(), 0, 0.0, 0.0
    saved = mark
    while x < 1:
        ids, raw, anc, labels, ok, hid = dd.batch(rows, anchors, c.block, dev)
        tok = F.embedding(ids.gather(1, anc), weight)
        raw = raw.float()
        raw = raw + (torch.rand_like(raw) - 0.5) * 0.1 * loops.tap_norm(raw, c.dim)
        with torch.autocast(dev, torch.bfloat16, enabled=dev == "cuda"):
            loss, length = fn(d, raw, anc, tok, mask, weight, labels, ok, hid)
        loss.backward()
        if step == 3:
            began = time.time()
            if getattr(a, "until", None):
                seconds = T0 + a.until - began
        x = (time.time() - began) / seconds if began else 0.0
        opt.step(schedule(x, 0.03, 0.0 if getattr(a, "last", False) else 0.3))
        avg = 0.98 * avg + 0.02 * length.detach() if step else length.detach()
        step += 1
        if save and time.time() > saved + 30:
            save()
            saved = time.time()
        if step % 200 == 0 or a.tiny:
            say(
                "draft step",
                step,
                "loss",
                round(loss.item(), 4),
                "block length",
                round(float(avg), 3),
                "steps/s",
                round((step - seen) / (time.time() - mark), 2),
                "x",
                round(x, 3),
            )
            seen, mark = step, time.time()
    say("draft done after", step, "steps")
    return d


@torch.no_grad()
def evaluate(a, target, draft, dev, out):
    from tokenizers import Tokenizer

    tok = Tokenizer.from_file(a.tokenizer)
    rows = [json.loads(line) for line in open(a.prompts)]
    ids = [tok.encode(r["prompt"]).ids for r in rows]
    n, wide = len(rows), max(map(len, ids))
    table, report = torch.zeros(2 * n, wide, dtype=torch.int16), []
    for i, x in enumerate(ids):
        table[i, : len(x)] = table[n + i, : len(x)] = torch.tensor(x, dtype=torch.int16)
    plen = torch.tensor([len(x) for x in ids] * 2)
    limit = torch.tensor([r["max_tokens"] for r in rows] * 2)
    p = {
        "ids": table.to(dev),
        "plen": plen.to(dev),
        "forced": torch.zeros(2 * n, dtype=torch.long, device=dev),
        "temp": torch.tensor([0.0] * n + [0.8] * n, device=dev),
        "limit": limit.to(dev),
    }
    torch.manual_seed(11)
    length = wide + max(r["max_tokens"] for r in rows) + 2
    st = loops.Stream(target, draft.c.taps, p, 2 * n, length, dev, torch.float32, seed=3)
    noise_rows = []
    rec = {k: [] for k in ("ids", "taps")}
    for _ in range(length - 1):
        st.noise.copy_(loops.gumbel(st.noise.shape, st.gen, dev))
        noise_rows.append(st.noise[n:].clone())
        got = st.one()
        rec["ids"].append(got[0])
        rec["taps"].append(got[3])
    rec_ids, rec_taps = torch.stack(rec["ids"], 1), torch.stack(rec["taps"], 1)
    for i in range(n):
        row = {"id": rows[i]["id"], "group": rows[i]["group"]}
        for j, name in ((i, "greedy"), (n + i, "t08")):
            s = int(plen[j])
            x = rec_ids[j, : s + int(limit[j])]
            stop = [k for k in range(s, len(x)) if int(x[k]) in (loops.END, loops.TURN)]
            x = x[: stop[0] + 1] if stop else x
            taps = rec_taps[j]
            ar = lambda kind, **kw: loops.accept_lengths(draft, target, taps, x, s, kind, **kw)
            if name == "greedy":
                row["text"] = tok.decode(x[s:].tolist(), skip_special_tokens=False)
                row["n"], row["distinct4"] = len(x) - s, loops.distinct4(x[s:].tolist())
                row["chain"], row["tree"], row["lookup"] = ar("chain"), ar("tree"), ar("lookup")
            else:
                # noise_rows[q] chose the token at position q + 1
                nz = torch.stack([noise_rows[max(q - 1, 0)][i] for q in range(len(x))])
                row["chain_t08"], row["chain_t08_noise"] = ar("chain"), ar(
                    "chain", noise=nz, temp=0.8
                )
        report.append(row)
    json.dump(report, open(f"{out}/eval.json", "w"))
    summary(report)
    return report


def summary(report):
    kinds = ["chain", "tree", "lookup", "chain_t08", "chain_t08_noise"]
    groups = sorted({r["group"] for r in report})
    print("group".ljust(10), "n", "len", " ".join(kinds), "min-distinct4")
    means = {k: [] for k in kinds}
    for g in groups:
        rs = [r for r in report if r["group"] == g]
        vals = []
        for k in kinds:
            passes = [x for r in rs for x in r[k]]
            vals.append(sum(passes) / max(1, len(passes)))
            means[k].append(vals[-1])
        print(
            g.ljust(10),
            len(rs),
            round(sum(r["n"] for r in rs) / len(rs)),
            " ".join(f"{v:6.2f}" for v in vals),
            round(min(r["distinct4"] for r in rs), 2),
        )
    print("mean of groups", " ".join(f"{k} {sum(v) / len(v):.2f}" for k, v in means.items()))
    pooled = {k: [x for r in report for x in r[k]] for k in kinds}
    print("all passes", " ".join(f"{k} {sum(v) / max(1, len(v)):.2f}" for k, v in pooled.items()))
    print("below half distinct:", [r["id"] for r in report if r["distinct4"] < 0.5], flush=True)


def packed(params):
    return {
        k: v.detach().cpu().bfloat16() if v.dim() > 1 else v.detach().cpu().float()
        for k, v in params.items()
    }


def checkpoint(path, target, draft=None):
    """bf16 matrices, f32 vectors, before any quantisation; target is a dict or a module."""
    ck = {"target": packed(target if isinstance(target, dict) else dict(target.named_parameters()))}
    if draft is not None:
        ck["draft"] = packed(dict(draft.named_parameters()))
    torch.save(ck, f"{path}.part")
    os.replace(f"{path}.part", path)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("data")
    ap.add_argument("out")
    ap.add_argument("--prompts")
    ap.add_argument("--tokenizer")
    ap.add_argument("--target-seconds", type=float, default=800)
    ap.add_argument("--gen-seconds", type=float, default=170)
    ap.add_argument("--gen-steps", type=int, default=15000)
    ap.add_argument("--draft-seconds", type=float, default=420)
    ap.add_argument("--lr", type=float, default=3e-3)
    ap.add_argument("--draft-lr", type=float, default=2e-3)
    ap.add_argument("--seed", type=int, default=1)
    ap.add_argument("--kernel", default="torch")
    ap.add_argument("--resume")
    ap.add_argument("--tiny", action="store_true")
    ap.add_argument("--compile", action="store_true", help="compile on the CPU too")
    ap.add_argument("--no-draft", action="store_true")
    a = ap.parse_args()
    dev = "cuda" if torch.cuda.is_available() else "cpu"
    if dev == "cuda":
        torch.set_float32_matmul_precision("high")
    os.makedirs(a.out, exist_ok=True)
    ck = torch.load(a.resume) if a.resume else None
    if ck:
        target = Target(TargetConfig(), a.kernel).to(dev)
        target.load_state_dict({k: v.float() for k, v in ck["target"].items()})
    else:
        target = train_target(a, Data(a.data, dev), dev)
        checkpoint(f"{a.out}/target.pt", target)
        say("target saved")
    target = target.eval().requires_grad_(False)
    raw_target = {k: v.detach().cpu().clone() for k, v in target.named_parameters()}
    quantise_(target)
    plain = Target(target.c, "torch").to(dev).requires_grad_(False)
    plain.load_state_dict(target.state_dict())
    target = plain
    del plain
    gc.collect()
    if dev == "cuda":
        torch.cuda.empty_cache()
    if a.no_draft:
        return
    torch.manual_seed(a.seed + 1)
    dc = DraftConfig(dim=64, ffn=64, taps=[0, 1, 2]) if a.tiny and not ck else DraftConfig()
    draft = Draft(dc).to(dev)
    if ck and "draft" in ck:
        draft.load_state_dict({k: v.float() for k, v in ck["draft"].items()})
    amp = torch.autocast(dev, torch.bfloat16, enabled=dev == "cuda")
    with amp:
        p, rec, docs = make_stream(a, target, dc.taps, dev, a.data)
    dd = DraftData(p, rec, docs)
    say(
        "recorded",
        rec["ids"].shape,
        "documents",
        len(dd.n),
        "new tokens",
        dd.tokens,
        "share of loops",
        round(dd.share_loops, 4),
    )
    train_draft(a, target, dd, dev, draft, a.draft_seconds, a.draft_lr)
    checkpoint(f"{a.out}/pair.pt", raw_target, draft)
    quantise_(draft)
    say("pair saved")
    if a.prompts:
        evaluate(a, target, draft, dev, a.out)
    say("all done")


if __name__ == "__main__":
    T0 = time.time()
    main()
