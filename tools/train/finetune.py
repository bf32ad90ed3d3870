# SPDX-License-Identifier: Apache-2.0
"""Trains a pair further: long rows, questions with answers, calls of tools; then its draft again.

usage: finetune.py target DATA_DIR CHECKPOINT.pt OUT_DIR --seconds N [--kernel triton]
       finetune.py draft  DATA_DIR CHECKPOINT.pt OUT_DIR --gen-seconds N --seconds N

DATA_DIR is filled by mixture.py, which may still be running. CHECKPOINT.pt comes of imported.py or
pipeline.py; `target` writes OUT_DIR/target.pt (with the checkpoint's draft), `draft` takes that and
writes OUT_DIR/pair.pt. A step has 65,536 tokens of rows of one length; each kind of text has a fixed
share of the loss, however few of its tokens carry it. Learning rates follow the clock.
"""

import argparse
import contextlib
import glob
import os
import time

import numpy as np
import torch

import pipeline
from model import Draft, DraftConfig, Target, TargetConfig, quantise_
from optim import Mixed
from pipeline import say

# length -> kind: (rows of a step of 65,536 tokens, share of the loss)
STEPS = {
    1024: {"code": (14, 0.21), "doc": (5, 0.08), "tasks": (15, 0.22), "answers": (17, 0.28), "calls": (13, 0.21)},
    4096: {"code": (2, 0.17), "doc": (1, 0.07), "tasks": (2, 0.14), "answers": (7, 0.38), "calls": (4, 0.24)},
    16384: {"code": (1, 0.20), "long": (3, 0.80)},
}  # fmt: skip


def unpack(v):
    """Words of a data file [.., n + 1] -> ids [.., n], labels [.., n] (-100 where no loss)"""
    v = v.int() & 0xFFFF
    ids = (v & 0x7FFF).long()
    labels = torch.where(v[..., 1:] >= 0x8000, ids[..., 1:], torch.full_like(ids[..., 1:], -100))
    return ids[..., :-1], labels


