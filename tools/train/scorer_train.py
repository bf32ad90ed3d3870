# SPDX-License-Identifier: Apache-2.0
"""Trains the tiny scorer on a CPU.

usage: scorer_train.py TARGET.gguf STDLIB SITE --out OUT.pt --seconds N
       scorer_train.py TARGET.gguf SAVED.npz --out OUT.pt --seconds N

The loss is what selection needs: the share of the summed, smoothed scores of the context that lies
on the tokens asked for, as the mean logarithm over these tokens, so that none of them is missed.
Contexts are short; a random factor lets every key that is no fact count as up to a few hundred
(its logarithm is added to the logits), as in a text so many times longer. While the file of
--pause exists, training waits.
"""

import argparse
import math
import os
import time

import numpy as np
import torch

import scorer_data
import scorer_model


def batch(maker, rows, length, questions, width):
    ids = torch.zeros(rows, length + questions * width, dtype=torch.long)
    asks = torch.zeros(rows, questions, width)
    facts, wanted = torch.zeros(rows, length), torch.zeros(rows, questions, length)
    for b in range(rows):
        context, where, all_questions = maker.sample(length, questions, width)
        ids[b, :length] = torch.tensor(context)
        facts[b, where] = 1
        for i, (before, q, places) in enumerate(all_questions):
            at = length + i * width
            ids[b, at : at + len(before) + len(q)] = torch.tensor(before + q)
            asks[b, i, len(before) : len(before) + len(q)] = 1
            wanted[b, i, places] = 1
    return ids, asks, facts, wanted


def loss_of(model, made, length, width, times):
    """(excess of the mean negative log share over that of an even spread, share on the asked)"""
    ids, asks, facts, wanted = made
    far = math.log(times)
    near = far * (1 - facts)
    p = model.train_scores(ids, length, width, far, near)
    s = (p * asks[..., None]).sum(2) / asks.sum(2, keepdim=True)
    s = scorer_model.smooth(s) + 1e-9
    share = s / s.sum(-1, keepdim=True)
    n = wanted.sum(-1)
    loss = -(share.log() * wanted).sum(-1) / n - n.log()
    return loss.mean(), (share * wanted).sum(-1).mean().item()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("target")
    ap.add_argument("corpus", nargs="+", help="the folders of scorer_sources.py, or one .npz of a run before")
    ap.add_argument("--out", required=True)
    ap.add_argument("--resume")
    ap.add_argument("--seconds", type=float, required=True, help="of training, pauses left out")
    ap.add_argument("--rows", type=int, default=4)
    ap.add_argument("--length", type=int, default=512)
    ap.add_argument("--questions", type=int, default=6)
    ap.add_argument("--width", type=int, default=40)
    ap.add_argument("--lr", type=float, default=2e-3)
    ap.add_argument("--seed", type=int, default=1)
    ap.add_argument("--threads", type=int, default=1)
    ap.add_argument("--pause", default="")
    a = ap.parse_args()
    if len(a.corpus) != (1 if a.corpus[0].endswith(".npz") else 2):
        ap.error("give STDLIB and SITE, or one .npz")
    torch.set_num_threads(a.threads)
    torch.manual_seed(a.seed)
    tok, emb = scorer_data.read_tokenizer(a.target)
    if a.corpus[0].endswith(".npz"):
        corpus = np.load(a.corpus[0])
        code, prose = corpus["code"], corpus["prose"]
    else:
        code, prose = scorer_data.read_corpus(*a.corpus, tok)
        np.savez(a.out + ".npz", code=code, prose=prose)
    maker = scorer_data.Maker(tok, code, prose, a.seed)
    r = maker.r
    if a.resume:
        model, _ = scorer_model.load(a.resume)
    else:
        model = scorer_model.Scorer(scorer_model.Config(), torch.from_numpy(emb))
    slow = [p for n, p in model.named_parameters() if "embed" in n]
    fast = [p for n, p in model.named_parameters() if "embed" not in n and p.dim() == 2]
    thin = [p for n, p in model.named_parameters() if p.dim() == 1]
    groups = [{"params": slow, "part": 0.3, "weight_decay": 0.0},
              {"params": fast, "part": 1.0, "weight_decay": 0.05},
              {"params": thin, "part": 2.0, "weight_decay": 0.0}]  # fmt: skip
    opt = torch.optim.AdamW(groups, lr=a.lr, betas=(0.9, 0.98))
    start, spent, saved, step, mean = time.time(), 0.0, 0.0, 0, None
    while spent < a.seconds:
        begun = time.time()
        while a.pause and os.path.exists(a.pause):
            time.sleep(1)
        start += time.time() - begun
        done = spent / a.seconds
        scale = min(1, (step + 1) / 30) * min(1, (1 - done) / 0.6)
        for g in opt.param_groups:
            g["lr"] = a.lr * scale * g["part"]
        times = math.exp(r.uniform(0, math.log(1 + 200 * min(1, 2 * done))))
        made = batch(maker, a.rows, a.length, a.questions, a.width)
        loss, share = loss_of(model, made, a.length, a.width, times)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0).item()
        opt.step()
        opt.zero_grad(set_to_none=True)
        step, spent = step + 1, time.time() - start
        now = torch.tensor([loss.item(), share, norm])
        mean = now if mean is None else mean.lerp(now, 0.05)
        if step % 20 == 0:
            print(f"{step} {spent:.0f}s loss {mean[0]:.3f} share {mean[1]:.3f} "
                  f"grad {mean[2]:.2f} times {times:.0f}", flush=True)  # fmt: skip
        if spent - saved > 60 or spent >= a.seconds:
            scorer_model.save(a.out, model, step=step, seconds=spent)
            saved = spent


if __name__ == "__main__":
    main()
