# SPDX-License-Identifier: Apache-2.0
"""Writes tests/fixtures/real/NAME-llama.jsonl: what llama.cpp answers where real_fixtures.py has float32's answers.

The first line says which build of which program it was. Then for each prompt of NAME-rows.jsonl: its own greedy
continuation, `next`; and along float32's continuation, at each position, its ten likeliest tokens with natural
log-probabilities, `top`, and its log-probabilities of float32's ten, `same`, in float32's order. Every token is asked
for by itself. Standard library only.

Usage: llama-server -m FILE --port PORT -np 1 -c 2048, then python llama_rows.py PORT NAME [FOLDER]
"""
import json
import os
import sys
import urllib.request

TOP, ASKED = 10, 200  # of 200 likeliest, those that are float32's ten


def ask(port, path, body=None):
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", data, timeout=600) as answer:
        return json.load(answer)


def row(port, ids):
    """The likeliest tokens after `ids`, with their log-probabilities: those before `logit_bias`, which makes a letter of
    the token that is generated, as for an end or half a character the server lists none."""
    body = {"prompt": ids, "n_predict": 1, "temperature": 0, "n_probs": ASKED, "post_sampling_probs": False,
            "logit_bias": [["a", 1000]], "cache_prompt": True}
    found = ask(port, "/completion", body)["completion_probabilities"][0]["top_logprobs"]
    return [(t["id"], t["logprob"]) for t in found]


def answers(port, case):
    own, top, same = [], [], []
    for _ in case["next"]:
        own.append(row(port, case["ids"] + own)[0][0])
    for i, want in enumerate(case["top"]):
        seen = row(port, case["ids"] + case["next"][:i])
        top.append([[t, round(p, 4)] for t, p in seen[:TOP]])
        same.append([round(dict(seen)[t], 4) for t, _ in want])
    return {"next": own, "top": top, "same": same}


def main():
    port, name = sys.argv[1:3]
    here = os.path.dirname(os.path.abspath(__file__))
    folder = sys.argv[3] if len(sys.argv) > 3 else os.path.join(here, "../../tests/fixtures/real")
    with open(os.path.join(folder, f"{name}-rows.jsonl"), encoding="ascii") as f:
        cases = [json.loads(line) for line in f]
    by = {"program": "llama.cpp", "build": ask(port, "/props")["build_info"]}
    rows = [by] + [answers(port, case) for case in cases]
    with open(os.path.join(folder, f"{name}-llama.jsonl"), "w", encoding="ascii") as f:
        for line in rows:
            f.write(json.dumps(line, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
