#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The prefix cache over HTTP: conversations that come back, restarts, kills at any moment, folders that are damaged,
full, of another version, or written by somebody else. What is answered is compared with a server without a cache.
Usage: test_cache.py PROGRAM [KILLS]
"""
import copy
import functools
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

from suite import PROGRAM, ROOT, TARGET, Server, check, equal, finish, part, request, until

KILLS = int(sys.argv[2]) if len(sys.argv) > 2 else 6
FOLDER = tempfile.mkdtemp(prefix="cache-", dir=os.path.join(ROOT, "build"))
WORDS = "the house of many rivers has a door and every door has its own small key made of old iron".split()


def chat(port, messages, tokens=12, **more):
    status, _, body = request(port, "POST", "/v1/chat/completions",
                              {"messages": messages, "max_tokens": tokens, "temperature": 0,
                               "coppice": {"logit_hash": True}, **more})
    value = json.loads(body)
    if status != 200:
        raise RuntimeError(value)
    return value


def essence(value):
    choice = value["choices"][0]
    return choice["message"]["content"], choice["finish_reason"], value["coppice"]["logit_hash"]


def conversation(seed, turns, words=60):
    """Messages of the user and a system message, and no answers yet."""
    r = random.Random(seed)
    say = lambda n: " ".join(r.choice(WORDS) for _ in range(n))
    return say(2 * words), [say(r.randint(words // 2, words)) for _ in range(turns)]


class Talk:
    """A conversation that goes on turn by turn."""

    def __init__(self, seed, turns=12, words=60):
        system, self.turns = conversation(seed, turns, words)
        self.messages = [{"role": "system", "content": system}]
        self.done = 0
        self.prompt = 0

    def turn(self, port):
        """(tokens of the prompt, cached, tokens that it shares with the one before), the answer's essence."""
        self.messages.append({"role": "user", "content": self.turns[self.done]})
        value = chat(port, self.messages)
        usage = value["usage"]
        shared, self.prompt = self.prompt, usage["prompt_tokens"]
        self.messages.append({"role": "assistant", "content": value["choices"][0]["message"]["content"]})
        self.done += 1
        return (self.prompt, usage["prompt_tokens_details"]["cached_tokens"], shared), essence(value)


@functools.cache
def plain_answers(seeds, turns):
    server = Server("--cache-ram", "0")
    answers = {}
    for seed in seeds:
        talk = Talk(seed)
        answers[seed] = [talk.turn(server.port)[1] for _ in range(turns)]
    server.end()
    return answers


def cached(*options, folder=FOLDER):
    server = Server("--cache-ram", "256M", "--cache-dir", folder, "--cache-disk", "1G", *options)
    server.folder = folder
    return server


def written(server):
    """Waits until there are files and nothing more is being written; how many there are."""
    def whole():
        names = [name for name in os.listdir(server.folder) if name.endswith(".kvc")]
        files = server.metric("coppice_cache_files")
        return files and \
            server.metric("coppice_cache_disk_bytes") == sum(os.path.getsize(os.path.join(server.folder, name))
                                                             for name in names)
    times = 0

    def settled():  # a state is kept right after its answer, and written after that
        nonlocal times
        times = times + 1 if whole() else 0
        return times > 20

    server.calm()
    until(settled)
    return len([name for name in os.listdir(server.folder) if name.endswith(".kvc")])


def turns():
    """Turns find what was there, also after a restart, with the same answers."""
    want = plain_answers((1, 2), 6)
    server = cached()
    talks = {seed: Talk(seed) for seed in (1, 2)}
    for i in range(4):
        for seed, talk in talks.items():
            (prompt, hit, shared), got = talk.turn(server.port)
            equal(f"turn {i} of conversation {seed}: the answer", got, want[seed][i])
            # A state is kept at multiples of 32 tokens, and the reply's opening differs.
            check(f"turn {i} of conversation {seed}: {hit} of {shared} tokens", hit >= shared - 64 - 8)
    check("files were written", written(server) > 4)
    equal("end", server.end(), 0)
    server = cached()
    for seed, talk in talks.items():
        (prompt, hit, shared), got = talk.turn(server.port)
        equal(f"after a restart: the answer of {seed}", got, want[seed][4])
        check(f"after a restart: {hit} of {shared} tokens", hit >= 0.9 * shared - 32)
    second = cached()
    check("a second process only reads", "only reads it" in second.output(), second.output()[-400:])
    (prompt, hit, shared), got = talks[2].turn(second.port)
    equal("a second process: the answer", got, want[2][5])
    check("a second process: hits", hit > 0, hit)
    second.end()
    server.end()


