#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How the server starts: what it says, where it listens, whom it lets in, what it refuses to start
with; and what its log says of answers that the end cut off.
"""
import http.client
import json
import os
import re
import resource
import shlex
import shutil
import signal
import socket
import struct
import subprocess
import tempfile

from suite import DRAFT, PROGRAM, ROOT, TARGET, Process, Server, check, equal, finish, free_port, part, request, until

PROGRAM_PATH = os.path.abspath(PROGRAM)
folder = tempfile.mkdtemp(prefix="coppice-start-")


def announced():
    """Without -m, from another folder: every line of the start, and its curl line does what it says."""
    here = os.getcwd()
    os.chdir("/")
    try:
        server = Process([PROGRAM_PATH, "serve", "--port", str(free_port())], r"listening on http://127\.0\.0\.1:(\d+)")
    finally:
        os.chdir(here)
    for name, pattern in [("the model", r"no model was given with -m; this is the bundled one, /.*gguf"),
                          ("the draft", r"guessing with the draft /.*gguf, which lies next to the target"),
                          ("the memory plan", r"memory on \S+: weights [0-9.]+ MiB, .*with a context of 65536 tokens"),
                          ("context and slots", r"65536 tokens of context, 8 requests at a time"),
                          ("the page", rf"http://127\.0\.0\.1:{server.port}/ in a browser")]:
        check(f"announced: {name}", re.search(pattern, server.output()), server.output())
    line = re.search(r"^Try: (curl .*)$", server.output(), re.M)
    if check("announced: a line to try", line, server.output()) and shutil.which("curl"):
        answer = subprocess.run([*shlex.split(line[1]), "-s"], capture_output=True, timeout=60, check=False).stdout
        check("announced: the line gives an answer", json.loads(answer)["choices"][0]["message"]["content"], answer)
    equal("announced: the end", server.end(), 0)


def addresses():
    for host, shown in [("::1", "[::1]"), ("localhost", "127.0.0.1"), ("[::1]", "[::1]")]:
        server = Process([PROGRAM, "serve", "--host", host, "--port", "0"],
                         rf"listening on http://{re.escape(shown)}:(\d+)")
        c = http.client.HTTPConnection(shown.strip("[]"), server.port, timeout=10)
        c.request("GET", "/health")
        equal(f"--host {host}", c.getresponse().status, 200)
        equal(f"--host {host}: the end", server.end(), 0)
    path = os.path.join(folder, "socket")
    server = Process([PROGRAM, "serve", "--host", "none", "--unix", path], r"listening on unix:")
    equal("--unix: only this user", os.stat(path).st_mode & 0o777, 0o600)
    with socket.socket(socket.AF_UNIX) as s:
        s.connect(path)
        s.sendall(b"GET /v1/models HTTP/1.1\r\nHost: any\r\nConnection: close\r\n\r\n")
        check("--unix: answers", s.recv(100).startswith(b"HTTP/1.1 200 "))
    equal("--unix: the end", server.end(), 0)
    check("--unix: the socket is gone", not os.path.exists(path))


def descriptors():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 1024:
        return
    server = Process(["/bin/sh", "-c", f"ulimit -S -n 128; exec {shlex.quote(PROGRAM)} serve --port 0"],
                     r"listening on http://127\.0\.0\.1:(\d+)")
    seen = resource.prlimit(server.child.pid, resource.RLIMIT_NOFILE)[0]
    check("descriptors: the soft limit is raised", seen > 1000, seen)
    server.end()


def refused():
    """What it does not start with: a status, and one sentence that says why."""
    plain, busy = os.path.join(folder, "plain"), socket.socket()
    with open(plain, "w", encoding="ascii") as file:
        file.write("\n \n")
    busy.bind(("127.0.0.1", 0))
    busy.listen()
    cases = [("other machines, no key", ["--host", "0.0.0.0"], 2, "--api-key-file"),
             ("the same in IPv6", ["--host", "::"], 2, "--public"),
             ("an unknown name", ["--host", "no-such-host.invalid"], 1, "no-such-host.invalid"),
             ("a port that is taken", ["--port", str(busy.getsockname()[1])], 1, "another program"),
             ("a port beyond all", ["--port", "70000"], 2, "65535"), ("an empty key", ["--api-key", ""], 2, "no key"),
             ("a file without keys", ["--api-key-file", plain], 2, "no key"),
             ("no file of keys", ["--api-key-file", plain + "x"], 1, "No such file"),
             ("a socket's path that is a file", ["--unix", plain], 2, "is no socket"),
             ("no model", ["-m", plain + "x"], 1, "No such file"), ("no model file", ["-m", "/etc/passwd"], 1, "no GGUF file"),
             ("an unknown option", ["--hots", "x"], 2, "did you mean '--host'"),
             ("a set of tokens that is empty", ["--top-p", "0"], 2, "--top-p"),
             ("an unknown way to guess", ["--spec-type", "magic"], 2, "dflash")]
    for name, options, status, word in cases:
        if "--port" not in options:
            options = ["--port", "0", *options]
        r = subprocess.run([PROGRAM, "serve", *options], capture_output=True, text=True, timeout=60, check=False)
        lines = [line for line in r.stderr.splitlines() if line.startswith("coppice serve:")]
        check(f"refused: {name}", r.returncode == status and len(lines) == 1 and word in lines[0] and not r.stdout,
              f"{r.returncode} {r.stderr}")
    busy.close()


def spellings():
    server = Server("-ngl", "99", "-fa", "on", "--jinja", "--ctx-size", "2048", "-np", "3", "--alias", "their-name",
                    "--spec-type", "dflash", "--ddtree-budget", "22", "-ctk", "q8_0")
    for word in ("-ngl has no effect", "-fa has no effect", "--jinja has no effect"):
        check(f"spellings: {word}", word in server.output(), server.output())
    props = json.loads(request(server.port, "GET", "/props")[2])
    equal("spellings: those with an effect", (props["default_generation_settings"]["n_ctx"], props["total_slots"],
                                              props["model_alias"]), (2048, 3, "their-name"))
    equal("spellings: the end", server.end(), 0)


def template():
    """A template of the user's in place of the model's; one that is none is refused at the start."""
    path = os.path.join(folder, "own.jinja")
    with open(path, "w", encoding="utf-8") as file:
        file.write("{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}<think>\n")
    server = Server("--chat-template-file", path)
    talk = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 5, "ignore_eos": True}
    equal("template: what it makes", json.loads(request(server.port, "POST", "/apply-template", talk)[2])["prompt"],
          "[user] Hi\n<think>")
    message = json.loads(request(server.port, "POST", "/v1/chat/completions", talk)[2])["choices"][0]["message"]
    check("template: an answer inside its block is reasoning", message["reasoning_content"] and not message["content"], message)
    equal("template: the end", server.end(), 0)
    with open(path, "w", encoding="utf-8") as file:
        file.write("{% for %}")
    r = subprocess.run([PROGRAM, "serve", "--port", "0", "--chat-template-file", path], capture_output=True, text=True,
                       timeout=60, check=False)
    check("template: a broken one is named", r.returncode == 1 and path in r.stderr and "line 1" in r.stderr, r.stderr)


def keys():
    path = os.path.join(folder, "keys")
    with open(path, "wb") as file:
        file.write(b"first\r\n\n  second  \n")
    server = Server("--api-key-file", path)
    for key, status in [("first", 200), ("second", 200), ("first\r", 401), ("", 401), ("third", 401)]:
        with socket.create_connection(("127.0.0.1", server.port), 20) as s:
            s.sendall(b"GET /v1/models HTTP/1.1\r\nHost: x\r\nConnection: close\r\nx-api-key: "
                      + key.strip().encode() + (b"x" if key.endswith("\r") else b"") + b"\r\n\r\n")
            equal(f"keys: {key!r}", int(s.recv(1000).split()[1]), status)
    server.end()


def origins():
    """Pages of other origins get nothing unless told otherwise; then by name."""
    asked = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization,x-stainless-os"}
    for options, origin, allowed in [([], "http://a.example", False), (["--cors", "http://a.example"], "http://a.example", True),
                                     (["--cors", "http://a.example"], "http://b.example", False),
                                     (["--cors", "loopback"], "http://localhost:5173", True),
                                     (["--cors", "loopback"], "http://localhost.a.example", False)]:
        server = Server(*options)
        name = f"origins: {options} {origin}"
        headers = request(server.port, "OPTIONS", "/v1/chat/completions", headers={"Origin": origin, **asked})[1]
        equal(f"{name}: preflight", headers.get("access-control-allow-origin"), origin if allowed else None)
        words = headers.get("access-control-allow-headers", "").lower()
        equal(f"{name}: headers by name", all(w in words for w in ("authorization", "content-type", "x-stainless-os")), allowed)
        for kind in ("application/json", "text/plain", "application/x-www-form-urlencoded"):
            status, headers, _ = request(server.port, "POST", "/v1/tokenize", {"content": "x"}, {"Origin": origin, "Content-Type": kind})
            equal(f"{name}: the answer to {kind}", (status, headers.get("access-control-allow-origin")),
                  (200, origin) if allowed else (403, None))
            shown = headers.get("access-control-expose-headers", "")
            equal(f"{name}: headers that the page reads", all(h in shown for h in ("x-request-id", "x-ignored-fields", "x-coppice-compression")), allowed)
        own = f"http://127.0.0.1:{server.port}"
        for others, status in [({"Origin": "null"}, 403), ({"Origin": f"http://localhost:{server.port + 1}"}, 200 if "loopback" in options else 403),
                               ({"Sec-Fetch-Site": "same-site"}, 403), ({"Origin": own, "Sec-Fetch-Site": "same-origin"}, 200), ({}, 200)]:
            equal(f"{name}: {others}", request(server.port, "POST", "/v1/tokenize", {"content": "x"}, others)[0], status)
        server.end()
    server = Server("--api-key", "k")
    equal("origins: a key is enough", request(server.port, "GET", "/v1/models", headers={"Origin": "null", "x-api-key": "k"})[0], 200)
    server.end()


def cut():
    """The log counts what an answer got before the end cut it off."""
    server = Server("--grace", "0", "--log-json")
    c = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    c.request("POST", "/v1/completions", json.dumps({"prompt": "Once", "max_tokens": 4000, "ignore_eos": True, "stream": True}))
    answer = c.getresponse()
    for _ in range(20):
        answer.readline()
    equal("cut: the end", server.end(signal.SIGTERM), 0)
    line = json.loads([s for s in server.output().splitlines() if s.startswith("{")][-1])
    check("cut: its tokens are counted", line["end"] == "error" and line["usage"]["completion_tokens"] >= 8, line)


def with_values(values):
    """A copy of the bundled model that has these values of general.sampling besides its own metadata."""
    def name(text):
        return struct.pack("<Q", len(text)) + text.encode()

    added = b"".join(name(f"general.sampling.{key}") + struct.pack("<If", 6, value) for key, value in values.items())
    added += name("general.padding") + struct.pack("<I", 8)
    added += name(" " * (-(len(added) + 8) % 32))  # tensors stay where they are, but for whole blocks of 32 bytes
    with open(TARGET, "rb") as file:
        content = file.read()
    magic, version, tensors, keys = struct.unpack_from("<4sIQQ", content)
    path = os.path.join(folder, "advised.gguf")
    with open(path, "wb") as file:
        file.write(struct.pack("<4sIQQ", magic, version, tensors, keys + len(values) + 1) + added + content[24:])
    return path


def predicting():
    """A model whose file has a block that predicts further tokens guesses with it, without any option; one whose block is
    damaged, or that shall not, answers the same without."""
    os.mkdir(os.path.join(folder, "block"))
    whole = os.path.join(folder, "block", "whole.gguf")
    subprocess.run([PROGRAM, "synth", "--shape", "qwen35-tiny-mtp", whole], check=True, capture_output=True, timeout=60)
    ask = {"prompt": "one two one two", "max_tokens": 24, "temperature": 0, "ignore_eos": True,
           "coppice": {"token_ids": True, "logit_hash": True}}
    answers = []

    def one(what, model, options, has, words):
        server = Server(*options, model=model, draft=False)
        check(f"block, {what}: the start", until(lambda: words in server.output()), server.output())
        equal(f"block, {what}: /props", json.loads(request(server.port, "GET", "/props")[2])["draft"], has)
        value = json.loads(request(server.port, "POST", "/v1/completions", ask)[2])
        equal(f"block, {what}: how", value["timings"]["speculate"], "tree" if has else "lookup")
        answers.append(value["coppice"])
        server.end()

    one("no option", whole, [], True, "guessing with the block of whole.gguf that predicts further tokens")
    one("-d auto", whole, ["-d", "auto"], True, "guessing with the block of whole.gguf")
    one("-d none", whole, ["-d", "none"], False, "speculation: lookup")
    with open(whole, "rb") as file:
        content = file.read()
    broken = os.path.join(folder, "block", "broken.gguf")
    with open(broken, "wb") as file:
        file.write(content.replace(b"nextn.enorm.weight", b"nextn.xnorm.weight"))
    one("damaged", broken, [], False, "the block of broken.gguf that predicts further tokens is not used: ")
    check("block: the answer is the same", all(a == answers[0] for a in answers), answers)


def sampled(server):
    """What requests get that do not say, and what the start says of it."""
    p = json.loads(request(server.port, "GET", "/props")[2])["default_generation_settings"]["params"]
    words = r"sampled at temperature ([0-9.]+), top-k (\d+), top-p ([0-9.]+), min-p ([0-9.]+), (.*)\n"
    until(lambda: re.search(words, server.output()))
    told = re.search(words, server.output())
    seen = tuple(round(p[key], 6) for key in ("temperature", "top_k", "top_p", "min_p"))
    server.end()
    return seen, tuple(float(v) for v in told.groups()[:4]) == seen, told[5]


def sampling():
    usual = "the usual values, since the model's file has none"
    equal("sampling: a file without values", sampled(Server()), ((0.8, 40, 0.95, 0.05), True, usual))
    equal("sampling: options go before", sampled(Server("--temp", "1", "--min-p", "0")),
          ((1, 40, 0.95, 0), True, usual + ", and as options say"))
    advised = with_values({"temp": 0.6, "top_p": 0.9})
    equal("sampling: a file's values, and nothing else", sampled(Server(model=advised, draft=False)),
          ((0.6, 0, 0.9, 0), True, "as the model's file advises"))
    broken = with_values({"temp": -1.0, "top_p": 7.0})
    equal("sampling: nonsense is no advice", sampled(Server(model=broken, draft=False))[0], (0.8, 40, 0.95, 0.05))


TOOL = {"type": "function", "function": {"name": "read", "description": "Reads a file", "parameters": {
    "type": "object", "properties": {"path": {"type": "string", "maxLength": 9}}, "required": ["path"]}}}


def tools_of_templates():
    """Tools reach the prompt although the chat template has none; the start and the answers say so."""
    template = os.path.join(ROOT, "tests/fixtures/templates/chatml.jinja")
    prompts = {}
    for how, seen, words in [("auto", "hermes", "does not describe tools: tools come in the words of the system, calls in the format hermes"),
                             ("none", "none", "does not describe tools: the model is not told of them"),
                             ("qwen", "qwen", "calls in the format qwen")]:
        server = Server("--chat-template-file", template, "--tool-format", how, draft=False)
        check(f"tools, {how}: the start says it", words in server.output(), server.output())

        def post(path, **body):
            body = {"messages": [{"role": "user", "content": "Read a.txt"}], "tools": [TOOL], **body}
            status, _, text = request(server.port, "POST", path, json.dumps(body))
            return status, text

        status, text = post("/apply-template")
        prompts[how] = json.loads(text)["prompt"]
        equal(f"tools, {how}: the prompt has them", '"name": "read"' in prompts[how], how != "none")
        ask = {"tool_choice": "required", "parallel_tool_calls": False, "max_tokens": 300, "temperature": 0}
        status, text = post("/v1/chat/completions", **ask)
        value = json.loads(text)
        call = value["choices"][0]["message"]["tool_calls"][0]
        equal(f"tools, {how}: a forced call", call["function"]["name"], "read")
        equal(f"tools, {how}: its timings say it", value["timings"]["tool_format"], seen)
        status, text = post("/v1/chat/completions", stream=True, **ask)
        events = [json.loads(line[6:]) for line in text.decode().splitlines() if line.startswith("data: {")]
        pieces = [d["function"].get("arguments", "") for v in events for c in v["choices"] for d in c["delta"].get("tool_calls", [])]
        equal(f"tools, {how}: streamed, the same call", "".join(pieces), call["function"]["arguments"])
        status, text = post("/apply-template", messages=[
            {"role": "user", "content": "Read a.txt"}, {"role": "assistant", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": call["id"], "content": "its words"}])
        prompt = json.loads(text)["prompt"]
        check(f"tools, {how}: a second turn has the call and its result",
              prompt.startswith(prompts[how].rsplit("<|im_start|>", 1)[0]) and "<tool_call>" in prompt.split("Read a.txt")[1]
              and ("<tool_response>\nits words\n" in prompt) == (how != "none"), prompt)
        status, text = post("/v1/chat/completions", tools=[], max_tokens=1)
        check(f"tools, {how}: without tools nothing is said", "tool_format" not in json.loads(text)["timings"], text)
        equal(f"tools, {how}: the end", server.end(), 0)
    refused = subprocess.run([PROGRAM, "serve", "-m", TARGET, "--tool-format", "harmony"], capture_output=True, text=True, timeout=60, check=False)
    check("tools: a format that no prompt can describe", refused.returncode == 2 and "--tool-format" in refused.stderr, refused.stderr)


def cache_limit():
    """The prefix cache's limit is said, and is what the metrics have."""
    for options, words in (([], "; --cache-ram sets another limit"), (["--cache-ram", "64M"], "")):
        server = Server(*options)
        until(lambda: "the prefix cache takes" in server.output())
        told = re.search(r"the prefix cache takes up to ([0-9.]+) MiB of memory(.*)", server.output())
        request(server.port, "POST", "/v1/completions", {"prompt": "Once", "max_tokens": 1})
        until(lambda: server.metric("coppice_cache_bytes_limit"))
        limit = server.metric("coppice_cache_bytes_limit")
        check(f"cache: the limit with {options}", told and told[2] == words and limit
              and abs(float(told[1]) * 2**20 - limit) < 2**14, f"{told and told[0]}, {limit}")
        check("cache: it follows the bundled model", options or limit <= 256 * 2**20, limit)
        server.end()
    server = Server("--cache-ram", "0")
    check("cache: none", "prefix cache" not in server.output(), server.output())
    server.end()


