#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Figures of the prefix cache with the bundled pair on this machine.
Usage: bench/cache.py PROGRAM [PART]... [--tokens N] [--talks N] [--dialects chat,responses,messages]
Parts:
  transcript  an agent's conversation of 12 turns (about 25,000 tokens and 20 tools at the first) in each dialect: of what a
              turn's prompt shares with all that was said before, at least 95 % comes from the cache; every other turn is
              a call with its result, reasoning is not given back; the system message changes once, before turn 8;
              time to the first token of turn 12 at most 0.1 of that without a cache
  restart     the same conversation after a restart, from files: at least 90 %
  crowd       100 conversations in turns in a random order within --cache-ram 2G: share of prompts' tokens from the cache,
              compared with a cache that forgets nothing and can go on from any token
All without. What the conversation says is made of words by a fixed rule, calls too; answers are the model's own, without calls
(tool_choice none). The exit status is 1 when a bound is missed.
"""
import argparse
import json
import os
import random
import subprocess
import sys
import tempfile

from cache_server import Server, head, missed, row

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
TEMPLATE = os.path.join(ROOT, "tests/fixtures/templates/tagged.jinja")
PARTS = ["transcript", "restart", "crowd"]
WORDS = ("file function returns error value test build line module option count branch merge result table cache page "
         "token model reads writes opens closes checks fails passes when then before behind every").split()


def say(r, n):
    return " ".join(r.choice(WORDS) for _ in range(n))


def tools(r):
    """20 declarations as agents send them."""
    return [{"type": "function",
             "function": {"name": f"tool_{i}", "description": say(r, 40),
                          "parameters": {"type": "object", "required": ["path"],
                                         "properties": {"path": {"type": "string", "description": say(r, 12)},
                                                        "limit": {"type": "integer", "description": say(r, 8)}}}}}
            for i in range(20)]


class Talk:
    """A conversation as chat messages: what was said, and the tokens of every text so far. A dialect writes it."""

    known = []  # token lists of all texts, of all conversations

    def __init__(self, seed, system, declared, dialect):
        self.r = random.Random(seed)
        self.messages = [{"role": "system", "content": system}]
        self.tools = declared
        self.dialect = dialect
        self.turns = 0

    def prompt(self, server):
        more = {"tools": self.tools, "reasoning_effort": "medium"} if self.tools else {}
        text = server.post("/apply-template", {"messages": self.messages, **more})["prompt"]
        return server.post("/tokenize", {"content": text, "parse_special": True})["tokens"]

    def body(self, new):
        """The request, which asks for this many tokens, whatever they are; of an agent's, the half are reasoning."""
        return {**self.dialect.body(self.messages, self.tools), "max_tokens": new, "ignore_eos": True,
                "coppice": {"token_ids": True}, **({} if self.dialect is Messages else {"temperature": 0})}

    def user(self, words):
        self.messages.append({"role": "user", "content": say(self.r, words)})

    def call(self, words):
        """A recorded call after the model's last words, and its result."""
        id = f"call_{self.turns}"
        arguments = json.dumps({"path": say(self.r, 3), "limit": self.turns})
        self.messages[-1]["tool_calls"] = [{"id": id, "type": "function",
                                            "function": {"name": "tool_3", "arguments": arguments}}]
        self.messages.append({"role": "tool", "tool_call_id": id, "content": say(self.r, words)})

    def ask(self, server, new):
        """(tokens of the prompt, cached, shared with what was said before, ms to the first token)."""
        value = server.post(self.dialect.path, self.body(new))
        prompt, cached, reply = self.dialect.read(value)
        ids = self.prompt(server)
        if len(ids) != prompt:
            sys.exit(f"{self.dialect.path} makes a prompt of {prompt} tokens where chat completions make {len(ids)}")
        shared = max([min(common(ids, old), prompt - 1) for old in Talk.known], default=0)
        Talk.known.append(ids + value["coppice"]["token_ids"][0])
        # A mark of a call that the model wrote by itself would be words now, and /tokenize takes it for the mark.
        self.messages.append({"role": "assistant", "content": reply.replace("<", "")})
        self.turns += 1
        return prompt, cached, shared, value["timings"]["prompt_ms"]


class Chat:
    path = "/v1/chat/completions"

    @staticmethod
    def body(messages, tools):
        said = {"tools": tools, "tool_choice": "none", "reasoning_effort": "medium"}
        return {"messages": messages, **(said if tools else {})}

    @staticmethod
    def read(value):
        usage = value["usage"]
        return (usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"],
                value["choices"][0]["message"].get("content") or "")


class Responses:
    path = "/v1/responses"

    @staticmethod
    def body(messages, tools):
        items = []
        for m in messages[1:]:
            if m["role"] == "tool":
                items.append({"type": "function_call_output", "call_id": m["tool_call_id"], "output": m["content"]})
                continue
            kind = "output_text" if m["role"] == "assistant" else "input_text"
            items.append({"type": "message", "role": m["role"], "content": [{"type": kind, "text": m["content"]}]})
            items += [{"type": "function_call", "call_id": c["id"], **c["function"]} for c in m.get("tool_calls", [])]
        return {"instructions": messages[0]["content"], "input": items, "store": False,
                "tools": [{"type": "function", **t["function"]} for t in tools], "tool_choice": "none",
                "reasoning": {"effort": "medium"}}

    @staticmethod
    def read(value):
        words = [p["text"] for i in value["output"] if i["type"] == "message" for p in i["content"]]
        return value["usage"]["input_tokens"], value["usage"]["input_tokens_details"]["cached_tokens"], "".join(words)