def misses():
    """The log names the first token that differs and the rule."""
    server = Server("--cache-ram", "64M")
    talk = Talk(5)
    talk.turn(server.port)
    talk.messages[1]["content"] = "iron " + talk.messages[1]["content"]
    talk.turn(server.port)
    talk.messages[0]["content"] = "rivers " + talk.messages[0]["content"]
    talk.turn(server.port)
    server.end()
    log = server.output()
    for what in ("no text that is kept begins like this one", "an earlier message was edited",
                 "the system message or the tools have changed"):
        check(f"the log: {what}", what in log, log[-1500:])


@functools.cache
def kept():
    """A folder that a server has left after two turns, and their conversation."""
    folder = tempfile.mkdtemp(prefix="kept-", dir=FOLDER)
    server, talk = cached(folder=folder), Talk(3)
    for i in range(2):
        talk.turn(server.port)
    check("damages: files", written(server) > 0)
    server.end()
    return folder, talk


def damage(change, name, says):
    """Every file is changed; the answer stays, and the log says why nothing was found."""
    folder = tempfile.mkdtemp(prefix="damaged-", dir=FOLDER)
    want = plain_answers((3,), 3)[3]
    whole, talk = kept()
    talk = copy.deepcopy(talk)
    shutil.copytree(whole, folder, dirs_exist_ok=True)
    for file in os.listdir(folder):
        if file.endswith(".kvc"):
            change(os.path.join(folder, file))
    server = cached(folder=folder)
    (prompt, hit, shared), got = talk.turn(server.port)
    equal(f"{name}: the answer", got, want[2])
    log = server.output()
    check(f"{name}: the log", says in log, log[:1500])
    equal(f"{name}: end", server.end(), 0)


def flip_tail(path):
    with open(path, "r+b") as file:
        file.seek(-1000, os.SEEK_END)
        byte = file.read(1)[0]
        file.seek(-1000, os.SEEK_END)
        file.write(bytes([byte ^ 0x10]))


def set_byte(at, value):
    def change(path):
        with open(path, "r+b") as file:
            file.seek(at)
            file.write(bytes([value]))
    return change


