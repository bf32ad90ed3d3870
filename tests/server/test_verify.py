#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Proof that answers are those of plain decoding: a server keeps what it answers (--keep-requests), in each
interface, from a crowd, sampled, under grammars and with tools, cut off by clients that leave; `coppice verify`
gives all of it again and finds equal tokens and hashes, and finds what has been tampered with. What it cannot
compare has its sentence. Files stay private, bounded and whole.
"""
import json
import os
import re
import shutil
import socket
import stat
import subprocess
import tempfile
import threading

from suite import DRAFT, PROGRAM, ROOT, TARGET, Server, check, equal, finish, free_port, part, request, until

SCHEMA = {"type": "object", "additionalProperties": False, "required": ["name", "age"], "properties": {
    "name": {"type": "string", "maxLength": 20}, "age": {"type": "integer", "minimum": 0, "maximum": 150}}}
PARAMETERS = {"type": "object", "required": ["city"], "properties": {
    "city": {"type": "string", "maxLength": 12}, "days": {"type": "integer"}}}
TOOLS = [{"type": "function", "function": {"name": "weather", "parameters": PARAMETERS}},
         {"type": "function", "function": {"name": "clock", "parameters": {"type": "object", "properties": {}}}}]
CHAT, TEXT, MESSAGES, RESPONSES = "/v1/chat/completions", "/v1/completions", "/v1/messages", "/v1/responses"
folder = tempfile.mkdtemp(dir=os.path.join(ROOT, "build"))
kept = os.path.join(folder, "requests.jsonl")


def chat(words, **more):
    return CHAT, {"messages": [{"role": "user", "content": words}], "max_tokens": 40, **more}


def text(words, **more):
    return TEXT, {"prompt": words, "max_tokens": 40, **more}


def requests():
    """Requests that differ in what a line has to hold; the second of a pair is streamed."""
    all_of_it = [
        chat("Name three animals.", temperature=0),
        chat("Name three animals.", temperature=0, stream=True),
        chat("Describe a river.", temperature=0.8),  # the server draws the seed
        chat("Count.", temperature=0.8, seed=21, ignore_eos=True),
        chat("Describe a river.", temperature=1.1, seed=-1, stream=True),
        chat("Describe an animal.", response_format={"type": "json_schema", "json_schema": {"name": "p", "schema": SCHEMA}},
             seed=5, max_tokens=120),
        chat("Weather in Rome?", tools=TOOLS, tool_choice="required", seed=3, max_tokens=80),
        chat("Weather in Rome?", tools=TOOLS, seed=4, stream=True),
        chat("Weather in Oslo?", tools=TOOLS, tool_choice={"type": "function", "function": {"name": "weather"}}, seed=9),
        chat("Weather in Oslo?", tools=TOOLS, tool_choice="none", seed=9),
        chat("Weather in Oslo?", tools=TOOLS, parallel_tool_calls=False, seed=11, response_format={
            "type": "json_schema", "json_schema": {"name": "p", "schema": SCHEMA}}, max_tokens=60),
        text("def add(a, b):", n=3, seed=7, temperature=1),
        text(["The river ", "def sub(a, b):"], temperature=0.9, top_p=0.9, top_k=40, min_p=0.02, seed=8),
        text("one two three one two three", stop=["e", "\n\n"], temperature=0, max_tokens=64),
        text("one two three", stop=["four"], include_stop_str_in_output=True, min_tokens=12, seed=6),
        text("The house", stop_token_ids=list(range(300, 400)), min_tokens=5, seed=1, stream=True),
        text("a b c d", logit_bias={"300": 5, "301": False, "302": -100}, seed=1),
        text("x y z x y z", frequency_penalty=0.5, presence_penalty=0.2, repetition_penalty=1.1, ignore_eos=True),
        text("Is it?", guided_grammar='root ::= ("yes" | "no") " because " [a-z ]{1,30} "."', seed=12),
        text("Number:", guided_regex="[0-9]{3}-[a-f]{2,4}", seed=13, stream=True),
        text("Choose:", guided_choice=["left", "right"], temperature=0, coppice={"speculate": "lookup"}),
        (MESSAGES, {"messages": [{"role": "user", "content": "Hello there"}], "max_tokens": 30, "temperature": 0.7}),
        (MESSAGES, {"messages": [{"role": "user", "content": "Weather?"}], "max_tokens": 60, "stream": True, "tools": [
            {"name": "weather", "input_schema": PARAMETERS}], "tool_choice": {"type": "any"}}),
        (RESPONSES, {"input": "Tell me a story", "max_output_tokens": 40}),
        (RESPONSES, {"input": "Tell me a story", "max_output_tokens": 40, "stream": True}),
    ]
    return all_of_it


def verify(*options, model=TARGET, path=None, draft=False):
    """(status, output, error) of the command."""
    done = subprocess.run([PROGRAM, "verify", "-m", model, *(["-d", DRAFT] if draft else []), "--requests", path or kept,
                           "--max-ctx", "4096", *options],
                          capture_output=True, text=True, timeout=300, check=False)
    return done.returncode, done.stdout, done.stderr


def lines(path=None):
    with open(path or kept, encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def write(name, values):
    """A file of these lines, each a value or a text."""
    path = os.path.join(folder, name)
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(v if isinstance(v, str) else json.dumps(v, separators=(",", ":")) + "\n" for v in values)
    return path


def send(server, case, seen):
    status, _, body = request(server.port, "POST", case[0], case[1])
    seen.append(status == 200 or (case, body))


def leave(server):
    """A client that goes away after it has got something."""
    connection = connect_to(server, chat("Go on and on", max_tokens=30000, ignore_eos=True, stream=True))
    until(lambda: any(slot["n_tokens"] > 8 for slot in server.slots("decoding")))
    connection.close()


def connect_to(server, case):
    data = json.dumps(case[1]).encode()
    s = socket.create_connection(("127.0.0.1", server.port), 30)
    s.sendall(b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
              % (case[0].encode(), len(data)) + data)
    return s


def served():
    server = Server("--keep-requests", kept)
    seen = []
    for _ in range(2):  # the second time much is in the prefix cache
        crowd = [threading.Thread(target=send, args=(server, case, seen)) for case in requests()]
        for t in crowd:
            t.start()
        for t in crowd:
            t.join()
    check("all were answered", seen == [True] * len(seen), [s for s in seen if s is not True])
    leave(server)
    check("the client that left is forgotten", server.calm())
    refused = request(server.port, "POST", CHAT, {"messages": [], "max_tokens": -4})[0]
    status, headers, body = request(server.port, "POST", *text("named", seed=1))
    equal("one refused, one answered", (refused, status), (400, 200))
    equal("the id of the answer is that of its line", lines()[-1]["id"], json.loads(body)["id"])
    return json.loads(body)["id"], server


def replayed():
    named, server = served()
    answers = lines()
    equal("lines", len(answers), 2 * (len(requests()) + 3) + 2)
    equal("paths", {v["path"] for v in answers}, {CHAT, TEXT, MESSAGES, RESPONSES})
    equal("the cut one", [v["answer"]["end"] for v in answers].count("cut"), 1)
    check("tools and formats were held to", sum("format" in v for v in answers) >= 8
          and sum(v.get("tools_held", False) for v in answers) >= 8, answers)
    equal("private", stat.S_IMODE(os.stat(kept).st_mode), 0o600)
    rc, out, err = verify()
    print(out, err)
    equal("all are those of plain decoding", (rc, out.count(", equal\n")), (0, len(answers)))
    check("the sum", re.search(rf"^{len(answers)} answers compared, [0-9]+ tokens: {len(answers)} equal, 0 different$", out,
                               re.M), out)
    rc, out, _ = verify("--json", "--threads", "1", "--chunk", "7")
    value = json.loads(out)
    equal("as JSON, otherwise cut and with one thread", (rc, value["equal"], value["tokens"]),
          (0, len(answers), sum(len(v["answer"]["tokens"]) for v in answers)))
    rc, out, _ = verify("--id", named)
    equal("one by its id", (rc, out.split(":")[0], len(out.splitlines())), (0, named, 2))
    rc, out, err = verify("--id", "chatcmpl-none")
    equal("an id that is not there", (rc, err.strip()),
          (1, f"coppice verify: {kept} has no answer of the id 'chatcmpl-none'"))
    second = subprocess.run([PROGRAM, "serve", "-m", TARGET, "-d", "none", "--port", str(free_port()), "--keep-requests", kept],
                            capture_output=True, text=True, timeout=60, check=False)
    check("a second server on the file", second.returncode == 1 and "is written by another server" in second.stderr,
          second.stderr)
    equal("the server ends", server.end(), 0)


def reasoning():
    """Reasoning that is ended by a budget, closed at once, and before a reply in a form."""
    path = os.path.join(folder, "thinking.jsonl")
    template = write("think.jinja", [
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
        "<|im_start|>assistant\n<think>\n"])
    server = Server("--keep-requests", path, "--chat-template-file", template)
    seen = []
    for case in (chat("Think.", thinking={"type": "enabled", "budget_tokens": 6}, seed=2),
                 chat("Think.", thinking={"type": "disabled"}, seed=2, stop=["e"]),
                 chat("Think.", reasoning_effort="low", seed=2, max_tokens=80, response_format={
                     "type": "json_schema", "json_schema": {"name": "p", "schema": SCHEMA}})):
        send(server, case, seen)
    equal("reasoning: answered", seen, [True] * 3)
    server.end()
    answers = lines(path)
    equal("reasoning: how it was ended", [v["thinking"]["tokens"] for v in answers], [6, 0, 7])
    rc, out, _ = verify(path=path)
    check("reasoning: equal", rc == 0 and "3 equal" in out, out)
    value = json.loads(json.dumps(answers[0]))
    value["thinking"]["tokens"] = 3
    rc, out, _ = verify(path=write("tampered.jsonl", [value]))
    check("reasoning: another end", rc == 1 and "DIFFERENT" in out, out)


def events(body):
    return [json.loads(line[5:]) for line in body.decode().splitlines() if line.startswith("data:") and "[DONE]" not in line]


def hashes():
    """The hash in `usage` on request, in each interface, is that of the kept line; without the request there is none."""
    path = os.path.join(folder, "hashes.jsonl")
    server = Server("--keep-requests", path)
    ends = {"chat": lambda all_of_it: all_of_it[-1], "text": lambda all_of_it: all_of_it[-1],
            "messages": lambda all_of_it: all_of_it[-2], "responses": lambda all_of_it: all_of_it[-1]["response"]}
    cases = {"chat": chat("Hello"), "text": text("Hello", n=2),
             "messages": (MESSAGES, {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 20}),
             "responses": (RESPONSES, {"input": "Hello", "max_output_tokens": 20})}
    for name, (where, body) in cases.items():
        for stream in (False, True):
            for wanted in (True, False):
                full = {**body, "stream": stream, **({"coppice": {"logit_hash": True}} if wanted else {})}
                if stream and name in ("chat", "text"):
                    full["stream_options"] = {"include_usage": True}
                answer = request(server.port, "POST", where, full)[2]
                end = ends[name](events(answer)) if stream else json.loads(answer)
                kept_hashes = [v["answer"]["logit_hash"] for v in lines(path)[-full.get("n", 1):]]
                equal(f"hash of {name}, {'streamed' if stream else 'whole'}, {'requested' if wanted else 'not'}",
                      end["usage"].get("logit_hash"), kept_hashes if wanted else None)
                if wanted and not (stream and name in ("chat", "text")):
                    equal(f"hash of {name}: the same in coppice", end["coppice"]["logit_hash"], kept_hashes)
    server.end()


def no_hash():
    """Lines without a hash, as a GPU's are unless it was wanted: tokens are compared, which is said."""
    one = lines()[0]
    one["answer"]["logit_hash"] = None
    rc, out, _ = verify(path=write("unhashed.jsonl", [one]))
    check("without a hash", rc == 0 and "equal; no hash of its logits was kept" in out, out)
    one["answer"]["tokens"][0] ^= 1
    check("its tokens are compared", verify(path=write("unhashed.jsonl", [one]))[0] == 1)


