# SPDX-License-Identifier: Apache-2.0
"""What a draft is trained on: rows of tokens, and which of them the target chose.

`talked`: conversations that the target writes alone (talk.py). `collected`: a folder of redraft_data.py, whose
prompts the target continues, and whose tasks have right answers, of which the part counts that the target would have
given. Rows of `own` are 0 for what was given, 1 for a user's words, 2 for what the target chose.
"""

import copy
import glob
import itertools
import time
from types import SimpleNamespace

import numpy as np
import torch
import torch.nn.functional as F
import target as targets

import pipeline
from talk import Talk


class Texts:
    """ids [N,T], own [N,T], weight [N]: how often a row is drawn beside others; rows: those that are drawn."""

    def __init__(self, target, ids, own, weight):
        self.target, self.ids, self.own, self.weight, self.kept = target, ids, own, weight, None
        self.rows = torch.arange(len(ids), device=ids.device)

    def keep(self, taps, rows=64):
        """Keeps the features of all rows, so that a step needs no pass of the target: 2 (taps + 1) D bytes a token."""
        new = lambda n: torch.empty(*self.ids.shape, n, device=self.ids.device, dtype=self.target.dtype)
        hid, raw = new(self.target.dim), new(len(taps) * self.target.dim)
        for i in range(0, len(self.ids), rows):
            part = slice(i, i + rows)
            h, r = self.target.forward(self.ids[part].long(), taps)
            hid[part] = h
            if taps:
                raw[part] = r
        self.kept = (hid, raw)

    def counts(self):
        """-> how many tokens there are, of users, of answers"""
        return torch.stack((torch.tensor(self.ids.numel()), (self.own == 1).sum().cpu(), (self.own == 2).sum().cpu()))

    def each(self):
        return [self]

    def split(self, n):
        """-> n random rows, the others; they share what is kept"""
        if n >= len(self.rows):
            raise SystemExit(f"{len(self.rows)} texts, of which {n} are kept for measuring: give more time, or a smaller --held")
        order = torch.randperm(len(self.rows), device=self.ids.device)
        return self.part(order[:n]), self.part(order[n:])

    def part(self, at):
        out = copy.copy(self)
        out.rows, out.weight = self.rows[at], self.weight[at]
        return out

    def draw(self, n, anchors, block, user, taps):
        """user: weight of an anchor in a user's turn beside one in an answer -> ids [n,T], anchors [n,A], labels and
        whether they count [n,A,block-1], places of the labels [n,A(block-1)], the target's hidden states
        [n,T,D] and taps [n,T,..]"""
        dev = self.ids.device
        pick = self.rows[torch.multinomial(self.weight, n, replacement=True)]
        x, o = self.ids[pick].long(), self.own[pick]
        weight = torch.tensor([0.0, user, 1.0], device=dev)
        start = weight[F.pad(o[:, 1:], (0, 1)).long()]  # by the token behind the anchor
        anchor = torch.multinomial(start, anchors, replacement=True)
        at = anchor[..., None] + torch.arange(1, block, device=dev)
        inside, flat = at < x.shape[1], at.clamp(max=x.shape[1] - 1).flatten(1)
        ok = ((o.gather(1, flat).view_as(at) > 0) & inside).cumprod(-1).bool()
        if self.kept:
            hid, raw = (f[pick] for f in self.kept)
        else:
            hid, raw = self.target.forward(x, taps)
        return x, anchor, x.gather(1, flat).view_as(at), ok, flat, hid, raw


