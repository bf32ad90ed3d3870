# SPDX-License-Identifier: Apache-2.0
"""Conversations that the target writes alone, both sides of them, in its chat template.

A model that was tuned on conversations writes a user's message as readily as an answer when the template's opening of a
user's turn is all that it is given (Magpie, arXiv 2406.08464). So no prompts have to be collected. Every text is one
conversation of `length` tokens: a system message, then turns until the tokens are used up. Many turns of the user begin
with a few given words (`openings.tsv`), so that code, rewriting and lists come often enough.
"""

import pathlib
import random

import torch

START, END = "<|im_start|>", "<|im_end|>"
LOOP = 24  # tokens that repeat what stands up to 160 before them: a loop, of no use to a draft


def openings():
    rows = pathlib.Path(__file__).with_name("openings.tsv").read_text().splitlines()
    out = {}
    for row in rows:
        kind, weight, text = row.split("\t")
        out.setdefault(kind, []).append((float(weight), text.encode().decode("unicode_escape")))
    return out


def pick(rng, table):
    return rng.choices([t for _, t in table], [w for w, _ in table])[0]


class Talk:
    """turns: most turns of a user in a conversation; limits: most tokens of a user's turn and of an answer"""

    def __init__(self, target, encode, end, length, limits, seed, turns=8):
        self.target, self.encode, self.end, self.length = target, encode, end, length
        self.turns, self.limits, self.rng, self.table = turns, limits, random.Random(seed), openings()

    def given(self, rows):
        """The parts that are given: [rows][parts] lists of tokens; parts end where a message is to be written."""
        out = []
        for _ in range(rows):
            system = pick(self.rng, self.table["system"])
            text = f"{START}system\n{system}{END}\n" if system else ""
            parts = []
            for i in range(self.turns):
                first = pick(self.rng, self.table["later" if i else "first"])
                parts += [text + f"{START}user\n{first}", f"\n{START}assistant\n"]
                text = "\n"
            out.append([self.encode(p) for p in parts])
        return out

    @torch.no_grad()
    def write(self, rows, cache):
        """-> ids [rows,length], own [rows,length]: 2 for tokens of answers that the target chose, 1 for
        those of a user, 0 for what was given and for loops"""
        dev, given = self.target.device, self.given(rows)
        wide = max(len(p) for row in given for p in row)
        part = torch.zeros(rows, 2 * self.turns, wide, dtype=torch.long)
        size = torch.zeros(rows, 2 * self.turns, dtype=torch.long)
        for r, row in enumerate(given):
            for k, p in enumerate(row):
                part[r, k, : len(p)], size[r, k] = torch.tensor(p), len(p)
        part, size = part.to(dev), size.to(dev)
        warm = torch.tensor([self.rng.random() < 0.5 for _ in range(rows)], device=dev)  # answers at 0.8, or at 0
        limit = torch.tensor(self.limits, device=dev)
        z = lambda: torch.zeros(rows, dtype=torch.long, device=dev)
        ids, turn = (torch.zeros(rows, self.length, dtype=torch.long, device=dev) for _ in range(2))
        own = torch.zeros(rows, self.length, dtype=torch.uint8, device=dev)
        k, at, said, every, over = z(), z(), z(), torch.arange(rows, device=dev), torch.zeros_like(warm)
        for t in range(self.length):
            if t:
                answer = k % 2 == 1
                temp = torch.where(answer, torch.where(warm, 0.8, 0.0), 1.0)[:, None]
                low = logits.amax(-1, keepdim=True) + temp * -3.0  # min-p 0.05
                noise = -torch.empty_like(logits).exponential_().log_()
                best = torch.where(logits < low, -torch.inf, logits + temp * noise).argmax(-1)
                free = at >= size[every, k]
                cut = free & (said + 1 >= limit[k % 2])
                token = torch.where(free, torch.where(cut, self.end, best), part[every, k, at.clamp(max=wide - 1)])
                own[:, t] = (free & ~cut & ~over) * (1 + answer)
            else:
                free, token = torch.zeros_like(warm), part[:, 0, 0]
            ids[:, t], turn[:, t] = token, k
            ended = free & (token == self.end)
            said = torch.where(ended, 0, said + free.long())
            at = torch.where(ended, 0, at + (~free).long())
            over |= ended & (k == 2 * self.turns - 1)
            k = (k + ended.long()).clamp(max=2 * self.turns - 1)
            if t + 1 < self.length:
                logits = self.target.step(token, t, cache)
        return ids, own * ~self.loops(ids, turn, own)

    def loops(self, ids, turn, own):
        out = torch.zeros_like(own, dtype=torch.bool)
        for p in range(1, 161):
            same = (ids[:, p:] == ids[:, :-p]) & (turn[:, p:] == turn[:, :-p]) & (own[:, :-p] > 0)
            run = same.cumsum(1)
            run = run - torch.where(same, 0, run).cummax(1).values  # tokens of this run so far
            out[:, p:] |= run >= LOOP
        return out
