#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The checks of scripts/gate.sh, which says what they are. A check is one command (or one server with its clients and
`verify`) with a seed of its own; they go round the models until enough tokens have been compared. Standard library only.
"""
import argparse
import concurrent.futures
import hashlib
import http.client
import json
import os
import platform
import random
import re
import signal
import socket
import subprocess
import sys
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PAIR = ("models/coppice-tiny-q8_0.gguf", "models/coppice-tiny-dflash-q8_0.gguf")
REAL = {"smollm2-135m q4_1": "SmolLM2-135M-Instruct.Q4_1.gguf", "gemma3-270m q4_k_m": "gemma-3-270m-q4_k_m.gguf"}
SHAPES = ("llama", "qwen2", "qwen3", "qwen35", "gemma3", "gemma4", "gpt-oss", "deepseek2", "laguna", "qwen3moe", "qwen35moe",
          "glm4moe", "gemma4moe")
QUANTS = ("Q8_0", "Q4_K_M", "Q4_0", "F16", "Q6_K")
LIMIT = 900  # seconds of one check
PARAMETERS = {"type": "object", "required": ["city"], "properties": {
    "city": {"type": "string", "maxLength": 16}, "days": {"type": "integer", "minimum": 1, "maximum": 14}}}
TOOLS = [{"type": "function", "function": {"name": "weather", "description": "The weather of a city", "parameters": PARAMETERS}},
         {"type": "function", "function": {"name": "clock", "parameters": {"type": "object", "properties": {}}}}]
SCHEMA = {"type": "object", "additionalProperties": False, "required": ["name", "age", "tags"], "properties": {
    "name": {"type": "string", "maxLength": 24}, "age": {"type": "integer", "minimum": 0, "maximum": 150},
    "tags": {"type": "array", "maxItems": 3, "items": {"type": "string", "maxLength": 12}}}}
GBNF = 'root ::= ("yes" | "no") " because " [a-z ]{1,60} "."'


class Unsupported(Exception):
    """A device that has no kernel for a model."""


class Model:
    def __init__(self, name, path, draft=None, words=False, chat=False, slow=1):
        self.name, self.path, self.draft = name, path, draft
        self.words, self.chat = words, chat  # texts can be prompts; it has a chat template
        self.slow = slow  # fewer tokens a check


class Gate:
    def __init__(self, o):
        self.o = o
        self.lock = threading.Lock()
        self.done, self.children = {}, set()
        self.server = b"built without" not in subprocess.run(
            [o.program, "verify", "-m", "none.gguf", "--requests", "/dev/null"], capture_output=True, check=False).stderr
        os.makedirs(o.work, exist_ok=True)
        self.journal = os.path.join(o.work, "checks.jsonl")
        self.models = self.find_models()
        self.prompts = self.read_prompts()

    # Models.

    def synth(self, shape, quant, *more):
        path = os.path.join(self.o.work, f"{shape}-{quant}.gguf")
        if not os.path.exists(path):
            subprocess.run([self.o.program, "synth", "--shape", shape, "--quant", quant, *more, path + ".new"], check=True,
                           capture_output=True)
            os.rename(path + ".new", path)
        return path

    def find_models(self):
        draft = self.synth("dflash-tiny", "Q8_0")
        random_ones = [Model(f"{shape}-tiny {QUANTS[i % len(QUANTS)].lower()}",
                             self.synth(shape + "-tiny", QUANTS[i % len(QUANTS)]), draft) for i, shape in enumerate(SHAPES)]
        pair = Model("bundled pair", *PAIR, words=self.server, chat=True)
        real = [Model(name, os.path.join(self.o.real, file), words=self.server, chat="smollm2" in name, slow=4)
                for name, file in REAL.items() if self.o.real]
        if self.o.device != "cpu":  # shapes of published models, which a GPU is fast enough for
            real += [Model(shape, self.synth(shape, "Q4_K_M"), slow=2) for shape in ("qwen3-0.6b", "qwen35-0.8b", "gemma3-270m")]
        few = [pair, *real]  # they take turns with the random ones
        models = []
        for i, m in enumerate(random_ones):
            models += [m, few[i % len(few)]]
        return models

    def read_prompts(self):
        prompts = []
        for group in ("chat", "code", "docs", "edit"):
            with open(os.path.join(ROOT, "bench/prompts", group + ".jsonl"), encoding="utf-8") as file:
                prompts += [json.loads(line) for line in file]
        return prompts

    # Checks: each gives (what, answers, tokens, different).

    def options(self, draw, index):
        """Options that may change nothing, or that both sides have."""
        o = ["--max-ctx", "4096", "--chunk", str(draw.choice([0, 0, 7, 64])),
             "--kv-type", draw.choice(["f16", "f16", "q8_0", "bf16"]), "--threads", str(draw.choice(self.o.threads))]
        if self.o.device == "cpu":
            return [*o, "--device", "cpu"]
        return [*o, "--device", self.o.device, "--cuda-path", self.o.paths[index % len(self.o.paths)]]

    def modes(self, model, draw):
        drafter = []
        if not model.draft or draw.random() < 0.6:  # recordings with errors: trees that are often right
            drafter = ["--drafter", draw.choice(["oracle:errors=0.15", "oracle:errors=0.4", "oracle:al=6"])]
        if draw.random() < 0.3:
            drafter.append("--no-lookup")
        return [*(["-d", model.draft] if model.draft else []), *drafter, "--modes",
                f"off,lookup,chain:{draw.choice([4, 8, 16])},tree:{draw.choice([7, 22, 30])},tree:60,tree:auto"]

    def sampling(self, draw):
        return draw.choice([["--temp", "0"], ["--temp", "0.8", "--top-k", "40", "--top-p", "0.95", "--min-p", "0.05"],
                            ["--temp", "0.8"], ["--temp", "0.8", "--repeat-penalty", "1.1"]])

    def run(self, command):
        """Its result as JSON. A difference gives a result, too, and the status 1."""
        child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL)
        self.children.add(child)
        try:
            out, err = child.communicate(timeout=LIMIT)
        finally:
            child.kill()
            self.children.discard(child)
        try:
            value = json.loads(out)
        except ValueError:
            if b"use --device cpu" in err:
                raise Unsupported(err.decode(errors="replace").strip()) from None
            raise RuntimeError(f"status {child.returncode}: {err.decode(errors='replace')[-500:]}") from None
        return value, child.returncode

    def prompt_file(self, draw, name, n, tokens):
        path = os.path.join(self.o.work, name)
        with open(path, "w", encoding="utf-8") as file:
            for p in draw.sample(self.prompts, n):
                file.write(json.dumps({"id": p["id"], "prompt": p["prompt"][-4000:], "max_tokens": tokens}) + "\n")
        return path

    def alone(self, model, draw, index):
        tokens = 96 // model.slow
        what = ["--prompt-tokens", f"{draw.randrange(2, 70)},{draw.randrange(70, 700)}", "-n", str(tokens), "--ignore-eos"]
        path = None
        if model.words:
            path = self.prompt_file(draw, f"alone-{index}.jsonl", 3, tokens)
            what = ["--prompts", path]
        v, rc = self.run([self.o.program, "bench", "-m", model.path, *what, *self.modes(model, draw), *self.sampling(draw),
                          *self.options(draw, index), "--seed", str(draw.randrange(1 << 31)), "--json"])
        if path:
            os.unlink(path)
        sums = [s for mode, s in v["overall"].items() if mode != "off"]
        return "alone", sum(s["prompts"] for s in sums), sum(s["tokens"] for s in sums), sum(s["different"] for s in sums), rc

    def crowd(self, model, draw, index):
        counts = draw.choice([[2, 5], [3, 8], [16]])
        v, rc = self.run([self.o.program, "bench", "-m", model.path, "--prompt-tokens", str(draw.randrange(2, 300)), "-n",
                          str(max(48 // model.slow, 12)), "--ignore-eos", "--sequences", ",".join(map(str, counts)),
                          *self.modes(model, draw), *self.sampling(draw), *self.options(draw, index), "--seed",
                          str(draw.randrange(1 << 31)), "--json"])
        return ("side by side", sum(s["sequences"] for s in v), sum(s["tokens"] for s in v), sum(s["different"] for s in v),
                rc)

    def held(self, model, draw, index):
        """Prompts under a grammar or schema, guessed side by side."""
        path = self.prompt_file(draw, f"held-{index}.jsonl", 12, 96 // model.slow)
        form = os.path.join(self.o.work, f"form-{index}")
        schema = draw.random() < 0.5
        with open(form, "w", encoding="utf-8") as file:
            file.write(json.dumps(SCHEMA) if schema else GBNF)
        how = draw.choice(["tree", "chain", "lookup"]) if model.draft else "lookup"
        v, rc = self.run([self.o.program, "verify", "-m", model.path, *(["-d", model.draft] if model.draft else []),
                          "--requests", path, "--json-schema" if schema else "--grammar-file", form, "--parallel",
                          str(draw.choice([1, 3, 6])), "--speculate", how, *self.sampling(draw), *self.options(draw, index),
                          "--seed", str(draw.randrange(1 << 31)), "--json"])
        os.unlink(path)
        os.unlink(form)
        return "grammars", v["compared"], v["tokens"], v["different"] + v["not_compared"], rc

    def bodies(self, model, draw, n):
        """Requests of a crowd of clients."""
        for _ in range(n):
            text = draw.choice(self.prompts)["prompt"][-1500:]
            tokens = draw.choice([20, 60, 120]) // model.slow + 8
            body = {"max_tokens": tokens, "temperature": draw.choice([0, 0.8]), "stream": draw.random() < 0.5,
                    "coppice": {"speculate": draw.choice(["tree", "chain", "lookup", "off"] if model.draft else
                                                         ["lookup", "lookup", "off"])}}
            if draw.random() < 0.7:
                body["seed"] = draw.randrange(1 << 31)
            if draw.random() < 0.2:
                body["stop"] = draw.sample(["e", "\n\n", ".", "the "], 2)
            form = draw.random()
            if form < 0.15:
                body["guided_json"] = SCHEMA
            elif form < 0.25:
                body["guided_grammar"] = GBNF
            if not model.chat or draw.random() < 0.4:
                yield "/v1/completions", {**body, "prompt": text, "n": draw.choice([1, 1, 3])}
                continue
            if form >= 0.25 and draw.random() < 0.4:
                body.update(tools=TOOLS, tool_choice=draw.choice(["auto", "required"]))
            yield "/v1/chat/completions", {**body, "messages": [{"role": "user", "content": text}]}

    def served(self, model, draw, index):
        kept = os.path.join(self.o.work, f"served-{index}.jsonl")
        options = self.options(draw, index)
        kv = options[options.index("--kv-type"):][:2]
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            port = s.getsockname()[1]
        log = open(os.path.join(self.o.work, f"served-{index}.log"), "wb")
        child = subprocess.Popen([self.o.program, "serve", "-m", model.path, "-d", model.draft or "none", "--port", str(port),
                                  "--keep-requests", kept, "--parallel", str(draw.choice([3, 8, 16])), *options],
                                 stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        self.children.add(child)
        try:
            self.ask_all(port, child, list(self.bodies(model, draw, 24)), log.name)
            child.send_signal(signal.SIGTERM)
            child.wait(60)
        finally:
            child.kill()
            child.wait()
            self.children.discard(child)
            log.close()
        v, rc = self.run([self.o.program, "verify", "-m", model.path, "--requests", kept, *kv, *options[-4 if "--cuda-path" in
                          options else -2:], "--max-ctx", "4096", "--json"])
        if rc == 0:
            os.unlink(kept)
            os.unlink(log.name)
        return "served", v["compared"], v["tokens"], v["different"] + v["not_compared"], rc

    def ask_all(self, port, child, bodies, log):
        end = time.monotonic() + 120
        while self.ask(port, "GET", "/health", None) != 200:
            if child.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"the server did not start; see {log}")
            time.sleep(0.05)
        with concurrent.futures.ThreadPoolExecutor(len(bodies)) as pool:
            seen = list(pool.map(lambda b: self.ask(port, "POST", *b), bodies))
        if set(seen) != {200}:
            raise RuntimeError(f"requests were answered with {sorted(set(map(str, seen)))}; see {log}")

    def ask(self, port, method, path, body):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=LIMIT)
        try:
            connection.request(method, path, body and json.dumps(body), {"Content-Type": "application/json"})
            answer = connection.getresponse()
            answer.read()
            return answer.status
        except OSError as error:
            return error
        finally:
            connection.close()

    # The run.

    def check(self, index):
        """One check, which its index alone decides."""
        draw = random.Random(self.o.seed * 1000003 + index)
        model = self.models[index % len(self.models)]
        kinds = [self.alone, self.crowd] + ([self.served, self.held] if model.words else [])
        kind = kinds[(index + index // len(self.models)) % len(kinds)]
        r = {"index": index, "model": model.name, "what": kind.__name__, "answers": 0, "tokens": 0, "different": 0, "why": ""}
        try:
            r["what"], r["answers"], r["tokens"], r["different"], rc = kind(model, draw, index)
            if rc != (1 if r["different"] else 0):
                r["why"] = f"status {rc} with {r['different']} differences"
        except Unsupported as error:
            r["what"] = "not possible"
            print(f"skipped  {model.name}: {error}", flush=True)
        except Exception as error:  # a check that breaks is a failed one
            r["why"] = f"{type(error).__name__}: {error}"
        return r

    def key(self):
        """What a journal is of."""
        return {"program": sha256(self.o.program), "device": self.o.device, "paths": self.o.paths, "seed": self.o.seed,
                "threads": self.o.threads, "models": [m.name for m in self.models]}

    def resume(self):
        try:
            with open(self.journal, encoding="utf-8") as file:
                first, *rows = [json.loads(line) for line in file if line.endswith("\n")]
        except (OSError, ValueError):
            first, rows = None, []
        if first == self.key():  # what has broken is tried again
            self.done = {r["index"]: r for r in rows if not r["why"]}
        with open(self.journal, "w", encoding="utf-8") as file:
            file.writelines(json.dumps(r) + "\n" for r in (self.key(), *self.done.values()))

    def take(self, r):
        with self.lock:
            self.done[r["index"]] = r
            with open(self.journal, "a", encoding="utf-8") as file:
                file.write(json.dumps(r) + "\n")
        bad = r["why"] or r["different"]
        print(f"{'FAILED' if bad else 'ok':8} {r['index']:4} {r['what']:13} {r['model']:20} {r['answers']:4} answers {r['tokens']:6} "
              f"tokens{': ' + str(r['different']) + ' differ ' + r['why'] if bad else ''}", flush=True)

    def run_all(self):
        self.resume()
        end = time.monotonic() + self.o.seconds if self.o.seconds else None
        index = 0
        failed_in_row = 0
        with concurrent.futures.ThreadPoolExecutor(self.o.jobs) as pool:
            pending = set()
            while True:
                compared = sum(r["tokens"] for r in self.done.values())
                late = end and index and time.monotonic() > end
                stop = compared >= self.o.tokens or late or failed_in_row >= 20
                while not stop and len(pending) < self.o.jobs:
                    while index in self.done:
                        index += 1
                    pending.add(pool.submit(self.check, index))
                    index += 1
                if not pending:
                    return
                ended, pending = concurrent.futures.wait(pending, return_when=concurrent.futures.FIRST_COMPLETED)
                for f in ended:
                    self.take(f.result())
                    failed_in_row = failed_in_row + 1 if f.result()["why"] else 0

    # The result.

    def result(self, command):
        rows = list(self.done.values())
        sums = {}
        for r in rows:
            for key in ((r["model"], r["what"]), ("all", r["what"]), ("all", "all")):
                s = sums.setdefault(key, [0, 0, 0, 0])
                for i, value in enumerate((1, r["answers"], r["tokens"], r["different"])):
                    s[i] += value
        total = sums.get(("all", "all"), [0, 0, 0, 0])
        bad = [r for r in rows if r["why"] or r["different"]]
        version = subprocess.run([self.o.program, "--version"], capture_output=True, text=True, check=False).stdout
        version = re.sub(r"\s*\n\s*", "; ", re.sub(r" {2,}", " ", version.strip()))
        if self.o.commit:
            version = re.sub(r"commit [^;]*", "commit " + self.o.commit, version)
        out = [f"program: {version}", f"machine: {machine(self.o.device)}", f"date: {time.strftime('%F %H:%M UTC', time.gmtime())}",
               f"command: {command}", f"checks: {total[0]}", f"answers compared: {total[1]}", f"tokens compared: {total[2]}",
               f"differing: {total[3]}", f"broken checks: {sum(bool(r['why']) for r in rows)}", ""]
        out += [f"{'model':22} {'how':13} {'checks':>6} {'answers':>8} {'tokens':>9} {'differing':>9}"]
        out += [f"{m:22} {w:13} {s[0]:6} {s[1]:8} {s[2]:9} {s[3]:9}" for (m, w), s in sorted(sums.items())]
        out += ["", "SHA-256 of the models that are not made by the program:"]
        files = dict.fromkeys(f for m in self.models for f in (m.path, m.draft) if f and not f.startswith(self.o.work))
        out += [f"{sha256(f)}  {os.path.basename(f)}" for f in files]
        out += ["", *(f"failed: check {r['index']}, {r['what']}, {r['model']}: {r['different']} differ {r['why']}" for r in bad)]
        return "\n".join(out).rstrip("\n") + "\n", len(rows) - len(bad), len(bad)


def sha256(path):
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def machine(device):
    name = platform.processor() or platform.machine()
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            name = re.search(r"^model name\s*: (.*)$", file.read(), re.M)[1]
    except (OSError, TypeError):
        pass
    text = f"{name}, {os.cpu_count()} cores"
    if device != "cpu":
        gpu = subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"], capture_output=True,
                             text=True, check=False).stdout.splitlines()
        text = f"{gpu[0] if gpu else 'unknown GPU'}; {text}"
    return text


def is_coppice(program):
    try:
        done = subprocess.run([program, "--version"], capture_output=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0 and done.stdout.startswith(b"coppice ")


def main():
    p = argparse.ArgumentParser(prog="gate.sh")
    p.add_argument("program")
    p.add_argument("tokens", nargs="?", type=int, default=200000)
    p.add_argument("--real", default="")
    p.add_argument("--no-real", action="store_true")  # gate.sh has seen to it
    p.add_argument("--device", default="cpu")
    p.add_argument("--paths", default="auto,mma,small")
    p.add_argument("--seconds", type=float, default=0)
    p.add_argument("--jobs", type=int, default=1)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--work")
    p.add_argument("--out")
    p.add_argument("--commit")
    o = p.parse_intermixed_args()
    if o.tokens < 1 or o.jobs < 1:
        p.error("TOKENS and --jobs are 1 or more")
    if not re.fullmatch(r"cpu|cuda(:\d+)?", o.device):
        p.error(f"--device {o.device}: cpu, cuda or cuda:N")
    if not is_coppice(o.program):
        p.error(f"{o.program} is not coppice: name the program to check")
    command = "scripts/gate.sh " + " ".join(
        a for i, a in enumerate(sys.argv[1:], 1) if a != "--real" and sys.argv[i - 1] != "--real").replace(ROOT + "/", "")
    o.out = o.out and os.path.abspath(o.out)
    o.work = os.path.abspath(o.work or os.path.join(ROOT, "build/gate"))
    os.chdir(ROOT)
    o.paths = o.paths.split(",")
    cores = len(os.sched_getaffinity(0))
    o.threads = sorted({1, 2, min(cores, 8)})
    gate = Gate(o)
    try:
        gate.run_all()
    except KeyboardInterrupt:
        for child in list(gate.children):
            child.kill()
    text, good, bad = gate.result(command)
    with open(o.out or os.path.join(o.work, "result.txt"), "w", encoding="utf-8") as file:
        file.write(text)
    print(text)
    print(f"{good} passed, {bad} failed")
    sys.exit(1 if bad or not good else 0)


if __name__ == "__main__":
    main()
