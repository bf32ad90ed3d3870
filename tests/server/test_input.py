#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Bad input over HTTP: every case has its status, the shape of OpenAI's errors, and a sentence that
names the field. What must be accepted although it looks odd is here too.
"""
import gzip
import json
import os
import re
import socket

from suite import ROOT, Server, check, equal, finish, part, request

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
TYPES = {400: "invalid_request_error", 401: "authentication_error", 403: "permission_error",
         404: "not_found_error", 405: "invalid_request_error", 408: "invalid_request_error",
         411: "invalid_request_error", 413: "invalid_request_error", 415: "invalid_request_error",
         417: "invalid_request_error", 431: "invalid_request_error", 501: "server_error", 505: "server_error"}
server = None


def refused(name, answer, status, word, param=None):
    """Status, shape and sentence of a refusal; param: the field that it names."""
    seen, headers, body = answer
    try:
        error = json.loads(body)["error"]
    except (ValueError, KeyError, TypeError):
        check(name, False, f"{seen} {body[:200]!r}")
        return
    why = ""
    if seen != status:
        why = f"status {seen}, not {status}"
    elif set(error) < {"message", "type", "param", "code"}:
        why = f"the members are {sorted(error)}"
    elif error["type"] != TYPES[status]:
        why = f"type {error['type']}"
    elif word not in error["message"]:
        why = f"'{word}' is not in it"
    elif param and error["param"] != param:
        why = f"param {error['param']!r}, not {param!r}"
    elif "\n" in error["message"] or len(error["message"]) > 600:
        why = "not one short sentence"
    elif not headers["content-type"].startswith("application/json"):
        why = headers["content-type"]
    elif status < 500 and status not in (408, 429) and headers.get("x-should-retry", "false") != "false":
        why = "clients have to try again"
    check(name, not why, f"{why}: {seen} {error}")


def chat(**fields):
    return {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 1, **fields}


def text(**fields):
    return {"prompt": "hi", "max_tokens": 1, **fields}


def fields():
    """Fields of the wrong kind or out of range; the parameter is the field itself."""
    bad = [
        ("temperature", ["0.5", -1, 1e9, True, [], {}]), ("top_p", ["x", -0.1, 1.5]), ("min_p", [2, "x"]),
        ("top_k", [1.5, "x", -2]), ("presence_penalty", ["x", 1000]), ("frequency_penalty", [[], -1000]),
        ("repetition_penalty", [0, -1, "x"]), ("max_tokens", ["x", 1.5, -2, True]),
        ("max_completion_tokens", ["5", -5]), ("seed", ["x", 1.5, []]), ("n", [0, -1, "x", 1.5, 100000]),
        ("stop", [5, {}, [1], [None, 3]]), ("stream", ["true", 1, []]), ("stream_options", [5, "x"]),
        ("logit_bias", [[5], [[5]], [[5, 1, 1]], [[-1, 1]], [["", 1]], [[5, True]], [[{}, 1]], [[5, 101]], "x", {"x": 1}, {"99999999": 1}, {"5": "x"}, {"5": 1000}, {"5": True}]), ("model", [5, {}]),
    ]
    for field, values in bad:
        for value in values:
            for path, make in ((CHAT, chat), (TEXT, text)):
                name = f"{path} {field} = {json.dumps(value)}"
                refused(name, request(server.port, "POST", path, make(**{field: value})), 400, field)
    one_sided = [(CHAT, chat, "logprobs", ["x", 1]), (CHAT, chat, "top_logprobs", [-1, 21, "x"]),
                 (TEXT, text, "logprobs", [-1, 21, "x", True]), (TEXT, text, "echo", ["x", 1]),
                 (TEXT, text, "suffix", ["tail"]), (TEXT, text, "best_of", [3]),
                 (CHAT, chat, "tools", [5, "x", [None], [{"type": "function"}]]),
                 (CHAT, chat, "response_format", [5, "json_object"]),
                 (CHAT, chat, "guided_json", [5, {"type": "string", "$dynamicRef": "#x"}]),
                 (CHAT, chat, "guided_regex", [5, "a(b"]), (CHAT, chat, "guided_grammar", [5, "root ::= ("]),
                 (TEXT, text, "guided_choice", [5, [3]]),
                 (CHAT, chat, "chat_template_kwargs", [5, []])]
    for path, make, field, values in one_sided:
        for value in values:
            body = make(**{field: value})
            if field == "top_logprobs":
                body["logprobs"] = True
            refused(f"{path} {field} = {json.dumps(value)}", request(server.port, "POST", path, body), 400,
                    field)
    refused("top_logprobs without logprobs",
            request(server.port, "POST", CHAT, chat(top_logprobs=2)), 400, "logprobs")


def messages():
    deep = "x"
    for _ in range(100):
        deep = [deep]
    cases = [
        (None, "messages"), ([], "messages"), ("hi", "messages"), ({}, "messages"), ([5], "messages[0]"),
        ([{}], "messages[0].role"), ([{"role": "king", "content": "x"}], "messages[0].role"),
        ([{"role": 5, "content": "x"}], "messages[0].role"), ([{"role": "user"}], "messages[0].content"),
        ([{"role": "user", "content": None}], "messages[0].content"),
        ([{"role": "user", "content": 5}], "messages[0].content"),
        ([{"role": "user", "content": deep}], "messages[0].content"),
        ([{"role": "user", "content": "a"}, {"role": "user", "content": {}}], "messages[1].content"),
        ([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}]}],
         "messages[0].content[0]"),
        ([{"role": "user", "content": [{"type": "text"}]}], "messages[0].content[0]"),
        ([{"role": "user", "content": [{"type": {}, "text": "x"}]}], "messages[0].content[0]"),
        ([{"role": "user", "content": [{"type": "text", "text": 5}]}], "messages[0].content[0]"),
        ([{"role": "assistant", "content": None, "tool_calls": [{"id": "x"}]}], "messages[0].tool_calls[0]"),
    ]
    for value, place in cases:
        body = {"messages": value, "max_tokens": 1} if value is not None else {"max_tokens": 1}
        refused(f"messages = {json.dumps(value)[:60]}", request(server.port, "POST", CHAT, body), 400, place)
    for value, word in [(None, "prompt"), (5, "prompt"), ([5.5], "prompt"), ([{}], "prompt"),
                        ([4096], "prompt"), ([-1], "prompt"), ([], "prompt"), ({}, "prompt")]:
        body = {"prompt": value, "max_tokens": 1} if value is not None else {"max_tokens": 1}
        refused(f"prompt = {json.dumps(value)}", request(server.port, "POST", TEXT, body), 400, word)


def documents():
    """Bodies that are no JSON, or not the JSON that is meant."""
    nested = b'{"messages":' + b"[" * 300 + b"]" * 300 + b"}"
    cases = [
        ("empty", b"", "JSON"), ("blank", b"  ", "JSON"), ("half", b'{"messages":[', ""),
        ("word", b"hello", "JSON"), ("array", b"[]", "object"), ("number", b"5", "object"),
        ("string", b'"x"', "object"), ("null", b"null", "object"),
        ("two values", b'{"prompt":"x"} {}', ""), ("comma", b'{"prompt":"x",}', ""),
        ("comment", b'{"prompt":"x"/* y */}', ""), ("single quotes", b"{'prompt':'x'}", ""),
        ("NaN", b'{"prompt":"x","temperature":NaN}', "byte 28"),
        ("Infinity", b'{"prompt":"x","temperature":Infinity}', "byte 28"),
        ("minus Infinity", b'{"prompt":"x","temperature":-Infinity}', ""),
        ("a number too large", b'{"prompt":"x","temperature":1e999}', ""),
        ("a leading zero", b'{"prompt":"x","seed":01}', ""), ("True", b'{"prompt":"x","echo":True}', ""),
        ("duplicate keys", b'{"prompt":"x","prompt":"y"}', "prompt"),
        ("duplicate keys inside", b'{"prompt":"x","logit_bias":{"5":1,"5":2}}', "5"),
        ("invalid UTF-8", b'{"prompt":"\xff\xfe"}', "UTF-8"), ("a surrogate in UTF-8", b'{"prompt":"\xed\xa0\x80"}',
                                                              "UTF-8"),
        ("overlong UTF-8", b'{"prompt":"\xc0\xaf"}', "UTF-8"),
        ("a raw control character", b'{"prompt":"a\x01b"}', ""),
        ("deep nesting", nested, ""), ("UTF-16", '{"prompt":"x"}'.encode("utf-16"), ""),
    ]
    for name, body, word in cases:
        refused(f"body: {name}", request(server.port, "POST", TEXT, body), 400, word)
    packed = gzip.compress(b'{"prompt":"x","max_tokens":1}')
    for path in (TEXT, "/v1/responses/input_tokens"):
        answer = request(server.port, "POST", path, packed, {"Content-Encoding": "gzip"})
        refused(f"body: packed, {path}", answer, 415, "gzip")
    answer = request(server.port, "POST", TEXT, b'\xef\xbb\xbf{"prompt":"x","max_tokens":1}')
    equal("body: a byte order mark before it", answer[0], 200)


def lengths():
    many = " ".join(["word"] * 20000)
    refused("a prompt beyond the context", request(server.port, "POST", TEXT, text(prompt=many)), 400, "4096")
    answer = request(server.port, "POST", CHAT, chat(messages=[{"role": "user", "content": many}]))
    refused("messages beyond the context", answer, 400, "4096")
    error = json.loads(answer[2])["error"]
    equal("their code", error["code"], "context_length_exceeded")
    check("their counts", error.get("n_prompt_tokens", 0) > 4096 and error.get("n_ctx") == 4096, error)
    refused("a model name of 100 KB", request(server.port, "POST", TEXT, text(model="m" * 100000)), 400, "model")
    refused("300 stop strings", request(server.port, "POST", TEXT, text(stop=["x"] * 300)), 400, "stop")
    refused("a stop string of 1 MB", request(server.port, "POST", TEXT, text(stop="x" * 1000000)), 400, "stop")
    refused("2,000 biases", request(server.port, "POST", TEXT,
                                    text(logit_bias={str(i): 1 for i in range(2000)})), 400, "logit_bias")
    refused("1,000 prompts", request(server.port, "POST", TEXT, text(prompt=["x"] * 1000)), 400, "prompt")


def raw(data, close=False):
    """What comes back for bytes that are no proper request; (status, headers, body)."""
    with socket.create_connection(("127.0.0.1", server.port), 20) as s:
        try:
            s.sendall(data)
            if close:
                s.shutdown(socket.SHUT_WR)
        except OSError:
            pass
        found = b""
        try:
            while True:
                piece = s.recv(65536)
                if not piece:
                    break
                found += piece
                head, gap, body = found.partition(b"\r\n\r\n")
                if gap and b"\r\ncontent-length: 0" not in head.lower() and len(body) >= length(head):
                    break
        except OSError:
            pass
    head, _, body = found.partition(b"\r\n\r\n")
    lines = head.decode("latin-1").split("\r\n")
    headers = {k.lower(): v.strip() for k, v in (line.split(":", 1) for line in lines[1:] if ":" in line)}
    return (int(lines[0].split()[1]) if found.startswith(b"HTTP/1.") else 0), headers, body


def length(head):
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return int(line[15:])
    return 1 << 60


def transport():
    post = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
    big = str(65 << 20).encode()
    cases = [
        ("headers over 64 KiB", b"GET /health HTTP/1.1\r\nHost: x\r\n" + b"A: " + b"x" * 70000 + b"\r\n\r\n", 431),
        ("many headers", b"GET /health HTTP/1.1\r\nHost: x\r\n" + b"A: 1234567890\r\n" * 6000 + b"\r\n", 431),
        ("a path over 64 KiB", b"GET /" + b"a" * 70000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", 431),
        ("a body over 64 MiB", post + b"Content-Length: " + big + b"\r\n\r\n", 413),
        ("the same, expecting 100", post + b"Expect: 100-continue\r\nContent-Length: " + big + b"\r\n\r\n", 413),
        ("a negative length", post + b"Content-Length: -5\r\n\r\n", 400),
        ("two lengths", post + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello", 400),
        ("length and chunks", post + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
        ("a bad chunk", post + b"Transfer-Encoding: chunked\r\n\r\nxyz\r\n", 400),
        ("an unknown coding", post + b"Transfer-Encoding: gzip\r\n\r\n", 501),
        ("no Host", b"GET /health HTTP/1.1\r\n\r\n", 400),
        ("a space before the colon", b"GET /health HTTP/1.1\r\nHost : x\r\n\r\n", 400),
        ("HTTP/3.0", b"GET /health HTTP/3.0\r\nHost: localhost\r\n\r\n", 505),
        ("no HTTP at all", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 hello\r\n\r\n", 400),
        ("an unknown expectation", post + b"Expect: tea\r\nContent-Length: 2\r\n\r\n{}", 417),
        ("a foreign host name", b"GET /v1/models HTTP/1.1\r\nHost: evil.example\r\n\r\n", 403),
        ("a page of another site", post + b"Sec-Fetch-Site: cross-site\r\nContent-Length: 2\r\n\r\n{}", 403),
    ]
    for name, data, status in cases:
        refused(f"transport: {name}", raw(data), status, "")
    with socket.create_connection(("127.0.0.1", server.port), 20) as s:
        s.sendall(post + b"Expect: 100-continue\r\nContent-Length: 30\r\nConnection: close\r\n\r\n")
        check("transport: 100-continue is sent", s.recv(1000).startswith(b"HTTP/1.1 100 "))
        s.sendall(b'{"prompt":"x","max_tokens": 1}')
        check("transport: and the answer follows", s.recv(1000).startswith(b"HTTP/1.1 200 "))


def until_closed(data):
    """All that comes for these bytes, after which the client sends no more, until the connection is closed."""
    with socket.create_connection(("127.0.0.1", server.port), 120) as s:
        s.sendall(data)
        s.shutdown(socket.SHUT_WR)
        found = b""
        while piece := s.recv(65536):
            found += piece
    return found


def bodies_are_no_requests():
    """An answer that is given before the body has been read ends the connection, and says so."""
    inner = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
    own = b"Content-Length: %d\r\n" % len(inner)
    for lines in [b"Content-Length: 99999999999999999999\r\n", b"Content-Length: 100000000\r\n", b"Expect: tea\r\n" + own,
                  own + b"Expect: tea\r\n", b"Expect: tea\r\nTransfer-Encoding: chunked\r\n",
                  b"Transfer-Encoding: gzip\r\n" + own, b"Transfer-Encoding: chunked, chunked\r\n",
                  b"Transfer-Encoding: chunked\r\n", b"Transfer-Encoding: chunked\r\n" + own, own + own, b"",
                  b"Content-Length: 4 4\r\n", b"Host: localhost\r\n" + own, b"A: b\r\n" * 200 + own,
                  b"Sec-Fetch-Site: cross-site\r\n" + own]:
        for method in (b"POST", b"PUT", b"PATCH", b"QUERY"):
            found = until_closed(method + b" /v1/tokenize HTTP/1.1\r\nHost: localhost\r\n" + lines + b"\r\n" + inner)
            answers = found.count(b"HTTP/1.1 ") - found.count(b"HTTP/1.1 100 ")  # a sign of life for half a close
            ok = answers == 1 and b"\r\nConnection: close\r\n" in found
            check(f"no request in a body: {method} {lines[:60]}", ok, found)


def paths():
    port = server.port
    for method, path, status in [("GET", CHAT, 405), ("DELETE", TEXT, 405), ("PUT", "/v1/models", 405),
                                 ("POST", "/health", 405), ("GET", "/v1/nothing", 404), ("POST", "/v2/x", 404),
                                 ("GET", "/v1/models/no-such-model", 404), ("GET", "/../etc/passwd", 404),
                                 ("GET", "/v1/models/%00", 400), ("PATCH", CHAT, 405)]:
        answer = request(port, method, path, b"{}" if method != "GET" else None)
        refused(f"{method} {path}", answer, status, "")
        if status == 405:
            check(f"{method} {path}: Allow", "allow" in answer[1], answer[1])
    for method, path, allowed in [("POST", "/v1/responses/resp_0", "GET, HEAD, DELETE, OPTIONS"), ("PUT", CHAT, "POST, OPTIONS"),
                                  ("POST", "/health", "GET, HEAD, OPTIONS")]:
        status, headers, answer = request(port, method, path, b"{}")
        equal(f"{method} {path}: all that is allowed", (status, headers.get("allow")), (405, allowed))
        check(f"{method} {path}: and the sentence", allowed.removesuffix(", OPTIONS") in json.loads(answer)["error"]["message"], answer)
    for method, path, status in [("GET", "/", 200), ("HEAD", "/", 200), ("GET", "/health", 200),
                                 ("GET", "/v1/models", 200), ("GET", "/v1/models?x=y", 200), ("GET", "/props", 200), ("GET", "/tokenizer_info", 200),
                                 ("GET", "/slots", 200), ("GET", "/metrics", 200), ("GET", "/api/v0/models", 200),
                                 ("OPTIONS", CHAT, 204)]:
        equal(f"{method} {path}", request(port, method, path)[0], status)


def allowed():
    """OPTIONS names the methods of each path of the document, those of a refusal are the same, and a preflight too."""
    with open(os.path.join(ROOT, "docs/openapi.json"), encoding="utf-8") as file:
        found = {re.sub(r"\{.*?\}", "x", path): set(of) for path, of in json.load(file)["paths"].items()}
    guarded = Server("--cors", "http://a.example")
    asked = {"Origin": "http://a.example", "Access-Control-Request-Method": "POST"}
    for path, of in found.items():
        want = {m.upper() for m in of} | ({"HEAD"} if "get" in of else set())
        status, headers, _ = request(guarded.port, "OPTIONS", path, headers=asked)
        equal(f"allowed: {path}", (status, set(headers["allow"].split(", "))), (204, want | {"OPTIONS"}))
        equal(f"allowed: {path}, preflight", set(headers["access-control-allow-methods"].split(", ")), want)
        equal(f"allowed: {path}, refused", request(guarded.port, "PATCH", path, b"{}")[1].get("allow"), headers["allow"])
        if "get" not in of:
            equal(f"allowed: HEAD {path}", request(guarded.port, "HEAD", path)[0], 405)
    refused("allowed: nothing there", request(guarded.port, "OPTIONS", "/v1/nothing"), 404, "nothing")
    guarded.end()


def keys():
    guarded = Server("--api-key", "open sesame")
    for name, headers in [("none", {}), ("wrong", {"Authorization": "Bearer x"}), ("empty", {"Authorization": "Bearer "}),
                          ("a prefix", {"Authorization": "Bearer open"}), ("longer", {"x-api-key": "open sesame!"}),
                          ("another scheme", {"Authorization": "Basic open sesame"})]:
        refused(f"key: {name}", request(guarded.port, "GET", "/v1/models", headers=headers), 401, "key")
    for headers in ({"Authorization": "Bearer open sesame"}, {"x-api-key": "open sesame"},
                    {"authorization": "bearer open sesame"}):
        equal(f"key: {headers}", request(guarded.port, "GET", "/v1/models", headers=headers)[0], 200)
    equal("key: none for /health", request(guarded.port, "GET", "/health")[0], 200)
    check("key: not in the output", "sesame" not in guarded.output(), guarded.output())
    equal("key: the server ends", guarded.end(), 0)


def accepted():
    """What looks odd and is fine: null for absent, unknown fields, any model name, big bodies."""
    optional = ["temperature", "top_p", "top_k", "min_p", "seed", "stop", "n", "stream", "stream_options", "logprobs",
                "top_logprobs", "logit_bias", "presence_penalty", "frequency_penalty", "user", "metadata", "tools",
                "tool_choice", "response_format", "max_completion_tokens", "functions", "reasoning_effort",
                "parallel_tool_calls", "store", "service_tier", "model", "chat_template_kwargs"]
    cases = [
        ("null in every optional field", CHAT, chat(**dict.fromkeys(optional))),
        ("null in every optional field", TEXT, text(**dict.fromkeys(optional + ["echo", "suffix", "best_of"]))),
        ("unknown fields", CHAT, chat(store=True, metadata={"a": "b"}, user="u", service_tier="auto",
                                      safety_identifier="x", verbosity="low", whatever=[{"deep": [1, 2]}])),
        ("any model name", CHAT, chat(model="gpt-4o-mini")),
        ("a developer message", CHAT, chat(messages=[{"role": "developer", "content": "be brief"},
                                                     {"role": "user", "content": "hi"}])),
        ("parts", CHAT, chat(messages=[{"role": "user", "content": [{"type": "text", "text": "a"},
                                                                    {"type": "text", "text": "b"}]}])),
        ("an old tool call", CHAT, chat(messages=[
            {"role": "user", "content": "x"},
            {"role": "assistant", "content": None, "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{\"a\":1}"}}]},
            {"role": "tool", "tool_call_id": "c1", "content": "42"}])),
        *((f"a call with the arguments {given!r}", CHAT, chat(messages=[
            {"role": "user", "content": "x"},
            {"role": "assistant", "content": None, "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "f", "arguments": given}}]},
            {"role": "tool", "tool_call_id": "c1", "content": "42"}])) for given in ("{\"a\": \"cut o", "", " ", "[1]", "5")),
        ("tools with tool_choice none", CHAT, chat(tool_choice="none", tools=[
            {"type": "function", "function": {"name": "f", "parameters": {}}}])),
        ("token ids", TEXT, text(prompt=[1, 2, 3])), ("lists of token ids", TEXT, text(prompt=[[1, 2], [3]])),
        ("max_tokens beyond the context", TEXT, text(max_tokens=1000000, stop=["e", " ", "\n"])),
        ("200 levels", TEXT, text(metadata=json.loads("[" * 200 + "]" * 200))),
        ("1 MB of an unknown field", TEXT, text(whatever="x" * 1000000)),
        ("an emoji and a NUL", TEXT, text(prompt="\U0001f600 a\u0000b")),
        ("temperature as an integer", TEXT, text(temperature=1)), ("seed beyond 2^53", TEXT, text(seed=2**63 - 1)),
        ("response_format text", CHAT, chat(response_format={"type": "text"})),
    ]
    for name, path, body in cases:
        status, _, answer = request(server.port, "POST", path, body)
        check(f"accepted: {name}", status == 200, f"{status} {answer[:300]!r}")
        if status == 200 and body.get("model"):
            equal("accepted: the model's name comes back", json.loads(answer)["model"], body["model"])
    chunked = (b"POST /v1/completions?beta=true HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
               b"Transfer-Encoding: chunked\r\n\r\n")
    body = json.dumps(text()).encode()
    for i in range(0, len(body), 7):
        chunked += b"%x;ext=1\r\n%s\r\n" % (len(body[i:i + 7]), body[i:i + 7])
    equal("accepted: a chunked body and a query", raw(chunked + b"0\r\nTrailer: x\r\n\r\n")[0], 200)


def ids():
    """Results of tools whose ids match nothing, in each dialect: 400 in its own shape, with the place and the id."""
    result = {"type": "function_call_output", "call_id": "lost", "output": "42"}
    cases = [
        ("chat", CHAT, chat(messages=[
            {"role": "user", "content": "x"},
            {"role": "assistant", "content": None, "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]},
            {"role": "tool", "tool_call_id": "lost", "content": "42"}]), "messages"),
        ("chat, before its call", CHAT, chat(messages=[
            {"role": "tool", "tool_call_id": "lost", "content": "42"},
            {"role": "assistant", "content": None, "tool_calls": [
                {"id": "lost", "type": "function", "function": {"name": "f", "arguments": "{}"}}]},
            {"role": "user", "content": "x"}]), "messages"),
        ("messages", "/v1/messages", {"max_tokens": 4, "messages": [
            {"role": "user", "content": "x"},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "f", "input": {}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "lost", "content": "42"}]}]}, "messages"),
        ("count_tokens", "/v1/messages/count_tokens", {"messages": [
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "lost", "content": "42"}]}]}, "messages"),
        ("responses", "/v1/responses", {"input": [{"role": "user", "content": "x"}, result], "store": False}, "input"),
        ("input_tokens", "/v1/responses/input_tokens", {"input": [result]}, "input"),
    ]
    for name, path, body, place in cases:
        status, headers, answer = request(server.port, "POST", path, body)
        value = json.loads(answer)
        why = value.get("error", {})
        equal(f"ids, {name}: status", status, 400)
        words = ("unexpected `tool_use_id` found in `tool_result` blocks: lost;" if path.startswith("/v1/messages")
                 else f"No tool call found for function call output with call_id lost in {place}:")
        check(f"ids, {name}: the words that clients look for, and the field", words in why.get("message", "") and
              place in why["message"], value)
        equal(f"ids, {name}: its shape", (value.get("type"), why.get("type")),
              ("error" if path.startswith("/v1/messages") else None, "invalid_request_error"))
        equal(f"ids, {name}: no use to try again", headers.get("x-should-retry"), "false")
    for name, properties, words in [("f>g", {}, "the name of a tool, 'f>g'"), ("f\n", {}, "the name of a tool"),
                                    ("f", {"a>b": {"type": "string"}}, "the parameter 'a>b' of 'f'")]:
        tool = {"type": "function", "function": {"name": name, "parameters": {
            "type": "object", "properties": properties, "required": [*properties]}}}
        refused(f"tools: {name!r} with {[*properties]}",
                request(server.port, "POST", CHAT, chat(tools=[tool], tool_choice="required")), 400, words)
    status, _, _ = request(server.port, "POST", CHAT, chat(messages=[
        {"role": "user", "content": "x"}, {"role": "tool", "content": "without an id"}]))
    equal("ids: none at all is fine", status, 200)


def large_results():
    """A tool's result of 10 MB: one sentence, and no memory stays in use."""
    big, call = "words of a file " * (10 << 16), {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    before = server.memory()
    for path, body in ((CHAT, chat(messages=[{"role": "user", "content": "x"},
                                             {"role": "assistant", "content": None, "tool_calls": [call]},
                                             {"role": "tool", "tool_call_id": "c", "content": big}])),
                       ("/v1/responses", {"input": [{"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
                                                    {"type": "function_call_output", "call_id": "c", "output": big}]})):
        status, _, answer = request(server.port, "POST", path, body)
        error = json.loads(answer)["error"]
        equal(f"10 MB to {path}", (status, error["code"]), (400, "context_length_exceeded"))
    check("10 MB: memory", server.memory() - before < 600 << 20, server.memory() - before)


def nothing_shown():
    """What users write reaches neither the log nor other answers."""
    secret = "xylophone-" + os.urandom(4).hex()
    for path, body in [(TEXT, text(prompt=secret)), (CHAT, chat(messages=[{"role": "user", "content": secret}])),
                       (TEXT, text(prompt=secret, temperature="bad"))]:
        request(server.port, "POST", path, body)
    status, _, body = request(server.port, "POST", TEXT, text(prompt="Hello", max_tokens=50))
    check("no text of another user", status == 200 and secret.encode() not in body, body)
    check("no prompt in the log", secret not in server.output(), server.output()[-500:])
    for path in ("/slots", "/metrics", "/props"):
        check(f"no prompt in {path}", secret.encode() not in request(server.port, "GET", path)[2])


if __name__ == "__main__":
    server = Server()
    for function in [fields, messages, documents, lengths, transport, bodies_are_no_requests, paths, allowed, keys, accepted, ids, large_results, nothing_shown]:
        part(function)
    equal("the server is well", server.health(), 200)
    equal("and ends in order", server.end(), 0)
    finish()