def built():
    """The gauge of what was built says what --version says."""
    said = subprocess.run([PROGRAM, "--version"], capture_output=True, text=True, timeout=60, check=True).stdout
    server = Server()
    lines = request(server.port, "GET", "/metrics")[2].decode().splitlines()
    gauge = [line for line in lines if line.startswith("coppice_build_info{")]
    check("built: one gauge, which is 1", len(gauge) == 1 and gauge[0].endswith("} 1")
          and "# TYPE coppice_build_info gauge" in lines, gauge)
    labels = dict(re.findall(r'(\w+)="([^"]*)"', gauge[0]))
    check("built: the labels", sorted(labels) == ["commit", "compiler", "cpu_levels", "cuda_architectures", "version"], labels)
    equal("built: as --version", [f"coppice {labels['version']}", f"commit      {labels['commit']}",
                                  f"compiler    {labels['compiler']}", f"CPU levels  {labels['cpu_levels']}"], said.splitlines()[:4])
    check("built: CUDA", (f"kernels for {labels['cuda_architectures']}" if labels["cuda_architectures"] else "none")
          == said.splitlines()[4].split(None, 1)[1].split(", ")[-1], said)
    server.end()


def speculation():
    """How tokens are guessed is said at the start, in /health, the metrics and answers; the answer does not depend on it."""
    ask = {"prompt": "one two three one two three one two three one two", "max_tokens": 48, "temperature": 0,
           "coppice": {"token_ids": True, "logit_hash": True}}
    answers = []
    for options, draft, how, words in ((["-d", "none"], False, "lookup", "lookup, by price"), (["--speculate", "auto"], DRAFT, "tree", "tree, by price"),
                                       (["-d", "none", "--speculate", "off"], False, "off", "off"),
                                       (["-d", "none", "--speculate", "lookup", "--budget", "4"], False, "lookup", "lookup")):
        server = Server(*options, draft=draft)
        check(f"speculation, {words}: the start",
              until(lambda: re.search(rf"requests at a time, speculation: {words}$", server.output(), re.M)), server.output())
        equal(f"speculation, {words}: /health", json.loads(request(server.port, "GET", "/health")[2]),
              {"status": "ok", "speculate": how, "drafts": ["dflash"] if draft else [],
               "kv_pages": {"device": 0, "host": 0, "disk": 0}})
        equal(f"speculation, {words}: the metrics", server.metric(f'coppice_speculation_info{{how="{how}"}}'), 1)
        value = json.loads(request(server.port, "POST", "/v1/completions", ask)[2])
        equal(f"speculation, {words}: timings", value["timings"]["speculate"], how)
        check(f"speculation, {words}: guesses only where they may be", how != "off" or value["timings"]["draft_n"] == 0, value["timings"])
        guesses = value["timings"].get("guesses", {})
        for name, of in (("verified", "draft_n"), ("accepted", "draft_n_accepted")):
            equal(f"speculation, {words}: guesses {name}", sum(sum(g[name]) for g in guesses.values()), value["timings"][of])
            equal(f"speculation, {words}: the metrics of guesses {name}",
                  {who: sum(server.metric(f'coppice_guesses_{name}_total{{drafter="{who}",depth="{i + 1}"}}') for i, n in enumerate(g[name]) if n)
                   for who, g in guesses.items()}, {who: sum(g[name]) for who, g in guesses.items()})
        check(f"speculation, {words}: drafters", set(guesses) <= ({"dflash", "lookup", "both"} if draft else {"lookup"}), guesses)
        equal(f"speculation, {words}: tokens by context", server.metric('coppice_context_tokens_total{context="<1K"}'), value["timings"]["predicted_n"] - 1)
        answers.append(value["coppice"])
        server.end()
    check("speculation: the answer is the same", all(a == answers[0] for a in answers), answers)


if __name__ == "__main__":
    for function in [announced, addresses, descriptors, refused, spellings, template, keys, origins, cut, sampling,
                     cache_limit, tools_of_templates, built, speculation, predicting]:
        part(function)
    shutil.rmtree(folder, ignore_errors=True)
    finish()
