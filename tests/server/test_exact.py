#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Exactness through the server: the same request gives the same tokens, the same logit hash and the
same text alone or among others that join and leave, streamed or not, however tokens are guessed.
"""
import http.client
import json
import random
import threading
import time

from suite import Server, ask, check, equal, finish, part

WORDS = ("river stone light under house green table seven water cloud paper night early clear field "
         "horse metal north plain quick").split()
GUESSES = ["off", "lookup", "chain", "tree", "auto"]
server = None


def cases():
    """16 requests that differ in all that may matter: endpoint, lengths, sampling, stops."""
    draw = random.Random(7)
    for i in range(16):
        text = " ".join(draw.choice(WORDS) for _ in range(draw.choice([3, 20, 70, 300])))
        body = {"model": "m", "max_tokens": draw.choice([1, 17, 40, 64]), "seed": 1000 + i,
                "temperature": draw.choice([0, 0, 0.7, 1.2])}
        if i % 3 == 1:
            body.update(top_p=0.9, top_k=40, min_p=0.02)
        if i % 4 == 2:
            body.update(frequency_penalty=0.5, presence_penalty=0.2, repetition_penalty=1.1)
        if i % 5 == 3:
            body.update(logit_bias={"300": 5, "301": -100})
        if i % 5 == 4:
            body.update(stop=["e", "\n\n"] if i % 2 else "the ", max_tokens=64)
        if i % 6 == 5:
            body.update(stop_token_ids=list(range(300, 400)), min_tokens=min(12, body["max_tokens"]))
        if i % 2:
            yield "/v1/completions", {**body, "prompt": text + " def "}
        else:
            yield "/v1/chat/completions", {**body, "messages": [
                {"role": "system", "content": "Answer in few words."}, {"role": "user", "content": text}]}


def run(case, stream=False, how=None):
    """What must not change of a request: ids, hash, text, finish."""
    path, body = case
    extra = {"logit_hash": True, "token_ids": True, **({"speculate": how} if how else {})}
    full = {**body, "stream": stream, "coppice": extra}
    if stream:
        full["stream_options"] = {"include_usage": True}
    r = ask(server.port, path, full)
    ids = r["coppice"]["token_ids"]
    return {"ids": ids, "hash": r["coppice"]["logit_hash"], "texts": r["texts"],
            "reasonings": r["reasonings"], "finishes": r["finishes"],
            "completion_tokens": r["usage"]["completion_tokens"]}


def leave(case, after):
    """Begins a stream and goes away after some events."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    path, body = case
    connection.request("POST", path, json.dumps({**body, "stream": True, "max_tokens": 200,
                                                 "ignore_eos": True}),
                       {"Content-Type": "application/json"})
    answer = connection.getresponse()
    for _ in range(2 * after):
        answer.readline()
    connection.sock.close() if connection.sock else None
    answer.close()
    connection.close()


def alone():
    for i, case in enumerate(wanted):
        for how in GUESSES:
            equal(f"request {i} alone, {how}, streamed", run(case[0], True, how), case[1])
        equal(f"request {i} alone, as the server chooses", run(case[0]), case[1])


def together():
    draw = random.Random(11)
    for turn, how in enumerate(["off", "tree", None]):
        seen = [None] * len(wanted)

        def one(i, delay, stream, how=how):
            time.sleep(delay)
            try:
                seen[i] = run(wanted[i][0], stream, how or draw.choice(GUESSES))
            except Exception as error:
                seen[i] = error

        threads = [threading.Thread(target=one, args=(i, draw.random() * 0.3, i % 2 == turn % 2))
                   for i in range(len(wanted))]
        threads += [threading.Thread(target=leave, args=(wanted[draw.randrange(16)][0], draw.randrange(6)))
                    for _ in range(8)]
        draw.shuffle(threads)
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        for i, case in enumerate(wanted):
            equal(f"request {i} among 24, guessing {how or 'at random'}", seen[i], case[1])
    check("those that left hold no slot", server.calm())


def choices():
    body = {"prompt": "def add(a, b):", "max_tokens": 24, "seed": 5, "temperature": 1, "n": 4}
    three = run(("/v1/completions", body))
    equal("n = 4: the answers are those of another time", run(("/v1/completions", body), True, "off"), three)
    check("n = 4: they differ", len(set(three["texts"].values())) > 1, three["texts"])
    single = run(("/v1/completions", {**body, "n": 1}))
    equal("n = 4: the first one is that of n = 1", (three["ids"][0], three["texts"][0]),
          (single["ids"][0], single["texts"][0]))
    prompts = ["def add(a, b):", "The river ", "def add(a, b):"]
    many = run(("/v1/completions", {**body, "n": 1, "prompt": prompts}))
    for i, prompt in enumerate(prompts):
        one = run(("/v1/completions", {**body, "n": 1, "prompt": prompt}))
        equal(f"several prompts: answer {i} is that of its prompt",
              (many["ids"][i], many["texts"][i]), (one["ids"][0], one["texts"][0]))


if __name__ == "__main__":
    server = Server()
    wanted = [(case, run(case, how="off")) for case in cases()]
    for function in [alone, together, choices]:
        part(function)
    check("the requests are not all alike", len({str(w["ids"]) for _, w in wanted}) >= 14)
    check("some stopped, some were cut", {"stop", "length"} <= {w["finishes"][0] for _, w in wanted})
    finish()