def tampered():
    one = next(v for v in lines() if v["ignore_eos"] and v["answer"]["end"] == "length" and v["path"] == CHAT)
    ids = one["answer"]["tokens"]
    cases = {
        "a token": (lambda v: v["answer"]["tokens"].__setitem__(5, ids[5] ^ 1), "DIFFERENT from token 5 on"),
        "the hash": (lambda v: v["answer"].update(logit_hash="0123456789abcdef"), "the tokens are equal and the logits are not"),
        "a token less": (lambda v: (v["answer"].update(tokens=ids[:-1])), "plain decoding goes on"),
        "a token more": (lambda v: v["answer"].update(tokens=[*ids, 1]), "plain decoding ends before"),
        "the prompt": (lambda v: v["prompt"].__setitem__(0, v["prompt"][0] ^ 1), "DIFFERENT"),
        "the seed": (lambda v: v["sampling"].update(seed=4711, temperature=1.5), "DIFFERENT"),
        "a bias": (lambda v: v["sampling"].update(bias=[[ids[0], None]]), "DIFFERENT"),
    }
    for name, (change, wanted) in cases.items():
        value = json.loads(json.dumps(one))
        change(value)
        rc, out, err = verify(path=write("tampered.jsonl", [one, value]))
        check(f"tampered with {name}", rc == 1 and wanted in out and "1 equal, 1 different" in out
              and "1 answers differ" in err, (rc, out, err))
    stopped = next(v for v in lines() if v["stop"] and v["answer"]["end"] == "stop")
    value = json.loads(json.dumps(stopped))
    value["stop"] = ["no such text"]
    rc, out, _ = verify(path=write("tampered.jsonl", [stopped, value]))
    check("without its stop an answer goes on", rc == 1 and "plain decoding goes on" in out, out)


