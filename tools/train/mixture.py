# SPDX-License-Identifier: Apache-2.0
"""Tokenises the pieces, and makes rows of answers and calls, on all cores, for finetune.py.

usage: mixture.py PIECES.jsonl[.xz] TOKENIZER.json OUT_DIR [--workers N] [--rounds N] [--prompts N]

Writes what prepare.py does (code.npy, doc.npy, tasks_*.npy, prompts.npz) and rows_KIND_LENGTH_*.npy:
[rows, length + 1] uint16, bit 15 on tokens that carry loss, several samples a row, rests filled with
the end token. The first file of each kind is eval_KIND_LENGTH.npy and never trained on.
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
import prepare
import tasks
from prepare import END, FLAG, PROMPT_MAX, STATE, TOTAL_MAX, save

# kind, length, files a round
KINDS = [("answers", 1024, 2), ("calls", 1024, 2), ("answers", 4096, 4), ("calls", 4096, 2), ("long", 16384, 1)]
ROW_TOKENS = 400_000


def encode(segments):
    """-> ids with flags on what carries loss"""
    tok, out = STATE["tok"], []
    for text, loss in segments:
        x = np.array(tok.encode(text, add_special_tokens=False).ids, np.uint16)
        out.append(x | FLAG if loss else x)
    return np.concatenate(out + [np.array([END], np.uint16)])


def sample(r, kind, length):
    pool = STATE["pool"]
    if kind == "long":
        kind = r.choice(("answers", "calls"))
        size = r.choice((2000, 4000, 8000, 12000, 15000))
    elif length == 1024:
        size = r.choice((150, 300, 400, 500, 700, 900))
    elif kind == "answers":
        size = r.choice((700, 1100, 1500, 2000, 2600, 3200, 3500, 3700, 3900))
    else:
        size = r.choice((500, 900, 1500, 2500, 3500))
    return encode((answers if kind == "answers" else calls).draw(r, pool, size))


def rows_shard(job):
    seed, path, kind, length = job
    r, rows, waiting = random.Random(seed), [], []
    while len(rows) * length < ROW_TOKENS:
        room, row = length + 1, []
        misses = 0
        while misses < 6 and room > 120:
            x = waiting.pop() if waiting and misses == 0 else sample(r, kind, length)
            if len(x) > length + 1:
                continue
            if len(x) > room:
                misses += 1
                if len(waiting) < 8:
                    waiting.insert(0, x)
                continue
            row.append(x)
            room -= len(x)
        r.shuffle(row)
        rows.append(np.concatenate(row + [np.full(room, END, np.uint16)]))
    save(path, np.stack(rows))


def prompt_batch(job):
    """As prepare.prompt_batch; one in four is a call or an answer."""
    seed, count = job
    ids, plen, forced = prepare.prompt_batch((seed, count * 3 // 4))
    r, rows = random.Random(seed + 1), []
    while len(rows) < count - len(ids):
        draw = calls.draw if r.random() < 0.6 else answers.draw
        x = encode(draw(r, STATE["pool"], r.choice((120, 200, 300, 400))))[: TOTAL_MAX + 1]
        at = [i for i in range(1, len(x)) if x[i] & FLAG and not x[i - 1] & FLAG]
        at = [i for i in at if i <= PROMPT_MAX + 64]
        if at:
            n, whole = r.choice(at), r.random() < 0.3
            row = np.zeros(TOTAL_MAX + 1, np.uint16)
            use = min(len(x), TOTAL_MAX) if whole else n
            row[:use] = x[:use] & (FLAG - 1)
            rows.append((row, n, use if whole else 0))
    return (
        np.concatenate([ids, np.stack([x[0] for x in rows])]),
        np.concatenate([plen, np.array([x[1] for x in rows], np.int32)]),
        np.concatenate([forced, np.array([x[2] for x in rows], np.int32)]),
    )


def do(job):
    if len(job) == 3:
        prepare.task_shard(job)
    else:
        rows_shard(job)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("pieces")
    ap.add_argument("tokenizer")
    ap.add_argument("out")
    ap.add_argument("--workers", type=int, default=14)
    ap.add_argument("--rounds", type=int, default=60)
    ap.add_argument("--prompts", type=int, default=100_000)
    ap.add_argument("--some", type=int, default=1, help="take one piece of so many")
    a = ap.parse_args()
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    out = pathlib.Path(a.out)
    out.mkdir(parents=True, exist_ok=True)
    pieces = prepare.read_pieces(a.pieces)[:: a.some]
    pieces = [p for p in pieces if ".. currentmodule" not in p["text"]]
    random.Random(3).shuffle(pieces)
    STATE["tok"], STATE["pool"] = Tokenizer.from_file(a.tokenizer), tasks.Pool(pieces)
    code = [p["text"] for p in pieces if p["kind"] != "doc"]
    doc = [p["text"] for p in pieces if p["kind"] == "doc"]
    doc += [prepare.reference_text(p) for p in pieces
            if p["kind"] == "func" and 250 < len(p["doc"]) < 1500]  # fmt: skip
    random.Random(4).shuffle(doc)
    named = lambda n, stem, k, length, at: out / f"{stem}_{k}_{length}{'' if n == 0 else f'_{n:04d}{at}'}.npy"
    rows = lambda n, stem, most: [(70_000 + 1000 * n + 10 * i + j, named(n, stem, k, length, j), k, length)
                                  for i, (k, length, files) in enumerate(KINDS)
                                  for j in range(min(files, most))]  # fmt: skip
    task = lambda n: (1000 + n, out / f"tasks_{n:04d}.npy", 500_000)
    with mp.get_context("fork").Pool(a.workers) as pool:
        first = pool.map_async(do, [task(0), *rows(1, "rows", 1), task(1), *rows(0, "eval", 1)], 1)
        for name, texts in (("doc", doc), ("code", code)):
            parts = pool.map(prepare.encode, [texts[i : i + 500] for i in range(0, len(texts), 500)], 4)
            save(out / f"{name}.npy", np.concatenate(parts))
            print(name, sum(map(len, parts)), "tokens", flush=True)
        first.get()
        more = [job for n in range(2, a.rounds) for job in (task(n), *rows(n, "rows", 9))]
        later = pool.imap_unordered(do, more[:16], 1)
        got = pool.map(prompt_batch, [(9_000_000 + i, 500) for i in range(a.prompts // 500)], 1)
        with open(out / "prompts.part", "wb") as f:
            np.savez(f, **{k: np.concatenate([g[i] for g in got])
                           for i, k in enumerate(("ids", "plen", "forced"))})  # fmt: skip
        os.replace(out / "prompts.part", out / "prompts.npz")
        print("prompts done", flush=True)
        list(later)
        list(pool.imap_unordered(do, more[16:], 1))
    print("all done", flush=True)


if __name__ == "__main__":
    main()
