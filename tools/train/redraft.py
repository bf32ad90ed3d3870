# SPDX-License-Identifier: Apache-2.0
"""Trains only the draft of a pair further; the target stays as it is served.

usage: redraft.py DATA_DIR CHECKPOINT.pt OUT_DIR [--gen-seconds N] [--seconds N | --until N]
       redraft.py DATA_DIR CHECKPOINT.pt OUT_DIR --warm N   (fills the compiler's cache, no data needed)

DATA_DIR is filled by redraft_data.py, which may still be running; CHECKPOINT.pt comes of imported.py, so
its target is the dequantised one. Continuations of code and documentation are generated. Tasks have right
answers, which the target nearly always gives: the features of their texts come of one forward pass, and
a block ends behind the first token that the target would not have chosen (its label is the target's
choice). Writes OUT_DIR/draft_1.pt after three quarters of the time and OUT_DIR/draft.pt at the end.
"""

import argparse
import glob
import os
import time

import numpy as np
import torch

import finetune
import pipeline
from finetune import say
from redraft_data import GROUPS

# texts of a step: recorded ones, and of each group
STEP = {"recorded": 44, "edit": 26, "needle": 24, "docs": 6, "chat": 20, "agent": 8}
WIDTHS = (128, 192, 256, 320, 384, 512)