def damages():
    damage(flip_tail, "a bit of the pages", "it is damaged")
    damage(set_byte(40, 77), "a bit of the head", "damaged")
    damage(set_byte(8, 9), "a newer version", "newer version of coppice, which can use it")
    damage(lambda path: os.truncate(path, os.path.getsize(path) // 2), "cut off", "cut off")
    damage(lambda path: os.rename(path, path.replace(os.path.basename(path)[:4], "0000", 1)), "another model",
           "of another model")


def in_place_of(make):
    """A file that something else takes the place of; the former file lies next to it under another name."""
    def change(path):
        os.rename(path, path + ".away")
        make(path)
    return change


def strangers():
    """What has a file's name and is none of this user's: nothing waits for it, follows it or reads it."""
    damage(in_place_of(os.mkfifo), "a pipe", "")
    damage(in_place_of(os.mkdir), "a folder", "")
    damage(in_place_of(lambda path: os.symlink(path + ".away", path)), "a link", "")
    damage(lambda path: os.chmod(path, 0o666), "for all to write", "other users may write to it")
    if os.geteuid() == 0:
        damage(lambda path: os.chown(path, 12345, -1), "another user's", "")


def private():
    """Files hold what users have said: whatever the umask and the folder say, they are their owner's alone."""
    folder = tempfile.mkdtemp(prefix="private-", dir=FOLDER)
    os.chmod(folder, 0o755)
    before = os.umask(0)
    try:
        server = cached(folder=folder)
        made = cached(folder=os.path.join(folder, "made", "here"))
    finally:
        os.umask(before)
    for one in server, made:
        talk = Talk(6)
        talk.turn(one.port)
        check("private: files", written(one) > 0)
    files = [name for name in os.listdir(folder) if name.endswith(".kvc")]
    for name in files:
        equal("private: mode of a file", oct(os.stat(os.path.join(folder, name)).st_mode & 0o777), "0o600")
    for name in "made", "made/here":
        equal("private: mode of a folder", oct(os.stat(os.path.join(folder, name)).st_mode & 0o777), "0o700")
    server.end()
    made.end()
    for name in files:  # as earlier versions left them
        os.chmod(os.path.join(folder, name), 0o644)
    server = cached(folder=folder)
    check("private: found", talk.turn(server.port)[0][1] > 0)
    for name in files:
        equal("private: mode of a file that was there", oct(os.stat(os.path.join(folder, name)).st_mode & 0o777),
              "0o600")
    server.end()


def swap_names(folder):
    files = sorted(os.path.join(folder, name) for name in os.listdir(folder) if name.endswith(".kvc"))
    for name in files:
        os.rename(name, name + ".away")
    for name, other in zip(files, files[1:] + files[:1]):
        os.rename(name + ".away", other)


def wrong_times(folder):
    for i, name in enumerate(sorted(os.listdir(folder))):
        os.utime(os.path.join(folder, name), [(0, 0), (2**33, 2**33), (1, 2**32 - 1)][i % 3])


def close(folder):
    for name in os.listdir(folder):
        os.chmod(os.path.join(folder, name), 0)


def odd_folders():
    """A folder after a crash of its file system, a wrong clock or a hand that went over it; and one that goes away."""
    want = plain_answers((9,), 4)[9]
    plain = ["setpriv", "--inh-caps=-all", "--bounding-set=-all"] if os.geteuid() == 0 else []
    for change, hits in (swap_names, False), (wrong_times, True), (close, False), (shutil.rmtree, None):
        what, folder = change.__name__, tempfile.mkdtemp(prefix="odd-", dir=FOLDER)
        server, talk = cached(folder=folder), Talk(9)
        for i in range(2):
            talk.turn(server.port)
        written(server)
        if hits is not None:  # else it is in use
            server.end()
        change(folder)
        if hits is not None:
            server = Server("--cache-ram", "256M", "--cache-dir", folder, by=plain)
        for i in range(2, 4):
            (prompt, hit, shared), got = talk.turn(server.port)
            equal(f"{what}: answer {i}", got, want[i])
            if i == 2 and hits is not None:
                equal(f"{what}: {hit} of {shared} tokens", hit > 100, hits)
        equal(f"{what}: end", server.end(), 0)


def identity():
    """A byte of the weights that changes makes another model, whatever the file's size and time say."""
    folder, place = tempfile.mkdtemp(prefix="identity-", dir=FOLDER), tempfile.mkdtemp(prefix="model-", dir=FOLDER)
    model = os.path.join(place, "model.gguf")
    shutil.copy(TARGET, model)
    # What was just written is not remembered, and would be read anew.
    until(lambda: time.time() - os.stat(model).st_ctime >= 4)

    def serve(*options):
        server = Server("--cache-ram", "256M", *options, model=model)
        server.folder = folder
        return server

    kept = ("--cache-dir", folder)
    server, talk = serve(*kept), Talk(7)
    talk.turn(server.port)
    check("identity: files", written(server) > 0)
    server.end()
    server = serve(*kept)
    check("identity: the same file", talk.turn(server.port)[0][1] > 100)
    written(server)
    server.end()
    tensors = json.loads(subprocess.run([PROGRAM, "inspect", "--json", model], check=True,
                                        stdout=subprocess.PIPE).stdout)["tensors"]
    sizes = [tensor["bytes"] for tensor in tensors]
    row = os.path.getsize(model) - sum((size + 31) // 32 * 32 for size in sizes) + sizes[0] // 2  # of the first tensor
    for bit, times in enumerate(("kept", "new")):
        info = os.stat(model)
        with open(model, "r+b") as file:
            file.seek(row)
            part = file.read(64)
            file.seek(row)
            file.write(bytes(b ^ 1 << bit for b in part))
        if times == "kept":
            os.utime(model, ns=(info.st_atime_ns, info.st_mtime_ns))
        server, plain = serve(*kept), serve()
        again = Talk(7)
        (prompt, hit, shared), got = again.turn(server.port)
        equal(f"identity: an edit with {times} times finds nothing", hit, 0)
        equal(f"identity: an edit with {times} times: the answer", got, Talk(7).turn(plain.port)[1])
        written(server)
        server.end()
        plain.end()


def full():
    """A disk that takes no more: answers go on, and one sentence is in the log."""
    folder = tempfile.mkdtemp(prefix="full-", dir=FOLDER)
    old = resource.getrlimit(resource.RLIMIT_FSIZE)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # children have it too: writing fails then
    resource.setrlimit(resource.RLIMIT_FSIZE, (200000, old[1]))
    try:
        server = cached(folder=folder)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old)
    want = plain_answers((4,), 2)[4]
    talk = Talk(4)
    for i in range(2):
        equal(f"full: answer {i}", talk.turn(server.port)[1], want[i])
    equal("full: end", server.end(), 0)
    equal("full: told once", server.output().count("cannot be written"), 1)
    equal("full: nothing is left", [f for f in os.listdir(folder) if f != "lock" and not f.endswith(".sum")], [])


def read_only():
    """A folder that may not be written: what is there is found, the answers are right, and the log says why nothing
    new is kept."""
    folder = tempfile.mkdtemp(prefix="read-", dir=FOLDER)
    want = plain_answers((8,), 3)[8]
    server, talk = cached(folder=folder), Talk(8)
    equal("read-only: before", talk.turn(server.port)[1], want[0])
    written(server)
    server.end()
    for name in os.listdir(folder):
        os.chmod(os.path.join(folder, name), 0o444)
    there = sorted(os.listdir(folder))
    os.chmod(folder, 0o555)
    # Root may write anywhere by its capabilities; without them it is an owner like others, who reads what is its own.
    plain = ["setpriv", "--inh-caps=-all", "--bounding-set=-all"] if os.geteuid() == 0 else []
    try:
        server = Server("--cache-ram", "256M", "--cache-dir", folder, "--cache-disk", "1G", by=plain)
        for i in range(1, 3):
            (prompt, hit, shared), got = talk.turn(server.port)
            equal(f"read-only: answer {i}", got, want[i])
            check(f"read-only: {hit} of {shared} tokens", hit >= 0.8 * shared - 64)
        check("read-only: told", "only reads it" in server.output() and folder in server.output(),
              server.output()[-500:])
        equal("read-only: end", server.end(), 0)
        equal("read-only: nothing new", sorted(os.listdir(folder)), there)
    finally:
        os.chmod(folder, 0o755)


def no_calls():
    """tool_choice none: the prompt stays what it was, so the cache holds, and there is no call, not even as text."""
    tools = [{"type": "function", "function": {
        "name": name, "description": " ".join(WORDS), "parameters": {
            "type": "object", "properties": {"path": {"type": "string", "description": "A file"}},
            "required": ["path"]}}} for name in ("read", "edit", "list")]
    messages = [{"role": "system", "content": "You use tools."},
                {"role": "user", "content": "Read the file notes.txt with the tool read."}]
    server = Server()
    first = chat(server.port, messages, tokens=60, tools=tools)
    check("none: without it there is a call", first["choices"][0]["message"].get("tool_calls"), first)
    answers = [chat(server.port, messages, tokens=60, tools=tools, tool_choice="none", coppice={
        "logit_hash": True, "speculate": how}) for how in ("tree", "chain", "off")]
    prompt, hit = answers[0]["usage"]["prompt_tokens"], answers[0]["usage"]["prompt_tokens_details"]["cached_tokens"]
    equal("none: the same prompt", prompt, first["usage"]["prompt_tokens"])
    check(f"none: {hit} of {prompt} tokens", hit >= prompt - 64)
    equal("none: however it is guessed", [essence(a) for a in answers[1:]], [essence(answers[0])] * 2)
    message = answers[0]["choices"][0]["message"]
    check("none: no call", not message.get("tool_calls") and message["content"] and
          "tool_call" not in message["content"], message)
    server.end()


def note():
    """A system message whose last words change, at places of all alignments: most of it is found."""
    server, r = Server(), random.Random(9)
    for i in range(4):
        system = " ".join(r.choice(WORDS) for _ in range(1500 + 5 * i))
        for branch in ("main", "work"):
            messages = [{"role": "system", "content": f"{system} Note {i}: the branch is {branch}."},
                        {"role": "user", "content": "Hello"}]
            usage = chat(server.port, messages, tokens=1)["usage"]
        prompt, hit = usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"]
        check(f"a changed note {i}: {hit} of {prompt} tokens", hit >= 0.9 * prompt)
    server.end()


THINKING = """{%- for m in messages %}{{- '<|im_start|>' + m.role + '\\n' }}{%- set c = m.content %}
{%- if m.role == 'assistant' and '</think>' in c %}{%- set c = c.split('</think>')[-1] %}{%- endif %}
{{- c + '<|im_end|>\\n' }}{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n<think>\\n' }}{%- endif %}"""


def ahead():
    """A conversation from a file, and the next turn after an answer whose reasoning the template leaves out."""
    system, said = conversation(8, 2)
    messages = [{"role": "system", "content": system}, {"role": "user", "content": said[0]}]
    file, template = os.path.join(FOLDER, "warm.json"), os.path.join(FOLDER, "thinking.jinja")
    with open(file, "w", encoding="utf-8") as f:
        json.dump({"messages": messages}, f)
    with open(template, "w", encoding="utf-8") as f:
        f.write(THINKING)
    more = {"tokens": 150, "ignore_eos": True, "thinking_token_budget": 20}
    plain = Server("--cache-ram", "0", "--chat-template-file", template)
    server = Server("--warm", file, "--chat-template-file", template)
    server.calm()
    until(lambda: server.metric("coppice_cache_entries") >= 1)
    value = chat(server.port, messages, **more)
    prompt, hit = value["usage"]["prompt_tokens"], value["usage"]["prompt_tokens_details"]["cached_tokens"]
    check(f"--warm: {hit} of {prompt} tokens", hit >= prompt - 64)
    equal("--warm: the answer", essence(value), essence(chat(plain.port, messages, **more)))
    until(lambda: server.metric("coppice_cache_entries") >= 4)
    answer = value["choices"][0]["message"]["content"]
    messages += [{"role": "assistant", "content": answer}, {"role": "user", "content": said[1]}]
    value = chat(server.port, messages, **more)
    hit = value["usage"]["prompt_tokens_details"]["cached_tokens"]
    check(f"read ahead: {hit} tokens, the last prompt had {prompt}", hit > prompt + 32)
    equal("read ahead: the answer", essence(value), essence(chat(plain.port, messages, **more)))
    with open(file, "w", encoding="utf-8") as f:
        f.write('{"messages": 3}')
    plain.end()
    server.end()
    server = Server("--warm", file)
    check("--warm: a file that is none", until(lambda: "--warm" in server.output() and "messages" in server.output()),
          server.output()[-500:])
    server.end()
    with open(file, "w", encoding="utf-8") as f:
        json.dump({"messages": [{"role": "user", "content": "x" * 3000000}]}, f)
    server = Server("--warm", file, "-c", "64")
    check("--warm: a text far beyond the context", until(lambda: "at least 65665 tokens" in server.output()),
          server.output()[-500:])
    server.end()


CALLING = """{%- for t in tools or [] %}{{- t.function.name + '\\n' }}{%- endfor %}
{%- for m in messages %}{{- '<|im_start|>' + m.role + '\\n' }}{%- set c = m.content or '' %}
{%- if m.role == 'assistant' and '</think>' in c %}{%- set c = c.split('</think>')[-1] %}{%- endif %}
{%- for t in m.tool_calls or [] %}{{- '<tool_call>' + t.function.name + '</tool_call>' }}{%- endfor %}
{{- c + '<|im_end|>\\n' }}{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n<think>\\n' }}{%- endif %}"""


def ahead_after_calls():
    """The next turn after calls of a group's tools, which have the group in front of their name once."""
    system, said = conversation(8, 2)
    template = os.path.join(FOLDER, "calling.jinja")
    with open(template, "w", encoding="utf-8") as f:
        f.write(CALLING)
    server = Server("--chat-template-file", template)
    call = {"type": "function_call", "call_id": "c1", "name": "find", "namespace": "house", "arguments": "{}"}
    items = [{"role": "user", "content": said[0]}, call,
             {"type": "function_call_output", "call_id": "c1", "output": system}, {"role": "user", "content": said[0]}]
    tools = [{"type": "namespace", "name": "house", "description": "Of the house.", "tools": [
        {"type": "function", "name": "find", "parameters": {"type": "object", "properties": {}}}]}]
    body = {"model": "m", "input": items, "tools": tools, "tool_choice": "none", "max_output_tokens": 300,
            "reasoning": {"effort": "low"}, "ignore_eos": True, "temperature": 0}

    def respond():
        status, _, answer = request(server.port, "POST", "/v1/responses", body)
        value = json.loads(answer)
        check("a response", status == 200 and [i["type"] for i in value["output"]] == ["reasoning", "message"], value)
        return value
    value = respond()
    prompt = value["usage"]["input_tokens"]
    until(lambda: server.metric("coppice_cache_entries") >= 4)
    server.calm()
    items += [value["output"][1], {"role": "user", "content": said[1]}]
    hit = respond()["usage"]["input_tokens_details"]["cached_tokens"]
    check(f"read ahead: {hit} tokens, the last prompt with a call had {prompt}", hit > prompt + 32)
    server.end()


def refused():
    status = subprocess.run([PROGRAM, "serve", "-m", TARGET, "--cache-dir", FOLDER, "--cache-ram", "0"],
                            capture_output=True, text=True, check=False)
    check("--cache-dir without memory", status.returncode != 0 and "--cache-ram" in status.stderr, status.stderr)
    for size, words in (("1K", "single page"), ("900T", "machine's memory")):
        status = subprocess.run([PROGRAM, "serve", "-m", TARGET, "--kv-host", size],
                                capture_output=True, text=True, check=False)
        check(f"--kv-host {size}", status.returncode == 1 and words in status.stderr, status.stderr)


def beyond():
    """Contexts that the device's share does not hold: answered alike, with pages in host memory."""
    model = os.path.join(FOLDER, "beyond.gguf")
    subprocess.run([PROGRAM, "synth", "--shape", "llama-tiny", model], check=True, capture_output=True)
    prompts = [[(i * i + seed) % 250 for i in range(n)] for seed, n in ((1, 1500), (2, 700))]

    def answers(*options):
        server = Server("--max-ctx", "2048", "--cache-ram", "0", *options, model=model, draft=False)
        got = []
        for ids in prompts:
            status, _, body = request(server.port, "POST", "/v1/completions",
                                      {"prompt": ids, "max_tokens": 40, "temperature": 0, "ignore_eos": True,
                                       "coppice": {"logit_hash": True}})
            value = json.loads(body)
            got.append((status, value["choices"][0]["text"], value["coppice"]["logit_hash"]) if status == 200
                       else (status, value["error"]["message"]))
        moved = server.metric("coppice_kv_host_pages_out_total")
        server.end()
        return got, moved
    want, none = answers()
    got, moved = answers("--kv-memory", "2600K", "--kv-host", "16M")
    equal("answers beyond the device", got, want)
    check(f"pages moved: {none}, {moved}", none == 0 and moved > 5)
    check("without host memory", answers("--kv-memory", "2600K")[0][0][0] == 400)


def kills():
    """kill -9 at any moment leaves a folder that can be used: the right answers, and most of them found."""
    seeds = (11, 12, 13)
    want = plain_answers(seeds, 3)
    folder = tempfile.mkdtemp(prefix="kills-", dir=FOLDER)
    r = random.Random(7)
    wrong = hits = answers = 0
    for i in range(KILLS):
        server = cached("--parallel", "3", folder=folder)
        if "damaged" in server.output() or "cut off" in server.output():
            wrong += 1

        goal = answers + r.randrange(len(seeds) * 3)

        def use(seed, server=server):
            nonlocal wrong, hits, answers
            talk = Talk(seed)
            try:
                for j in range(3):
                    (prompt, hit, shared), got = talk.turn(server.port)
                    wrong += got != want[seed][j]
                    hits += hit > 0
                    answers += 1
            except OSError:
                pass  # the server was killed
            except Exception as error:
                print(error)
                wrong += 1

        threads = [threading.Thread(target=use, args=(seed,)) for seed in seeds]
        for t in threads:
            t.start()
        until(lambda: answers >= goal)  # noqa: B023
        server.child.kill()
        for t in threads:
            t.join()
        server.end()
        if i % 20 == 19:  # so that there is something to write again
            for file in r.sample(os.listdir(folder), len(os.listdir(folder)) // 2):
                os.unlink(os.path.join(folder, file))
    equal(f"{KILLS} kills: wrong answers or files", wrong, 0)
    check(f"{KILLS} kills: {answers} answers, {hits} from the cache", KILLS < 5 or hits > answers // 2)
    server = cached(folder=folder)
    equal("after the kills: no remains", [f for f in os.listdir(folder) if ".tmp." in f], [])
    server.end()


try:
    for one in (turns, misses, note, ahead, ahead_after_calls, damages, strangers, odd_folders, private, identity,
                full, read_only, no_calls, refused, beyond, kills):
        part(one)
finally:
    shutil.rmtree(FOLDER, ignore_errors=True)
finish()
