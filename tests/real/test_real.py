# SPDX-License-Identifier: Apache-2.0
"""Published model files against committed answers of other implementations (tests/fixtures/real, made by
tools/oracle/real_fixtures.py): ids of texts, what follows prompts, chat templates; and that guessing ahead and other
types of weights do what they should on real weights. Standard library only.
Usage: test_real.py PROGRAM FOLDER [--all]; the folder has the files of scripts/real.sh. The last line is "N passed, N failed".
"""
import json
import os
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../server"))
import suite  # noqa: E402

FIXTURES = os.path.join(suite.ROOT, "tests/fixtures/real")
FILES = {"smollm2": "SmolLM2-135M-Instruct.Q4_1.gguf", "gemma3": "gemma-3-270m-q4_k_m.gguf"}
# Of each file, rows whose likeliest token is not the reference's, at most, and how much the reference prefers its own
# there (natural logarithm); the mean of how far the log-probabilities of its ten likeliest are off. Weights are
# the same; activations have eight bits here.
BOUNDS = {"smollm2": (15, 0.4, 0.1), "gemma3": (15, 0.4, 0.1)}
FEW = {"Q8_0": 1.02, "Q4_0": 1.45, "Q4_K_M": 1.15}  # with how often the file's own perplexity it has at most
ALL = ["F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q2_K", "Q3_K_S", "Q3_K_M", "Q3_K_L", "Q4_K_S", "Q4_K_M",
       "Q5_K_S", "Q5_K_M", "Q6_K", "IQ4_NL", "IQ4_XS", "IQ3_S", "IQ3_M", "TQ1_0", "TQ2_0"]
CODE = "".join(f"def {name}(a, b):\n    return a {sign} b\n\n" for name, sign in
               (("add", "+"), ("sub", "-"), ("mul", "*"), ("div", "/"))) + "def"


def run(*command, timeout=600):
    done = subprocess.run([suite.PROGRAM, *command], capture_output=True, timeout=timeout)
    if done.returncode:
        raise RuntimeError(f"coppice {command[0]}: {done.stderr.decode(errors='replace')}")
    return done


def rows_of(name, what):
    with open(os.path.join(FIXTURES, f"{name}-{what}.jsonl"), encoding="ascii") as f:
        return [json.loads(line) for line in f]


def ids(name, model):
    """Each text's ids, and the text that they stand for."""
    server = suite.Server(model=model, draft=False)
    wrong = []
    for row in rows_of(name, "ids"):
        body = {"content": row["text"], "add_special": False, "parse_special": True}
        seen = json.loads(suite.request(server.port, "POST", "/v1/tokenize", body)[2])["tokens"]
        if seen != row["ids"]:
            wrong.append((row["text"], seen, row["ids"]))
    suite.check(f"{name}: ids of {len(rows_of(name, 'ids'))} texts", not wrong, wrong[:3])
    server.end()


def follows(name, model):
    """The rows of each prompt and its continuation in one pass."""
    others = margin = off = n = rows = 0
    for case in rows_of(name, "rows"):
        text = case["ids"] + case["next"][:-1]
        out = json.loads(run("logits", "-m", model, "--ids", ",".join(map(str, text)), "--all", "--top", "100", "--json").stdout)
        for seen, want in zip(out["rows"][len(case["ids"]) - 1:], case["top"], strict=True):
            logit = {t["id"]: t["logit"] for t in seen["top"]}
            best, rows = want[0], rows + 1
            if seen["top"][0]["id"] != best[0]:
                others += 1
                rival = dict(want).get(seen["top"][0]["id"], -1e9)
                margin = max(margin, best[1] - rival)
            both = [(logit[i], p) for i, p in want if i in logit]
            shift = sum(a - b for a, b in both) / len(both)
            off, n = off + sum(abs(a - b - shift) for a, b in both), n + len(both)
    most, largest, mean = BOUNDS[name]
    print(f"         {name}: {others} of {rows} likeliest tokens differ, by at most {margin:.3f}; "
          f"log-probabilities of ten are off by {off / n:.4f} in the mean")
    suite.check(f"{name}: likeliest tokens as by float32", others <= most and margin <= largest, (others, margin))
    suite.check(f"{name}: log-probabilities as by float32", n > 9 * rows and off / n <= mean, (n, off / n))


def chats(name, model):
    for i, case in enumerate(rows_of(name, "chats")):
        with tempfile.NamedTemporaryFile("w", suffix=".json") as f:
            json.dump({"messages": case["messages"], "add_generation_prompt": True}, f)
            f.flush()
            seen = run("template", "-m", model, "--messages", f.name).stdout.decode()
        suite.equal(f"{name}: chat {i + 1} as jinja2 renders it", seen, case["text"])


def hash_of(done):
    return re.search(r"logit hash (\w+)", done.stderr.decode())[1], done.stdout


def lookup(name, model):
    common = ["generate", "-m", model, "-p", CODE, "-n", "64", "--ignore-eos", "--logit-hash"]
    plain, guessed = (run(*common, "--speculate", how) for how in ("off", "lookup"))
    suite.equal(f"{name}: lookup gives the bits of plain", hash_of(guessed), hash_of(plain))
    passes = int(re.search(r"(\d+) passes", guessed.stderr.decode())[1])
    suite.check(f"{name}: guesses were taken", passes < 60, passes)


def perplexity(model):
    """Of the first window of a text that does not change."""
    text = os.path.join(suite.ROOT, "LICENSE")
    return json.loads(run("perplexity", "-m", model, "-f", text, "-c", "512", "--windows", "1", "--json").stdout)["perplexity"]


def quantised(name, model, types):
    own = perplexity(model)
    suite.check(f"{name}: perplexity of the licence", 5 < own < 20, own)
    for kind in types:
        with tempfile.TemporaryDirectory() as folder:
            out = os.path.join(folder, "out.gguf")
            run("quantize", "--allow-requantize", model, out, kind)
            seen = perplexity(out)
            print(f"         {name}: perplexity of {kind} {seen:.3f}, {seen / own:.3f} of the file's")
            suite.check(f"{name}: {kind} predicts as it did", seen <= FEW.get(kind, 1e9) * own, (seen, own))


def main():
    types = ALL if "--all" in sys.argv[3:] else list(FEW)
    for name, file in FILES.items():
        model = os.path.join(sys.argv[2], file)
        for part in (ids, follows, chats, lookup, quantised):
            def each(part=part, name=name, model=model):
                part(name, model, *([types] if part is quantised else []))
            each.__name__ = f"{name}: {part.__name__}"
            suite.part(each)
    suite.finish()


main()
