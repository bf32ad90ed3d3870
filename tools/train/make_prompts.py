# SPDX-License-Identifier: Apache-2.0
"""Candidates for bench/prompts from projects the training text does not contain.

usage: make_prompts.py HELD.jsonl TOKENIZER.json OUT_DIR [--each N]

Five groups, one file each: code (the start of a function), docs (the start of a section, or
a reference entry for given code), edit, needle, chat. Lengths stay within what the pair was trained
for; max_tokens leaves room for the natural end. Which projects: the "project" field.
pick_prompts.py chooses among them.
"""

import argparse
import json
import pathlib
import random
from collections import Counter

from tokenizers import Tokenizer

import tasks

LOW, HIGH, NEW = 40, 340, 128


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("pieces")
    ap.add_argument("tokenizer")
    ap.add_argument("out")
    ap.add_argument("--each", type=int, default=30)
    ap.add_argument("--seed", type=int, default=20261121)
    a = ap.parse_args()
    tok, r = Tokenizer.from_file(a.tokenizer), random.Random(a.seed)
    pieces = [json.loads(line) for line in open(a.pieces)]
    pool, n = tasks.Pool(pieces), lambda s: len(tok.encode(s).ids)
    out = {"code": [], "docs": [], "edit": [], "needle": [], "chat": []}

    def add(group, task, prompt, project, limit=NEW):
        out[group].append(
            {
                "id": f"{group}-{len(out[group]) + 1:02d}",
                "group": group,
                "task": task,
                "held_out": True,
                "project": project,
                "max_tokens": limit,
                "prompt": prompt,
            }
        )

    def fits(prompt, rest):
        return LOW <= n(prompt) <= HIGH and 12 <= n(rest) <= NEW - 8

    used = Counter()
    while len(out["code"]) < a.each:
        p = r.choice(pool.funcs)
        lines = p["text"].split("\n")
        cut = r.randint(2, max(2, len(lines) * 2 // 3))
        prompt, rest = "\n".join(lines[:cut]) + "\n", "\n".join(lines[cut:])
        if used[p["project"]] > 1 or p["name"].startswith("test") or not fits(prompt, rest):
            continue
        used[p["project"]] += 1
        add("code", "function", prompt, p["project"])
    docs = [p for p in pieces if p["kind"] == "doc"]
    used = Counter()
    while len(out["docs"]) < a.each:
        p = r.choice(docs)
        lines = p["text"].split("\n")
        cut = r.randint(3, max(3, len(lines) * 2 // 3))
        prompt, rest = "\n".join(lines[:cut]) + "\n", "\n".join(lines[cut:])
        if used[p["project"]] > 3 or not fits(prompt, rest):
            continue
        used[p["project"]] += 1
        add("docs", "section", prompt, p["project"], 64)
    want = {"docs": [tasks.reference], "edit": [], "needle": [], "chat": []}
    for t, (group, _) in tasks.TASKS.items():
        if group != "docs" and t is not tasks.chat_hello:
            want[group].append(t)
    for group, makers in want.items():
        i = 0
        while len(out[group]) < a.each * (2 if group == "docs" else 1):
            _, name, prompt, answer = tasks.draw(r, pool, [makers[i % len(makers)]])
            if fits(prompt, answer):
                add(group, name, prompt, "several held-out projects, random names")
                i += 1
    for group, rows in out.items():
        path = pathlib.Path(a.out) / f"{group}.jsonl"
        path.write_text("".join(json.dumps(x) + "\n" for x in rows))


if __name__ == "__main__":
    main()
