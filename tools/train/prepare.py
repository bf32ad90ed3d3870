# SPDX-License-Identifier: Apache-2.0
"""Tokenises the pieces and keeps making fresh synthetic tasks, on all cores.

usage: prepare.py PIECES.jsonl[.xz] TOKENIZER.json OUT_DIR [--workers N] [--shards N] [--prompts N]

Writes OUT_DIR/{code,doc}.npy first (pieces in random order, each closed by the end token), then
prompts.npz (starts of texts for on-policy generation) and tasks_*.npy (about a million tokens
each). All are uint16; bit 15 marks tokens that carry loss (all of a piece, the answer of a task).
A file appears under its final name only when complete, so a trainer may start early.
"""

import argparse
import json
import lzma
import multiprocessing as mp
import os
import pathlib
import random

import numpy as np
from tokenizers import Tokenizer

import tasks

END, FLAG, PROMPT_MAX, TOTAL_MAX = 4080, 0x8000, 352, 511
STATE = {}


def save(path, arr):
    tmp = str(path) + ".part"
    with open(tmp, "wb") as f:
        np.save(f, arr)
    os.replace(tmp, path)


def read_pieces(path):
    op = lzma.open if str(path).endswith(".xz") else open
    with op(path, "rt") as f:
        return [json.loads(line) for line in f]


def reference_text(p):
    """A long docstring as a documentation entry of its own."""
    args = ", ".join(a for a in p["args"] if a not in ("self", "cls"))
    return f"### `{p['name']}({args})`\n\n{p['doc']}\n"


def encode(texts):
    out = []
    for e in STATE["tok"].encode_batch(texts, add_special_tokens=False):
        out += e.ids
        out.append(END)
    return np.array(out, np.uint16) | FLAG


def task_shard(job):
    seed, path, size = job
    r, tok, out, n = random.Random(seed), STATE["tok"], [], 0
    while n < size:
        _, _, prompt, answer = tasks.draw(r, STATE["pool"])
        p, a = tok.encode(prompt).ids, tok.encode(answer).ids
        if len(p) + len(a) > TOTAL_MAX:
            continue
        both = np.array(p + a, np.uint16)
        both[len(p) :] |= FLAG
        if both[-1] & 0x7FFF != END:
            both = np.append(both, np.uint16(END | FLAG))
        out.append(both)
        n += len(both)
    save(path, np.concatenate(out))


def piece_prompt(r, text):
    """The start of a piece, cut after a whole line where possible, and its full ids."""
    tok = STATE["tok"]
    ids = tok.encode(text).ids + [END]
    lines = text.split("\n")
    cut = r.randint(1, max(1, len(lines) * 2 // 3))
    n = len(tok.encode("\n".join(lines[:cut]) + "\n").ids)
    return ids[: max(8, min(n, PROMPT_MAX, len(ids) - 4))], ids


def prompt_batch(job):
    """Rows of (ids, prompt length, total length if forced else 0)."""
    seed, count = job
    r, tok, pool, rows = random.Random(seed), STATE["tok"], STATE["pool"], []
    while len(rows) < count:
        u = r.random()
        if u < 0.52:
            _, _, prompt, answer = tasks.draw(r, pool)
            p = tok.encode(prompt).ids
            full = p + tok.encode(answer).ids
        else:
            text = r.choice(pool.docs) if u < 0.62 else r.choice(pool.funcs)["text"]
            if r.random() < 0.15 and u >= 0.62:
                text = reference_text(r.choice(pool.funcs))
            p, full = piece_prompt(r, text)
        if len(p) > PROMPT_MAX or len(p) < 4:
            continue
        forced = r.random() < 0.12 and len(full) <= TOTAL_MAX
        ids = np.zeros(TOTAL_MAX + 1, np.uint16)
        use = full if forced else p
        ids[: len(use)] = use
        rows.append((ids, len(p), len(full) if forced else 0))
    return (
        np.stack([x[0] for x in rows]),
        np.array([x[1] for x in rows], np.int32),
        np.array([x[2] for x in rows], np.int32),
    )


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("pieces")
    ap.add_argument("tokenizer")
    ap.add_argument("out")
    ap.add_argument("--workers", type=int, default=14)
    ap.add_argument("--shards", type=int, default=280)
    ap.add_argument("--prompts", type=int, default=160_000)
    a = ap.parse_args()
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    out = pathlib.Path(a.out)
    out.mkdir(parents=True, exist_ok=True)
    pieces = read_pieces(a.pieces)
    random.Random(3).shuffle(pieces)
    STATE["tok"] = Tokenizer.from_file(a.tokenizer)
    STATE["pool"] = tasks.Pool(pieces)
    code = [p["text"] for p in pieces if p["kind"] != "doc"]
    doc = [p["text"] for p in pieces if p["kind"] == "doc"]
    doc += [reference_text(p) for p in pieces if p["kind"] == "func" and 250 < len(p["doc"]) < 1500]
    random.Random(4).shuffle(doc)
    print(
        len(code),
        "code pieces",
        len(doc),
        "doc pieces",
        len(STATE["pool"].words),
        "words",
        flush=True,
    )
    with mp.get_context("fork").Pool(a.workers) as pool:
        jobs = [(1000 + i, out / f"tasks_{i:04d}.npy", 1_000_000) for i in range(a.shards)]
        first = pool.map_async(task_shard, jobs[: a.workers], 1)
        for name, texts in (("doc", doc), ("code", code)):
            parts = pool.map(encode, [texts[i : i + 500] for i in range(0, len(texts), 500)], 4)
            save(out / f"{name}.npy", np.concatenate(parts))
            print(name, sum(map(len, parts)), "tokens", flush=True)
        first.get()
        got = pool.map(prompt_batch, [(9_000_000 + i, 500) for i in range(a.prompts // 500)], 1)
        tmp = out / "prompts.part.npz"
        np.savez(
            tmp,
            ids=np.concatenate([g[0] for g in got]),
            plen=np.concatenate([g[1] for g in got]),
            forced=np.concatenate([g[2] for g in got]),
        )
        os.replace(tmp, out / "prompts.npz")
        print("prompts done", flush=True)
        pool.map(task_shard, jobs[a.workers :], 1)
    print("all shards done", flush=True)


if __name__ == "__main__":
    main()