class Texts:
    """Texts of many lengths, one behind the other, with the target's features and choices."""

    def __init__(self, target, taps, room, amp, dev, dtype):
        z = lambda *s, dt=dtype: torch.zeros(*s, dtype=dt, device=dev)
        self.m, self.list, self.amp, self.dev, self.room, self.end = target, taps, amp, dev, room, 0
        self.ids, self.best = z(room, dt=torch.int16), z(room, dt=torch.int16)
        self.taps, self.hid = z(room, len(taps) * target.c.dim), z(room, target.c.dim)
        self.meta = [[] for _ in GROUPS]  # of each group: start, length, prompt length
        self.right = [[0, 0] for _ in GROUPS]

    @torch.no_grad()
    def add(self, path):
        """One file of redraft_data.py; -> whether there was room."""
        z = np.load(path)
        ids, meta = torch.from_numpy(z["ids"].astype(np.int16)), torch.from_numpy(z["meta"]).long()
        if self.end + len(ids) > self.room:
            return False
        ids, n = ids.to(self.dev), meta[:, 0]
        start = n.cumsum(0) - n
        self.ids[self.end : self.end + len(ids)] = ids
        low = 0
        for width in WIDTHS:
            pick = torch.nonzero((n > low) & (n <= width))[:, 0]
            low = width
            for part in pick.split(65536 // width):
                part_n, at = n[part].to(self.dev), torch.arange(width, device=self.dev)
                where = start[part].to(self.dev)[:, None] + at
                real = at < part_n[:, None]
                rows = ids[where.clamp(max=len(ids) - 1)].long() * real
                with self.amp:
                    hid, raw = self.m(rows, self.list)
                    best = self.m.head(hid).argmax(-1)
                to = where[real] + self.end
                self.taps[to], self.hid[to] = raw[real].to(self.taps.dtype), hid[real].to(self.hid.dtype)
                self.best[to] = best[real].short()
                same = (best[:, :-1] == rows[:, 1:]) | ~real[:, 1:]
                same |= at[1:] < meta[part, 1].to(self.dev)[:, None]
                for g, ok in zip(meta[part, 2].tolist(), same.all(1).tolist()):
                    self.right[g][0] += ok
                    self.right[g][1] += 1
        for g in range(len(GROUPS)):
            one = meta[:, 2] == g
            rows = torch.stack((start[one] + self.end, n[one], meta[one, 1]), 1).to(self.dev)
            self.meta[g] = [torch.cat([*self.meta[g], rows])]
        self.end += len(ids)
        return True

    def batch(self, counts, anchors, block, length=512):
        """counts: texts of each group; -> as pipeline.DraftData.batch"""
        dev, pick = self.dev, []
        for g, k in zip(self.meta, counts):
            pick.append(g[0][torch.randint(len(g[0]), (k,), device=dev)])
        start, n, first = torch.cat(pick).unbind(1)
        where = (start[:, None] + torch.arange(length, device=dev)).clamp(max=self.room - 1)
        anc = (first[:, None] + torch.rand(len(n), anchors, device=dev) * (n - 1 - first)[:, None]).long()
        lab = anc[..., None] + torch.arange(1, block, device=dev)
        ok = lab < n[:, None, None]
        flat = lab.clamp(max=length - 1).flatten(1)
        at = where.gather(1, flat - 1)
        labels = self.best[at].long().view_as(lab)
        same = self.ids[where.gather(1, flat)].view_as(lab).long() == labels
        before = torch.cat((torch.ones_like(same[..., :1]), same[..., :-1]), -1)
        ok &= before.cumprod(-1).bool()
        return (self.ids[where].long(), self.taps[where], anc, labels, ok,
                self.hid[at].view(*lab.shape, -1))  # fmt: skip


class LongRows:
    """Rows of 4,096 tokens for finetune.Rows."""

    def __init__(self, folder, dev):
        self.rows = {}
        for kind in ("answers", "calls"):
            x = [np.load(f).view(np.int16) for f in sorted(glob.glob(f"{folder}/rows_{kind}_4096_*.npy"))]
            if x:
                self.rows[kind, 4096] = torch.from_numpy(np.concatenate(x)).to(dev)

    def draw(self, kind, rows, length):
        x = self.rows[kind, length]
        return x[torch.randint(len(x), (rows,), device=x.device)]


class Mix:
    """One step in 16 from long rows; the others from the recording and from texts, of which more come."""

    def __init__(self, a, recorded, texts, rows, shape):
        self.a, self.recorded, self.texts, self.rows, self.shape = a, recorded, texts, rows, shape
        self.n, self.seen, self.full, self.spent = 0, set(), False, 0.0

    def refresh(self, most=2):
        """Takes in new files, until there is no room or too much time was spent on it."""
        new = [f for f in sorted(glob.glob(f"{self.a.data}/texts_*.npz")) if f not in self.seen]
        for f in new[:most]:
            began = time.time()
            if self.full or not self.texts.add(f):
                self.full = True
                return
            self.seen.add(f)
            if self.a.device == "cuda":
                torch.cuda.synchronize()
            self.spent += time.time() - began
            self.full = self.spent > self.a.add_seconds

    def batch(self, rows, anchors, block, dev):
        self.n += 1
        if not self.full and self.n % 30 == 0:
            self.refresh()
        if self.n % 1000 == 100:
            self.report()
        if self.rows and self.n % 16 == 7:
            return self.rows.batch(*self.shape, block, dev)
        counts = [round(k * rows / 128) for k in STEP.values()]
        one = self.recorded.batch(rows - sum(counts[1:]), anchors, block, dev)
        two = self.texts.batch(counts[1:], anchors, block)
        return [torch.cat((x, y.to(x.dtype))) for x, y in zip(one, two)]

    def report(self):
        t = self.texts
        share = {g: f"{len(m[0])} ({r / max(1, n):.3f} right)" for g, m, (r, n) in zip(GROUPS, t.meta, t.right)}
        say("texts", share, "tokens", t.end, "files", len(self.seen), "in", round(self.spent, 1), "s")


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("data")
    ap.add_argument("checkpoint")
    ap.add_argument("out")
    ap.add_argument("--gen-seconds", type=float, default=28)
    ap.add_argument("--gen-steps", type=int, default=2500)
    ap.add_argument("--limit", type=int, default=128, help="new tokens of a generated text")
    ap.add_argument("--seconds", type=float, default=200)
    ap.add_argument("--until", type=float, help="end so many seconds after the start, not --seconds")
    ap.add_argument("--room", type=int, default=26_000_000, help="tokens of texts, 2 KB each")
    ap.add_argument("--add-seconds", type=float, default=40, help="at most, for the features of texts")
    ap.add_argument("--draft-lr", type=float, default=2e-3)
    ap.add_argument("--seed", type=int, default=1)
    ap.add_argument("--kernel", default="torch", help="triton tunes itself again for each number of rows")
    ap.add_argument("--warm", type=int)
    ap.add_argument("--tiny", action="store_true", help="few rows a step, for a try on a CPU")
    a = ap.parse_args()
    a.compile = False
    a.device = dev = "cuda" if torch.cuda.is_available() else "cpu"
    dtype = torch.bfloat16 if dev == "cuda" else torch.float32
    if dev == "cuda":
        torch.set_float32_matmul_precision("high")
    amp = torch.autocast(dev, torch.bfloat16, enabled=dev == "cuda")
    long = (1, 4) if a.tiny else (8, 48)
    shapes = [(128, 512, 32, torch.bfloat16), (long[0], 4096, long[1], torch.float32)]
    os.makedirs(a.out, exist_ok=True)
    torch.manual_seed(a.seed)
    target, draft = finetune.load(a.checkpoint, a.kernel, dev)
    if a.warm is not None:
        finetune.compiled_loss(draft, shapes[a.warm : a.warm + 1], dev, amp)
        return
    target = target.eval().requires_grad_(False)
    say("loaded")
    with amp:
        p, rec, docs = pipeline.make_stream(a, target, draft.c.taps, dev, a.data)
    dd = pipeline.DraftData(p, rec, docs)
    say("recorded", tuple(rec["ids"].shape), "texts", len(dd.n), "new tokens", dd.tokens,
        "share of loops", round(dd.share_loops, 4))  # fmt: skip
    texts = Texts(target, draft.c.taps, a.room, amp, dev, dtype)
    fn = finetune.compiled_loss(draft, shapes, dev, amp)
    found = LongRows(a.data, dev)
    kinds = [k for k in found.rows]
    mix = Mix(a, dd, texts, finetune.Rows(found, target, draft.c.taps, kinds, amp) if kinds else None, long)
    while not mix.seen:
        mix.refresh(12)
        time.sleep(0.2)
    say("long rows", {k[0]: len(v) for k, v in found.rows.items()})
    mix.report()
    began, end = time.time(), pipeline.T0 + a.until if a.until else time.time() + a.seconds

    def save(last=False):
        ck = {"draft": pipeline.packed(dict(draft.named_parameters()))}
        late = time.time() > began + 0.75 * (end - began)
        name = "draft.pt" if last or not late or os.path.exists(f"{a.out}/draft_1.pt") else "draft_1.pt"
        torch.save(ck, f"{a.out}/part")
        os.replace(f"{a.out}/part", f"{a.out}/{name}")

    pipeline.train_draft(a, target, mix, dev, draft, a.seconds, a.draft_lr, fn, save)
    mix.report()
    save(True)
    say("draft saved")


if __name__ == "__main__":
    pipeline.T0 = time.time()
    main()
