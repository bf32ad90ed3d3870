#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The log: one line for each request, whatever became of it, and no words of prompts in it.
"""
import fcntl
import json
import os
import re
import socket
import subprocess

from suite import PROGRAM, TARGET, Server, check, equal, finish, free_port, part, request, until

CHAT, TEXT, MESSAGES, RESPONSES = "/v1/chat/completions", "/v1/completions", "/v1/messages", "/v1/responses"
KEY = {"x-api-key": "the-key"}
LAST = "/v1/the-last-one"


def lines(server):
    """The lines of requests but for those of /health."""
    found = [s for s in server.output().splitlines() if s.startswith("{") or re.match(r"\d{4}-\d\d-\d\dT", s)]
    return [s for s in found if "/health" not in s]


def wait(server, ready):
    """Waits until ready() of the lines is true, and gives them."""
    until(lambda: ready(lines(server)))
    return lines(server)


def leave(server, path, body, n):
    """Sends a request, reads n bytes at least of its answer, and goes away."""
    data = json.dumps(body).encode()
    with socket.create_connection(("127.0.0.1", server.port), 30) as s:
        s.sendall(b"POST %s HTTP/1.1\r\nHost: localhost\r\nX-Api-Key: the-key\r\nContent-Length: %d\r\n\r\n"
                  % (path.encode(), len(data)) + data)
        found = b""
        while len(found) < n:
            found += s.recv(1000)


def until_closed(server, data):
    with socket.create_connection(("127.0.0.1", server.port), 30) as s:
        s.sendall(data)
        while s.recv(1000):
            pass


def one_line_each():
    """Answered, refused at whatever point, not understood, left: one line each, with method, path and status."""
    user = [{"role": "user", "content": "x"}]
    short, long = {"messages": user, "max_tokens": 1}, {"messages": user, "max_tokens": 4000, "ignore_eos": True, "stream": True}
    odd = "/v1/not%20a%20word%e2%80%a8%25"
    asked = [("POST", CHAT, short, {"x-api-key": "no"}, 401), ("GET", "/v1/models", None, {}, 401),
             ("POST", CHAT, short, KEY, 200), ("POST", CHAT, {"messages": 5}, KEY, 400),
             ("POST", TEXT, {"prompt": "x", "max_tokens": 1}, KEY, 200), ("POST", MESSAGES, short, KEY, 200),
             ("POST", RESPONSES, {"input": "x", "max_output_tokens": 1}, KEY, 200),
             ("POST", MESSAGES + "/count_tokens", short, KEY, 200), ("POST", "/v1/tokenize", {"content": "x"}, KEY, 200),
             ("POST", "/v1/tokenize", {"content": 5}, KEY, 400), ("POST", "/v1/detokenize", {"tokens": [1]}, KEY, 200),
             ("POST", "/apply-template", short, KEY, 200), ("GET", "/v1/models", None, KEY, 200),
             ("HEAD", "/v1/models", None, KEY, 200), ("GET", odd, None, KEY, 404), ("DELETE", CHAT, None, KEY, 405),
             ("OPTIONS", CHAT, None, {}, 204), ("GET", "/props", None, KEY, 200), ("GET", "/metrics", None, KEY, 200),
             ("GET", "/openapi.json", None, KEY, 200)]
    head = b"POST /v1/tokenize HTTP/1.1\r\nHost: x\r\nX-Api-Key: the-key\r\n"
    for form in ([], ["--log-json"]):
        server = Server("--api-key", "the-key", *form)
        want = []
        for method, path, body, headers, status in asked:
            equal(f"{form} {method} {path}", request(server.port, method, path, body, headers)[0], status)
            want.append((method, odd.upper().replace("/V1/NOT%20A%20WORD", "/v1/not%20a%20word") if path == odd else path, status))
        for data, one in [(head + b"Content-Length: 999999999999\r\n\r\n", ("POST", "/v1/tokenize", 413)),
                          (head + b"Expect: tea\r\nContent-Length: 9\r\n\r\n", ("POST", "/v1/tokenize", 417)),
                          (b"nonsense\r\n\r\n", ("-", "-", 400))]:
            until_closed(server, data)
            want.append(one)
        leave(server, CHAT, long, 500)
        want.append(("POST", CHAT, 200))
        with socket.create_connection(("127.0.0.1", server.port), 30) as s: # goes before its body is whole
            s.sendall(head + b"Content-Length: 9\r\n\r\n{")
        want.append(("POST", "/v1/tokenize", 499))
        wait(server, lambda found: len(found) >= len(want))
        request(server.port, "GET", LAST, headers=KEY)
        found = [s for s in wait(server, lambda found: any(LAST in s for s in found)) if LAST not in s]
        if form:
            seen = [(v["method"], v["path"], v["status"]) for v in map(json.loads, found)]
        else:
            seen = [(s.split()[2], s.split()[3], int(s.split()[5].rstrip(","))) for s in found]
        equal(f"{form}: one line each", sorted(seen), sorted(want))
        check(f"{form}: no key", "the-key" not in server.output())
        equal(f"{form}: the end", server.end(), 0)


def no_words():
    """What clients write in any field, be it good or refused, reaches no log, and no answer about the server."""
    w = "xylophone"
    user = [{"role": "user", "content": w}]
    tool = {"type": "function", "function": {"name": w, "description": w,
                                             "parameters": {"type": "object", "properties": {w: {"enum": [w]}}}}}
    call = {"role": "assistant", "content": w, "tool_calls": [{"id": w, "type": "function",
                                                               "function": {"name": w, "arguments": json.dumps({w: w})}}]}
    good = {"messages": user, "max_tokens": 1}
    bodies = [(CHAT, good | more) for more in (
        {}, {"messages": [{"role": "system", "content": w}, *user]}, {"messages": [*user, call, {"role": "tool", "tool_call_id": w, "content": w}]},
        {"messages": [{"role": "system", "content": f"{w} changed"}, *user]}, {"messages": [{"role": "system", "content": f"violin {w}"}, *user]},
        {"tools": [tool]}, {"tools": [tool], "tool_choice": w}, {"tools": [tool], "tool_choice": {"type": "function", "function": {"name": w + w}}},
        {"tools": [{"type": "function", "function": {"name": w * 30}}]}, {"tools": [{"type": "function", "function": {"name": f"<{w}"}}]},
        {"stop": [w]}, {"user": w, "metadata": {w: w}}, {w: w}, {"model": w}, {"temperature": w}, {"speculate": w},
        {"messages": [{"role": w, "content": w}]}, {"messages": [{"role": "user", "content": [{"type": w, "text": w}]}]},
        {"messages": [{"role": "tool", "tool_call_id": w, "content": w}]}, {"messages": w}, {"messages": [w]},
        {"response_format": {"type": w}}, {"guided_regex": f"({w}"}, {"guided_grammar": f"root ::= {w}"}, {"guided_choice": [w]},
        {"guided_json": {"type": w}}, {"guided_json": {"$ref": "#/" + w}}, {"guided_json": {"properties": {w: {"type": w}}}},
        {"logit_bias": {w: 1}}, {"modalities": [w]}, {"chat_template_kwargs": {w: w}}, {"messages": [{"role": "user", "content": f"{w} " * 9000}]})]
    bodies += [(TEXT, {"prompt": w, "max_tokens": 1}), (TEXT, {"prompt": [w, 5]}), (TEXT, {"prompt": w, "max_tokens": w}),
               (MESSAGES, good | {"system": w}), (MESSAGES, good | {"messages": [{"role": w, "content": w}]}),
               (MESSAGES, good | {"thinking": {"type": w}}), (RESPONSES, {"input": w, "instructions": w, "max_output_tokens": 1}),
               (RESPONSES, {"input": w, "previous_response_id": w}), (RESPONSES, {"input": [{"type": w}]}),
               (RESPONSES, {"input": [{"type": "function_call_output", "call_id": w, "output": w}]}),
               ("/v1/tokenize", {"content": w}), ("/v1/tokenize", {"content": [w]}), ("/apply-template", {"messages": w}),
               (CHAT, f'{{"{w}":1,"{w}":2}}'), (CHAT, f'{{"messages":[{w}]}}'), (CHAT, w)]
    for form in ([], ["--log-json"]):
        server = Server(*form)
        for path, body in bodies:
            request(server.port, "POST", path, body)
        request(server.port, "GET", LAST)
        wait(server, lambda found: any(LAST in s for s in found))
        told = server.output()
        for word in (w, w[1:6], "violin"):
            check(f"{form}: no '{word}' in the log", word not in told, [s for s in told.splitlines() if word in s])
        check(f"{form}: no token of a prompt", not re.search(r'token \d+ is [\\"]', told), re.findall(r'token \d+ is .*', told)[:3])
        check(f"{form}: why a prompt was read again is logged without it", "have changed" in told or "begins alike" in told, told[-2000:])
        for path in ("/slots", "/metrics", "/props", "/health"):
            check(f"{form}: no prompt in {path}", w.encode() not in request(server.port, "GET", path)[2])
        equal(f"{form}: the end", server.end(), 0)
    server = Server("--log-prompts")
    request(server.port, "POST", CHAT, good)
    check("--log-prompts shows them", any(w in s for s in wait(server, lambda found: any(w in s for s in found))), server.output())
    server.end()


def healthy(port):
    try:
        return request(port, "GET", "/health", timeout=30)[0] == 200
    except ConnectionRefusedError:
        return False


def nobody_reads():
    """A pipe without a reader takes no line any more, and blocks nothing: neither start nor answers nor the end."""
    come, go = os.pipe()
    fcntl.fcntl(go, fcntl.F_SETPIPE_SZ, 4096)
    os.write(go, b"x" * 4096)
    port = free_port()
    child = subprocess.Popen([PROGRAM, "serve", "-m", TARGET, "-d", "none", "--port", str(port), "-c", "512"],
                             stdout=subprocess.DEVNULL, stderr=go, stdin=subprocess.DEVNULL)
    os.close(go)
    check("no reader: it starts", until(lambda: child.poll() is None and healthy(port)))
    for i in range(300):
        status = request(port, "GET", "/v1/" + "a" * 200, timeout=30)[0]
        if status != 404:
            check(f"no reader: request {i}", False, status)
    equal("no reader: a reply", request(port, "POST", TEXT, {"prompt": "x", "max_tokens": 2}, timeout=30)[0], 200)
    child.terminate()
    try:
        equal("no reader: the end", child.wait(30), 0)
    except subprocess.TimeoutExpired:
        check("no reader: the end", False)
        child.kill()
        child.wait()
    os.close(come)


if __name__ == "__main__":
    for function in [one_line_each, no_words, nobody_reads]:
        part(function)
    finish()
