# SPDX-License-Identifier: Apache-2.0
"""Published model files against committed answers of other implementations (tests/fixtures/real, made by
tools/oracle/real_fixtures.py, llama_rows.py and llama_types.py): ids of texts, what follows prompts, chat templates, bytes
and perplexity of other types of weights; that guessing ahead changes no bit; a conversation by SDKs. Standard library
only, but for the conversation, which is skipped where there are no packages openai and anthropic.
Usage: test_real.py PROGRAM FOLDER [--all] [--device NAME]; the folder has the files of scripts/real.sh. --all: all types of
weights, of which a few are tried without. With --device cuda what a GPU computes, on each path of its kernels, by a
program that may be built without a server. The last line is "N passed, N failed".
"""
import argparse
import json
import os
import re
import subprocess
import sys
import tempfile

import sources
from tensors import digest

sys.path.insert(0, os.path.join(sources.ROOT, "tests/server"))
import suite  # noqa: E402

FIXTURES = os.path.join(suite.ROOT, "tests/fixtures/real")
FILES = {"smollm2": "SmolLM2-135M-Instruct.Q4_1.gguf", "gemma3": "gemma-3-270m-q4_k_m.gguf"}
# Drafts that come with the program.
DRAFTS = {"smollm2": os.path.join(suite.ROOT, "models/drafts/smollm2-135m-instruct-dflash2.gguf")}
# Of each file, rows whose likeliest token is not that of float32, at most, and how much float32 prefers its own there
# (natural logarithm). Weights are the same; activations have eight bits here, and in llama.cpp.
BOUNDS = {"smollm2": (15, 0.4), "gemma3": (15, 0.4)}
# How far log-probabilities may be from those of float32, as a multiple of how far llama.cpp's are; 0.98 and 0.74 are.
FARTHER = 1.1
# The perplexity of a type of weights, as a multiple of what llama.cpp finds with the same bytes.
WORSE = 1.02
# Types of code books, encoded otherwise by this llama.cpp; ours are the bytes of an older one
# (tools/oracle/compare_quantize.py).
OTHER_BYTES = ("IQ1", "IQ2", "IQ3")
FEW = {"smollm2": ["Q4_K_M", "Q2_K_S"], "gemma3": ["Q8_0", "Q4_0"]}


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


def distance(pairs):
    """Mean distance of log-probabilities from others of the same tokens, up to a number that all of them share."""
    shift = sum(a - b for a, b in pairs) / len(pairs)
    return sum(abs(a - b - shift) for a, b in pairs) / len(pairs)


def follows(name, model, way, options):
    """The rows of each prompt and its continuation by float32, in one pass."""
    theirs = rows_of(name, "llama")
    cases = rows_of(name, "rows")
    others = margin = rows = 0
    ours, llama, equal = [], [], []
    for case, other in zip(cases, theirs[1:], strict=True):
        text = case["ids"] + case["next"][:-1]
        out = json.loads(run("logits", "-m", model, *options, "--ids", ",".join(map(str, text)), "--all", "--top", "100",
                             "--json").stdout)
        seen = [{t["id"]: t["logit"] for t in row["top"]} for row in out["rows"][len(case["ids"]) - 1:]]
        best = [next(iter(logit)) for logit in seen]
        for logit, first, want, same in zip(seen, best, case["top"], other["same"], strict=True):
            rows += 1
            if first != want[0][0]:
                others += 1
                margin = max(margin, want[0][1] - dict(want).get(first, -1e9))
            ours.append(distance([(logit.get(i, -1e9), p) for i, p in want]))
            llama.append(distance([(q, p) for (_, p), q in zip(want, same, strict=True)]))
        if best == case["next"]:
            equal.append(case)
    off, far = sum(ours) / rows, sum(llama) / rows
    wrong = sum(row[0][0] != want[0][0] for case, other in zip(cases, theirs[1:]) for row, want in zip(other["top"], case["top"]))
    whole = sum(case["next"] == other["next"] for case, other in zip(cases, theirs[1:]))
    print(f"         {name}, {way}: distance from float32 {off:.4f}, of llama.cpp ({theirs[0]['build']}) {far:.4f}: "
          f"{'ours' if off <= far else 'llama.cpp'} is nearer; likeliest tokens that differ {others} and {wrong} of {rows}, by at "
          f"most {margin:.3f}; continuations that are equal {len(equal)} and {whole} of {len(cases)}")
    most, largest = BOUNDS[name]
    suite.check(f"{name}, {way}: likeliest tokens as by float32", others <= most and margin <= largest, (others, margin))
    suite.check(f"{name}, {way}: about as near to float32 as llama.cpp", off <= FARTHER * far, (off, far))
    return equal