class Messages:
    path = "/v1/messages"

    @staticmethod
    def body(messages, tools):
        turns = []
        for m in messages[1:]:
            if m["role"] == "tool":
                block = {"type": "tool_result", "tool_use_id": m["tool_call_id"], "content": m["content"]}
                turns.append({"role": "user", "content": [block]})
                continue
            blocks = [{"type": "text", "text": m["content"]}] if m["content"] else []
            for c in m.get("tool_calls", []):
                blocks.append({"type": "tool_use", "id": c["id"], "name": c["function"]["name"],
                               "input": json.loads(c["function"]["arguments"])})
            turns.append({"role": m["role"], "content": blocks})
        declared = [{"name": t["function"]["name"], "description": t["function"]["description"],
                     "input_schema": t["function"]["parameters"]} for t in tools]
        return {"system": messages[0]["content"], "messages": turns, "tools": declared, "tool_choice": {"type": "none"},
                "thinking": {"type": "adaptive"}, "output_config": {"effort": "medium"}, "top_k": 1}

    @staticmethod
    def read(value):
        usage = value["usage"]
        words = [b["text"] for b in value["content"] if b["type"] == "text"]
        return (usage["input_tokens"] + usage["cache_read_input_tokens"], usage["cache_read_input_tokens"],
                "".join(words))


def common(a, b):
    n = min(len(a), len(b))
    if a[:n] == b[:n]:
        return n
    low, high = 0, n
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if a[:middle] == b[:middle] else (low, middle)
    return low


def transcript(o, parts, dialect):
    name = dialect.__name__
    folder = tempfile.mkdtemp(prefix="cache-", dir=os.path.join(ROOT, "build"))
    base = ["--max-ctx", "65536", "--chat-template-file", TEMPLATE]
    options = [*base, "--cache-ram", "2G", "--cache-dir", folder]
    server = Server(o.program, *options)
    r = random.Random(1)
    Talk.known = []
    talk = Talk(1, "", tools(r), dialect)
    talk.user(100)
    per_word = len(server.post("/tokenize", {"content": say(random.Random(2), 2000)})["tokens"]) / 2000
    system = say(r, int((o.tokens - len(talk.prompt(server))) / per_word))
    talk.messages[0]["content"] = system + " Note: the branch is main."
    shares, first = [], 0
    for turn in range(1, 13):
        if turn == 8:
            talk.messages[0]["content"] = system + " Note: the branch is work."
        if turn > 1:
            (talk.call if turn % 2 else talk.user)(talk.r.randint(60, 400))
        prompt, cached, shared, first = talk.ask(server, 64)
        if turn > 1:
            shares.append(cached / shared)
        row(f"{name}, turn {turn}", f"{prompt} tokens, {shared} said before, {cached} cached, {first:.0f} ms")
    if "transcript" in parts:
        row(f"{name}, least share from the cache", f"{100 * min(shares):.1f} %", "95 %", min(shares) >= 0.95)
    server.written()
    server.end()
    reply = talk.messages.pop()
    if "transcript" in parts:
        plain = Server(o.program, *base, "--cache-ram", "0")
        without = plain.post(dialect.path, talk.body(1))["timings"]["prompt_ms"]
        plain.end()
        row(f"{name}, first token of turn 12", f"{first:.0f} ms, {without:.0f} ms without: {first / without:.3f}",
            "0.1", first <= 0.1 * without)
    if "restart" in parts:
        server = Server(o.program, *options)
        talk.messages.append(reply)
        talk.call(200)
        _, cached, shared, ms = talk.ask(server, 1)
        row(f"{name}, after a restart", f"{cached} of {shared}: {100 * cached / shared:.1f} %, {ms:.0f} ms", "90 %",
            cached >= 0.9 * shared)
        server.end()
    subprocess.run(["rm", "-rf", folder], check=False)


def crowd(o):
    server = Server(o.program, "--cache-ram", "2G")
    r = random.Random(3)
    system = say(r, 500)
    Talk.known = []
    talks = [Talk(100 + i, system, [], Chat) for i in range(o.talks)]
    order = [t for t in talks for _ in range(4)]
    r.shuffle(order)
    total = hit = ideal = 0
    for talk in order:
        talk.user(80)
        prompt, cached, shared, _ = talk.ask(server, 8)
        total, hit, ideal = total + prompt, hit + cached, ideal + shared
    row(f"{o.talks} conversations of 4 turns",
        f"{100 * hit / total:.1f} % of {total} tokens cached, {100 * ideal / total:.1f} % said before; "
        f"{server.metric('coppice_cache_bytes') / 2**30:.2f} GiB, "
        f"{server.metric('coppice_cache_evicted_total'):.0f} entries dropped", "2 GiB",
        server.metric("coppice_cache_bytes") <= 2**31)
    server.end()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("parts", nargs="*")
    parser.add_argument("--tokens", type=int, default=25000)
    parser.add_argument("--talks", type=int, default=100)
    parser.add_argument("--dialects", default="chat,responses,messages")
    o = parser.parse_args()
    parts = o.parts or PARTS
    head()
    for dialect in (Chat, Responses, Messages):
        if ("transcript" in parts or "restart" in parts) and dialect.__name__.lower() in o.dialects:
            transcript(o, parts, dialect)
    if "crowd" in parts:
        crowd(o)
    sys.exit(1 if missed else 0)


main()