class TwoLengths:
    """Short and long texts. Every `every`-th draw is of the long ones: as many tokens and blocks in fewer rows."""

    def __init__(self, short, long, every):
        self.pools, self.every, self.draws = (short, long), every, 0

    def counts(self):
        return sum(p.counts() for p in self.pools)

    def each(self):
        """-> what draws short ones alone, and long ones alone, in the shapes of training"""
        return [TwoLengths(*self.pools, every) for every in (1 << 62, 1)]

    def keep(self, taps):
        for p in self.pools:
            p.keep(taps)

    def split(self, n):
        held, rest = zip(*(p.split(n) for p in self.pools))
        return TwoLengths(*held, self.every), TwoLengths(*rest, self.every)

    def draw(self, n, anchors, *more):
        self.draws += 1
        short, long = self.pools
        if self.draws % self.every:
            return short.draw(n, anchors, *more)
        part = max(1, min(n, long.ids.shape[1] // short.ids.shape[1]))
        return long.draw(n // part, anchors * part, *more)


def talked(a, target, rank, say):
    """Conversations of --length tokens, and with --long by turns as many tokens in conversations of that length."""
    tok, end = targets.tokenizer(a.target)
    limits = (6, 40) if a.tiny else (256, 400)
    lengths = [a.length] + ([a.long] if a.long else [])
    talks = [Talk(target, lambda text: tok.encode(text).ids, end, n, limits=limits, seed=1000 * a.seed + 500 * i + rank,
                  turns=max(2, n // 128)) for i, n in enumerate(lengths)]  # fmt: skip
    cache, found, began = target.cache(a.rows, a.length), [[] for _ in lengths], time.time()
    for turn in itertools.count():
        if all(found) and time.time() - began >= a.gen_seconds:
            break
        talk, pool = talks[turn % len(talks)], found[turn % len(talks)]
        rows = a.rows * a.length // talk.length
        x, o = talk.write(rows, target.reshaped(cache, rows, talk.length))
        keep = (o == 2).sum(1) > (0 if a.tiny else 32)
        pool.append((x[keep].int(), o[keep]))
        say("texts of", talk.length, "tokens:", sum(len(x) for x, _ in pool), "with tokens of answers:",
            int(sum((o == 2).sum() for _, o in pool)))  # fmt: skip
        if len(pool) == 1:
            for row in x[:6].tolist():
                say("example", repr(tok.decode(row, skip_special_tokens=False)))
    pools = []
    for pool in found:
        ids, own = (torch.cat(x) for x in zip(*pool))
        pools.append(Texts(target, ids, own, torch.ones(len(ids), device=ids.device)))
    return TwoLengths(*pools, a.long_every) if a.long else pools[0]


def continued(a, target, rank, ranks):
    """-> ids, own of the target's continuations of prompts.npz, this rank's share of them"""
    args = SimpleNamespace(tiny=a.tiny, gen_seconds=a.gen_seconds, gen_steps=a.gen_steps, limit=a.limit,
                           slots=a.slots)  # fmt: skip
    with target.amp():
        found = pipeline.make_stream(args, target.m, [0], target.device.type, a.texts_from, (rank, ranks))
    d, rec = pipeline.DraftData(*found), found[1]["ids"]
    at = torch.arange(a.length, device=rec.device)
    inside = at < d.n[:, None]
    ids = rec[(d.t0[:, None] + at).clamp(max=len(rec) - 1), d.slot[:, None]].int() * inside
    return ids, (2 * (inside & (at >= d.first[:, None]))).byte()


def answered(a, target, rank, ranks):
    """-> ids, own of tasks; own is 2 for tokens of an answer that are the target's likeliest"""
    ids, own, at = [], [], np.arange(a.length)
    for path in sorted(glob.glob(f"{a.texts_from}/texts_*.npz"))[rank::ranks][: a.shards]:
        z = np.load(path)
        n, first, _ = z["meta"].T
        where = (n.cumsum() - n)[:, None] + at
        inside = (at < n[:, None]) & (n <= a.length)[:, None]
        ids.append(torch.from_numpy(z["ids"].astype(np.int32)[where.clip(max=len(z["ids"]) - 1)] * inside))
        own.append(torch.from_numpy(2 * (inside & (at >= first[:, None])).astype(np.uint8)))
    if not ids:
        raise SystemExit(f"{a.texts_from}: no texts_*.npz for each of {ranks} processes; redraft_data.py writes them")
    ids, own = (torch.cat(x).to(target.device) for x in (ids, own))
    if a.tiny:
        ids, own = ids[:8], own[:8]
    for x, o in zip(ids.split(64), own.split(64)):
        best = F.linear(target.forward(x.long(), ())[0], target.head).argmax(-1)
        o[:, 1:] *= best[:, :-1] == x[:, 1:]
    return ids, own


def collected(a, target, rank, ranks, say):
    """A share of `a.written` of the rows that are drawn are continuations."""
    one, two = continued(a, target, rank, ranks), answered(a, target, rank, ranks)
    say("continued", len(one[0]), "texts,", int((one[1] > 0).sum()), "tokens; tasks", len(two[0]), "texts,",
        int((two[1] > 0).sum()), "tokens of answers that the target gives")  # fmt: skip
    ids, own = (torch.cat(x) for x in zip(one, two))
    share = torch.full((len(ids),), a.written / max(1, len(one[0])), device=ids.device)
    share[len(one[0]) :] = (1 - a.written) / len(two[0])
    usable = (own[:, 1:] > 0).any(1)
    return Texts(target, ids[usable], own[usable], share[usable])


def write(a, target, rank, ranks, say):
    return collected(a, target, rank, ranks, say) if a.texts_from else talked(a, target, rank, say)
