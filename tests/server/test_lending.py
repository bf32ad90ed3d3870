#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Slots of experts that are lent under concurrent requests, on a GPU: while some answers are decoded,
prompts are read in passes that borrow slots. Ids, logit hashes and texts are those of a server that
holds all experts, asked one request at a time.

usage: test_lending.py PROGRAM [DEVICE]

The models are made of random weights: eight layers of a real width, with a draft that guesses in vain.
DEVICE is cuda; with cpu, where nothing is lent, a tiny pair tries the rest.
"""
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time

from suite import PROGRAM, Server, ask, check, equal, finish, part, request, until

DEVICE = sys.argv[2] if len(sys.argv) > 2 else "cuda"
CPU = DEVICE == "cpu"
# shape, layers, draft, its layers of the target, tokens of a prompt that borrows, of one that does not
SHAPE, LAYERS, DRAFT, TAPS, LONG, SHORT = (
    ("qwen3moe-tiny", 4, "dflash-tiny", None, 400, 20) if CPU else
    ("qwen3-30b-a3b", 8, "dflash-qwen3-30b-a3b", "0,2,3,5,6", 4200, 40))
VOCABULARY = 500  # ids below are in both
# Passes may take as long as they like, so that prompts are read in few passes while answers are decoded.
OPTIONS = ["--device", DEVICE, "--max-ctx", "6000", "--cache-ram", "0", "--max-gap", "100000",
           *(["--draft-taps", TAPS] if TAPS else [])]
SLOTS = [] if CPU else ["--spark-slots", "72"]  # of 128 a layer
folder = tempfile.mkdtemp(prefix="coppice-lending-")
wanted = []


def synth(shape, name, *options):
    path = os.path.join(folder, name)
    subprocess.run([PROGRAM, "synth", "--shape", shape, *options, path], check=True, capture_output=True)
    return path


def cases():
    """Two answers that are decoded for long, then four long prompts of short answers."""
    draw = random.Random(31)
    for i in range(6):
        ids = [draw.randrange(3, VOCABULARY) for _ in range(SHORT if i < 2 else LONG + 7 * i)]
        yield {"model": "m", "prompt": ids, "max_tokens": 600 if i < 2 else 8, "ignore_eos": True, "seed": i,
               "temperature": [0, 0.8][i % 2], "stream": i < 3,
               "coppice": {"logit_hash": True, "token_ids": True, "speculate": ["tree", "off"][i % 2]}}


def run(server, body):
    r = ask(server.port, "/v1/completions", body)
    return {"ids": r["coppice"]["token_ids"], "hash": r["coppice"]["logit_hash"], "texts": r["texts"]}


def loans(server):
    return server.metric("coppice_expert_loans_total") or 0


def decoding(server):
    """Requests that have had a token."""
    return sum(slot.get("n_tokens", 0) > 0 for slot in json.loads(request(server.port, "GET", "/slots")[2]))


def together(server, name):
    """All answers, the long prompts once the two others are being decoded. How often slots were lent meanwhile."""
    seen = [None] * len(wanted)
    over = [threading.Event() for _ in wanted]

    def one(i):
        try:
            seen[i] = run(server, wanted[i][0])
        except Exception as error:
            seen[i] = error
        over[i].set()

    threads = [threading.Thread(target=one, args=(i,)) for i in range(len(wanted))]
    for t in threads[:2]:
        t.start()
    until(lambda: decoding(server) == 2 or over[0].is_set())
    before = loans(server)
    for t in threads[2:]:
        t.start()
    for done in over[2:]:
        done.wait(120)
    beside = not over[0].is_set()
    after = loans(server)
    for t in threads:
        t.join()
    for i, (_, alone) in enumerate(wanted):
        equal(f"{name}: request {i} among {len(wanted)}", seen[i], alone)
    check(f"{name}: an answer was decoded all the while", beside or CPU)
    return after - before


def lend():
    server = Server(*OPTIONS, *SLOTS, model=target, draft=draft)
    first = run(server, {**wanted[2][0], "seed": 99})  # by then passes have known prices
    equal("alone, before others", run(server, wanted[2][0]), wanted[2][1])
    check("a prompt alone borrows", CPU or loans(server) > 0, loans(server))
    equal("another seed, the same greedy answer", first["ids"], wanted[2][1]["ids"])
    for turn in range(2):
        found = together(server, f"turn {turn}")
        check(f"turn {turn}: slots were lent while answers were decoded", CPU or found > 0, found)
    check("no slots are lent when all is over", not server.metric("coppice_expert_slots_lent") or CPU,
          server.metric("coppice_expert_slots_lent"))
    equal("alone, after others", run(server, wanted[0][0]), wanted[0][1])
    server.end()


if __name__ == "__main__":
    target = synth(SHAPE, "t.gguf", "--layers", str(LAYERS), "--quant", "q4_k_m")
    draft = synth(DRAFT, "d.gguf", "--quant", "q4_k_m")
    try:
        whole = Server(*OPTIONS, model=target, draft=draft)
        wanted = [(body, run(whole, body)) for body in cases()]
        whole.end()
        part(lend)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    check("the answers are not all alike", len({str(w["ids"]) for _, w in wanted}) >= 5)
    finish()
