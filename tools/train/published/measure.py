# SPDX-License-Identifier: Apache-2.0
"""Accept lengths over prompts, as a program that drafts chains would see them: what training blocks say is much more.

The target's own likeliest tokens after each prompt are the text; a chain begins behind its newest token, what is right
of it and one token more are taken, and the next chain begins there. Prompts are files *.jsonl as in bench/prompts, with
`group` and `prompt`, the text as it is read.
"""

import json
import pathlib

import torch
import torch.nn.functional as F
import target as targets


class Prompts:
    """texts: (group, tokens of a prompt) each; their answers of `more` tokens and the features of `taps` are kept."""

    @torch.no_grad()
    def __init__(self, target, texts, more, taps, end):
        self.groups, self.target = [g for g, _ in texts], target
        self.first = torch.tensor([len(t) for _, t in texts], device=target.device)
        longest = int(self.first.max())
        x = torch.zeros(len(texts), longest + more, dtype=torch.long, device=target.device)
        for row, (_, tokens) in zip(x, texts):
            row[: len(tokens)] = torch.tensor(tokens)
        every = torch.arange(len(texts), device=target.device)
        for i in range(more):
            hid = target.forward(x[:, : longest + i], ())[0][every, self.first + i - 1]
            x[every, self.first + i] = F.linear(hid, target.head).argmax(-1)
        at = torch.arange(x.shape[1], device=target.device)
        behind = (x == end) & (at >= self.first[:, None])
        self.end = torch.where(behind.any(1), behind.int().argmax(1) + 1, self.first + more)
        self.x, (self.hid, self.raw) = x, target.forward(x, taps)

    def passes(self, row, right):
        """-> tokens behind the first one of the answer, and passes that they take; right: how many guesses of the chain
        behind each of its tokens are right"""
        first, end, passes = int(self.first[row]), int(self.end[row]), 0
        at = first
        while at + 1 < end:
            at += right[at - first] + 1
            passes += 1
        return min(at + 1, end) - first - 1, passes

    @torch.no_grad()
    def accept_lengths(self, guesses):
        """guesses(texts, anchors, tokens behind these, hidden states, taps) -> tokens [1,A,R] -> {group: tokens a pass}"""
        sums = {}
        with torch.compiler.set_stance("force_eager"):  # shapes of its own are not worth compiling
            for i, group in enumerate(self.groups):
                part = slice(i, i + 1)
                anchor = torch.arange(int(self.first[i]), int(self.end[i]), device=self.x.device)[None]
                at = anchor[..., None] + torch.arange(1, 16, device=self.x.device)
                truth = self.x[part].gather(1, at.clamp(max=self.x.shape[1] - 1).flatten(1)).view_as(at)
                raw = None if self.raw is None else self.raw[part].float()
                said = guesses(self.x[part], anchor, truth, self.hid[part].float(), raw)
                n = said.shape[-1]
                right = ((said == truth[..., :n]) & (at[..., :n] < self.end[i])).cumprod(-1).sum(-1)[0].tolist()
                for name in (group, "all"):
                    tokens, passes = sums.get(name, (0, 0))
                    more = self.passes(i, right)
                    sums[name] = tokens + more[0], passes + more[1]
        return {name: round(tokens / max(1, passes), 3) for name, (tokens, passes) in sums.items()}


def read(a, target, rank, taps):
    """-> Prompts of the folder a.prompts; None without one, and but for the first process"""
    if not a.prompts or rank:
        return None
    tok, end = targets.tokenizer(a.target)
    rows = [json.loads(line) for path in sorted(pathlib.Path(a.prompts).glob("*.jsonl")) for line in path.open()]
    if not rows:
        raise SystemExit(f"{a.prompts}: no *.jsonl with prompts")
    if a.tiny:
        rows = rows[:: max(1, len(rows) // 3)]
    return Prompts(target, [(r["group"], tok.encode(r["prompt"]).ids) for r in rows], a.prompt_tokens, taps, end)