def chats(name, model):
    for i, case in enumerate(rows_of(name, "chats")):
        with tempfile.NamedTemporaryFile("w", suffix=".json") as f:
            json.dump({"messages": case["messages"], "add_generation_prompt": True}, f)
            f.flush()
            seen = run("template", "-m", model, "--messages", f.name).stdout.decode()
        suite.equal(f"{name}: chat {i + 1} as jinja2 renders it", seen, case["text"])


def hash_of(done):
    return re.search(r"logit hash (\w+)", done.stderr.decode())[1], done.stdout


def guesses(name, model, way, options, how, *more, passes):
    """After a prompt that repeats itself; a fixed number of guesses, as auto follows measured times."""
    ids = ",".join(map(str, rows_of(name, "rows")[-1]["ids"]))
    common = ["generate", "-m", model, *options, "--ids", ids, "-n", "64", "--ignore-eos", "--logit-hash", "--budget", "8"]
    plain, guessed = run(*common, "--speculate", "off"), run(*common, "--speculate", how, *more)
    suite.equal(f"{name}, {way}: {how} gives the bits of plain", hash_of(guessed), hash_of(plain))
    took = int(re.search(r"(\d+) passes", guessed.stderr.decode())[1])
    suite.check(f"{name}, {way}: guesses of {how} were taken", took < passes, took)


def lookup(name, model, way, options):
    guesses(name, model, way, options, "lookup", passes=50)


def drafted(name, model, way, options):
    """The draft that comes with the program."""
    guesses(name, model, way, options, "tree", "--no-lookup", "-d", DRAFTS[name], passes=40)


def found(name, model):
    """chat takes that draft by itself, and does without where it is told to."""
    def said(*more):
        done = subprocess.run([suite.PROGRAM, "chat", "-m", model, "--device", "cpu", "--temp", "0", "-n", "24", *more],
                              input=b"Write a list of three animals.\n", capture_output=True, timeout=300)
        return done.stdout, b"which comes with this program" in done.stderr
    (with_draft, taken), (without, other) = said(), said("-d", "none")
    suite.check(f"{name}: chat finds the draft of the program", taken and not other, (taken, other))
    suite.equal(f"{name}: the same answer with it and without", with_draft, without)


def perplexity(model, *options):
    return json.loads(run("perplexity", "-m", model, "-c", "512", "--windows", "1", "--json", *options).stdout)["perplexity"]


def reads_text(name, model):
    suite.equal(f"{name}: perplexity of a file, and of its ids by another tokenizer", perplexity(model, "-f", sources.TEXT),
                perplexity(model, "--ids", sources.ids(name, 0)))


def quantised(name, model, types, ways):
    """Each type of weights: the bytes of llama.cpp, and the perplexity that it finds with them, on each path."""
    known = {row["type"]: row for row in rows_of(name, "types")[1:]}
    with tempfile.TemporaryDirectory() as folder:
        full, matrix, out = (os.path.join(folder, n) for n in ("f16.gguf", "imatrix.gguf", "out.gguf"))
        sources.make(run, name, model, full, matrix if set(types) & set(sources.WEIGHTED) else None)
        for kind in types:
            run("quantize", *(["--imatrix", matrix] if kind in sources.WEIGHTED else []), full, out, kind)
            if kind in known and not kind.startswith(OTHER_BYTES):
                suite.equal(f"{name}: {kind} has the bytes of llama.cpp", digest(out), known[kind]["sha256"])
            for way, options in ways:
                seen = perplexity(out, *options, "--ids", sources.ids(name, 0))
                other = known[kind]["perplexity"] if kind in known else None
                print(f"         {name}, {way}: perplexity of {kind} {seen:.3f}, of llama.cpp {other}")
                if other:
                    suite.check(f"{name}, {way}: {kind} predicts as with llama.cpp", seen <= WORSE * other, (seen, other))
            os.unlink(out)


def conversation(name, model, cases):
    try:
        import conversation as talk
    except ImportError as error:
        print(f"skipped  {name}: conversation: {error}; scripts/test_server.sh makes build/server-venv, which has it")
        return
    talk.hold(model, cases)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("folder")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--device", default="cpu")
    a = parser.parse_args()
    on_cpu = a.device == "cpu"
    ways = [("cpu", ["--device", "cpu"])] if on_cpu else [
        (path, ["--device", a.device, "--cuda-path", path]) for path in ("auto", "mma", "small")]

    for name, file in FILES.items():
        model = os.path.join(a.folder, file)
        equal = []

        def part(function, *words, name=name, model=model):
            def each():
                return function(name, model, *words)
            each.__name__ = f"{name}: {function.__name__}"
            return suite.part(each)
        for way in ways:
            equal = part(follows, *way) or []
            part(lookup, *way)
            if name in DRAFTS:
                part(drafted, *way)
        if on_cpu:
            for function in (ids, chats, reads_text):
                part(function)
            if name in DRAFTS:
                part(found)
                part(conversation, equal[:3])
        part(quantised, sources.TYPES if a.all else FEW[name], ways)
    suite.finish()


main()
