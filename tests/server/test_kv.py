#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`coppice bench kv` against `coppice perplexity` and `coppice bench` with the same codecs: its table holds their digits.
"""
import json
import os
import subprocess
import tempfile

from suite import DRAFT, PROGRAM, ROOT, TARGET, check, equal, finish, part

WINDOW, WINDOWS = 64, 3
folder = tempfile.TemporaryDirectory()
text = os.path.join(folder.name, "text")
prompts = os.path.join(folder.name, "prompts")
cases = os.path.join(folder.name, "cases")
scratch = os.path.join(folder.name, "scratch")
TEXT = ["-f", text, "--windows", str(WINDOWS)]


def start(*options):
    return subprocess.run([PROGRAM, *options], capture_output=True, text=True, timeout=600, stdin=subprocess.DEVNULL,
                          env=os.environ | {"TMPDIR": scratch}, check=False)


def result(*options):
    done = start(*options, "--json")
    if done.returncode:
        raise RuntimeError(done.stderr)
    return json.loads(done.stdout)


def table(*options):
    return result("bench", "kv", "-m", TARGET, *TEXT, "--window", str(WINDOW), *options)


def write_inputs():
    os.mkdir(scratch)
    with open(os.path.join(ROOT, "LICENSE"), encoding="utf-8") as file:
        words = file.read()[:4000]
    with open(text, "w", encoding="utf-8") as file:
        file.write(words)
    with open(os.path.join(ROOT, "bench/prompts/code.jsonl"), encoding="utf-8") as file:
        lines = file.readlines()[:2]
    with open(prompts, "w", encoding="utf-8") as file:
        file.writelines(lines)


def texts():
    """Every number over the text is that of two runs of perplexity."""
    seen = table("--pairs", "q8_0,Q4_0/q8_0,tq3_0/q5_1,f16,q8_0/q8_0")
    equal("pairs, each once, f16 first", [(p["k"], p["v"]) for p in seen["pairs"]],
          [("f16", "f16"), ("q8_0", "q8_0"), ("q4_0", "q8_0"), ("tq3_0", "q5_1")])
    equal("bits a value", [p["bits"] for p in seen["pairs"]], [16, 8.5, 6.5, 4.75])
    reference = os.path.join(folder.name, "reference")
    run = ["perplexity", "-m", TARGET]
    f16 = result(*run, *TEXT, "-c", str(WINDOW), "--save-logits", reference)
    equal("what was scored", [seen[key] for key in ("tokens", "windows", "window")],
          [f16[key] for key in ("tokens", "windows", "window")])
    for pair in seen["pairs"]:
        name = f"{pair['k']}/{pair['v']}"
        other = result(*run, "--kl-reference", reference, "--kv-type-k", pair["k"], "--kv-type-v", pair["v"])
        equal(f"{name}: perplexity", (pair["perplexity"], pair["perplexity_error"]), (other["perplexity"], other["error"]))
        equal(f"{name}: divergence", pair["kl"], {key: other["kl"][key] for key in ("mean", "error", "p99", "max")})
        equal(f"{name}: same likeliest token", pair["same_top"], other["same_top"])
        check(f"{name}: over f16's", abs(pair["over_f16"] - other["perplexity"] / f16["perplexity"]) < 1e-9, pair)
    check("coarser codecs are further away", 0 < seen["pairs"][1]["kl"]["mean"] < seen["pairs"][3]["kl"]["mean"], seen)
    equal("without a draft, needles and lengths nothing of them is said",
          [key for key in seen["pairs"][1] if key.startswith(("accept", "needles", "step"))], [])
    equal("nothing is left in TMPDIR", os.listdir(scratch), [])


def guesses():
    """Accepted guesses are those of bench with that pair."""
    run = ["--prompts", prompts, "-d", DRAFT, "-n", "24", "--price-cache", "off"]
    for budget, size in ([], 22), (["--budget", "9"], 9):
        seen = table("--pairs", "tq3_0/q4_0", *run, *budget)
        equal("size of the tree", seen["budget"], size)
        for pair in seen["pairs"]:
            other = result("bench", "-m", TARGET, *run, *budget, "--modes", f"off,tree:{size}", "--kv-type-k", pair["k"],
                           "--kv-type-v", pair["v"])["overall"][f"tree:{size}"]
            keys = ["steps", "drafted", "accept_length", "accept_rate"]
            equal(f"{pair['k']}/{pair['v']}: guesses", [pair[key] for key in keys], [other[key] for key in keys])
            equal("they change no answer", pair["equal"], True)


def needles():
    """Facts are counted one by one, and steps are timed after each length."""
    done = subprocess.run(["python3", os.path.join(ROOT, "bench/niah.py"), PROGRAM, "-m", TARGET, "--prompt-tokens", "1024",
                           "--fillers", "code", "--kinds", "uuid", "--needles", "1", "--depths", "30", "--out", cases],
                          capture_output=True, text=True, timeout=600, check=False)
    equal("cases are written", (done.returncode, done.stderr), (0, ""))
    with open(cases, encoding="utf-8") as file:
        case = json.load(file)
    case["needles"] += [{"value": "not in any text"}, {"value": "nor this one"}]
    with open(cases, "a", encoding="utf-8") as file:
        file.write(json.dumps(case) + "\n")
    seen = table("--pairs", "q8_0", "--needles", cases, "--prompt-tokens", "40,20,70")
    equal("facts found of those asked for", [(p["needles_found"], p["needles"]) for p in seen["pairs"]], [(2, 4)] * 2)
    check("tokens of the longest", 900 < seen["needle_tokens"] < 1100, seen["needle_tokens"])
    equal("lengths", seen["step_tokens"], [40, 20, 70])
    check("a time for each length", all(len(p["step_ms"]) == 3 and min(p["step_ms"]) > 0 for p in seen["pairs"]), seen)
    short = table("--pairs", "q8_0", "--needles", cases, "-n", "1")
    equal("an answer of one token holds no fact", [p["needles_found"] for p in short["pairs"]], [0, 0])


def shown():
    """The table is one of Markdown with as many columns in each row."""
    done = start("bench", "kv", "-m", TARGET, *TEXT, "--window", str(WINDOW), "--pairs", "q4_1", "--prompt-tokens", "9")
    rows = [line for line in done.stdout.splitlines() if line.startswith("|")]
    equal("rows", [row.split("|")[1].strip() for row in rows], ["keys/values", "---", "f16/f16", "q4_1/q4_1"])
    equal("columns", [row.count("|") for row in rows], [8] * 4)
    equal("a line for each pair", [line.split(",")[0] for line in done.stderr.splitlines()],
          ["1 of 2 pairs: f16/f16", "2 of 2 pairs: q4_1/q4_1"])


def bad_input():
    plain = os.path.join(folder.name, "plain")
    with open(plain, "w", encoding="utf-8") as file:
        file.write('{"prompt": "x"}\n')
    for words, options in [("not 'q9'", ["--pairs", "q8_0,q9"]), ("not ''", ["--pairs", "q8_0/"]), ("not 'q8_0/q8_0'", ["--pairs", "q8_0/q8_0/q8_0"]),
                           ("--kv-type-k has no meaning", ["--kv-type-k", "q8_0"]), ("-d and --prompts together", ["-d", DRAFT]),
                           ("-d and --prompts together", ["--prompts", prompts]), ("no draft", ["-d", "none", "--prompts", prompts]),
                           ("no needles", ["--needles", plain]), ("less than a window", ["--window", "60000"]),
                           ("longer than the context", ["--window", "200", "--max-ctx", "100"]), ("more than 16", ["--prompt-tokens", ",".join(["9"] * 17)])]:
        done = start("bench", "kv", "-m", TARGET, "-f", text, *options)
        check(f"refused: {words}", done.returncode in (1, 2) and words in done.stderr and done.stderr.count("\n") == 1 and
              not done.stdout, (done.returncode, done.stderr))
    for line, words in [('{"prompt": "x", "needles": 3}', 'needles" that are no array'), ('{"prompt": "x", "needles": [{}]}', "without a text"),
                        ('{"prompt": "x", "needles": [{"value": ""}]}', "without a text")]:
        with open(plain, "w", encoding="utf-8") as file:
            file.write(line)
        done = start("bench", "kv", "-m", TARGET, "-f", text, "--needles", plain)
        check(f"refused: {line}", done.returncode == 1 and words in done.stderr and "line 1" in done.stderr, done.stderr)
    equal("nothing is left in TMPDIR", os.listdir(scratch), [])


write_inputs()
for function in [texts, guesses, needles, shown, bad_input]:
    part(function)
finish()