def refused():
    one = lines()[0]
    whole = json.dumps(one, separators=(",", ":")) + "\n"
    other_kv = json.loads(whole)
    other_kv["setup"].update(kv_type_k="q8_0")
    window = json.loads(whole)
    window["setup"].update(fa_window=128)
    pool = json.loads(whole)
    pool["setup"].update(kv_pool=512)
    newer = json.loads(whole)
    newer["coppice_request"] = 2
    other_model = json.loads(whole)
    other_model["setup"].update(sketch="00000000000000aa", file="other.gguf")
    device = json.loads(whole)
    device["setup"].update(gpu=True, device="cuda:0 (NVIDIA H200, wgmma)")
    grammar = json.loads(whole)
    grammar["format"] = {"form": "gbnf", "text": "root ::= (", "inside": False}
    token = json.loads(whole)
    token["prompt"][0] = 10 ** 6
    def with_member(name, value):
        return {**json.loads(whole), name: value}

    cases = {
        "no prompt": (with_member("prompt", []), "prompt"),
        "limits below zero": (with_member("max_tokens", -5), "max_tokens"),
        "a wrong temperature": (with_member("sampling", {**one["sampling"], "temperature": -1}), "temperature"),
        "a bias of no token": (with_member("sampling", {**one["sampling"], "bias": [[-3, 1]]}), "bias"),
        "an end of reasoning": (with_member("thinking", {"tokens": -1, "closing": "</think>"}), "the end of its reasoning"),
        "an unknown family": (with_member("reply", {**one["reply"], "calls": "morse"}), "family of models that is not known"),
        "an empty stop": (with_member("stop", [""]), "a stop of it is no text"),
        "a form that is none": (with_member("format", {"form": "haiku", "text": ""}), "the form of its reply"),
        "another codec": (other_kv, "give --kv-type-k q8_0 --kv-type-v f16"),
        "another pool": (pool, "replies were made with --kv-pool 512 --kv-pool-policy qk: give the same"),
        "another window": (window, "replies were made with --fa-window 128: give the same"),
        "a newer version": (newer, "it is of version 2, and this program reads version 1"),
        "another model": (other_model, "it is of another model file, other.gguf"),
        "another device": (device, "it was made on cuda:0 (NVIDIA H200, wgmma), and this is"),
        "a cut line": (whole[:len(whole) // 2] + "\n", "it is cut off, or no line of --keep-requests: JSON text ends after"),
        "another line": ('{"a":1}\n', "it is no line of --keep-requests"),
        "a bad grammar": (grammar, "line 1"),
        "a token beyond the vocabulary": (token, "1000000"),
        "a temperature in quotes": (with_member("sampling", {**one["sampling"], "temperature": "0.8"}),
                                    "sampling.temperature is of the wrong kind"),
        "a device in quotes": (with_member("setup", {**one["setup"], "gpu": "true"}), "setup.gpu is of the wrong kind"),
        "a seed that is no integer": (with_member("sampling", {**one["sampling"], "seed": 1.5}), "sampling.seed is of"),
        "a bias beyond 32 bits": (with_member("sampling", {**one["sampling"], "bias": [[2 ** 32 + 5, -9]]}), "a bias of it"),
        "a hash that is a number": (with_member("answer", {**one["answer"], "logit_hash": 7}), "answer.logit_hash is of"),
        "a hash of other digits": (with_member("answer", {**one["answer"], "logit_hash": "zz"}), "16 hexadecimal digits"),
        "an unknown end": (with_member("answer", {**one["answer"], "end": "then"}), "how its answer ended"),
        "a cut answer of no token": (with_member("answer", {"end": "cut", "logit_hash": None, "tokens": []}),
                                     "it was cut off before its first token"),
        "too many tools": (with_member("tools", {"tools": [{"name": f"t{i}"} for i in range(5000)]}), "5000 tools"),
        "a member that comes twice": (whole[:-2] + ',"max_tokens":40}\n', "'max_tokens'"),
        "no sampling": ({k: v for k, v in one.items() if k != "sampling"}, "how it was sampled"),
        "no answer": ({k: v for k, v in one.items() if k != "answer"}, "answer.tokens"),
    }
    for name, (value, wanted) in cases.items():
        rc, out, err = verify(path=write("bad.jsonl", [one, value, one]))
        check(f"{name} has its sentence, and the others are compared", rc == 1 and wanted in out
              and "2 equal, 0 different; 1 not compared" in out and "1 answers could not be compared" in err, (rc, out, err))
    for name, content, wanted in (("empty.jsonl", "", "is empty"), ("words.jsonl", "words\n", "line 1"),
                                  ("none.jsonl", '{"a":1}\n', 'no string member "prompt"')):
        rc, out, err = verify(path=write(name, [content]))
        check(name, rc == 1 and wanted in err and not out, (rc, out, err))
    pipe = os.path.join(folder, "pipe")
    os.mkfifo(pipe)
    for name, path, wanted in (("a pipe", pipe, "is a pipe or a device"), ("a folder", folder, "is a folder")):
        rc, out, err = verify(path=path)
        check(f"{name} is refused", rc == 1 and wanted in err and not out, (rc, out, err))
    rc, out, err = verify(path=os.path.join(folder, "missing.jsonl"))
    check("a missing file", rc == 1 and "No such file" in err, err)
    done = subprocess.run([PROGRAM, "verify", "-m", TARGET], capture_output=True, text=True, timeout=60, check=False)
    check("no file", done.returncode == 2 and "--requests" in done.stderr, done.stderr)


def prompts():
    path = write("prompts.jsonl", [{"id": f"p{i}", "prompt": words, "max_tokens": 30} for i, words in enumerate(
        ["def add(a, b):", "one two three one two", "The river", "a b c a b c a b", "x = [1, 2, 3"])])
    for options in (("--parallel", "3"), ("--speculate", "chain", "--budget", "7", "--temp", "0.8", "--seed", "5"),
                    ("--speculate", "tree", "--budget", "30", "--parallel", "5", "-n", "20")):
        rc, out, err = verify(*options, path=path, draft=True)
        check(f"prompts {' '.join(options)}", rc == 0 and "5 answers compared" in out and "5 equal, 0 different" in out,
              (rc, out, err))
    schema = write("schema.json", [SCHEMA])
    rc, out, err = verify("--json-schema", schema, "-n", "60", path=path)
    check("prompts under a schema, with lookup", rc == 0 and "5 equal" in out, (rc, out, err))
    rc, _, err = verify("--id", "p0", path=path)
    check("prompts have no ids of answers", rc == 2 and "has prompts" in err, (rc, err))


def bounded():
    """A file and the older one within a bound; one that cannot grow; a line that a crash has cut."""
    path = os.path.join(folder, "small.jsonl")
    with open(path, "w", encoding="utf-8") as file:
        file.write('{"coppice_request":1,"id":"cut')
    os.chmod(path, 0o644)
    server = Server("--keep-requests", path, "--keep-requests-limit", "16K")
    for i in range(16):
        request(server.port, "POST", *text("word " * (i * 10), seed=i))
    equal("it is made private", stat.S_IMODE(os.stat(path).st_mode), 0o600)
    sizes = [os.path.getsize(path), os.path.getsize(path + ".1")]
    check("both within the bound", sum(sizes) <= 16384 and min(sizes) > 0, sizes)
    rc, out, _ = verify(path=path + ".1")
    check("the older one is whole", rc == 0, out)
    status = request(server.port, "POST", *text("word " * 1900, max_tokens=2))[0]
    check("a line too long is not kept, and is answered", status == 200
          and until(lambda: "is more than half of 16384" in server.output()), server.output())
    equal("it ends", server.end(), 0)


def full():
    """What cannot be written is one sentence, and answers go on: a file that may not grow beyond 8,000 bytes."""
    path = os.path.join(folder, "full.jsonl")
    server = Server("--keep-requests", path, by=("prlimit", "--fsize=8000"))
    seen = [request(server.port, "POST", *text(f"number {i}", seed=i))[0] for i in range(12)]
    equal("all are answered", set(seen), {200})
    equal("one sentence", server.output().count("what is answered meanwhile is not kept"), 1)
    rc, out, _ = verify(path=path)
    check("what is there is whole", rc == 0 and os.path.getsize(path) <= 8000, out)
    server.end()


def crash():
    """After a kill the lines are whole, and a later server goes on after a cut one."""
    path = os.path.join(folder, "crash.jsonl")
    server = Server("--keep-requests", path)
    request(server.port, "POST", *text("before", seed=1))
    server.end(9)
    with open(path, "r+b") as file:
        size = os.path.getsize(path)
        file.truncate(size - 20)  # as where the machine has gone down
    server = Server("--keep-requests", path)
    request(server.port, "POST", *text("after", seed=1))
    server.end()
    rc, out, _ = verify(path=path)
    check("the cut line alone is lost", rc == 1 and "line 1: not compared: it is cut off" in out
          and "1 equal, 0 different; 1 not compared" in out, out)


def taken_away():
    """The file is removed, named otherwise, emptied, or a link is in its place while the server writes."""
    path = os.path.join(folder, "taken.jsonl")
    server = Server("--keep-requests", path, "--keep-requests-limit", "64K")

    def answer():
        request(server.port, "POST", *text("a", seed=1))
        return len(lines(path)) if os.path.exists(path) else 0

    equal("a line", answer(), 1)
    os.remove(path)
    equal("removed: it is made anew", answer(), 1)
    equal("and private", stat.S_IMODE(os.stat(path).st_mode), 0o600)
    os.rename(path, path + ".old")
    equal("named otherwise: it is made anew", (answer(), len(lines(path + ".old"))), (1, 1))
    os.truncate(path, 0)
    equal("emptied: it begins again", answer(), 1)
    os.remove(path)
    os.symlink(path + ".old", path)
    request(server.port, "POST", *text("a", seed=1))
    check("a link in its place is not written through", len(lines(path + ".old")) == 1
          and until(lambda: "is a link" in server.output()), server.output())
    os.remove(path)
    equal("and after it", answer(), 1)
    check("which is said", until(lambda: "is written again" in server.output()), server.output())
    equal("the server ends", server.end(), 0)
    rc, out, _ = verify(path=path)
    check("what it has written is equal", rc == 0 and "1 equal" in out, out)


def wrong_files():
    link = os.path.join(folder, "link.jsonl")
    os.symlink(kept, link)
    for path, wanted in ((link, "is a link"), (folder, "Is a directory"), ("/dev/null", "not a regular file"),
                         (os.path.join(folder, "no/such"), "No such file")):
        done = subprocess.run([PROGRAM, "serve", "-m", TARGET, "-d", "none", "--port", str(free_port()), "--keep-requests",
                               path], capture_output=True, text=True, timeout=60, check=False)
        check(f"--keep-requests {path}", done.returncode == 1 and wanted in done.stderr
              and len(done.stderr.strip().splitlines()) == 1, done.stderr)
    done = subprocess.run([PROGRAM, "serve", "-m", TARGET, "--keep-requests-limit", "1M"], capture_output=True, text=True,
                          timeout=60, check=False)
    check("a limit without a file", done.returncode == 2 and "needs --keep-requests" in done.stderr, done.stderr)


if __name__ == "__main__":
    try:
        for function in (replayed, reasoning, hashes, no_hash, tampered, refused, prompts, bounded, full, crash, taken_away, wrong_files):
            part(function)
    finally:
        shutil.rmtree(folder)
    finish()