class Data(pipeline.Data):
    """Adds rows_KIND_LENGTH files to the streams of code, documentation and tasks."""

    def __init__(self, folder, device, scale=1):
        self.files, self.rows, self.scale = set(), {}, scale
        while any(not glob.glob(f"{folder}/{n}") for n in ("rows_long_16384_*.npy", "eval_long_16384.npy")):
            time.sleep(0.5)
        super().__init__(folder, device)

    def refresh(self):
        super().refresh()
        for f in sorted(glob.glob(f"{self.folder}/rows_*_*_*.npy")):
            if f not in self.files:
                self.files.add(f)
                _, kind, length, _ = os.path.basename(f).split("_")
                x = torch.from_numpy(np.load(f).view(np.int16)).to(self.device)
                self.rows.setdefault((kind, int(length)), []).append(x)
        for k, parts in self.rows.items():
            self.rows[k] = [torch.cat(parts)]

    def draw(self, kind, rows, length):
        if (kind, length) in self.rows:
            x = self.rows[kind, length][0]
            return x[torch.randint(len(x), (rows,), device=self.device)]
        x, starts = self.streams[kind]
        s = starts[starts < len(x) - length - 1] if len(x) < 4_000_000 else starts
        at = s[torch.randint(len(s), (rows,), device=self.device)].clamp(max=len(x) - length - 1)
        return x[at[:, None] + torch.arange(length + 1, device=self.device)]

    def step(self, length):
        """-> ids, labels [B,T], weight of each marked token [B,1], kind of each row"""
        parts, shares, kinds = [], [], []
        for kind, (rows, share) in STEPS[length].items():
            rows = max(1, rows // self.scale)
            parts.append(self.draw(kind, rows, length))
            shares += [share] * rows
            kinds += [kind] * rows
        ids, labels = unpack(torch.cat(parts))
        marked, w, at = (labels >= 0).sum(1), [], 0
        for p in parts:
            n = marked[at : at + len(p)].sum().clamp(min=1)
            w += [1.0 / n] * len(p)
            at += len(p)
        return ids, labels, (torch.stack(w) * torch.tensor(shares, device=ids.device))[:, None], kinds


def positions(rows, length, context, device, share):
    """0, 1, ... with jumps at random places in a share of the rows, up to the context."""
    pos = torch.arange(length, device=device).expand(rows, length)
    jumps = torch.zeros(rows, length, device=device)
    for _ in range(3):
        at = torch.randint(1, length, (rows, 1), device=device)
        jumps.scatter_(1, at, torch.rand(rows, 1, device=device))
    some = (torch.rand(rows, 1, device=device) < share) * torch.rand(rows, 1, device=device)
    jumps = jumps / jumps.sum(1, keepdim=True) * (context - length - 1) * some
    return pos + jumps.cumsum(1).long()


def weighted_loss(h, weight, labels, w):
    """Sum of w times cross entropy over marked labels plus a little of the squared log partition;
    the plain sums of cross entropy of each row; which labels the largest logit hits."""
    logits = torch.nn.functional.linear(h, weight).float()
    lse = logits.logsumexp(-1)
    ok = labels >= 0
    ce = (lse - logits.gather(-1, labels.clamp(min=0)[..., None])[..., 0]) * ok
    hit = (logits.argmax(-1) == labels) | ~ok
    return ((ce + 1e-4 * lse * lse * ok) * w).sum(), ce.sum(1), hit


@torch.no_grad()
def exactness(m, folder, dev, amp, only=None):
    """Share of held-out answers and calls whose every token is the likeliest: greedy text is exact."""
    out = []
    for f in sorted(glob.glob(f"{folder}/eval_*.npy")):
        kind, length = os.path.basename(f)[5:-4].split("_")
        x = torch.from_numpy(np.load(f).view(np.int16))[: only or max(4, 200_000 // int(length))]
        good = n = 0
        by = {}
        for part in x.split(max(1, 65536 // int(length))):
            ids, labels = unpack(part.to(dev))
            with amp:
                h, _ = m(ids)
                hit = weighted_loss(h, m.embed_tokens.weight, labels, 1.0)[2]
            hit, mark = hit.cpu().numpy(), (labels >= 0).cpu().numpy()
            for a, b in zip(hit, mark):
                edge = np.flatnonzero(np.diff(np.concatenate(([0], b, [0]))))
                for i, j in edge.reshape(-1, 2):
                    size = "<20" if j - i < 20 else "<50" if j - i < 50 else "50+"
                    got = by.setdefault(size, [0, 0])
                    got[0] += bool(a[i:j].all())
                    got[1] += 1
                    good, n = good + bool(a[i:j].all()), n + 1
        detail = " ".join(f"{k}:{g / t:.3f}" for k, (g, t) in sorted(by.items()))
        out.append(f"{kind} {length} {good / max(1, n):.3f} of {n} ({detail})")
    return "; ".join(out)


def load(path, kernel, dev):
    ck = torch.load(path, map_location="cpu")
    target = Target(TargetConfig(), kernel).to(dev)
    target.load_state_dict({k: v.float() for k, v in ck["target"].items()})
    draft = Draft(DraftConfig()).to(dev)
    draft.load_state_dict({k: v.float() for k, v in ck["draft"].items()})
    return target, draft


def length_of(step):
    """Of ten steps four have rows of 1,024, five of 4,096, one of 16,384."""
    return 16384 if step % 10 == 9 else 1024 if step % 5 in (0, 2) else 4096


def eager(length):
    """Rows of 16,384 are not compiled: the steps are few, and compiling takes as long as 20 shapes."""
    off = length > 4096 and torch.cuda.is_available()
    return torch.compiler.set_stance("force_eager") if off else contextlib.nullcontext()


def compile_all(m, loss_fn, amp, dev):
    """Runs forward and backward of the compiled lengths before there are data."""
    for length in (1024, 4096) * 2:
        rows = 65536 // length
        v = torch.randint(64, 4000, (rows, length + 1), dtype=torch.int16, device=dev)
        ids, labels = unpack(v)
        pos = positions(rows, length, m.c.context, dev, 0.15)
        with amp:
            h, _ = m(ids, pos=pos)
            loss, _, _ = loss_fn(h, m.embed_tokens.weight, labels, torch.ones(rows, 1, device=dev))
        loss.backward()
        for p in m.parameters():
            p.grad = None
        say("compiled for rows of", length)


def train_target(a, dev):
    m, draft = load(a.checkpoint, a.kernel, dev)
    plain = Target(m.c, a.kernel).to(dev)  # for the evaluation, not compiled

    def check():
        plain.load_state_dict(m.state_dict())
        return exactness(plain, a.data, dev, amp, a.tiny and 2)

    loss_fn, amp = weighted_loss, torch.autocast(dev, torch.bfloat16, enabled=dev == "cuda")
    if dev == "cuda":
        torch._dynamo.config.recompile_limit = 64
        for layer in m.layers:
            layer.compile(dynamic=False)
        loss_fn = torch.compile(weighted_loss, dynamic=False)
        compile_all(m, loss_fn, amp, dev)
    data = Data(a.data, dev, 64 if a.tiny else 1)
    say("data", {k: len(v[0]) for k, v in data.rows.items()})
    opt = Mixed(m, a.lr, a.lr * 0.5)
    step, seen, x, sums = 0, 0, 0.0, {}
    began = mark = saved = time.time()
    if a.until:
        a.seconds = pipeline.T0 + a.until - began
    while x < 1:
        length = length_of(step)
        if a.tiny and a.lengths:
            length = a.lengths[step % len(a.lengths)]
        ids, labels, w, kinds = data.step(length)
        pos = positions(*ids.shape, m.c.context, dev, 0.5 if length > 4096 else 0.15)
        with eager(length):
            with amp:
                h, _ = m(ids, pos=pos)
                loss, ce, _ = loss_fn(h, m.embed_tokens.weight, labels, w)
            loss.backward()
        x = (time.time() - began) / a.seconds
        opt.step(pipeline.schedule(x, 0.03, 0.0 if a.last else 0.35))
        step += 1
        seen += ids.numel()
        if step % (1 if a.tiny else 7) == 0 or step < 8:
            ce, n = ce.detach().tolist(), (labels >= 0).sum(1).tolist()
            for k, c, t in zip(kinds, ce, n):
                s = sums.setdefault(f"{k}{length // 1024}", [0.0, 0])
                s[0], s[1] = s[0] + c, s[1] + t
        if step % 200 == 0 or a.tiny or step < 8:
            said = " ".join(f"{k} {c / max(1, t):.4f}" for k, (c, t) in sorted(sums.items()))
            say("step", step, "x", round(x, 3), "tok/s", round(seen / (time.time() - mark)), said)
            seen, mark, sums = 0, time.time(), {}
            data.refresh()
        if time.time() > saved + 30:
            pipeline.checkpoint(f"{a.out}/part.pt", m, draft)
            saved = time.time()
    pipeline.checkpoint(f"{a.out}/target.pt", m, draft)
    say("target done after", step, "steps")
    if a.check:
        quantise_(m)
        say("exact, Q8_0:", check())


class Rows:
    """Draws long rows of answers and calls for the draft, with the target's features made at once."""

    def __init__(self, data, target, taps, kinds, amp):
        self.data, self.m, self.taps, self.kinds, self.amp = data, target, taps, kinds, amp

    @torch.no_grad()
    def batch(self, rows, anchors, block, dev):
        kind, length = self.kinds[int(torch.randint(len(self.kinds), (1,)))]
        ids, labels = unpack(self.data.draw(kind, rows, length))
        with self.amp:
            hid, raw = self.m(ids, self.taps)
        length = ids.shape[1]
        marked = torch.cat((torch.zeros_like(labels[:, :1]), labels[:, :-1] + 100), 1) > 0
        anc = torch.multinomial(marked.float() + 1e-9, anchors, replacement=True)
        lab = anc[..., None] + torch.arange(1, block, device=dev)
        ok = lab < length
        flat = lab.clamp(max=length - 1).flatten(1)
        ok &= marked.gather(1, flat).view_as(ok).cumprod(-1).bool()
        y = ids.gather(1, flat).view_as(lab)
        h = hid.gather(1, (flat - 1)[..., None].expand(-1, -1, hid.shape[-1])).view(*lab.shape, -1)
        return ids, raw, anc, y, ok, h


class Both:
    """One step in eight from long rows, the others from the recording."""

    def __init__(self, recorded, rows, long_rows, long_anchors):
        self.parts, self.n, self.shape = (recorded, rows), 0, (long_rows, long_anchors)

    def batch(self, rows, anchors, block, dev):
        self.n += 1
        if self.n % 8 == 3:
            return self.parts[1].batch(*self.shape, block, dev)
        return self.parts[0].batch(rows, anchors, block, dev)


def compiled_loss(draft, shapes, dev, amp):
    """pipeline.draft_loss, compiled for (rows, length, anchors, type of the hidden states)."""
    if dev != "cuda":
        return pipeline.draft_loss
    c, fn = draft.c, torch.compile(pipeline.draft_loss, dynamic=False)
    for b, t, n, kind in shapes:
        z = lambda *s, dt=torch.float32: torch.zeros(*s, device=dev, dtype=dt)
        i, weight = lambda *s: z(*s, dt=torch.long), z(4096, c.dim)
        raw, tok = torch.randn(b, t, len(c.taps) * c.dim, device=dev), z(b, n, c.dim)
        with amp:
            loss, _ = fn(draft, raw, i(b, n) + 9, tok, weight[0], weight, i(b, n, c.block - 1),
                         i(b, n, c.block - 1) > -1, z(b, n, c.block - 1, c.dim, dt=kind))  # fmt: skip
        loss.backward()
        for p in draft.parameters():
            p.grad = None
        say("compiled for", b, t, n)
    return fn


def train_draft(a, dev):
    amp = torch.autocast(dev, torch.bfloat16, enabled=dev == "cuda")
    _, draft = load(a.checkpoint, a.kernel, dev)
    long = (1, 4) if a.tiny else (8, 48)
    fn = compiled_loss(draft, [(128, 512, 32, torch.bfloat16), (long[0], 4096, long[1], torch.float32)],
                       dev, amp)  # fmt: skip
    data = Data(a.data, dev)
    while a.wait and not os.path.exists(a.wait):
        time.sleep(0.2)
    target, _ = load(a.wait or a.checkpoint, a.kernel, dev)
    target = target.eval().requires_grad_(False)
    raw = {k: v.detach().cpu().clone() for k, v in target.named_parameters()}
    quantise_(target)
    say("target is there")
    torch.manual_seed(a.seed)
    with amp:
        p, rec, docs = pipeline.make_stream(a, target, draft.c.taps, dev, a.data)
    dd = pipeline.DraftData(p, rec, docs)
    say("recorded", tuple(rec["ids"].shape), "texts", len(dd.n), "new tokens", dd.tokens,
        "share of loops", round(dd.share_loops, 4))  # fmt: skip
    data.refresh()
    rows = Rows(data, target, draft.c.taps, [("answers", 4096), ("calls", 4096)], amp)
    save = lambda: pipeline.checkpoint(f"{a.out}/pair.pt", raw, draft)
    pipeline.train_draft(a, target, Both(dd, rows, *long), dev, draft, a.seconds, a.draft_lr, fn, save)
    save()
    say("pair saved")


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("phase", choices=("target", "draft"))
    ap.add_argument("data")
    ap.add_argument("checkpoint")
    ap.add_argument("out")
    ap.add_argument("--seconds", type=float, default=330)
    ap.add_argument("--gen-seconds", type=float, default=60)
    ap.add_argument("--gen-steps", type=int, default=6000)
    ap.add_argument("--lr", type=float, default=2e-3)
    ap.add_argument("--draft-lr", type=float, default=2e-3)
    ap.add_argument("--until", type=float, help="end so many seconds after the start, not --seconds")
    ap.add_argument("--wait", help="draft: the target's checkpoint, which may come later")
    ap.add_argument("--check", action="store_true", help="target: count right answers at the end")
    ap.add_argument("--last", action="store_true", help="a last part: learning rate down from the start")
    ap.add_argument("--seed", type=int, default=1)
    ap.add_argument("--kernel", default="torch")
    ap.add_argument("--tiny", action="store_true", help="few rows a step, for a try on a CPU")
    ap.add_argument("--lengths", type=lambda s: [int(x) for x in s.split(",")])
    a = ap.parse_args()
    a.compile = False
    dev = "cuda" if torch.cuda.is_available() else "cpu"
    if dev == "cuda":
        torch.set_float32_matmul_precision("high")
    os.makedirs(a.out, exist_ok=True)
    torch.manual_seed(a.seed)
    (train_target if a.phase == "target" else train_draft)(a, dev)


if __name__ == "__main__":
    pipeline.T0 = time.time()
    main()
