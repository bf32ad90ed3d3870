# SPDX-License-Identifier: Apache-2.0
"""Texts for redraft.py, on all cores: tasks with their answers, starts of code and documentation.

usage: redraft_data.py PIECES.jsonl[.xz] TOKENIZER.json OUT_DIR [--workers N] [--shards N] [--prompts N]

Writes prompts.npz (as prepare.py does; four in five are code or documentation, whose continuations only
the target knows), rows_KIND_4096_*.npy (as mixture.py does) and texts_*.npz: ids [tokens] uint16 of many
texts, and per text its length, the length of its prompt, and its group. A text ends where the answer
does. A file appears under its final name only when complete.
"""

import argparse
import multiprocessing as mp
import os
import pathlib
import random

import numpy as np
from tokenizers import Tokenizer

import answers
import calls
import mixture
import prepare
import tasks
from prepare import END, FLAG, PROMPT_MAX, STATE, TOTAL_MAX

GROUPS = ["edit", "needle", "docs", "chat", "agent"]
SHARES = [28, 26, 6, 28, 12]  # of the texts
MAKERS = {g: [t for t, (of, _) in tasks.TASKS.items() if of == g] for g in GROUPS}


def task(r, group):
    """-> ids, prompt length of a task of bench/prompts' groups"""
    _, _, prompt, answer = tasks.draw(r, STATE["pool"], MAKERS[group])
    p, a = (STATE["tok"].encode(s).ids for s in (prompt, answer))
    return p + a, len(p)


def agent(r):
    """-> ids, prompt length of an answer or a call; the text is cut behind it"""
    draw = calls.draw if r.random() < 0.6 else answers.draw
    x = mixture.encode(draw(r, STATE["pool"], r.choice((120, 200, 300, 400))))
    marked = np.diff(np.concatenate(([0], (x & FLAG) > 0, [0])))
    at = [(i, j) for i, j in zip(np.flatnonzero(marked == 1), np.flatnonzero(marked == -1)) if i]
    if not at:
        return [], 0
    i, j = r.choice(at)
    return (x[:j] & (FLAG - 1)).tolist(), int(i)


def text_shard(job):
    seed, path, size = job
    r, ids, meta = random.Random(seed), [], []
    while len(ids) < size:
        g = r.choices(range(len(GROUPS)), SHARES)[0]
        x, p = agent(r) if GROUPS[g] == "agent" else task(r, GROUPS[g])
        if p < 8 or len(x) - p < 6 or len(x) > TOTAL_MAX:
            continue
        ids += x
        meta.append((len(x), p, g))
    with open(f"{path}.part", "wb") as f:
        np.savez(f, ids=np.array(ids, np.uint16), meta=np.array(meta, np.int32))
    os.replace(f"{path}.part", path)


def prompt_batch(job):
    """Rows of (ids, prompt length, 0), see prepare.prompt_batch."""
    seed, count = job
    r, pool, rows = random.Random(seed), STATE["pool"], []
    while len(rows) < count:
        u = r.random()
        if u < 0.2:
            x, n = task(r, r.choice(("edit", "needle", "chat", "docs")))
            p = x[:n]
        else:
            text = r.choice(pool.funcs)["text"]
            if u > 0.7:
                text = r.choice(pool.docs) if u < 0.9 else prepare.reference_text(r.choice(pool.funcs))
            p, _ = prepare.piece_prompt(r, text)
        if 8 <= len(p) <= PROMPT_MAX:
            rows.append((np.pad(np.array(p, np.uint16), (0, PROMPT_MAX - len(p))), len(p)))
    return np.stack([x for x, _ in rows]), np.array([n for _, n in rows], np.int32)


def do(job):
    (mixture.rows_shard if len(job) == 4 else text_shard)(job)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("pieces")
    ap.add_argument("tokenizer")
    ap.add_argument("out")
    ap.add_argument("--workers", type=int, default=12)
    ap.add_argument("--shards", type=int, default=140)
    ap.add_argument("--tokens", type=int, default=250_000, help="of a shard")
    ap.add_argument("--prompts", type=int, default=24_000)
    ap.add_argument("--seed", type=int, default=1)
    a = ap.parse_args()
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    out = pathlib.Path(a.out)
    out.mkdir(parents=True, exist_ok=True)
    pieces = [p for p in prepare.read_pieces(a.pieces) if ".. currentmodule" not in p["text"]]
    random.Random(3).shuffle(pieces)
    STATE["tok"], STATE["pool"] = Tokenizer.from_file(a.tokenizer), tasks.Pool(pieces)
    pool = STATE["pool"]
    print(len(pool.funcs), "functions", len(pool.docs), "sections", len(pool.words), "words", flush=True)
    seed = a.seed * 1_000_000
    rows = [(seed + 500_000 + i, out / f"rows_{kind}_4096_{i:04d}.npy", kind, 4096)
            for i, kind in enumerate(("answers", "calls") * 3)]  # fmt: skip
    texts = [(seed + i, out / f"texts_{i:04d}.npz", a.tokens) for i in range(a.shards)]
    with mp.get_context("fork").Pool(a.workers) as workers:
        batches = [(seed + 900_000 + i, 250) for i in range(a.prompts // 250)]
        got = workers.map(prompt_batch, batches, 1)
        ids, plen = (np.concatenate([g[i] for g in got]) for i in (0, 1))
        with open(out / "prompts.part", "wb") as f:
            np.savez(f, ids=ids, plen=plen, forced=np.zeros_like(plen))
        os.replace(out / "prompts.part", out / "prompts.npz")
        print("prompts done", flush=True)
        for _ in workers.imap_unordered(do, texts[:10] + rows + texts[10:], 1):
            pass
    print("all done", flush=True)


if __name__ == "__main__":
    main()
