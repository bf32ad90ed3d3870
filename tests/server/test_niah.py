#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`bench/niah.py`: the cases of a seed are the same bytes on every machine, of the length and with the facts asked for;
what a scorer keeps is counted and found; what makes no sense is refused.
"""
import hashlib
import json
import os
import subprocess
import tempfile

from suite import PROGRAM, ROOT, SCORER, TARGET, check, equal, finish, part

# Of all cases of 1,024 tokens, and of those of a file.
WANTED = {(): "055334bac792e1eb9bb35ae739dee3d9d48e7ba29036a19cfb7a24823b5a85f1",
          ("--filler-file", os.path.join(ROOT, "tests/fixtures/niah.txt"), "--seed", "9", "--depths", "30"): "7c342205e978191fe66b21a68b28ee51202f6895d399e60cb183ce4397cf72dc"}


def niah(*options, model=TARGET):
    return subprocess.run(["python3", os.path.join(ROOT, "bench/niah.py"), PROGRAM, "-m", model, *options],
                          capture_output=True, text=True, timeout=600, check=False)


def same_bytes():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "cases.jsonl")
        for options, wanted in WANTED.items():
            done = niah("--prompt-tokens", "1024", "--out", path, *options)
            equal("cases are written", (done.returncode, done.stderr), (0, ""))
            with open(path, "rb") as file:
                text = file.read()
            equal(f"bytes of {options[2:]}", hashlib.sha256(text).hexdigest(), wanted)
        cases = [json.loads(line) for line in text.splitlines()]
        for case in cases:
            whole = case["prompt"].encode()
            facts = [whole[d["value_begin"]:d["end"]].startswith(d["value"].encode()) and whole.count(d["value"].encode()) == 1
                     for d in case["needles"]]
            check(f"{case['id']}: facts stand where it says", facts and all(facts), case["needles"])
            check(f"{case['id']}: length", 1024 - 48 <= case["tokens"] <= 1024, case["tokens"])
            asked = whole[case["question"]:].decode()
            check(f"{case['id']}: the question names all", all(d["key"] in asked for d in case["needles"]), asked)


def measured():
    done = niah("--prompt-tokens", "2048", "--fillers", "code", "--kinds", "uuid", "--needles", "1", "--depths", "30",
                "--prefill-drafter", SCORER, "--prefill-keep-ratio", "0.1", "--ways", "scorer,random", "--json")
    scorer, chance = json.loads(done.stdout)["overall"]
    equal("the scorer keeps the fact, and the model finds it", (scorer["kept"], scorer["found"]), (1, 1))
    check("in a tenth", 0 < chance["to"] <= scorer["to"] <= scorer["from"] / 10, (scorer, chance))
    check("time", 0 < scorer["shorten_ms"] < scorer["first_token_ms"], scorer)
    done = niah("--prompt-tokens", "1024", "--fillers", "prose", "--kinds", "number", "--needles", "4", "--depths", "0",
                "--", "--max-ctx", "512")
    row = done.stdout.splitlines()[-1].split()
    equal("a context that is too small is counted", row[:3] + row[-1:], ["all", "dense", "1", "1"])


def refused():
    for words, options in [("too few", ["--prompt-tokens", "64"]), ("prise", ["--fillers", "prise"]),
                           ("twice", ["--kinds", "uuid,uuid"]), ("101", ["--depths", "101"]), ("empty", ["--filler-file", "/dev/null"]),
                           ("--prefill-drafter", ["--ways", "scorer"]), ("written over", ["--filler-file", __file__])]:
        done = niah("--out", __file__ if "over" in words else "/dev/null", *options)
        check(f"refused: {words}", done.returncode and words in done.stderr, done.stderr)
    with tempfile.TemporaryDirectory() as folder:  # parts of a model, of which the second is named as the output
        parts = [os.path.join(folder, f"model-0000{k}-of-00002.gguf") for k in (1, 2)]
        for part_of in parts:
            os.symlink(TARGET, part_of)
        for out in (TARGET, parts[1]):
            done = niah("--out", out, model=parts[0])
            check(f"refused: over {os.path.basename(out)}", done.returncode and "written over" in done.stderr, done.stderr)


for function in [same_bytes, measured, refused]:
    part(function)
finish()
